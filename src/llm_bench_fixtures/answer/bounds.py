"""The bounds of a quality limit that change who keeps it.

The variants that keep a limit change only where it passes the strictest bound that one of them keeps. So there are
few different answers, and all of them can be computed beforehand by the same rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from llm_bench_fixtures.answer.intervals import quality_estimate
from llm_bench_fixtures.answer.need import Limit, QualityMeasure
from llm_bench_fixtures.answer.noise import ran_the_same
from llm_bench_fixtures.results.record import Run, Status
from llm_bench_fixtures.statistics.spread import Estimate

LEAST_DIGITS, MOST_DIGITS = 3, 6  # after the point of a bound


def estimates_of(run: Run, measure: QualityMeasure) -> dict[str, Estimate]:
    """Estimate of each variant that has the measure, without the reference and what ran the same, which keep every
    limit."""
    others = [one for one in run.variants if not ran_the_same(run, one.id, run.reference)]
    found = {one.id: quality_estimate(one.quality, measure) for one in others if one.status is Status.MEASURED}
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
