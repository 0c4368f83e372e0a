"""Drift: how far a variant's speed-ups scatter between similar cases, beyond what their rounds show.

A shared machine's state lasts longer than a case, and slows some work more than other work. The pairs of rounds within
a case share that state, so their scatter doesn't show it. Similar cases show it: what they differ by beyond their
standard errors is the variance between cases of a random-effects model, by the method of moments (DerSimonian and
Laird, Controlled Clinical Trials 7, 1986). Both the line through the cases (Theil and Sen) and their variance are
robust: one test that really got slower doesn't make all others uncertain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import fmean, median

from llm_bench_fixtures.statistics.ratio import LogRatio
from llm_bench_fixtures.statistics.robust import robust_deviation
from llm_bench_fixtures.statistics.shrinkage import LEAST_VARIANCE, NO_PRIOR, VarianceEstimate

LEAST_CASES = 8  # to tell drift; of six, robust deviations come out too small
MOST_POINTS = 200  # that tell the line: it goes by all pairs of them
FAR = 3.0  # robust deviations: a case farther off the line counts as one at this distance


def drift_between(cases: Sequence[LogRatio], sizes: Sequence[float]) -> VarianceEstimate | None:
    """Variance of one case's log ratio that its rounds don't show; None where fewer than LEAST_CASES tell.

    sizes: tokens of each case's prompt. The ratio may grow or fall with their root, which is no drift: a variant that
    reads weights faster gains less where the prompt takes more of the time. A straight line over the root fits a model
    of 0.5B parameters from 1 to 2,032 tokens.
    """
    if len(cases) < LEAST_CASES:
        return None
    points = sorted((math.sqrt(size), one.centre) for size, one in zip(sizes, cases, strict=True))
    pairs = combinations(points[:: math.ceil(len(points) / MOST_POINTS)], 2)
    slopes = [(later - earlier) / (more - less) for (less, earlier), (more, later) in pairs if less < more]
    slope = median(slopes or [0.0])
    rest = [centre - slope * root for root, centre in points]
    freedom = len(cases) - (2 if slopes else 1)
    middle, far = median(rest), FAR * robust_deviation(rest) * math.sqrt(len(rest) / freedom)
    squares = sum(min(abs(one - middle), far) ** 2 for one in rest)
    excess = squares / freedom - fmean(one.standard_error**2 + one.process_variance for one in cases)
    return VarianceEstimate(excess, freedom) if excess > LEAST_VARIANCE else NO_PRIOR
