"""Several log ratios as one: of the cases that one run measured, and of the same comparison in several runs.

Drift is how far a variant's speed-ups scatter between similar cases, beyond what their rounds show. A shared machine's
state lasts longer than a case, and slows some work more than other work. The pairs of rounds within a case share that
state, so their scatter doesn't show it. Similar cases show it: what they differ by beyond their standard errors is the
variance between cases of a random-effects model (DerSimonian and Laird, Controlled Clinical Trials 7, 1986).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from operator import itemgetter
from statistics import fmean

from llm_bench_fixtures.statistics.ratio import LogRatio
from llm_bench_fixtures.statistics.robust import bounded
from llm_bench_fixtures.statistics.shrinkage import LEAST_VARIANCE, NO_PRIOR, VarianceEstimate, shrink

LEAST_CASES = 9  # to tell drift: of seven residuals, three of which one slow test spoils, the median is of a sound one
FREEDOM_OF_NEIGHBOURS = 18 / 35  # degrees of freedom of one residual: it shares two of its three cases with the next
PROCESS_FREEDOM = 8.0  # degrees of freedom that the expected variance between processes counts for


def drift_between(cases: Sequence[LogRatio], sizes: Sequence[float]) -> VarianceEstimate | None:
    """Variance of one case's log ratio that its rounds don't show; None where fewer than LEAST_CASES tell.

    sizes: tokens of each case's prompt. How the ratio changes with them is no drift: decoding and prefill gain unlike
    amounts, and a longer prompt has more of the latter. So a case is held against the straight line, over the root of
    the size, between the cases before and after it, whatever curve all of them follow (Gasser, Sroka and
    Jennen-Steinmetz, Biometrika 73, 1986). Residuals are bounded: one test that really got slower doesn't make all
    others uncertain.
    """
    if len(cases) < LEAST_CASES:
        return None
    points = [(math.sqrt(size), one.centre) for size, one in zip(sizes, cases, strict=True)]
    points.sort(key=itemgetter(0))  # those of one size stay in their order
    residuals = bounded([_off_neighbours(*three) for three in zip(points, points[1:], points[2:], strict=False)])
    squares = fmean(one**2 for one in residuals)
    excess = squares - fmean(one.standard_error**2 + one.process_variance for one in cases)
    return VarianceEstimate(excess, len(residuals) * FREEDOM_OF_NEIGHBOURS) if excess > LEAST_VARIANCE else NO_PRIOR


def _off_neighbours(before: tuple[float, float], point: tuple[float, float], after: tuple[float, float]) -> float:
    """How far a point lies off the line between its neighbours, of the variance that a single point has."""
    share = (point[0] - before[0]) / (after[0] - before[0]) if before[0] < after[0] else 0.5
    off = point[1] - (1 - share) * before[1] - share * after[1]
    return off / math.sqrt(1 + (1 - share) ** 2 + share**2)


def mean_over_cases(ratios: Sequence[LogRatio]) -> LogRatio:
    """Mean of the cases' log ratios.

    The cases' rounds and drifts are taken as independent of each other. The drifts' variance is one estimate, whose
    degrees of freedom count once. What the processes differ by counts once, since the same ones ran all of them. Raises
    ValueError for none.
    """
    centre = fmean(ratio.centre for ratio in ratios)
    rounds = reduce(VarianceEstimate.plus, [ratio.by_rounds for ratio in ratios])
    process_variance = max(ratio.process_variance for ratio in ratios)
    drift_variance = sum(ratio.drift.variance for ratio in ratios) / len(ratios) ** 2
    drift = VarianceEstimate(drift_variance, max(ratio.drift.freedom for ratio in ratios))
    return LogRatio(centre, math.sqrt(rounds.variance) / len(ratios), rounds.freedom, process_variance, drift)


def mean_over_runs(ratios: Sequence[LogRatio]) -> LogRatio:
    """One comparison measured in several runs: a random-effects mean. A single run stays as it is.

    A run differs from the next by what its rounds and drift tell and by `process_variance`, which is known beforehand.
    Each is weighted by the inverse of their sum. How far apart the runs came out corrects the variance of the mean, by
    the factor of Hartung and Knapp (Statistics in Medicine 20, 2001), Σ w (y - mean)² / (k - 1), which never makes it
    smaller (Knapp and Hartung, Statistics in Medicine 22, 2003): agreement by luck narrows nothing.

    Alone, that factor has k - 1 degrees of freedom: for two runs Student's interval would be 13 standard errors wide.
    So it is drawn toward 1, which is expected, as variances between pairs are (`shrink`). Runs that agree as well as
    expected give an interval narrower than one run's by about the root of k; the less likely their distance is by
    chance, the less counts but the k - 1 degrees of freedom. Raises ValueError for none.
    """
    if len(ratios) == 1 or not any(map(_variance, ratios)):  # one run, or the reference over itself
        return ratios[0]
    weights = [1 / max(_variance(one), LEAST_VARIANCE) for one in ratios]
    mean, own = _distance(ratios, weights)
    factor = shrink(own, VarianceEstimate(1.0, _expected_freedom(ratios, weights)))
    return LogRatio(mean, math.sqrt(max(factor.variance, 1.0) / sum(weights)), factor.freedom)


def chance_of_distance(ratios: Sequence[LogRatio]) -> float:
    """How likely runs that differ only as expected come out as far apart as these, or farther; an F test. 1 for one."""
    if len(ratios) == 1:
        return 1.0
    from scipy.special import fdtrc

    weights = [1 / max(_variance(one), LEAST_VARIANCE) for one in ratios]
    _, own = _distance(ratios, weights)
    return float(fdtrc(own.freedom, _expected_freedom(ratios, weights), own.variance))


def _variance(ratio: LogRatio) -> float:
    """Variance by which a run's ratio is expected to differ from the next run's."""
    return ratio.estimate.variance + ratio.process_variance


def _distance(ratios: Sequence[LogRatio], weights: Sequence[float]) -> tuple[float, VarianceEstimate]:
    """The weighted mean, and how many times as far apart the runs are as expected, squared."""
    mean = sum(weight * one.centre for weight, one in zip(weights, ratios, strict=True)) / sum(weights)
    squares = (weight * (one.centre - mean) ** 2 for weight, one in zip(weights, ratios, strict=True))
    return mean, VarianceEstimate(sum(squares) / (len(ratios) - 1), len(ratios) - 1)


def _expected_freedom(ratios: Sequence[LogRatio], weights: Sequence[float]) -> float:
    """Welch and Satterthwaite's, of the mean's expected variance. What processes differ by is one estimate for all."""
    known = [one.estimate for one in ratios]
    rounds = [weight**2 * one.variance for weight, one in zip(weights, known, strict=True)]
    processes = sum(weight**2 * one.process_variance for weight, one in zip(weights, ratios, strict=True))
    parts = sum(part**2 / one.freedom for part, one in zip(rounds, known, strict=True))
    parts += processes**2 / PROCESS_FREEDOM
    return (sum(rounds) + processes) ** 2 / parts if parts else sum(one.freedom for one in known)
