"""Differences between two sides, their intervals over pairs, and verdicts that swapping the sides mirrors.

A difference is the logarithm of a ratio, with the sign that makes it positive where HEAD is worse, so that twice as
slow and twice as fast lie equally far from 0. Within a pair of processes it is the Hodges-Lehmann location over rounds
that ran next to each other. Rounds of one process are not independent of each other, pairs of fresh processes are: the
interval is Student's over pairs, with a variance to which the other tests contribute.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import TypeAlias

from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.paired.protocol import Times
from llm_bench_fixtures.paired.shrinkage import NO_PRIOR, Spread, moderated, prior_of, spread_of
from llm_bench_fixtures.results.metrics import METRICS, Direction, Metric

JUDGED: tuple[Metric, ...] = tuple(
    metric
    for metric in METRICS
    if metric.name in Times.__struct_fields__  # what is known of each round
)
LEAST_PAIRS = 3  # for an interval that means anything
POWER = 0.95  # with which a change is to be found that counts as resolvable


@dataclass(frozen=True)
class Measurand:
    """What is compared: one metric of one test."""

    test: str
    metric: str


@dataclass(frozen=True)
class Estimate:
    """The mean difference with its interval, as logarithms.

    deviation: between pairs, as all tests together tell it. p: of as much difference, on either side, where there is
    none.
    """

    mean: float
    low: float
    high: float
    deviation: float
    p: float
    pairs: int


@dataclass(frozen=True)
class Finding:
    """estimate: None for fewer than three pairs, which leave everything inconclusive."""

    verdict: Verdict
    estimate: Estimate | None


Differences: TypeAlias = Mapping[Measurand, Sequence[float]]  # one a pair


def pair_difference(metric: Metric, rows: Sequence[tuple[Times, Times]]) -> float | None:
    """Location over the rounds of one pair of log(HEAD / BASE), positive where HEAD is worse.

    rows: BASE's and HEAD's round next to each other. None where there is none, or where a round lacks the metric.
    """
    worse = 1 if metric.direction is Direction.LOWER_IS_BETTER else -1
    logs = [(_log(base, metric), _log(head, metric)) for base, head in rows]
    known = [worse * (head - base) for base, head in logs if base is not None and head is not None]
    return hodges_lehmann(known) if known and len(known) == len(logs) else None


def hodges_lehmann(values: Sequence[float]) -> float:
    """The median of the means of all pairs of values, each with itself too (Hodges and Lehmann 1963).

    Almost as sharp as the mean where values are normal, and nearly untouched by a few that are far off; where they lie
    in two heaps, as times to the first token do, it doesn't jump from one to the other as the median does.
    """
    return statistics.median((one + other) / 2 for one, other in combinations_with_replacement(values, 2))


def _log(times: Times, metric: Metric) -> float | None:
    value: float | None = getattr(times, metric.name)
    return math.log(value) if value else None


def estimate(differences: Sequence[float], alpha: float, prior: Spread = NO_PRIOR) -> Estimate | None:
    """The mean with Student's interval at confidence 1 - alpha; None for fewer than three pairs.

    prior: what the variance is expected to be before these are seen.
    """
    count = len(differences)
    if count < LEAST_PAIRS:
        return None
    from scipy.special import stdtr

    mean = statistics.fmean(differences)
    spread = moderated(spread_of(differences), prior)
    deviation = math.sqrt(spread.variance)
    error = deviation / math.sqrt(count)
    margin = student_margin(error, spread.freedom, alpha)
    p = 2 * float(stdtr(spread.freedom, -abs(mean) / error)) if error else float(mean == 0)
    return Estimate(mean, mean - margin, mean + margin, deviation, p, count)


def student_margin(error: float, freedom: float, alpha: float) -> float:
    """Half the width of Student's interval at confidence 1 - alpha. error: the standard error of the mean."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 1 - alpha / 2)) * error


def judge(
    differences: Differences, threshold: float, alpha: float, false_discoveries: float
) -> dict[Measurand, Finding]:
    """A verdict on each measurand. threshold: the share by which something may get worse, such as 0.03.

    regressed: the difference isn't 0 at the level alpha, nor with the false discovery rate over all of them held to
    `false_discoveries` (Benjamini and Hochberg 1995), HEAD is worse, and the interval isn't below the threshold
    altogether. improved: the same, mirrored. unchanged: the interval lies within the threshold on both sides.
    inconclusive: none of these.
    """
    priors = _priors(differences)
    estimates = {
        measurand: estimate(values, alpha, priors[measurand.metric]) for measurand, values in differences.items()
    }
    p_values = {measurand: known.p for measurand, known in estimates.items() if known}
    found = {one for one in _discoveries(p_values, false_discoveries) if p_values[one] <= alpha}
    limit = math.log1p(threshold)
    return {
        measurand: Finding(_verdict(known, limit, is_found=measurand in found), known)
        for measurand, known in estimates.items()
    }


def _priors(differences: Differences) -> Mapping[str, Spread]:
    """By metric, what the pairs of any test scatter by."""
    spreads: dict[str, list[Spread]] = defaultdict(list)
    for measurand, values in differences.items():
        spreads[measurand.metric] += [spread_of(values)] if len(values) >= LEAST_PAIRS else []
    return {metric: prior_of(known) for metric, known in spreads.items()}


def _verdict(known: Estimate | None, limit: float, *, is_found: bool) -> Verdict:
    if known is None:
        return Verdict.INCONCLUSIVE
    if -limit < known.low and known.high < limit:
        return Verdict.UNCHANGED
    if is_found and known.mean > 0 and known.high >= limit:
        return Verdict.REGRESSED
    if is_found and known.mean < 0 and known.low <= -limit:
        return Verdict.IMPROVED
    return Verdict.INCONCLUSIVE


def _discoveries(p_values: Mapping[Measurand, float], false_discoveries: float) -> set[Measurand]:
    """Those that are no chance findings, with a share of at most `false_discoveries` of them wrong on average."""
    if not p_values:
        return set()
    from scipy.stats import false_discovery_control

    adjusted = false_discovery_control(list(p_values.values()), method="bh")
    return {measurand for measurand, p in zip(p_values, adjusted, strict=True) if p <= false_discoveries}


def resolvable(deviation: float, pairs: int, alpha: float) -> float:
    """The smallest change, as a share, that so many pairs tell from none with 95 % probability.

    deviation: between pairs, of the logarithms. The usual (t of the test + t of the power) x standard error, with
    Student's quantiles; the same change is the smallest threshold under which no change is found to be none.
    Infinite for fewer than three pairs.
    """
    if pairs < LEAST_PAIRS:
        return math.inf
    error, freedom = deviation / math.sqrt(pairs), pairs - 1
    of_power = student_margin(error, freedom, 2 * (1 - POWER))  # one-sided
    return math.expm1(student_margin(error, freedom, alpha) + of_power)


def pooled_deviation(groups: Sequence[Sequence[float]]) -> float | None:
    """The standard deviation within groups that may differ in their means; None where none has two values."""
    known = [group for group in groups if len(group) > 1]
    freedom = sum(len(group) - 1 for group in known)
    if not freedom:
        return None
    return math.sqrt(sum(statistics.variance(group) * (len(group) - 1) for group in known) / freedom)
