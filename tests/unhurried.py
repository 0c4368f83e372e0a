"""A plugin for runs next to other tests, for whose end a round that needs a core to itself would wait."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

# Of pytest, in a process of its own that has `environment`. Importing Hypothesis takes a second.
OPTIONS = ("-p", "unhurried", "-p", "no:hypothesispytest")


def environment() -> Mapping[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}


def pytest_configure() -> None:
    from llm_bench_fixtures.session.setup import Setup

    Setup.busy_cores = 0  # type: ignore[assignment,method-assign]
