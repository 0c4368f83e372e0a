"""Variances that tests lend each other: few pairs say little of how far one test's pairs scatter, many tests say more.

Empirical Bayes after Smyth (2004), "Linear models and empirical Bayes methods for assessing differential expression in
microarray experiments": the tests' true variances are taken to be drawn from one scaled inverse chi-squared
distribution, whose two parameters are estimated from all of them. Where the tests scatter alike, each test's variance
is drawn to the common one and counts as if it came from more pairs; where they don't, each keeps its own. As in Phipson
and others (2016), "Robust hyperparameter estimation protects against hypervariable genes", a test that scatters more
than the others borrows the less the less likely that is, so that it isn't taken to be as steady as they are.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_TESTS = 3  # to tell how alike their variances are
# A prior counts for at most so many times a test's own degrees of freedom: the tests of a pair share its two processes,
# so that all of them together say less than as many that are independent; and a test that scatters more than it seems
# mustn't lean on the others alone.
MOST_BORROWED = 1
LIKEST, UNLIKEST = 1e6, 1e-6  # halves of the prior's degrees of freedom between which they are looked for


@dataclass(frozen=True)
class Spread:
    """A variance, and how many degrees of freedom it rests on; 0 for one that says nothing."""

    variance: float
    freedom: float


NO_PRIOR = Spread(0.0, 0.0)


def spread_of(values: Sequence[float]) -> Spread:
    """values: two or more."""
    return Spread(statistics.variance(values), len(values) - 1)


def moderated(own: Spread, prior: Spread) -> Spread:
    """The mean of both, each by its degrees of freedom, which add up.

    The prior's are multiplied by the probability of a variance as large as the test's own under it, doubled and at
    most 1: what is larger than half of those to be expected counts as more and more of an exception.
    """
    if not prior.freedom:
        return own
    from scipy.special import fdtrc

    likeness = min(2 * float(fdtrc(own.freedom, prior.freedom, own.variance / prior.variance)), 1.0)
    borrowed = min(likeness * prior.freedom, MOST_BORROWED * own.freedom)
    freedom = own.freedom + borrowed
    return Spread((own.freedom * own.variance + borrowed * prior.variance) / freedom, freedom)


def prior_of(spreads: Sequence[Spread]) -> Spread:
    """What a test's variance is expected to be before it is seen. Rests on no more than all tests have together.

    log(variance) has the expectation and, beyond what the prior adds, the variance of log(chi²/d): digamma(d/2) -
    log(d/2) and trigamma(d/2). What the tests' logarithms scatter by beyond that is the prior's own trigamma.
    """
    from scipy.special import polygamma, psi

    known = [one for one in spreads if one.variance]
    if len(known) < LEAST_TESTS:
        return NO_PRIOR
    logs = [math.log(one.variance) - float(psi(one.freedom / 2)) + math.log(one.freedom / 2) for one in known]
    excess = statistics.variance(logs) - statistics.fmean(float(polygamma(1, one.freedom / 2)) for one in known)
    half = inverse_trigamma(excess)
    variance = math.exp(statistics.fmean(logs) + float(psi(half)) - math.log(half))
    return Spread(variance, min(2 * half, sum(one.freedom for one in known)))


def inverse_trigamma(value: float) -> float:
    """The x whose trigamma is the value, between UNLIKEST and LIKEST; the latter where nothing is left to explain."""
    from scipy.optimize import brentq
    from scipy.special import polygamma

    def beyond(half: float) -> float:
        return float(polygamma(1, half)) - value

    if beyond(LIKEST) >= 0:
        return LIKEST
    return float(brentq(beyond, UNLIKEST, LIKEST))
