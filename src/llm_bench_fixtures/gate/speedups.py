"""How far two runs' speed-ups differ, and how much of that may be chance.

A speed-up over the reference is measured in blocks with it: what slows the whole machine for a while falls on
both and cancels out. So speed-ups of two hours are compared where times aren't. This is done at two levels: for each
test, by the difference of the two log ratios; and for each variant, by the trimmed mean of its tests' changes (Tukey
and McLaughlin, Sankhya A 25, 1963), which finds a smaller change if all of the variant's tests share it. Each level
takes half of ALARMS, divided by its number of comparisons (Bonferroni).

Processes of identical work differ by more than their rounds show, each time all tests of a variant alike. How far is
read off the comparison itself: from the scatter of the other variants' changes about their median, which a few variants
that really changed hardly move. That is shrunk toward what processes are known to differ by.

A machine's state that lasts for a test's few rounds shows in none of them, either. How far such states move a test is
read off the variant's other tests: by what their changes scatter beyond their rounds. With fewer than LEAST_OTHER_TESTS
of them it isn't known. One state is looked for in each block: that the host has moved the processor's cores apart. A
test may change by as much as the time from core to core did.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from llm_bench_fixtures.answer.noise import APART
from llm_bench_fixtures.results.record import Record
from llm_bench_fixtures.results.speedup import record_log_ratio
from llm_bench_fixtures.statistics.pooling import PROCESS_FREEDOM
from llm_bench_fixtures.statistics.ratio import PROCESS_DEVIATION, LogRatio, trimmed_mean
from llm_bench_fixtures.statistics.robust import bounded
from llm_bench_fixtures.statistics.shrinkage import VarianceEstimate, shrink
from llm_bench_fixtures.statistics.spread import student_half_width

ALARMS = 0.01  # share of comparisons of equal versions in which any speed-up comes out as lower; as many as higher
LEAST_TESTS = 5  # fewest tests of a variant whose mean change is judged
LEAST_OTHERS = 4  # fewest other variants that tell the scatter of a variant's change
LEAST_OTHER_TESTS = 12  # fewest other tests of a variant that tell the scatter of a test's change
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
class _Change:
    base: float
    """Logarithm of the baseline's speed-up."""
    by: LogRatio
    """What the judged run's logarithm differs by."""
    by_cores: float = 0.0
    """Logarithm of how many times as long data took from core to core in one of the runs; 0 where that isn't far."""


def speedup_changes(pairs: Iterable[tuple[Record, Record]], reference: str) -> SpeedupChanges:
    """pairs: the baseline's record and the judged one of each test that ran the same workload in both runs."""
    tests: dict[str, dict[str, _Change]] = defaultdict(dict)  # by variant
    for before, after in pairs:
        base, head = record_log_ratio(before), record_log_ratio(after)
        if after.variant != reference and base is not None and head is not None:  # both were measured in blocks
            tests[after.variant][after.test] = _Change(base.centre, head.minus(base), _by_cores(before, after))
    alike = {variant: [one for one in own.values() if not one.by_cores] for variant, own in tests.items()}
    means = {variant: _mean(own) for variant, own in alike.items() if len(own) >= LEAST_TESTS}
    scatter = {variant: _scatter([means[other].by.centre for other in means if other != variant]) for variant in tests}
    number = sum(map(len, tests.values()))
    of_tests = {
        test: _changed(one, scatter[variant], number, _states(own, test))
        for variant, own in tests.items()
        for test, one in own.items()
    }
    of_variants = {variant: _changed(one, scatter[variant], len(means)) for variant, one in means.items()}
    return SpeedupChanges(of_tests, of_variants)


def _by_cores(before: Record, after: Record) -> float:
    looks = [one.core_to_core for one in (before, after)]
    apart = abs(math.log(median(looks[1]) / median(looks[0]))) if all(looks) else 0.0
    return apart if apart >= math.log(APART) else 0.0


def _mean(tests: Collection[_Change]) -> _Change:
    """Over a variant's tests, whose scatter tells what processes differ by on single workloads."""
    changes = [one.by.centre for one in tests]
    by = trimmed_mean(changes) if len(changes) >= LEAST_TO_TRIM else trimmed_mean(changes, share=0.0)
    return _Change(fmean(one.base for one in tests), by)


def _scatter(others: Sequence[float]) -> VarianceEstimate:
    """Variance of a variant's change by its processes and the reference's. others: changes of the other variants.

    What the reference changed by, all of them share. Their scatter is of their own processes alone: half of it.
    """
    known = VarianceEstimate(4 * PROCESS_DEVIATION**2, PROCESS_FREEDOM)  # two processes in each run
    if len(others) < LEAST_OTHERS:
        return known
    found = _about_median(others)
    return shrink(replace(found, variance=2 * found.variance), known)


def _states(tests: Mapping[str, _Change], test: str) -> VarianceEstimate | None:
    """Variance of the changes of a variant's other tests beyond that of their rounds; None where they are too few."""
    others = [one.by for name, one in tests.items() if name != test]
    if len(others) < LEAST_OTHER_TESTS:
        return None
    found = _about_median([one.centre for one in others])
    by_rounds = fmean(one.by_rounds.variance for one in others)
    return replace(found, variance=max(found.variance - by_rounds, 0.0))


def _about_median(changes: Sequence[float]) -> VarianceEstimate:
    middle, freedom = median(changes), len(changes) - 1
    squares = sum(one**2 for one in bounded([change - middle for change in changes]))
    return VarianceEstimate(squares / freedom, freedom)


def _changed(
    one: _Change, scatter: VarianceEstimate, comparisons: int, states: VarianceEstimate | None = None
) -> SpeedupChange:
    """comparisons: how many are made at this level. states: variance by the machine's states that rounds don't show."""
    confidence = 1 - ALARMS / comparisons  # two-sided: half of it lies on either side
    processes = max(scatter.variance, one.by.process_variance)
    by_processes = student_half_width(math.sqrt(processes), scatter.freedom, confidence)
    by_rounds = replace(one.by, process_variance=0.0).margin(confidence)
    by_states = student_half_width(math.sqrt(states.variance), states.freedom, confidence) if states else 0.0
    margin = math.hypot(by_rounds, by_processes, by_states) + one.by_cores
    return SpeedupChange(math.exp(one.base), math.exp(one.base + one.by.centre), margin)
