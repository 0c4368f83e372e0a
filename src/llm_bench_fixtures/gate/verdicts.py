"""Whether one value is worse than another; and the judgement of one metric: the two values, the rule that applies, and
the verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from llm_bench_fixtures.results.metrics import Direction, Force, Metric, Tolerance, Unit

ROUNDING = 1e-12  # relative: a change of exactly the tolerance passes
CLOCKED = (Unit.SECONDS, Unit.MILLISECONDS_PER_TOKEN, Unit.TOKENS_PER_SECOND)  # units that a slow machine changes
LARGEST_LOG_RATIO = math.log(1e30)  # beyond it, one of the two is as good as 0
WIDEST = math.log(10)  # half-width of an interval; a wider one says nothing


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


def judge_change(direction: Direction, rule: Tolerance, base: float, head: float, margin: float = 0.0) -> Verdict:
    """The verdict on two values that are both there. margin: a log ratio up to which they can't be told apart.

    |log(head / base)| is compared with log(1 + tolerance), so that swapping the two values mirrors the verdict. Where a
    metric has no better or worse, any change beyond the tolerance is a regression.
    """
    size = abs(log_change(base, head))
    if size <= math.log1p(rule.relative) + ROUNDING or abs(head - base) <= rule.absolute * (1 + ROUNDING):
        return Verdict.UNCHANGED
    excused = rule.floor is None or size <= math.log1p(rule.floor) + ROUNDING
    if size <= margin + ROUNDING and excused:
        return Verdict.INCONCLUSIVE
    is_worse = head < base if direction is Direction.HIGHER_IS_BETTER else head > base
    return Verdict.REGRESSED if is_worse or direction is Direction.NEITHER else Verdict.IMPROVED


def log_change(base: float, head: float) -> float:
    """log(head / base): 0 where the two are equal, infinite where one of them is 0 or only one is negative.

    Two negative values have the log ratio of their sizes, with the sign of head - base.
    """
    if base == head:
        return 0.0
    if base == 0 or head == 0 or (base < 0) != (head < 0):
        return math.copysign(math.inf, head - base)
    return math.copysign(math.log(abs(head)) - math.log(abs(base)), head - base)


@dataclass(frozen=True)
class Judgement:
    """One metric of one test, or of one variant where it is the same for all of its tests."""

    subject: str
    """The test's node id, or the variant's id."""
    metric: Metric
    rule: Tolerance
    verdict: Verdict
    base: float | None = None
    """The baseline's value; None where it has none."""
    head: float | None = None
    """The value that is judged; None where there is none."""
    slowdown: float = 1.0
    """How many times as slow the machine was for `head`, by the probe; 1 where it was not probed."""
    margin: float = 0.0
    """A log ratio within which the two values can't be told apart; infinite where none was measured on this metric."""
    reason: str = ""
    """Why the change was not judged, or why the value vanished."""
    is_of_other_sample: bool = False
    """Whether that is because the two runs had time to score samples of different sizes."""

    @property
    def is_blocking(self) -> bool:
        """Whether a regression here fails the gate."""
        return self.rule.force is Force.BLOCKING

    @property
    def raw_ratio(self) -> float | None:
        """Head / base; None where there is no such number."""
        return _ratio(self.base, self.head)

    @property
    def ratio(self) -> float | None:
        """Head / base, both at the baseline's speed of the machine: the change that is judged."""
        return _ratio(self.base, None if self.head is None else at_base_speed(self.head, self.metric, self.slowdown))

    @property
    def interval(self) -> tuple[float, float] | None:
        """Where `ratio` lies for all that the two runs tell; None where that isn't known, or the value is exact."""
        if self.ratio is None or self.verdict is Verdict.NOT_MEASURED or not 0 < self.margin <= WIDEST:
            return None
        return self.ratio * math.exp(-self.margin), self.ratio * math.exp(self.margin)


def _ratio(base: float | None, head: float | None) -> float | None:
    if base is None or head is None:
        return None
    ratio = log_change(base, head)
    return math.exp(ratio) if abs(ratio) <= LARGEST_LOG_RATIO else None


def at_base_speed(value: float, metric: Metric, slowdown: float) -> float:
    """Value as it would be on a machine as fast as the baseline's.

    slowdown: how many times as slow the machine was for this value, by the probe.
    """
    if metric.unit not in CLOCKED:
        return value
    return value * slowdown if metric.direction is Direction.HIGHER_IS_BETTER else value / slowdown
