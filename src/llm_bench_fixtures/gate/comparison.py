"""Two saved runs: a verdict on each metric of each test and variant, and the tests that have none."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from llm_bench_fixtures.gate import margins
from llm_bench_fixtures.gate.coverage import Uncovered, uncovered_tests
from llm_bench_fixtures.gate.rules import Rules, check_saved_marks
from llm_bench_fixtures.gate.verdicts import CLOCKED, Judgement, Verdict, at_base_speed, judge_change
from llm_bench_fixtures.history.together import Difference, differences, fingerprint_of, other_parts
from llm_bench_fixtures.results.metrics import Force, Kind, Metric, Tolerance
from llm_bench_fixtures.results.metrics.tasks import task_metrics, with_tasks
from llm_bench_fixtures.results.noise import NoiseFloor, noise_floor
from llm_bench_fixtures.results.record import Record, Run, Status, VariantResult
from llm_bench_fixtures.text import some_of

SPEEDUP = "speedup"
MOST_NAMED = 20  # metrics, in a note


@dataclass(frozen=True)
class Comparison:
    """Two runs, and what follows from them."""

    base: Run
    head: Run
    judgements: tuple[Judgement, ...]
    judged_tests: int
    """How many tests both runs measured on the same workload."""
    uncovered: tuple[Uncovered, ...]
    differences: tuple[Difference, ...]
    """The parts of the fingerprint that make some metrics incomparable."""
    floor: NoiseFloor
    """The smaller of the two runs' own floors. A test that got slower differs from others of its workload, and so
    raises its own run's floor. The larger floor would then hide its regression."""
    slowdown: float | None
    """How many times as slow the machine was for `head`, by the probe; None where the two share no probe."""
    notes: tuple[str, ...] = ()
    speedups: tuple[int, int] = (0, 0)
    """How many tests' speed-ups were compared, and how many variants' over their tests."""

    def with_verdict(self, verdict: Verdict, force: Force | None = None) -> list[Judgement]:
        """The judgements of that verdict, by rules of that force or of any."""
        return [one for one in self.judgements if one.verdict is verdict and force in (None, one.rule.force)]


def compare_runs(
    base: Run, head: Run, rules: Rules, metrics: Mapping[str, Metric], notes: Sequence[str] = ()
) -> Comparison:
    """Judge every metric of `head` by `base`, which is its baseline. metrics: those that are known, by name. notes: on
    the baseline.

    Raises DamagedResults for a mark in the file of `head` that can't be used.
    """
    check_saved_marks(head.source, head.records)
    return _Comparer(base, head, rules, metrics).compare(notes)


