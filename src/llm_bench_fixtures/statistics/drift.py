"""What a comparison drifts by between cases: a machine's state changes within minutes, and slows some work more.

Pairs of rounds within a case share the state of some seconds, so their scatter doesn't show it. Cases of like work show
it: what their ratios differ by beyond their own standard errors is the variance between cases of a random-effects
model, by the method of moments (DerSimonian and Laird, Controlled Clinical Trials 7, 1986).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import StatisticsError, fmean, linear_regression

from llm_bench_fixtures.statistics.ratio import LogRatio
from llm_bench_fixtures.statistics.shrinkage import NO_PRIOR, VarianceEstimate

LEAST_CASES = 6  # to tell drift from the work's own differences


def drift_between(cases: Sequence[LogRatio], sizes: Sequence[float]) -> VarianceEstimate:
    """Variance of one case's log ratio that its standard error doesn't hold; NO_PRIOR where there is none, or where
    fewer than LEAST_CASES tell.

    sizes: of each case's work. The ratio may grow or fall with it in a straight line, which is no drift.
    """
    if len(cases) < LEAST_CASES:
        return NO_PRIOR
    centres = [one.centre for one in cases]
    try:
        slope, start = linear_regression(sizes, centres)
    except StatisticsError:  # all of one size
        slope, start = 0.0, fmean(centres)
    freedom = len(cases) - 2
    squares = sum((centre - start - slope * size) ** 2 for centre, size in zip(centres, sizes, strict=True))
    excess = squares / freedom - fmean(one.standard_error**2 for one in cases)
    return VarianceEstimate(excess, freedom) if excess > 0 else NO_PRIOR
