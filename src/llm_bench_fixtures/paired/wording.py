"""Differences, durations and tests in the words of a paired run."""

from __future__ import annotations

import math

from llm_bench_fixtures.paired.statistics import JUDGED, Comparison, Estimate
from llm_bench_fixtures.results.metrics import Direction

DIRECTIONS = {metric.name: metric.direction for metric in JUDGED}


def percent_text(share: float) -> str:
    """With its sign and one digit after the point: 0.0312 is "+3.1 %"."""
    return f"{round(share * 100, 1) + 0.0:+.1f} %"  # no "-0.0"


def change_texts(comparison: Comparison, found: Estimate) -> tuple[str, str]:
    """How HEAD's metric differs from BASE's, and the interval of that: higher throughputs are "+"."""
    sign = 1 if DIRECTIONS[comparison.metric] is Direction.LOWER_IS_BETTER else -1
    mean, *ends = (percent_text(math.expm1(sign * value)) for value in (found.mean, found.low, found.high))
    low, high = ends[::sign]
    return mean, f"{low} to {high}"


def change_text(comparison: Comparison, found: Estimate) -> str:
    """Both in one."""
    mean, interval = change_texts(comparison, found)
    return f"{mean} ({interval})"


def duration_text(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def short_name(test: str) -> str:
    """The test without its folders."""
    return test.rpartition("/")[2]
