"""How far runs of the same suite agree about the speed-ups, computed from what measure_repeatability.py collected."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations, product
from operator import attrgetter
from typing import Any, cast

from repeatability_answers import RunAnswer, answer_of

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.answer.headline import headline_of
from llm_bench_fixtures.answer.noise import MachineNoise
from llm_bench_fixtures.gate.decision import Decision, decide_run
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.gate.options import MISSING
from llm_bench_fixtures.gate.rules import Rules
from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.history.baseline import Baseline
from llm_bench_fixtures.progress import Phase
from llm_bench_fixtures.results.metrics import Force, registry
from llm_bench_fixtures.results.noise import noise_floor
from llm_bench_fixtures.results.record import Record, Run, VariantResult
from llm_bench_fixtures.statistics.spread import percentile

CONFIDENCE = 0.95
STORED = ("speedup", "speedup_low", "speedup_high")  # metrics
WORK = (Phase.GENERATING, Phase.SCORING, Phase.LOADING)
NORMAL = statistics.NormalDist()


@dataclass(frozen=True)
class Interval:
    """Interval of the logarithm of a speed-up, with 95 % confidence."""

    low: float
    high: float


@dataclass(frozen=True)
class Speed:
    """A test's speed-up over the reference in one run, as a logarithm."""

    test: str
    scenario: str
    variant: str
    workload: str
    """The digest of what was run."""
    log_ratio: float
    """Above 0 where the variant is faster."""
    interval: Interval | None
    is_identical: bool
    """The variant ran the same as the reference, whatever was asked for."""


@dataclass(frozen=True)
class Claim:
    """Claim that a variant is faster, or slower, than the reference on the workload that the report shows for one
    prompt."""

    test: str
    variant: str
    log_ratio: float

    def is_contradicted_by(self, log_ratio: float) -> bool:
        """Whether a speed-up, as a logarithm, is on the other side of none, or is none."""
        return self.log_ratio * log_ratio <= 0


@dataclass(frozen=True)
class SuiteRun:
    """One run of the suite: what it says of the speed-ups, and what it took."""

    name: str
    run: Run
    speeds: Mapping[str, Speed]
    """Speed-ups by test; the reference has none."""
    claims: tuple[Claim, ...]
    is_recorded: bool
    """The speed-ups were measured and stored. They are quotients of median latencies otherwise."""
    wall_s: float
    answer: RunAnswer | None = None
    """None where only the part of the run is known that a gate judges."""
    slower: str = ""
    """The variant that was slowed down; empty where none was."""

    @property
    def slows_reference(self) -> bool:
        return self.slower == self.run.reference


def suite_run(name: str, run: Run, wall_s: float, whole: Run | None = None) -> SuiteRun:
    """Summary of a run alone. whole: the same run with all that was stored of it."""
    is_recorded = any(STORED[0] in record.metrics for record in run.measured())
    speeds = {speed.test: speed for speed in (recorded_speeds(run) if is_recorded else quotients(run))}
    answer = answer_of(whole) if whole else None
    return SuiteRun(name, run, speeds, tuple(claims(run, speeds)), is_recorded, wall_s, answer)


def recorded_speeds(run: Run) -> Iterator[Speed]:
    """Speed-ups that are stored with the records. A record that was measured apart from the reference has none."""
    for record in run.measured():
        values = [record.metrics[name] for name in STORED if name in record.metrics]
        if record.variant != run.reference and values:
            middle, *ends = map(math.log, values)
            yield _speed(run, record, middle, Interval(*ends) if len(ends) == 2 else None)


def quotients(run: Run) -> Iterator[Speed]:
    """Median latency of the reference in the same case / median latency, with Welch's interval of the mean logarithms.

    A record without one of the reference in its case has none.
    """
    references = {(one.scenario, one.case): one for one in run.measured() if one.variant == run.reference}
    for record in run.measured():
        reference = references.get((record.scenario, record.case))
        if record.variant != run.reference and reference is not None:
            log_ratio = math.log(reference.median_s / record.median_s)
            yield _speed(run, record, log_ratio, welch_interval(reference.rounds_s, record.rounds_s))


def _speed(run: Run, record: Record, log_ratio: float, interval: Interval | None) -> Speed:
    digest = record.workload.digest if record.workload else ""
    identical = _configuration(run, record.variant) == _configuration(run, run.reference)
    return Speed(record.test, record.scenario, record.variant, digest, log_ratio, interval, identical)


def _configuration(run: Run, identifier: str) -> str:
    variant: VariantResult | None = run.variant(identifier)
    return variant.configuration if variant else identifier


def welch_interval(over_s: Sequence[float], of_s: Sequence[float]) -> Interval | None:
    """Interval of the difference of the mean logarithms; None with fewer than three rounds on a side, or if none
    differ."""
    from scipy import stats

    logs = [[math.log(seconds) for seconds in rounds] for rounds in (over_s, of_s)]
    if min(map(len, logs)) < 3 or all(statistics.pvariance(values) == 0 for values in logs):
        return None
    found = stats.ttest_ind(*logs, equal_var=False).confidence_interval(CONFIDENCE)
    return Interval(float(found.low), float(found.high))


