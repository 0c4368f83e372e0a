"""Ratios of times that were measured in pairs: their robust centre, and how sure it is.

The centre is the 20 % trimmed mean of the pairs' log ratios, with the standard error of the Winsorized ones (Tukey and
McLaughlin, Sankhya A 25, 1963). A spike in one pair of five hardly moves it; of three or four, the one that lies far
off is left out where it is known how far pairs scatter. What happens in half of the pairs counts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from llm_bench_fixtures.statistics.shrinkage import NO_PRIOR, VarianceEstimate, shrink
from llm_bench_fixtures.statistics.spread import CONFIDENCE, LEAST_FOR_INTERVAL, Interval, student_half_width, variance

LEAST_PAIRS = LEAST_FOR_INTERVAL
FEWEST_PAIRS = 2  # where a run's other comparisons lead to expect their variance
TRIMMED = 0.2  # share of the values, on either side; none of fewer than five
ODD = 4.0  # expected standard deviations from the median, beyond which one of few pairs is odd
FREEDOM_FOR_ODD = 4.0  # least degrees of freedom of what is expected
MOST_MARGIN = 300.0  # a wider one says no less, and its exponential is no number
WIDE = 0.1  # relative half-width of an interval that is too wide to say that there is no difference
# Standard deviation of a process' log latencies on a workload, from run to run: processes of identical work differ, and
# a machine's drift moves one kind of work more than another.
PROCESS_DEVIATION = 0.01


@dataclass(frozen=True)
class LogRatio:
    """The centre of some logarithms of ratios, and how sure it is."""

    centre: float
    standard_error: float
    freedom: float
    """Degrees of freedom of Student's t, which needn't be whole."""
    process_variance: float = 0.0
    """Variance of each process' differences from run to run, which no number of rounds in one run shows."""
    drift: VarianceEstimate = NO_PRIOR
    """Variance of its drift between cases, which no number of rounds of one case shows."""

    def margin(self, confidence: float) -> float:
        """Half the width of the two-sided interval."""
        known = self.estimate
        beyond = statistics.NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(self.process_variance)
        return math.hypot(student_half_width(math.sqrt(known.variance), known.freedom, confidence), beyond)

    def margin_by_rounds(self, confidence: float) -> float:
        """The part of it that more rounds make smaller."""
        return student_half_width(self.standard_error, self.freedom, confidence)

    def minus(self, other: LogRatio) -> LogRatio:
        """The difference of two independent ones, with the degrees of freedom of Welch and Satterthwaite."""
        rounds = self.by_rounds.plus(other.by_rounds)
        beyond_rounds = self.process_variance + other.process_variance, self.drift.plus(other.drift)
        return LogRatio(self.centre - other.centre, math.sqrt(rounds.variance), rounds.freedom, *beyond_rounds)

    @property
    def by_rounds(self) -> VarianceEstimate:
        """Variance of the centre that rounds show."""
        return VarianceEstimate(self.standard_error**2, self.freedom)

    @property
    def estimate(self) -> VarianceEstimate:
        """Variance of the centre that its run shows."""
        return self.by_rounds.plus(self.drift)


@dataclass(frozen=True)
class Speedup(Interval):
    """How many times as fast a variant is as the reference, with its interval."""

    ratio: float
    """Above 1 where the variant is faster."""
    rounds: int
    """How many pairs of rounds were measured."""

    @property
    def is_faster(self) -> bool:
        """The whole interval is above 1."""
        return self.low > 1

    @property
    def is_slower(self) -> bool:
        """The whole interval is below 1."""
        return self.high < 1

    @property
    def is_unclear(self) -> bool:
        """The rounds are too few to tell: the interval has 1 in it, and is wider than 10 % to either side."""
        return not (self.is_faster or self.is_slower) and self.relative_half_width > WIDE


