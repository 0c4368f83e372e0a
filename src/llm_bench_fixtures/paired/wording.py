"""How differences, durations and tests are written in what a paired run shows."""

from __future__ import annotations

import math

from llm_bench_fixtures.paired.statistics import Estimate, Measurand
from llm_bench_fixtures.paired.tree import Group
from llm_bench_fixtures.results.formatting import format_change
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME, Direction

PHASES = {"latency_s": "whole rounds", "ttft_s": "prefill", "tpot_s": "decode", "decode_tokens_per_s": "whole decode"}


def difference_texts(measurand: Measurand | Group, found: Estimate) -> tuple[str, str]:
    """How HEAD's metric differs from BASE's, and the interval of that; "+" if HEAD's value is higher."""
    sign = 1 if METRIC_BY_NAME[measurand.metric].direction is Direction.LOWER_IS_BETTER else -1
    mean, *ends = (format_change(math.exp(sign * value)) for value in (found.mean, found.low, found.high))
    low, high = ends[::sign]
    return mean, f"{low} to {high}"


def difference_text(measurand: Measurand, found: Estimate) -> str:
    """The difference with its interval in parentheses."""
    mean, interval = difference_texts(measurand, found)
    return f"{mean} ({interval})"


def group_name(group: Group) -> str:
    """What the group's tests have in common."""
    return f"{PHASES[group.metric]} of {group.variant or 'all variants'}"


def duration_text(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def short_name(test: str) -> str:
    """The test without its folders."""
    return test.rpartition("/")[2]
