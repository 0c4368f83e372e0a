"""Whether two latencies that were measured minutes from each other differ by more than chance.

Two things decide: how far the rounds of each scatter, and how far identical work differs within the run. Where a fixed
probe ran before each round, it tells how fast the machine was.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from llm_bench_fixtures.results.record import Record, Run
from llm_bench_fixtures.results.speedup import share_blocks
from llm_bench_fixtures.statistics.shrinkage import NO_PRIOR, VarianceEstimate, estimate_prior, shrink, variance_of
from llm_bench_fixtures.statistics.spread import GATE_CONFIDENCE, student_half_width

LEAST_ROUNDS = 2
LEAST_EQUAL_ROUNDS = 3  # rounds needed to say that there is no scatter
ASSUMED = math.log(1.15)  # the floor where a run repeats too little to tell its own
ENOUGH_PAIRS = 10
MOST_ALIKE = 200  # records of the same work that are paired: more tell no more, and take time with their square


@dataclass(frozen=True)
class NoiseFloor:
    """How far apart identical work comes out within one run."""

    log_ratio: float
    """The 95th percentile, over the run's pairs of identical work, of the absolute logarithm of the ratio of their
    median latencies. If there are fewer than ten pairs, it is at least log(1.15), which is assumed."""
    pairs: int
    """How many pairs of identical work the run has."""
    round_variance: VarianceEstimate = NO_PRIOR
    """Variance of the logarithm of one round's latency among those of its record, as all records suggest it."""

    @property
    def percent(self) -> float:
        return (math.exp(self.log_ratio) - 1) * 100


def noise_floor(run: Run) -> NoiseFloor:
    """Floor from every pair of records that ran the same workload in the same configuration, at different times.

    Two that share blocks are no such pair: they were measured side by side.
    """
    alike: dict[tuple[str, str], list[tuple[float, Record]]] = defaultdict(list)
    for record in run.measured():
        variant = run.variant(record.variant)
        if variant is not None and record.workload is not None:
            alike[variant.configuration, record.workload.digest].append((record.median_s, record))
    pairs = (pair for records in alike.values() for pair in combinations(records[:MOST_ALIKE], 2))
    differences = sorted(abs(math.log(a_s / b_s)) for (a_s, a), (b_s, b) in pairs if not share_blocks(a, b))
    found = differences[math.ceil(0.95 * len(differences)) - 1] if differences else 0.0
    scatter = [variance_of(_logs(one)) for one in run.measured() if len(one.rounds_s) >= LEAST_ROUNDS]
    floor = found if len(differences) >= ENOUGH_PAIRS else max(found, ASSUMED)
    return NoiseFloor(floor, len(differences), estimate_prior(scatter))


@dataclass(frozen=True)
class Gain:
    """How many times as fast one is as another: ratio of the median times per new token, and whether that can be
    claimed."""

    ratio: float
    is_faster: bool
    is_slower: bool
    is_unclear: bool = False
    """Whether the rounds are too few to tell: fewer than two, or so few that their scatter hides a difference of the
    medians that exceeds the noise floor."""


def gain(of: Record, over: Record, floor: NoiseFloor) -> Gain:
    """A difference is claimed if Welch's 99 % interval of the difference of the mean log-latencies excludes zero, and
    the ratio of the medians exceeds the noise floor. With fewer than two rounds on a side, none is claimed.

    A few rounds say little of how they scatter: their variance is shrunk toward that of all rounds.
    """
    tokens = [one.workload.new_tokens if one.workload else 0 for one in (of, over)]
    more_tokens = tokens[0] / tokens[1] if all(tokens) else 1.0  # a damaged file may have none
    ratio = more_tokens * over.median_s / of.median_s
    low, high = (math.log(more_tokens) + bound for bound in _log_interval(of, over, floor.round_variance))
    is_beyond = abs(math.log(ratio)) > floor.log_ratio
    is_unclear = math.isinf(low) or (is_beyond and low <= 0 <= high)
    return Gain(ratio, is_faster=low > 0 and is_beyond, is_slower=high < 0 and is_beyond, is_unclear=is_unclear)


def _log_interval(of: Record, over: Record, expected: VarianceEstimate) -> tuple[float, float]:
    """Interval of the log of the latencies' ratio. expected: variance of the log of a round."""
    fewest = min(len(of.rounds_s), len(over.rounds_s))
    if fewest < LEAST_ROUNDS:
        return -math.inf, math.inf
    difference = statistics.fmean(_logs(over)) - statistics.fmean(_logs(of))
    variance = _variance_of_difference(of, over, expected)
    if not variance.variance:
        return (difference, difference) if fewest >= LEAST_EQUAL_ROUNDS else (-math.inf, math.inf)
    margin = student_half_width(math.sqrt(variance.variance), variance.freedom, GATE_CONFIDENCE)
    return difference - margin, difference + margin


def _variance_of_difference(of: Record, over: Record, expected: VarianceEstimate) -> VarianceEstimate:
    """Variance of the difference of the mean logs. Both sides' own is shrunk at once, so that what is borrowed counts
    once."""
    sizes = [len(one.rounds_s) for one in (of, over)]
    own = [variance_of(_logs(one)) for one in (of, over)]
    of_means = [replace(one, variance=one.variance / size) for one, size in zip(own, sizes, strict=True)]
    prior = replace(expected, variance=expected.variance * sum(1 / size for size in sizes))
    return shrink(of_means[0].plus(of_means[1]), prior)


def _logs(record: Record) -> list[float]:
    return [math.log(seconds) for seconds in record.rounds_s]


def probe_medians_s(probe_s: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """Seconds of the probe's matrix products, and of its reads of memory (see measure/limits.py). None without."""
    if not probe_s:
        return None
    products_s, reads_s = zip(*probe_s, strict=True)
    return statistics.median(products_s), statistics.median(reads_s)


def probe_level_s(probe_s: Sequence[tuple[float, float]]) -> float | None:
    """Geometric mean of the two medians: a machine k times as slow at both has k times that level.

    None where there is no probe, or one that takes no time, as only a damaged file holds.
    """
    medians = probe_medians_s(probe_s)
    return statistics.geometric_mean(medians) if medians and min(medians) > 0 else None