def trimmed_mean(values: Sequence[float], prior: VarianceEstimate = NO_PRIOR, share: float = TRIMMED) -> LogRatio:
    """The trimmed mean with the standard error of the Winsorized values.

    prior: the variance that is expected before the values are seen. share: of the values, left out on either side.
    Where none is left out and nothing expected, it is the mean with Student's interval. Needs two values.
    """
    found = shrink(trimmed_variance(values, share), prior)
    return LogRatio(statistics.fmean(_kept(values, share)), math.sqrt(found.variance / len(values)), found.freedom)


def trimmed_variance(values: Sequence[float], share: float = TRIMMED) -> VarianceEstimate:
    """The variance of one value by which the trimmed mean would scatter if it were a plain mean.

    The degrees of freedom are one less than values are left.
    """
    kept = _kept(values, share)
    winsorized = [min(max(value, kept[0]), kept[-1]) for value in values]
    squares = variance(winsorized) * (len(values) - 1)
    return VarianceEstimate(squares * len(values) / (len(kept) * (len(kept) - 1)), len(kept) - 1)


def own_margin(values: Sequence[float]) -> float:
    """Half the width of the 95 % interval of the centre of one process' positive values, as a logarithm: from their
    scatter, and from what processes of identical work differ by. Infinite for fewer than two."""
    if len(values) < FEWEST_PAIRS:
        return math.inf
    found = trimmed_mean([math.log(value) for value in values])
    return replace(found, process_variance=PROCESS_DEVIATION**2).margin(CONFIDENCE)


def _kept(values: Sequence[float], share: float) -> list[float]:
    """The values in the middle, in order."""
    trimmed = int(share * len(values))
    return sorted(values)[trimmed : len(values) - trimmed]


def log_ratios(over_s: Sequence[float], of_s: Sequence[float]) -> list[float]:
    """How many times as fast one process is as another in each pair, as a logarithm.

    over_s, of_s: (R,), seconds of each round, in pairs. Raises ValueError where lengths differ.
    """
    return [math.log(over / of) for over, of in zip(over_s, of_s, strict=True)]


def are_far_apart(values: Sequence[float], expected: VarianceEstimate) -> bool:
    """Whether two pairs lie farther apart than the expected variance explains; only a third shows which of them is odd.

    False for another number of pairs, and where too little is known of their variance."""
    is_told = len(values) == FEWEST_PAIRS and expected.freedom >= FREEDOM_FOR_ODD
    return is_told and abs(values[0] - values[1]) > _far(expected)


def without_odd(values: Sequence[float], expected: VarianceEstimate) -> list[float]:
    """The values in their order; of three or four, without the one that lies farthest from their median if the expected
    variance doesn't explain it."""
    if not LEAST_PAIRS <= len(values) < 1 / TRIMMED or expected.freedom < FREEDOM_FOR_ODD:
        return [*values]
    middle = statistics.median(values)
    odd = max(range(len(values)), key=lambda index: abs(values[index] - middle))
    return [one for index, one in enumerate(values) if index != odd or abs(one - middle) <= _far(expected)]


def _far(expected: VarianceEstimate) -> float:
    return ODD * math.sqrt(expected.variance)


def log_ratio(over_s: Sequence[float], of_s: Sequence[float], prior: VarianceEstimate = NO_PRIOR) -> LogRatio | None:
    """The centre of `log_ratios`; None for fewer than three pairs, or two where there is a prior.

    prior: the variance between pairs that is expected before they are seen.
    """
    logs = log_ratios(over_s, of_s)
    if len(logs) < (FEWEST_PAIRS if prior.freedom else LEAST_PAIRS):
        return None
    if tuple(over_s) == tuple(of_s):  # one process
        return LogRatio(0.0, 0.0, len(logs) - 1)
    return replace(trimmed_mean(without_odd(logs, prior), prior), process_variance=2 * PROCESS_DEVIATION**2)


def speedup_from(ratio: LogRatio, confidence: float, rounds: int) -> Speedup:
    """The centre taken back from its logarithm, with its interval."""
    margin = min(ratio.margin(confidence), MOST_MARGIN)
    middle, low, high = map(math.exp, (ratio.centre, ratio.centre - margin, ratio.centre + margin))
    return Speedup(low, high, middle, rounds)