class _Comparer:
    """State that `compare_runs` needs of both runs at every metric."""

    def __init__(self, base: Run, head: Run, rules: Rules, metrics: Mapping[str, Metric]) -> None:
        self._base, self._head = base, head
        self._rules = rules
        self._of_tasks = task_metrics((*base.provenance.tasks, *head.provenance.tasks))
        self._metrics = with_tasks(metrics, (*base.provenance.tasks, *head.provenance.tasks))
        self._differences = tuple(differences(fingerprint_of(base.provenance), fingerprint_of(head.provenance)))
        measured = {record.test: record for record in base.measured()}
        self._pairs = [(measured[after.test], after) for after in head.measured() if after.test in measured]
        self._noise = margins.TimingNoise((noise_floor(base), noise_floor(head)), len(self._pairs))
        self._slowdown = margins.mean_slowdown((after.probe_s, before.probe_s) for before, after in self._pairs)
        self._ran_before = [_tests_before(run) for run in (base, head)]
        self._speedups = margins.speedup_changes(self._speedup_pairs(), head.reference)

    def compare(self, notes: Sequence[str]) -> Comparison:
        is_comparable = not self._obstacle(Kind.EXACT)
        of_tests = (one for pair in self._pairs for one in self._of_records(*pair))
        return Comparison(
            base=self._base,
            head=self._head,
            judgements=(*self._of_variants(), *self._of_speedups(), *of_tests),
            speedups=(len(self._speedups.tests), len(self._speedups.variants)),
            judged_tests=sum(is_comparable and before.digest == after.digest for before, after in self._pairs),
            uncovered=tuple(uncovered_tests(self._base, self._head)),
            differences=self._differences,
            floor=self._noise.floor,
            slowdown=self._slowdown,
            notes=(*notes, *self._notes()),
        )

    def _speedup_pairs(self) -> Iterator[tuple[Record, Record]]:
        """Yield the records of tests whose speed-ups can be compared and are to be judged."""
        if self._reference_obstacle() or self._obstacle(Kind.TIMING):
            return
        for before, after in self._pairs:
            rule = self._rules.of(self._metrics[SPEEDUP], after.scenario, after.gate)
            if before.digest == after.digest and rule.force is not Force.OFF:
                yield before, after

    def _of_records(self, before: Record, after: Record) -> Iterator[Judgement]:
        """The metrics of one test that are its own."""
        base, head = _record_metrics(self._base, before), _record_metrics(self._head, after)
        slowdown = margins.machine_slowdown(after.probe_s, before.probe_s) or 1.0
        other_workload = "" if before.digest == after.digest else "another workload than the baseline's"
        was, now = (ran[after.test] for ran in self._ran_before)
        for metric in self._present(base, head):
            rule = self._rules.of(metric, after.scenario, after.gate)
            repeats = was == now and not (after.is_after_scoring and rule == metric.default_tolerance)
            if metric.kind is Kind.MEMORY and rule.force is Force.BLOCKING and not repeats:
                rule = replace(rule, force=Force.ADVISORY)  # what else the process did is in its peak too
            margin, obstacle = self._noise.margin(metric, rule, before.rounds_s, after.rounds_s), other_workload
            if metric.name == SPEEDUP:
                change = self._speedups.tests.get(after.test)
                rule, obstacle = self._speedup_rule(rule, metric), obstacle or self._reference_obstacle()
                margin = change.margin if change else 0.0
            values = _Values(base.get(metric.name), head.get(metric.name), slowdown, margin)
            yield self._judged(after.test, metric, rule, values, obstacle)

    def _of_speedups(self) -> Iterator[Judgement]:
        """The mean speed-ups of the variants, over their tests."""
        metric = self._metrics[SPEEDUP]
        for variant, change in self._speedups.variants.items():
            values = _Values(change.base, change.head, 1.0, change.margin)
            judged = [self._judged(variant, metric, rule, values) for rule in self._rules_of(variant, metric)]
            yield max(judged, key=_severity)

    def _speedup_rule(self, rule: Tolerance, metric: Metric) -> Tolerance:
        """Advisory on another machine or with other libraries, as times are, unless a rule was asked for."""
        if self._obstacle(metric.kind) and rule == metric.default_tolerance:
            return replace(rule, force=Force.ADVISORY)
        return rule

    def _reference_obstacle(self) -> str:
        """Why speed-ups are over something else than the baseline's; "" where they are over the same."""
        was, now = (run.variant(run.reference) for run in (self._base, self._head))
        if self._base.reference != self._head.reference:
            return f"another reference: {self._head.reference}; the baseline's: {self._base.reference}"
        if was is not None and now is not None and was.configuration != now.configuration:
            return f"the reference ran as {now.label}; in the baseline as {was.label}"
        return ""

    def _of_variants(self) -> Iterator[Judgement]:
        """The metrics that all tests of a variant share, once for each variant that both runs have."""
        references = self._base.variant(self._base.reference), self._head.variant(self._head.reference)
        for after in self._head.variants:
            before = self._base.variant(after.id)
            if before is None or not before.status is after.status is Status.MEASURED:
                continue
            base, head = variant_metrics(before), variant_metrics(after)
            for metric in self._present(base, head):
                is_quality = metric.name in {**before.quality, **after.quality}
                other_sample = margins.samples_obstacle(metric, before, after, references) if is_quality else ""
                obstacle = (self._quality_obstacle(metric) if is_quality else "") or other_sample
                own_margin = margins.quality_margin(metric, before, after)
                judged = []
                for rule in self._rules_of(after.id, metric):
                    margin = max(own_margin, self._noise.margin(metric, rule))
                    values = _Values(base.get(metric.name), head.get(metric.name), self._slowdown or 1.0, margin)
                    judged.append(self._judged(after.id, metric, rule, values, obstacle, lost=after.quality_note))
                found = max(judged, key=_severity)
                yield replace(found, is_of_other_sample=found.reason == other_sample != "")

    def _rules_of(self, variant: str, metric: Metric) -> Sequence[Tolerance]:
        """The different rules that the variant's tests have for the metric; the metric's own where it has no test."""
        tests = (record for record in self._head.records if record.variant == variant)
        rules = dict.fromkeys(self._rules.of(metric, one.scenario, one.gate) for one in tests)
        return list(rules) or [self._rules.of(metric)]

    def _quality_obstacle(self, metric: Metric) -> str:
        """Why a metric of quality can't be compared; "" where it can."""
        is_by_itself = metric.name in margins.BY_ITSELF or metric.name in self._of_tasks
        if not is_by_itself and self._base.reference != self._head.reference:
            return self._reference_obstacle()
        of_questions = margins.questions_obstacle(metric, self._base.provenance, self._head.provenance)
        return of_questions or self._obstacle(Kind.QUALITY)

    def _present(self, base: Mapping[str, float], head: Mapping[str, float]) -> Iterator[Metric]:
        return (metric for metric in self._metrics.values() if metric.name in base or metric.name in head)

    def _judged(
        self, subject: str, metric: Metric, rule: Tolerance, values: _Values, obstacle: str = "", lost: str = ""
    ) -> Judgement:
        """obstacle: why nothing of the subject is comparable. lost: why a metric of the subject may have vanished."""
        reason = obstacle or self._obstacle(metric.kind)
        if values.base is None:
            verdict, reason = Verdict.NEW, ""
        elif values.head is None:
            verdict, reason = Verdict.VANISHED, lost or reason
        elif reason:
            verdict = Verdict.NOT_MEASURED
        else:
            level = at_base_speed(values.head, metric, values.slowdown)
            verdict = judge_change(metric.direction, rule, values.base, level, values.margin)
        slowdown = values.slowdown if metric.unit in CLOCKED else 1.0
        known = values.margin if margins.has_own_noise(metric) else math.inf
        return Judgement(subject, metric, rule, verdict, values.base, values.head, slowdown, known, reason)

    def _obstacle(self, kind: Kind) -> str:
        """Why metrics of that kind can't be compared; "" where they can."""
        return next((str(one) for one in self._differences if kind in one.unjudged), "")

    def _notes(self) -> Iterator[str]:
        other = other_parts(self._base.provenance, self._head.provenance)
        if other:
            yield f"Other {other} than the baseline's under the same model name; judged all the same"
        for after in self._head.variants:
            before = self._base.variant(after.id)
            if before is not None and before.label and after.label and before.label != after.label:
                yield f"{after.id} ran as {after.label}; in the baseline as {before.label}"
        scenarios = {record.scenario for record in self._head.records}
        for scenario in dict.fromkeys(rule.scenario for rule in self._rules.named):
            if scenario and scenario not in scenarios:
                yield f"No test of this run has the scenario {scenario}, which a rule names"
        unknown = {name for run in (self._base, self._head) for one in run.measured() for name in one.metrics}
        unknown -= self._metrics.keys()
        if unknown:
            names = some_of(sorted(unknown), MOST_NAMED)
            yield f"Not judged, because only the project knows what they are: {names}"


