"""Differences between two sides, their intervals over pairs, and verdicts that swapping the sides mirrors.

A difference is the logarithm of a ratio, with the sign that makes it positive if HEAD is worse, so that twice as slow
and twice as fast are equally far from 0. Within a pair of processes it is the Hodges-Lehmann location over rounds that
ran next to each other, and within a round over its batches or its decode steps. Rounds of one process are not
independent of each other, but pairs of fresh processes are. Therefore the interval is Student's over pairs, with a
variance that is shrunk toward those of the other tests.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.paired.protocol import Times
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME, METRICS, Direction, Metric
from llm_bench_fixtures.statistics.ratio import LEAST_PAIRS
from llm_bench_fixtures.statistics.robust import clip_outliers, hodges_lehmann
from llm_bench_fixtures.statistics.shrinkage import NO_PRIOR, VarianceEstimate, shrink, variance_of
from llm_bench_fixtures.statistics.spread import student_half_width

# What is known of each round.
JUDGED = tuple(metric for metric in METRICS if metric.name in Times.__struct_fields__)
# The prior counts for at most so many times a test's own degrees of freedom. All tests of a pair share its two
# processes, so together they say less than as many independent ones; and a test that varies more than its few pairs
# show must not rest on the others alone.
MOST_BORROWED = 1.0
# What a round's time consists of, each piece compared by itself, so that a disturbance strikes one piece and not all.
PIECES = {"ttft_s": "prefills_s", "tpot_s": "steps_s"}


@dataclass(frozen=True)
class Measurand:
    """Compared quantity: one metric of one test."""

    test: str
    """Node id."""
    metric: str
    """Name of the metric."""


@dataclass(frozen=True)
class PairedDifference:
    """The mean difference over pairs, with its interval; all but `freedom`, `p` and `pairs` are logarithms."""

    mean: float
    low: float
    """The interval's lower end."""
    high: float
    """The interval's upper end."""
    deviation: float
    """Standard deviation between pairs, shrunk toward that of all tests."""
    error: float
    """Standard error of the mean."""
    freedom: float
    """Degrees of freedom of both."""
    p: float
    """The probability of at least this difference, in either direction, between equal versions."""
    pairs: int

    def p_of(self, difference: float) -> float:
        """The probability that the mean lies at least as far from this difference, if it is the true one."""
        from scipy.special import stdtr

        apart = abs(self.mean - difference)
        return 2 * float(stdtr(self.freedom, -apart / self.error)) if self.error else float(apart == 0)


def ratios(metric: str, found: PairedDifference) -> tuple[float, float, float]:
    """HEAD's value over BASE's, and the ends of its interval."""
    ends = (found.mean, found.low, found.high)
    if METRIC_BY_NAME[metric].direction is not Direction.LOWER_IS_BETTER:
        ends = (-found.mean, -found.high, -found.low)
    mean, low, high = map(math.exp, ends)
    return mean, low, high


@dataclass(frozen=True)
class Finding:
    verdict: Verdict
    """One of regressed, slightly worse, improved, slightly better, unchanged and inconclusive."""
    estimate: PairedDifference | None
    """None for fewer than three pairs, after which every verdict is inconclusive."""
    is_of_group: bool = False
    """Whether the verdict is that of the test's group, which the test's own differences agree with."""


def pair_differences(
    rounds: Mapping[str, Sequence[tuple[Times, ...]]], prefills: Mapping[str, Sequence[tuple[Times, ...]]]
) -> dict[Measurand, float]:
    """Difference of each test in each metric that its rounds in one pair show.

    rounds, prefills: by test; prefills are rounds of one token, which add to the time to the first token.
    """
    found = {}
    for test, rows in rounds.items():
        for metric in JUDGED:
            more = prefills.get(test, ()) if metric.name == "ttft_s" else ()
            difference = pair_difference(metric, [*more, *rows])
            if difference is not None:
                found[Measurand(test, metric.name)] = difference
    return found


def pair_difference(metric: Metric, rows: Sequence[tuple[Times, ...]]) -> float | None:
    """The Hodges-Lehmann location of log(HEAD / BASE) over the rounds of one pair, positive if HEAD is worse.

    rows: of each round, BASE's and HEAD's times. None if there are no rounds, or if a round lacks the metric.
    """
    worse = 1 if metric.direction is Direction.LOWER_IS_BETTER else -1
    known = [value for base, head in rows if (value := _round_difference(metric, base, head)) is not None]
    return worse * hodges_lehmann(known) if known and len(known) == len(rows) else None


def _round_difference(metric: Metric, base: Times, head: Times) -> float | None:
    """log(HEAD / BASE) of one round: the location of its pieces' if it tells them."""
    pieces = PIECES.get(metric.name, "")
    of_base, of_head = getattr(base, pieces, ()), getattr(head, pieces, ())
    if of_base and len(of_base) == len(of_head) and min(*of_base, *of_head) > 0:
        both = zip(of_base, of_head, strict=True)
        return hodges_lehmann([math.log(after) - math.log(before) for before, after in both])
    before, after = getattr(base, metric.name), getattr(head, metric.name)
    return math.log(after) - math.log(before) if before and after else None


def estimate(
    differences: Sequence[float],
    alpha: float,
    prior: VarianceEstimate = NO_PRIOR,
    scale: float = 0.0,
    most_borrowed: float = MOST_BORROWED,
) -> PairedDifference | None:
    """The mean with Student's interval at confidence 1 - alpha; None for fewer than three pairs.

    prior: the variance that is expected before the differences are seen. scale: the standard deviation that is expected
    at least; values far beyond it count as less far (`clip_outliers`). most_borrowed: as for `shrink`.
    """
    count = len(differences)
    if count < LEAST_PAIRS:
        return None
    values, kept = clip_outliers(differences, scale)
    mean = statistics.fmean(values)
    variance = shrink(variance_of(values), prior, most_borrowed)
    deviation = math.sqrt(variance.variance)
    error = deviation / math.sqrt(count) / kept
    margin = student_half_width(error, variance.freedom, 1 - alpha)
    found = PairedDifference(mean, mean - margin, mean + margin, deviation, error, variance.freedom, 1.0, count)
    return replace(found, p=found.p_of(0.0))


def verdict_of(known: PairedDifference | None, limit: float, *, is_found: bool) -> Verdict:
    """limit: the logarithm of 1 + the threshold. is_found: whether the difference is significant.

    unchanged: the interval lies within the limit in both directions, whether or not it holds 0. regressed: a difference
    is found, and the estimate is worse by the limit or more. slightly worse: a difference is found, and the estimate is
    worse by less than the limit, which the interval reaches. improved and slightly better: the same, mirrored.
    inconclusive: none of these.
    """
    if known is None:
        return Verdict.INCONCLUSIVE
    if -limit < known.low and known.high < limit:
        return Verdict.UNCHANGED
    if is_found and known.mean > 0 and known.high >= limit:
        return Verdict.REGRESSED if known.mean >= limit else Verdict.SLIGHTLY_WORSE
    if is_found and known.mean < 0 and known.low <= -limit:
        return Verdict.IMPROVED if known.mean <= -limit else Verdict.SLIGHTLY_BETTER
    return Verdict.INCONCLUSIVE
