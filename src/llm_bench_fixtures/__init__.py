"""A pytest plugin and a ready benchmark suite for language-model text generation."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`read_results` and `read_run`, imported once asked for: the plugin is loaded by runs that never do."""
    if name in ("read_results", "read_run"):
        from llm_bench_fixtures.results import storage

        return getattr(storage, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
