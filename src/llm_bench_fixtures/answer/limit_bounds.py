"""The bounds of a quality limit that change who keeps it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from llm_bench_fixtures.answer.intervals import interval_of
from llm_bench_fixtures.answer.need import Limit, QualityMeasure
from llm_bench_fixtures.answer.noise import ran_the_same
from llm_bench_fixtures.results.record import Run, Status, VariantResult

LEAST_DIGITS, MOST_DIGITS = 3, 6  # after the point of a bound


def strictest_bounds(run: Run, measure: QualityMeasure) -> list[float]:
    """The strictest bounds that the variants keep."""
    measured = (variant for variant in run.variants if variant.status is Status.MEASURED)
    return [bound for variant in measured if (bound := strictest_bound(run, variant, measure)) is not None]


def strictest_bound(run: Run, variant: VariantResult, measure: QualityMeasure) -> float | None:
    """The strictest bound that the variant keeps; None where it keeps every one, or none at all."""
    found = None if ran_the_same(run, variant.id, run.reference) else interval_of(variant, measure)
    if found is None:
        return None
    return found.low if measure is QualityMeasure.TOP1_AGREEMENT else found.high


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
        ends_apart = (
            (stricter > given.bound > looser) if is_share else (stricter < given.bound < looser)
        )  # once rounded
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
