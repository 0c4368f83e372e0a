"""Whether two latencies that were measured minutes from each other differ by more than chance.

Two things decide: how far the rounds of each scatter, and how far identical work differs within the run. Where a fixed
probe ran before each round, it tells how fast the machine was.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from llm_bench_fixtures.results.record import Record, Run
from llm_bench_fixtures.results.speedup import share_blocks

CONFIDENCE = 0.99
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
    return NoiseFloor(found if len(differences) >= ENOUGH_PAIRS else max(found, ASSUMED), len(differences))


@dataclass(frozen=True)
class Gain:
    """How many times as fast one is as another: ratio of the median latencies, and whether that can be claimed."""

    ratio: float
    is_faster: bool
    is_slower: bool
    is_unclear: bool = False
    """Whether the rounds are too few to tell: fewer than two, or so few that their scatter hides a difference of the
    medians that exceeds the noise floor."""


def gain(of: Record, over: Record, floor: NoiseFloor) -> Gain:
    """A difference is claimed if Welch's 99 % interval of the difference of the mean log-latencies excludes zero, and
    the ratio of the medians exceeds the noise floor. With fewer than two rounds on a side, none is claimed."""
    ratio = over.median_s / of.median_s
    low, high = _log_interval(of.rounds_s, over.rounds_s)
    is_beyond = abs(math.log(ratio)) > floor.log_ratio
    return Gain(
        ratio,
        is_faster=low > 0 and is_beyond,
        is_slower=high < 0 and is_beyond,
        is_unclear=math.isinf(low) or (is_beyond and low <= 0 <= high),
    )


def _log_interval(of: Sequence[float], over: Sequence[float]) -> tuple[float, float]:
    fewest = min(len(of), len(over))
    if fewest < LEAST_ROUNDS:
        return -math.inf, math.inf
    from scipy import stats

    logs = [[math.log(seconds) for seconds in rounds] for rounds in (over, of)]
    if all(statistics.pvariance(values) == 0 for values in logs):
        difference = logs[0][0] - logs[1][0]
        return (difference, difference) if fewest >= LEAST_EQUAL_ROUNDS else (-math.inf, math.inf)
    interval = stats.ttest_ind(*logs, equal_var=False).confidence_interval(CONFIDENCE)
    return float(interval.low), float(interval.high)


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