def claims(run: Run, speeds: Mapping[str, Speed]) -> Iterator[Claim]:
    """Claims that the report may make of a variant next to the reference."""
    by_variant = headline_of(cast("Run", run)).common
    common = {record.test: record for record in by_variant.values()}
    seen = Evidence(by_variant, {}, {}, {}, {}, cast("Run", run), noise_floor(run), MachineNoise(), lambda *_: ())
    for speed in _comparable(run, speeds) if seen.reference else []:
        found = seen.gain(common[speed.test], by_variant[run.reference])
        if found.is_faster or found.is_slower:
            yield Claim(speed.test, speed.variant, math.log(found.ratio))


def _comparable(run: Run, speeds: Mapping[str, Speed]) -> list[Speed]:
    """Speed-ups on the workload that the report shows for one prompt, of variants that ran something else than the
    reference."""
    common = [speeds[record.test] for record in _common(run) if record.test in speeds]
    return [speed for speed in common if not speed.is_identical]


def _common(run: Run) -> list[Record]:
    """Records that the report chooses for its headline: it reads only what these records have, too."""
    return list(headline_of(cast("Run", run)).common.values())


def log_differences(runs: Sequence[SuiteRun]) -> Iterator[tuple[Speed, float]]:
    """Absolute log ratio of the speed-ups of each test, for every pair of runs that have it."""
    for one, other in combinations(runs, 2):
        for test in one.speeds.keys() & other.speeds.keys():
            yield one.speeds[test], abs(one.speeds[test].log_ratio - other.speeds[test].log_ratio)


def identical_work(runs: Iterable[SuiteRun]) -> Iterator[tuple[Speed, float]]:
    """The absolute logarithms of the speed-ups of what ran the same as the reference."""
    for run in runs:
        yield from ((speed, abs(speed.log_ratio)) for speed in run.speeds.values() if speed.is_identical)


def repeated_work(runs: Iterable[SuiteRun]) -> Iterator[float]:
    """How far apart a variant's speed-ups are within a run where several of its tests ran the same workload."""
    for run in runs:
        alike: dict[tuple[str, str], list[float]] = defaultdict(list)
        for speed in run.speeds.values():
            if speed.workload:
                alike[speed.variant, speed.workload].append(speed.log_ratio)
        yield from (abs(one - other) for logs in alike.values() for one, other in combinations(logs, 2))


def pooled(others: Sequence[SuiteRun], test: str) -> float | None:
    """The mean logarithm of a test's speed-ups over runs; None where no run has one."""
    logs = [run.speeds[test].log_ratio for run in others if test in run.speeds]
    return statistics.fmean(logs) if logs else None


def without(runs: Sequence[SuiteRun], index: int) -> list[SuiteRun]:
    return [*runs[:index], *runs[index + 1 :]]


def held(runs: Sequence[SuiteRun]) -> Iterator[tuple[Speed, bool]]:
    """Whether each interval of each run holds the value pooled over the other runs."""
    for index, run in enumerate(runs):
        for speed in run.speeds.values():
            value = pooled(without(runs, index), speed.test)
            if speed.interval is not None and value is not None:
                yield speed, speed.interval.low <= value <= speed.interval.high


def mean_shifts(runs: Sequence[SuiteRun]) -> list[dict[str, float]]:
    """Mean log distance of a variant's speed-ups from their means over the runs, by run and variant; from the tests of
    all runs alone."""
    tests = set.intersection(*(set(run.speeds) for run in runs))
    means = {test: statistics.fmean(run.speeds[test].log_ratio for run in runs) for test in tests}
    shifts = (((run.speeds[test], run.speeds[test].log_ratio - means[test]) for test in sorted(tests)) for run in runs)
    return [
        {name: statistics.fmean(found) for name, found in grouped(each, attrgetter("variant")).items()}
        for each in shifts
    ]


def expected_held(others: int) -> float:
    """The share of exact intervals that would hold the mean of so many other runs, which has an error of its own."""
    return 2 * NORMAL.cdf(NORMAL.inv_cdf((1 + CONFIDENCE) / 2) / math.sqrt(1 + 1 / others)) - 1


def judged_claims(runs: Sequence[SuiteRun]) -> Iterator[tuple[SuiteRun, Claim, float]]:
    """Every run's claims, with the value pooled over the other runs."""
    for index, run in enumerate(runs):
        for claim in run.claims:
            value = pooled(without(runs, index), claim.test)
            if value is not None:
                yield run, claim, value


def fastest_agrees(runs: Sequence[SuiteRun]) -> Iterator[bool]:
    """Whether each run's claimed fastest variant is the fastest by the pooled values of the others, too."""
    for index, run in enumerate(runs):
        faster = [claim for claim in run.claims if claim.log_ratio > 0]
        values = {test: pooled(without(runs, index), test) for test in _common_tests(run)}
        known = {test: value for test, value in values.items() if value is not None}
        if faster and known:
            yield max(faster, key=lambda claim: claim.log_ratio).test == max(known, key=lambda test: known[test])


