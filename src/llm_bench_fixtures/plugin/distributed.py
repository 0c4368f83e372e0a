"""A run that pytest-xdist distributes measures nothing, as other tests run at the same time, and says so."""

from __future__ import annotations

import pytest

from llm_bench_fixtures.plugin.gating import HAS_BENCHMARKS
from llm_bench_fixtures.plugin.hooks import HAS_BENCHMARKS_KEY
from llm_bench_fixtures.plugin.stash import is_xdist_worker

IN_WORKERS: pytest.StashKey[bool] = pytest.StashKey()  # whether any worker had tests of a variant
NOTHING_MEASURED = (
    "llm-bench: no times and no report, as pytest-xdist runs tests at the same time: run the benchmarks without -n"
)


def tell_controller(config: pytest.Config) -> None:
    """From a worker, which ends: that it had tests of a variant, if it had any."""
    if is_xdist_worker(config) and HAS_BENCHMARKS in config.stash:
        config.workeroutput[HAS_BENCHMARKS_KEY] = True  # type: ignore[attr-defined]


def distributed_lines(config: pytest.Config) -> list[str]:
    """What the summary says of it."""
    return [NOTHING_MEASURED] if IN_WORKERS in config.stash else []
