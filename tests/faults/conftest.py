"""Runs of the plugin, for the faults that only a run can show."""

from __future__ import annotations

from pytester_bench import (  # noqa: F401  # pytest finds fixtures by their names in a conftest.py
    bench,
    bench_cache,
    imported_libraries,
    own_suite,
    pictures,
    plot_settings,
    short_corpus,
)
