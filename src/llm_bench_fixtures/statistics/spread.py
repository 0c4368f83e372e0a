"""How well repeated measurements determine their value: intervals, coefficient of variation, supported percentiles.

Also intervals of shares of independent trials, and how the error of a claim is spent where growing data are looked at
several times.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

CONFIDENCE = 0.95
GATE_CONFIDENCE = 0.99  # confidence of what a gate, or a comparison by the noise floor, claims
NORMAL_95 = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)  # half-width of a 95 % interval in standard errors
POWER = 0.95  # the probability that the minimum detectable effect is detected
LEAST_FOR_INTERVAL = 3
BANDS = ((0.05, "excellent"), (0.10, "good"), (0.20, "fair"))  # aiperf's, up to and without the bound
UNSTABLE = "unstable"
MOST_GROUPS = 100  # of items that the jackknife leaves out together


@dataclass(frozen=True)
class Interval:
    """Where a quantity lies, with 95 % confidence unless another is named."""

    low: float
    high: float

    @property
    def relative_half_width(self) -> float:
        """Half the width over the middle."""
        return (self.high - self.low) / (self.high + self.low)


@dataclass(frozen=True)
class Estimate(Interval):
    """A value and the ends of its interval, which are the value itself where there is none."""

    value: float = field(kw_only=True)

    @property
    def is_exact(self) -> bool:
        return self.low == self.high

    def scaled(self, factor: float, base: float = 0.0) -> Estimate:
        """Estimate with `base` taken off, then times the factor."""
        low, high, value = ((one - base) * factor for one in (self.low, self.high, self.value))
        return Estimate(low, high, value=value)


def exactly(value: float) -> Estimate:
    return Estimate(value, value, value=value)


def interval(values: Sequence[float]) -> Interval | None:
    """Student's t interval of the mean logarithm, taken back: of the geometric mean of positive values.

    Latencies are skewed to the right, their logarithms much less so. None for fewer than three values.
    It holds for rounds that are independent; in one process they are not quite, and another process differs by more.
    """
    if len(values) < LEAST_FOR_INTERVAL:
        return None
    logs = [math.log(value) for value in values]
    margin = mean_half_width(standard_deviation(logs), len(logs), CONFIDENCE)
    centre = statistics.fmean(logs)
    return Interval(math.exp(centre - margin), math.exp(centre + margin))


def variance(values: Sequence[float]) -> float:
    """Variance of a sample of at least two; exactly 0 of equal values. `statistics.variance` counts in fractions, which
    takes twenty times as long: most of the time that a report of many runs took."""
    shifted = [value - values[0] for value in values]
    squares = math.fsum(value * value for value in shifted) - math.fsum(shifted) ** 2 / len(shifted)
    return max(squares, 0.0) / (len(shifted) - 1)


def standard_deviation(values: Sequence[float]) -> float:
    return math.sqrt(variance(values))


def pooled_deviation(groups: Sequence[Sequence[float]]) -> float | None:
    """The standard deviation within groups that may differ in their means; None if no group has two values."""
    known = [group for group in groups if len(group) > 1]
    freedom = sum(len(group) - 1 for group in known)
    if not freedom:
        return None
    return math.sqrt(sum(variance(group) * (len(group) - 1) for group in known) / freedom)


def student_half_width(standard_error: float, freedom: float, confidence: float) -> float:
    """Half the width of Student's two-sided t interval of a mean.

    standard_error: of the mean. freedom: degrees of freedom, which needn't be whole. confidence: such as 0.95.
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2)) * standard_error


def mean_half_width(deviation: float, number: int, confidence: float) -> float:
    """Half the width of the interval of the mean of so many values, from their standard deviation."""
    return student_half_width(deviation / math.sqrt(number), number - 1, confidence)


def minimum_detectable_effect(deviation: float, pairs: int, alpha: float) -> float:
    """The smallest change, as a share, that so many pairs tell from none with a probability of 95 %.

    deviation: standard deviation between pairs, of the logarithms. The formula is (t of the test + t of the power) x
    standard error, with Student's quantiles. With a threshold below it equal versions are often not found to be
    unchanged. Infinite for fewer than three pairs.
    """
    if pairs < LEAST_FOR_INTERVAL:
        return math.inf
    of_test = mean_half_width(deviation, pairs, 1 - alpha)
    of_power = mean_half_width(deviation, pairs, 2 * POWER - 1)  # one-sided
    return math.expm1(of_test + of_power)


def jackknife_error(items: int, estimate: Callable[[Sequence[int]], float]) -> float | None:
    """Standard error of an estimate for which there is no formula, from leaving out a part of the items at a time: the
    delete-a-group jackknife's. None for fewer than two items.

    estimate: gives the estimate over the items of these numbers. Of a mean over at most MOST_GROUPS items the error is
    exactly the usual one, their standard deviation over the root of their number. Source: Tukey, Annals of Mathematical
    Statistics 29 (1958); for groups, Kott, Journal of Official Statistics 17 (2001).
    """
    groups = min(items, MOST_GROUPS)
    if groups < 2:
        return None
    group_of = [item * groups // items for item in range(items)]
    values = [estimate([item for item in range(items) if group_of[item] != left_out]) for left_out in range(groups)]
    middle = statistics.fmean(values)
    return math.sqrt((groups - 1) / groups * sum((value - middle) ** 2 for value in values))


def coefficient_of_variation(values: Sequence[float]) -> float | None:
    """Sample standard deviation over mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    return standard_deviation(values) / statistics.fmean(values)


def stability(variation: float) -> str:
    """A plain word for a coefficient of variation."""
    return next((word for bound, word in BANDS if variation < bound), UNSTABLE)


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile; of a single value, that value. Raises ValueError for none."""
    if len(values) == 1:
        return (values[0],) * 3
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, median, high


def percentile(values: Sequence[float], share: float) -> float | None:
    """Linear between the two nearest values; None where there are too few for one to lie beyond: fewer than
    1 / (1 - share), which is 2 for the median and 100 for the 99th percentile."""
    if len(values) * (1 - share) < 1 - 1e-9:
        return None
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def wilson(share: float, trials: float, deviations: float = NORMAL_95) -> Estimate:
    """Wilson's score interval of a share of independent trials (JASA 22, 1927); without trials, the share."""
    if trials <= 0:
        return exactly(share)
    shift = deviations**2 / trials
    centre = (share + shift / 2) / (1 + shift)
    margin = deviations * math.sqrt(share * (1 - share) / trials + shift / (4 * trials)) / (1 + shift)
    low, high = min(centre - margin, share), max(centre + margin, share)  # rounding would leave 0 and 1 out
    return Estimate(max(low, 0.0), min(high, 1.0), value=share)


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


def share_of_look(number: int) -> float:
    """The share of the error that a look spends; number: from 1. Each spends half of what is left: in all, 1."""
    return 0.5**number


def deviations_of_look(number: int, error: float) -> float:
    """Standard errors to either side of a look's interval. error: two-sided, of all looks together."""
    return statistics.NormalDist().inv_cdf(1 - error * share_of_look(number) / 2)
