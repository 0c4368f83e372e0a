"""A run that pytest-xdist distributes measures nothing, as other tests run at the same time, and says so."""

from __future__ import annotations

from typing import Any

import pytest

from llm_bench_fixtures.plugin.gating import HAS_BENCHMARKS
from llm_bench_fixtures.plugin.stash import is_xdist_worker

HAS_BENCHMARKS_KEY = "llm_bench_has_benchmarks"
IN_WORKERS: pytest.StashKey[bool] = pytest.StashKey()  # whether any worker had tests of a variant
NOTHING_MEASURED = (
    "llm-bench: no times and no report, as pytest-xdist runs tests at the same time: run the benchmarks without -n"
)


def tell_controller(config: pytest.Config) -> None:
    """From a worker, which ends: whether it had tests of a variant."""
    if is_xdist_worker(config):
        config.workeroutput[HAS_BENCHMARKS_KEY] = config.stash.get(HAS_BENCHMARKS, False)  # type: ignore[attr-defined]


def hear_worker(node: Any) -> None:
    """In the controller: what the worker told, if it could."""
    if getattr(node, "workeroutput", {}).get(HAS_BENCHMARKS_KEY):
        node.config.stash[IN_WORKERS] = True


def distributed_lines(config: pytest.Config) -> list[str]:
    """What the summary says of it."""
    return [NOTHING_MEASURED] if IN_WORKERS in config.stash else []
