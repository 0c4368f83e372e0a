"""How far an absolute time may differ between two runs by chance.

Only the median latency has a measured noise: how far identical work differs within each run, and how far the rounds of
the test scatter. It says nothing of a mean, a percentile or the first `generate`, which a single outlier moves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from llm_bench_fixtures.gate.rules import Rule
from llm_bench_fixtures.gate.speedups import ALARMS
from llm_bench_fixtures.results.metrics import Force, Kind, Metric
from llm_bench_fixtures.results.noise import NoiseFloor
from llm_bench_fixtures.statistics.ratio import trimmed_mean

OF_MEDIAN = ("latency_s", "output_tokens_per_s", "ms_per_token")  # the median latency, and its multiples


def has_own_noise(metric: Metric) -> bool:
    """Whether the metric's margin was measured on itself. Timings other than the median have none."""
    return metric.kind is not Kind.TIMING or metric.name in (*OF_MEDIAN, "speedup")


@dataclass(frozen=True)
class TimingNoise:
    """What two runs tell of the noise of their times."""

    floors: tuple[NoiseFloor, NoiseFloor]
    tests: int
    """How many tests are compared: the chance of a false alarm is for all of them together."""

    @property
    def floor(self) -> NoiseFloor:
        """The smaller one."""
        return min(self.floors, key=lambda floor: floor.log_ratio)

    def margin(self, metric: Metric, rule: Rule, base_s: Sequence[float] = (), head_s: Sequence[float] = ()) -> float:
        """A log ratio up to which two values can't be told apart; infinite where nothing is known of their noise.

        base_s, head_s: the rounds of the test. A rule that blocks was asked for: it goes by the smaller floor alone, so
        that a run whose times fly apart excuses nothing. What is only told has to leave the larger floor, and Welch's
        interval of the rounds' log-latencies, at ALARMS over all tests (Bonferroni).
        """
        if metric.kind is not Kind.TIMING:
            return 0.0
        if rule.force is Force.BLOCKING:
            return self.floor.log_ratio
        if metric.name not in OF_MEDIAN:
            return math.inf
        confidence = 1 - ALARMS / max(self.tests, 1)
        return max(*(floor.log_ratio for floor in self.floors), _welch_margin(base_s, head_s, confidence))


def _welch_margin(base_s: Sequence[float], head_s: Sequence[float], confidence: float) -> float:
    if min(len(base_s), len(head_s)) < 2:
        return math.inf
    base, head = (trimmed_mean([math.log(seconds) for seconds in rounds_s], share=0.0) for rounds_s in (base_s, head_s))
    return head.minus(base).margin(confidence)
