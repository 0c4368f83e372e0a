"""The answers under every quality limit that would change who may be recommended.

The variants that keep a limit change only where it passes the strictest bound that one of them keeps. So there are
few different answers, and all of them can be computed beforehand by the rules of answers.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from llm_bench_fixtures.options.quality_limit import QualityLimit, QualityMeasure
from llm_bench_fixtures.report.answers import Answer, answer_of
from llm_bench_fixtures.report.evidence import Evidence
from llm_bench_fixtures.report.quality import QualityStandings
from llm_bench_fixtures.results.record import Status

LEAST_DIGITS, MOST_DIGITS = 3, 6  # after the point of a bound
TITLES = {
    QualityMeasure.PPL_RATIO: "by perplexity",
    QualityMeasure.TOP1_AGREEMENT: "by agreement on the likeliest token (top-1)",
}


@dataclass(frozen=True)
class LimitStep:
    """A limit, and the answer under it. Others that let the same variants through have the same picks."""

    answer: Answer
    asks: str
    """The limit in words: "perplexity at most 1 % above fp32's"."""
    keeps: tuple[str, ...]
    """The variants that are shown to keep it, without the reference and what ran the same."""

    @property
    def limit(self) -> QualityLimit:
        return self.answer.limit

    @property
    def words(self) -> str:
        return f"{self.asks}: kept by {', '.join(self.keeps) or 'no other variant'}"


@dataclass(frozen=True)
class LimitScale:
    """All steps of one measure of quality, the strictest first."""

    measure: QualityMeasure
    steps: tuple[LimitStep, ...]

    @property
    def title(self) -> str:
        return TITLES[self.measure]

    def place(self, limit: QualityLimit) -> int:
        """The index of the step that the limit is."""
        return next((place for place, step in enumerate(self.steps) if step.limit == limit), 0)


def limit_scales(seen: Evidence, answer: Answer) -> tuple[LimitScale, ...]:
    """A scale for each measure that some variant was measured by, that of the answer's own limit first.

    The answer is a step of it. Empty where no limit would change who may be recommended.
    """
    measures = sorted(QualityMeasure, key=lambda measure: measure is not answer.limit.measure)
    scales = (LimitScale(measure, tuple(_steps(seen, measure, answer))) for measure in measures)
    found = tuple(scale for scale in scales if scale.steps)
    return found if any(len(scale.steps) > 1 for scale in found) else ()


def _steps(seen: Evidence, measure: QualityMeasure, answer: Answer) -> Iterator[LimitStep]:
    """Nothing where no variant was measured by it."""
    if not QualityStandings(seen.run, QualityLimit(measure, 1.0)).is_applied:
        return
    for bound in bounds(_strictest(seen, measure), measure, answer.limit):
        limit = QualityLimit(measure, bound)
        answered = answer if limit == answer.limit else answer_of(seen, limit)
        yield LimitStep(answered, limit.words(seen.run.reference), tuple(_keeping(seen, limit)))


def _strictest(seen: Evidence, measure: QualityMeasure) -> list[float]:
    """The strictest bounds that the variants keep."""
    standings = QualityStandings(seen.run, QualityLimit(measure, 1.0))
    measured = (variant for variant in seen.run.variants if variant.status is Status.MEASURED)
    return [bound for variant in measured if (bound := standings.strictest(variant)) is not None]


def _keeping(seen: Evidence, limit: QualityLimit) -> Iterator[str]:
    standings = QualityStandings(seen.run, limit)
    for variant in seen.run.variants:
        if variant.status is Status.MEASURED and standings.strictest(variant) is not None and standings.admits(variant):
            yield variant.id


def bounds(strictest: Sequence[float], measure: QualityMeasure, given: QualityLimit) -> list[float]:
    """The bound of each step, from the strictest that may be asked for to that which the last variant keeps.

    strictest: the bounds that variants keep at the least; they are rounded, but not so far that another variant keeps
    them. The given limit takes the place of the bound that lets the same variants through.
    """
    is_share = measure is QualityMeasure.TOP1_AGREEMENT
    passed = {bound for bound in strictest if (0 < bound < 1 if is_share else 1 < bound < math.inf)}
    exact = [1.0, *sorted(passed, reverse=is_share)]
    ends = [*exact[1:], 0.0 if is_share else math.inf]
    found = [_rounded(*pair, math.floor if is_share else math.ceil) for pair in zip(exact, ends, strict=True)]
    if given.measure is measure:
        inside = [bound >= given.bound if is_share else bound <= given.bound for bound in exact]
        found[sum(inside) - 1] = given.bound
    return found


def _rounded(bound: float, end: float, direction: Callable[[float], int]) -> float:
    """The bound with as few digits as keep it on its side of `end`, the next step's."""
    for digits in range(LEAST_DIGITS, MOST_DIGITS + 1):
        size = float(10**digits)
        found = direction(bound * size) / size
        if min(bound, end) < found < max(bound, end) or found == bound:
            return found
    return bound
