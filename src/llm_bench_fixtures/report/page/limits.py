"""The answers under every quality limit that would change who may be recommended.

The variants that keep a limit change only where it passes the strictest bound that one of them keeps. So there are
few different answers, and all of them can be computed beforehand by the same rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.answer.intervals import interval_of
from llm_bench_fixtures.answer.need import Limit, QualityMeasure, Standing, quality_limit
from llm_bench_fixtures.answer.noise import ran_the_same
from llm_bench_fixtures.report.words.answer import Answer, answer_of
from llm_bench_fixtures.results.record import Run, Status
from llm_bench_fixtures.statistics.spread import Interval

TITLES = {
    QualityMeasure.PPL_RATIO: "by perplexity",
    QualityMeasure.TOP1_AGREEMENT: "by agreement on the likeliest token (top-1)",
}
LEAST_DIGITS, MOST_DIGITS = 3, 6  # after the point of a bound


@dataclass(frozen=True)
class LimitStep:
    """A limit, and the answer under it. Others that let the same variants through have the same picks."""

    answer: Answer
    limit: Limit
    words: str
    """The limit, and the variants that are shown to keep it, without the reference and what ran the same: "perplexity
    at most 1 % above fp32's: kept by bf16"."""


@dataclass(frozen=True)
class LimitScale:
    """All steps of one measure of quality, the strictest first."""

    measure: QualityMeasure
    steps: tuple[LimitStep, ...]

    @property
    def title(self) -> str:
        return TITLES[self.measure]

    def place(self, limit: Limit) -> int:
        """The index of the step that the limit is."""
        return next((place for place, step in enumerate(self.steps) if step.limit == limit), 0)


def limit_scales(seen: Evidence, answer: Answer) -> tuple[LimitScale, ...]:
    """A scale for each measure that some variant was measured by, that of the answer's own limit first.

    The answer is a step of it. Empty where no limit would change who may be recommended, and where none was asked for.
    """
    given = answer.need.quality
    if given is None:
        return ()
    measures = sorted(QualityMeasure, key=lambda measure: measure != given.name)
    scales = (LimitScale(measure, tuple(_steps(seen, measure, answer, given))) for measure in measures)
    found = tuple(scale for scale in scales if scale.steps)
    return found if any(len(scale.steps) > 1 for scale in found) else ()


def _steps(seen: Evidence, measure: QualityMeasure, answer: Answer, given: Limit) -> Iterator[LimitStep]:
    """Nothing where no variant was measured by it."""
    found = intervals_of(seen.run, measure)
    strictest = [one.low if measure is QualityMeasure.TOP1_AGREEMENT else one.high for one in found.values()]
    for bound in bounds(strictest, measure, given) if found else ():
        limit = quality_limit(measure, bound)
        answered = answer if limit == given else answer_of(seen, answer.need.with_quality(limit))
        keeps = [name for name, one in found.items() if limit.standing_of(one) is Standing.WITHIN]
        kept = f"kept by {', '.join(keeps) or 'no other variant'}"
        yield LimitStep(answered, limit, f"{limit.words(seen.run.reference)}: {kept}")


def intervals_of(run: Run, measure: QualityMeasure) -> dict[str, Interval]:
    """Interval of each variant that has the measure, without the reference and what ran the same, which keep every
    limit."""
    others = [one for one in run.variants if not ran_the_same(run, one.id, run.reference)]
    found = {one.id: interval_of(one, measure) for one in others if one.status is Status.MEASURED}
    return {name: one for name, one in found.items() if one is not None}


def bounds(strictest: Sequence[float], measure: QualityMeasure, given: Limit) -> list[float]:
    """The bound of each step, from the strictest that may be asked for to that which the last variant keeps.

    strictest: the bounds that variants keep at the least; they are rounded, but not so far that another variant keeps
    them. The given limit takes the place of the bound that lets the same variants through; where it is the strictest or
    the loosest, one that is half or twice as far from 1 stands beyond it, so that a reader sees that nothing changes.
    """
    is_share = measure is QualityMeasure.TOP1_AGREEMENT
    passed = {bound for bound in strictest if (0 < bound < 1 if is_share else 1 < bound < math.inf)}
    exact = [1.0, *sorted(passed, reverse=is_share)]
    ends = [*exact[1:], 0.0 if is_share else math.inf]
    found = [_rounded(*pair, math.floor if is_share else math.ceil) for pair in zip(exact, ends, strict=True)]
    if given.name == measure:
        inside = [bound >= given.bound if is_share else bound <= given.bound for bound in exact]
        found[sum(inside) - 1] = given.bound
        stricter, looser = (round(1 + (given.bound - 1) * share, MOST_DIGITS) for share in (0.5, 2.0))
        is_first, is_last = (given.bound == found[place] and len(found) > 1 for place in (0, -1))
        ends_apart = min(stricter, looser) < given.bound < max(stricter, looser)  # once rounded
        before = [stricter] if is_first and ends_apart and stricter != 1.0 else []
        after = [looser] if is_last and ends_apart and looser > 0 else []
        return [*before, *found, *after]
    return found


def _rounded(bound: float, end: float, direction: Callable[[float], int]) -> float:
    """The bound with as few digits as keep it on its side of `end`, the next step's."""
    for digits in range(LEAST_DIGITS, MOST_DIGITS + 1):
        size = float(10**digits)
        found = direction(bound * size) / size
        if min(bound, end) < found < max(bound, end) or found == bound:
            return found
    return bound
