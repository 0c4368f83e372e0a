"""How far two runs' speed-ups differ, and how much of that may be chance.

A speed-up over the reference is measured in blocks with it: what slows the whole machine for a while falls on
both and cancels out. So speed-ups of two hours are compared where times aren't. This is done at two levels: for each
test, by the difference of the two log ratios; and for each variant, by the trimmed mean of its tests' changes (Tukey
and McLaughlin, Sankhya A 25, 1963), which finds a smaller change if all of the variant's tests share it. Each level
takes half of ALARMS, divided by its number of comparisons (Bonferroni).

Processes of identical work differ by more than their rounds show, each time all tests of a variant alike. How far is
read off the comparison itself: from the scatter of the variants' changes about their median, which a few variants that
really changed don't move.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from llm_bench_fixtures.results.metrics import Tolerance
from llm_bench_fixtures.results.record import Record
from llm_bench_fixtures.results.speedup import record_log_ratio
from llm_bench_fixtures.statistics.ratio import PROCESS_DEVIATION, LogRatio, trimmed_mean
from llm_bench_fixtures.statistics.robust import robust_deviation

ALARMS = 0.01  # share of comparisons of equal versions in which any speed-up comes out as changed
LEAST_TESTS = 5  # fewest tests of a variant whose mean change is judged
LEAST_VARIANTS = 5  # fewest variants that tell the scatter of their changes
LEAST_TO_TRIM = 6  # of five, trimming leaves three: their interval is half as wide again as that of the plain mean


@dataclass(frozen=True)
class SpeedupChange:
    """The speed-ups of one test, or of one variant over its tests, in both runs."""

    base: float
    head: float
    margin: float
    """A log ratio within which the two can't be told apart."""


@dataclass(frozen=True)
class SpeedupChanges:
    """Changes of speed-ups between two runs, from their rounds."""

    tests: Mapping[str, SpeedupChange]
    """Changes by node id. The reference's own tests are not among them."""
    variants: Mapping[str, SpeedupChange]
    """Changes by variant: the geometric means over its tests, where there are at least five."""


@dataclass(frozen=True)
class _Pair:
    """The logarithms of one test's speed-ups."""

    base: LogRatio
    head: LogRatio

    @property
    def change(self) -> LogRatio:
        return self.head.minus(self.base)


def speedup_changes(pairs: Iterable[tuple[Record, Record]], reference: str) -> SpeedupChanges:
    """pairs: the baseline's record and the judged one of each test that ran the same workload in both runs."""
    tests: dict[str, _Pair] = {}
    of_variant: dict[str, list[_Pair]] = defaultdict(list)
    for before, after in pairs:
        base, head = record_log_ratio(before), record_log_ratio(after)
        if after.variant != reference and base is not None and head is not None:  # both were measured in blocks
            pair = tests[after.test] = _Pair(base, head)
            of_variant[after.variant].append(pair)
    judged = {variant: found for variant, found in of_variant.items() if len(found) >= LEAST_TESTS}
    means = {variant: _mean_change(found) for variant, found in judged.items()}
    scatter = _scatter([mean.centre for mean in means.values()])
    if len(means) < LEAST_VARIANTS:
        means = {variant: replace(mean, process_variance=4 * PROCESS_DEVIATION**2) for variant, mean in means.items()}
    return SpeedupChanges(
        {test: _changed(pair.base.centre, pair.change, scatter, len(tests)) for test, pair in tests.items()},
        {
            variant: _changed(statistics.fmean(pair.base.centre for pair in judged[variant]), mean, scatter, len(means))
            for variant, mean in means.items()
        },
    )


def beyond(rule: Tolerance, margin: float) -> float:
    """The margin of a change that is judged by how far its interval lies beyond the rule's tolerance."""
    return margin + math.log1p(rule.relative)


def _mean_change(tests: Sequence[_Pair]) -> LogRatio:
    """Mean change over a variant's tests. Differences of processes on single workloads are in the tests' scatter."""
    changes = [pair.change.centre for pair in tests]
    return trimmed_mean(changes) if len(changes) >= LEAST_TO_TRIM else trimmed_mean(changes, share=0.0)


def _scatter(changes: Sequence[float]) -> LogRatio:
    """How far a variant's change lies from 0 by its processes; with too few variants to tell, as if by nothing."""
    deviation = robust_deviation(changes) if len(changes) >= LEAST_VARIANTS else 0.0
    return LogRatio(0.0, deviation, max(len(changes) - 1, 1))


def _changed(base: float, change: LogRatio, scatter: LogRatio, comparisons: int) -> SpeedupChange:
    """base: the logarithm of the baseline's speed-up. comparisons: how many are made at this level."""
    confidence = 1 - ALARMS / 2 / comparisons
    margin = math.hypot(change.margin(confidence), scatter.margin(confidence))
    return SpeedupChange(math.exp(base), math.exp(base + change.centre), margin)
