"""Whether one value is worse than another, in numbers only."""

from __future__ import annotations

import math
from enum import StrEnum

from llm_bench_fixtures.results.metrics import Direction, Tolerance

ROUNDING = 1e-12  # relative: a change of exactly the tolerance passes


class Verdict(StrEnum):
    """Verdict on a value, compared with the baseline's."""

    REGRESSED = "regressed"
    SLIGHTLY_WORSE = "slightly worse"  # found by many measurements, and by less than the threshold
    IMPROVED = "improved"
    SLIGHTLY_BETTER = "slightly better"
    UNCHANGED = "unchanged"
    INCONCLUSIVE = "inconclusive"
    NEW = "new"
    VANISHED = "vanished"
    NOT_MEASURED = "not measured"


WORSE = (Verdict.REGRESSED, Verdict.SLIGHTLY_WORSE)
BETTER = (Verdict.IMPROVED, Verdict.SLIGHTLY_BETTER)


def judge(direction: Direction, rule: Tolerance, base: float, head: float, margin: float = 0.0) -> Verdict:
    """The verdict on two values that are both there. margin: a log ratio up to which they can't be told apart.

    |log(head / base)| is compared with log(1 + tolerance), so that swapping the two values mirrors the verdict. Where a
    metric has no better or worse, any change beyond the tolerance is a regression.
    """
    size = abs(log_ratio(base, head))
    if size <= math.log1p(rule.relative) + ROUNDING or abs(head - base) <= rule.absolute * (1 + ROUNDING):
        return Verdict.UNCHANGED
    excused = rule.floor is None or size <= math.log1p(rule.floor) + ROUNDING
    if size <= margin + ROUNDING and excused:
        return Verdict.INCONCLUSIVE
    if direction is Direction.NEITHER or is_worse(direction, base, head):
        return Verdict.REGRESSED
    return Verdict.IMPROVED


def is_worse(direction: Direction, base: float, head: float) -> bool:
    """Whether `head` is worse than `base`. Where the direction is neither, less is taken for better."""
    return head < base if direction is Direction.HIGHER_IS_BETTER else head > base


def log_ratio(base: float, head: float) -> float:
    """log(head / base): 0 where the two are equal, infinite where one of them is 0 or only one is negative.

    Two negative values have the log ratio of their sizes, with the sign of head - base.
    """
    if base == head:
        return 0.0
    if base == 0 or head == 0 or (base < 0) != (head < 0):
        return math.copysign(math.inf, head - base)
    return math.copysign(math.log(abs(head)) - math.log(abs(base)), head - base)
