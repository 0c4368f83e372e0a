"""How much slower the machine was in one run than in another, by the probes of both."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from llm_bench_fixtures.results.noise import probe_level_s

Probe: TypeAlias = Sequence[tuple[float, float]]  # seconds of both kinds of work, for each round


def machine_slowdown(head_probe_s: Probe, base_probe_s: Probe) -> float | None:
    """How many times as long the same work took when `head` was measured as when `base` was.

    head's seconds divided by it are what they would be at base's speed of the machine, as far as the two kinds of work
    stand for the model's. None where either has no probe.
    """
    head_s, base_s = probe_level_s(head_probe_s), probe_level_s(base_probe_s)
    return head_s / base_s if head_s and base_s else None


def mean_slowdown(probes: Iterable[tuple[Probe, Probe]]) -> float | None:
    """Geometric mean over the tests that have the probe on both sides; None where there is none. probes: of each test,
    those of the run and those of the baseline."""
    found = [machine_slowdown(now_s, before_s) for now_s, before_s in probes]
    known = [slowdown for slowdown in found if slowdown is not None]
    return statistics.geometric_mean(known) if known else None
