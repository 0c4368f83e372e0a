"""Variance shrinkage: each comparison's variance between pairs is drawn toward what the variances of all suggest.

A few pairs say little about the variance of one comparison; the variances of many say more. This is empirical Bayes
after Smyth (2004), "Linear models and empirical Bayes methods for assessing differential expression in microarray
experiments": the true variances are assumed to come from one scaled inverse chi-squared distribution, the prior, whose
two parameters are estimated from all comparisons. If their variances are alike, the prior has many degrees of freedom,
and each variance counts as if it came from more pairs. If they differ, each comparison keeps its own.

An unusually large variance is shrunk less toward the prior, as in Phipson and others (2016), "Robust
hyperparameter estimation protects against hypervariable genes".
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from llm_bench_fixtures.statistics.spread import variance

LEAST_COMPARISONS = 3  # to tell how alike their variances are
LEAST_VARIANCE = 1e-12  # below it nothing is told: pairs that agree to a millionth agree by the ticks of their clock
SHARED_BY_COMPARISONS = 0.25  # correlation of two comparisons' variances
MOST_HALF_FREEDOM, LEAST_HALF_FREEDOM = 1e6, 1e-6  # bounds of half the prior's degrees of freedom


@dataclass(frozen=True)
class VarianceEstimate:
    variance: float
    freedom: float
    """Degrees of freedom; 0 if the estimate says nothing."""

    def plus(self, other: VarianceEstimate) -> VarianceEstimate:
        """Variance of the sum of two independent values, with the degrees of freedom of Welch and Satterthwaite."""
        variance = self.variance + other.variance
        parts = sum(one.variance**2 / one.freedom for one in (self, other) if one.variance)
        return VarianceEstimate(variance, variance**2 / parts if parts else self.freedom + other.freedom)


NO_PRIOR = VarianceEstimate(0.0, 0.0)


def variance_of(values: Sequence[float]) -> VarianceEstimate:
    """values: two or more."""
    return VarianceEstimate(variance(values), len(values) - 1)


def shrink(own: VarianceEstimate, prior: VarianceEstimate, most_borrowed: float = math.inf) -> VarianceEstimate:
    """The mean of both variances weighted by their degrees of freedom, with the sum of these.

    most_borrowed: times its own degrees of freedom, which the prior counts for at most.

    The prior's degrees of freedom are first multiplied by min(1, 2 p), where p is the probability of a variance as
    large as its own under the prior: a variance above the prior's median counts the less the rarer it is.
    """
    if not prior.freedom:
        return own
    from scipy.special import fdtrc

    likeness = min(2 * float(fdtrc(own.freedom, prior.freedom, own.variance / prior.variance)), 1.0)
    borrowed = min(likeness * prior.freedom, most_borrowed * own.freedom)
    freedom = own.freedom + borrowed
    return VarianceEstimate((own.freedom * own.variance + borrowed * prior.variance) / freedom, freedom)


def estimate_prior(variances: Iterable[VarianceEstimate]) -> VarianceEstimate:
    """Expectation of a variance before it is seen; with at most the degrees of freedom of all together.

    The logarithm of a variance estimate with d degrees of freedom has the mean log(true) + digamma(d/2) - log(d/2) and
    the variance trigamma(d/2). What the logarithms vary by beyond that is the prior's own trigamma.
    """
    known = [one for one in variances if one.variance >= LEAST_VARIANCE]
    if len(known) < LEAST_COMPARISONS:
        return NO_PRIOR
    from scipy.special import polygamma, psi

    logs = [math.log(one.variance) - float(psi(one.freedom / 2)) + math.log(one.freedom / 2) for one in known]
    excess = statistics.variance(logs) - statistics.fmean(float(polygamma(1, one.freedom / 2)) for one in known)
    half = inverse_trigamma(excess)
    variance = math.exp(statistics.fmean(logs) + float(psi(half)) - math.log(half))
    return VarianceEstimate(variance, min(2 * half, sum(one.freedom for one in known)))


def mean_variance(variances: Collection[VarianceEstimate]) -> VarianceEstimate:
    """One variance of a case's comparisons, one or more, which share the reference's rounds.

    Where both sides of a pair scatter alike, two comparisons' logarithms correlate by a half, and their variances by
    the square of that, a quarter. So many count for fewer degrees of freedom than they have.
    """
    freedom = sum(one.freedom for one in variances)
    mean = sum(one.variance * one.freedom for one in variances) / freedom
    return VarianceEstimate(mean, freedom / (1 + (len(variances) - 1) * SHARED_BY_COMPARISONS))


def expected_beside(others: Collection[VarianceEstimate], prior: VarianceEstimate) -> VarianceEstimate:
    """Expected variance of a comparison, by those of the case's other comparisons. prior: by the run's other cases."""
    return shrink(mean_variance(others), prior) if others else prior


def inverse_trigamma(value: float) -> float:
    """The x with trigamma(x) = value, from LEAST_HALF_FREEDOM to MOST_HALF_FREEDOM.

    MOST_HALF_FREEDOM if the value is smaller than its trigamma, also for 0 and below.
    """
    from scipy.optimize import brentq
    from scipy.special import polygamma

    def excess(half: float) -> float:
        return float(polygamma(1, half)) - value

    if excess(MOST_HALF_FREEDOM) >= 0:
        return MOST_HALF_FREEDOM
    return float(brentq(excess, LEAST_HALF_FREEDOM, MOST_HALF_FREEDOM))
