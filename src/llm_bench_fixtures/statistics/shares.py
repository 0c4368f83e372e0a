"""Intervals of shares of independent trials."""

from __future__ import annotations

import math

from llm_bench_fixtures.statistics.spread import CONFIDENCE, NORMAL_95, Interval


def wilson(share: float, trials: float, deviations: float = NORMAL_95) -> Interval:
    """Wilson's score interval of a share of independent trials (JASA 22, 1927); without trials, the share."""
    if trials <= 0:
        return Interval(share, share)
    shift = deviations**2 / trials
    centre = (share + shift / 2) / (1 + shift)
    margin = deviations * math.sqrt(share * (1 - share) / trials + shift / (4 * trials)) / (1 + shift)
    low, high = min(centre - margin, share), max(centre + margin, share)  # rounding would leave 0 and 1 out
    return Interval(max(low, 0.0), min(high, 1.0))


def exact_interval(count: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share: Clopper and Pearson's, which covers it at least as often for every share.

    The low end is the share at which `count` or more have a probability of 2.5 %, the high end that at which `count` or
    fewer have. Both are quantiles of beta distributions. Source: C. J. Clopper and E. S. Pearson, "The use of
    confidence or fiducial limits illustrated in the case of the binomial", Biometrika 26 (1934).
    """
    from scipy.special import betaincinv

    low = float(betaincinv(count, of - count + 1, (1 - CONFIDENCE) / 2)) if count else 0.0
    high = float(betaincinv(count + 1, of - count, (1 + CONFIDENCE) / 2)) if count < of else 1.0
    return low, high
