"""Several log ratios as one: of the cases that one run measured, and of the same comparison in several runs.

Drift is how far a variant's speed-ups scatter between similar cases, beyond what their rounds show. A shared machine's
state lasts longer than a case, and slows some work more than other work. The pairs of rounds within a case share that
state, so their scatter doesn't show it. Similar cases show it: what they differ by beyond their standard errors is the
variance between cases of a random-effects model, by the method of moments (DerSimonian and Laird, Controlled Clinical
Trials 7, 1986). Both the line through the cases (Theil and Sen) and their variance are robust: one test that really got
slower doesn't make all others uncertain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from itertools import combinations
from statistics import fmean, median

from llm_bench_fixtures.statistics.ratio import LogRatio
from llm_bench_fixtures.statistics.robust import robust_deviation
from llm_bench_fixtures.statistics.shrinkage import LEAST_VARIANCE, NO_PRIOR, VarianceEstimate, shrink

LEAST_CASES = 8  # to tell drift; of six, robust deviations come out too small
MOST_POINTS = 200  # that tell the line through the cases: it goes by all pairs of them
FAR = 3.0  # robust deviations: a case farther off the line counts as one at this distance
PROCESS_FREEDOM = 8.0  # degrees of freedom that the expected variance between processes counts for


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


def mean_over_cases(ratios: Sequence[LogRatio]) -> LogRatio:
    """Mean of the cases' log ratios.

    The cases' rounds and drifts are taken as independent of each other. The drifts' variance is one estimate, whose
    degrees of freedom count once. What the processes differ by counts once, since the same ones ran all of them. Raises
    ValueError for none.
    """
    centre = fmean(ratio.centre for ratio in ratios)
    rounds = reduce(VarianceEstimate.plus, [ratio.by_rounds for ratio in ratios])
    process_variance = max(ratio.process_variance for ratio in ratios)
    drift = VarianceEstimate(
        sum(ratio.drift.variance for ratio in ratios) / len(ratios) ** 2, max(ratio.drift.freedom for ratio in ratios)
    )
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