def _common_tests(run: SuiteRun) -> list[str]:
    return [speed.test for speed in _comparable(run.run, run.speeds)]


def quantiles(values: Iterable[float]) -> tuple[float | None, float | None]:
    """Median and 90th percentile; None where there are too few values for one."""
    found = list(values)
    return percentile(found, 0.5), percentile(found, 0.9)


def work_share(runs: Iterable[SuiteRun]) -> float:
    """Share of the wall seconds that were spent generating, scoring or loading."""
    taken = list(runs)
    work_s = sum(run.run.phase_s.get(phase.value, 0.0) for run in taken for phase in WORK)
    return work_s / sum(run.wall_s for run in taken)


def mean_phases_s(runs: Sequence[SuiteRun]) -> dict[str, float]:
    """Mean seconds of each phase in a run, the longest first."""
    names = {name for run in runs for name in run.run.phase_s}
    means = {name: statistics.fmean(run.run.phase_s.get(name, 0.0) for run in runs) for name in names}
    return dict(sorted(means.items(), key=lambda item: -item[1]))


@dataclass(frozen=True)
class GateTrials:
    """Verdicts of the stored gate on runs that differ by chance alone."""

    statuses: Counter[ExitStatus]
    """Number of ordered pairs of runs by exit status."""
    regressed: Counter[str]
    """Number of pairs that each metric made red, by metric."""

    @property
    def red(self) -> int:
        return self.statuses.total() - self.statuses[ExitStatus.PASSED]


def gate_trials(runs: Sequence[Run], rules: Rules) -> GateTrials:
    """Judge every run by every other one, as the command line does."""
    statuses: Counter[ExitStatus] = Counter()
    regressed: Counter[str] = Counter()
    for base, head in permutations(runs, 2):
        decision = decide_run(head, Baseline(base), rules, registry(), MISSING.read({}))
        statuses[decision.status] += 1
        regressed.update(regressed_metrics(decision))
    return GateTrials(statuses, regressed)


def regressed_metrics(decision: Decision) -> set[str]:
    """Names of the metrics that make the gate red."""
    if decision.comparison is None:
        return set()
    return {one.metric.name for one in decision.comparison.with_verdict(Verdict.REGRESSED, Force.BLOCKING)}


def found_slower(clean: Sequence[Run], slower: Sequence[Run], rules: Rules) -> Iterator[bool]:
    """Whether the stored gate calls a speed-up regressed, by each clean run. slower: runs with a slowed variant."""
    for base, head in product(clean, slower):
        yield STORED[0] in regressed_metrics(decide_run(head, Baseline(base), rules, registry(), MISSING.read({})))


SLOWER = (1.05, 1.1, 1.15, 1.2, 1.3)  # times as long


def found_slowdowns(runs: Sequence[Run], rules: Rules, factor: float) -> tuple[list[bool], list[bool]]:
    """Whether the stored gate finds a speed-up that regressed where one variant takes `factor` times as long, and where
    one test does.

    Every run is judged by every other one, with another variant and another test made slower in each comparison.
    """
    whole: list[bool] = []
    single: list[bool] = []
    for number, (base, head) in enumerate(permutations(runs, 2)):
        tests = sorted(record.test for record in head.measured() if record.reference_s)
        by_variant = grouped_tests(head, tests)
        variant = sorted(by_variant)[number % len(by_variant)]
        single_test = by_variant[variant][number % len(by_variant[variant])]
        for slow, trials in ((by_variant[variant], whole), ([single_test], single)):
            found = decide_run(slowed(head, slow, factor), Baseline(base), rules, registry(), MISSING.read({}))
            trials.append(STORED[0] in regressed_metrics(found))
    return whole, single


def grouped_tests(run: Run, tests: Sequence[str]) -> dict[str, list[str]]:
    """The tests by their variant, without the reference's."""
    variants = {record.test: record.variant for record in run.measured()}
    groups: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        if variants[test] != run.reference:
            groups[variants[test]].append(test)
    return groups


def slowed(run: Run, tests: Sequence[str], factor: float) -> Run:
    """The run as if these tests had taken `factor` times as long, and the reference no longer than it did."""
    records = [_slower(record, factor) if record.test in tests else record for record in run.records]
    return replace(run, records=tuple(records))


def _slower(record: Record, factor: float) -> Record:
    metrics = {name: value / factor if name in STORED else value for name, value in record.metrics.items()}
    return replace(record, metrics=metrics, rounds_s=tuple(factor * one for one in record.rounds_s))


def grouped(pairs: Iterable[tuple[Speed, Any]], key: Callable[[Speed], str]) -> dict[str, list[Any]]:
    """Values by what the key says of their speed-up."""
    groups: dict[str, list[Any]] = defaultdict(list)
    for speed, value in pairs:
        groups[key(speed)].append(value)
    return groups