@dataclass(frozen=True)
class _Values:
    """The fields of Judgement with these names."""

    base: float | None
    head: float | None
    slowdown: float = 1.0
    margin: float = 0.0


def _severity(one: Judgement) -> tuple[bool, bool, bool]:
    """Sorts the judgements of one value by several rules; the worst comes last, and counts."""
    is_bad = one.verdict in (Verdict.REGRESSED, Verdict.VANISHED)
    return one.is_blocking and is_bad, one.is_blocking and one.verdict is Verdict.INCONCLUSIVE, one.is_blocking


def variant_metrics(variant: VariantResult) -> dict[str, float]:
    """The metrics that are the same for all of a variant's tests."""
    of_load = {
        "load_s": variant.load_s,
        "compile_s": variant.compile_s,
        "conversion_s": variant.conversion_s,
        "first_generate_s": variant.first_generate_s,
        "libraries_bytes": variant.resident_before_load_bytes,
    }
    values = {**of_load, "weight_bytes": variant.weight_bytes, **variant.quality}
    return {name: value for name, value in values.items() if value is not None}


def _record_metrics(run: Run, record: Record) -> dict[str, float]:
    """The metrics of the record that are not the same for all of its variant's tests."""
    variant = run.variant(record.variant)
    shared = variant_metrics(variant) if variant else {}
    return {name: value for name, value in record.metrics.items() if name not in shared}


def _tests_before(run: Run) -> dict[str, tuple[str, bool]]:
    """What each test's process did before it: a digest of the tests that it measured, and whether it scored texts."""
    of_process: dict[str, str] = defaultdict(str)
    found = {}
    for record in run.measured():
        process = record.variant if run.provenance.isolated else ""
        before = of_process[process]
        found[record.test] = before, record.is_after_scoring
        of_process[process] = hashlib.sha256(f"{before} {record.test}".encode(errors="replace")).hexdigest()
    return found
