"""Two saved runs side by side: a verdict on each metric of each test and variant, and the tests that have none."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from llm_bench_fixtures.gate.rules import Rule, Rules
from llm_bench_fixtures.gate.verdicts import Verdict, judge, log_ratio, paired_margin
from llm_bench_fixtures.history.fingerprint import Difference, differences, fingerprint_of
from llm_bench_fixtures.history.saved import SavedRecord, SavedRun
from llm_bench_fixtures.results.metrics import Direction, Force, Kind, Metric, Unit
from llm_bench_fixtures.results.noise import NoiseFloor, noise_floor
from llm_bench_fixtures.results.probe import machine_slowdown
from llm_bench_fixtures.results.record import Status, VariantResult

OF_TEXT = ("loss", "perplexity", "bits_per_byte", "word_perplexity", "byte_perplexity", "scored_tokens")
CLOCKED = (Unit.SECONDS, Unit.MILLISECONDS_PER_TOKEN, Unit.TOKENS_PER_SECOND)  # units that a slow machine changes


@dataclass(frozen=True)
class Judgement:
    """One metric of one test, or of one variant where it is the same for all of its tests.

    subject: the test's node id, or the variant's id. slowdown: of the machine, by the probe; 1 where there is none.
    margin: a log ratio within which nothing can be told. reason: why there is no verdict on the change.
    """

    subject: str
    scenario: str
    metric: Metric
    rule: Rule
    verdict: Verdict
    base: float | None = None
    head: float | None = None
    slowdown: float = 1.0
    margin: float = 0.0
    reason: str = ""

    @property
    def is_blocking(self) -> bool:
        return self.rule.force is Force.BLOCKING

    @property
    def raw_ratio(self) -> float | None:
        """Head / base; None where there is no such number."""
        return _ratio(self.base, self.head)

    @property
    def ratio(self) -> float | None:
        """What is judged: head / base on a machine as fast as the baseline's."""
        return _ratio(self.base, None if self.head is None else at_base_speed(self.head, self.metric, self.slowdown))


def _ratio(base: float | None, head: float | None) -> float | None:
    if base is None or head is None:
        return None
    ratio = log_ratio(base, head)
    return math.exp(ratio) if math.isfinite(ratio) else None


class Coverage(StrEnum):
    """What became of a test that the two runs don't both have measured."""

    NEW = "new"
    VANISHED = "vanished"
    SKIPPED = "skipped"
    ERRORED = "errored"
    NOT_MEASURED = "not measured"
    NOT_SELECTED = "not selected"


@dataclass(frozen=True)
class Uncovered:
    test: str
    coverage: Coverage
    reason: str = ""


@dataclass(frozen=True)
class Comparison:
    """judged_tests: those that both runs measured on the same workload. floor: the larger of the two runs' own."""

    base: SavedRun
    head: SavedRun
    judgements: tuple[Judgement, ...]
    judged_tests: int
    uncovered: tuple[Uncovered, ...]
    differences: tuple[Difference, ...]
    floor: NoiseFloor
    slowdown: float | None
    notes: tuple[str, ...] = ()

    def with_verdict(self, verdict: Verdict, force: Force | None = None) -> list[Judgement]:
        return [one for one in self.judgements if one.verdict is verdict and force in (None, one.rule.force)]


def compare_runs(base: SavedRun, head: SavedRun, rules: Rules, metrics: Mapping[str, Metric]) -> Comparison:
    """Judge every metric of `head` by `base`."""
    return _Comparer(base, head, rules, metrics).compare()


class _Comparer:
    def __init__(self, base: SavedRun, head: SavedRun, rules: Rules, metrics: Mapping[str, Metric]) -> None:
        self._base, self._head = base, head
        self._rules, self._metrics = rules, metrics
        self._differences = tuple(differences(fingerprint_of(base.provenance), fingerprint_of(head.provenance)))
        self._before = {record.test: record for record in base.records}
        self._after = {record.test: record for record in head.records}
        # The smaller: a run whose own times fly apart must not excuse itself by that.
        self._floor = min(noise_floor(base), noise_floor(head), key=lambda floor: floor.log_ratio)
        self._pairs = list(self._measured_pairs())
        self._slowdown = _mean_slowdown(self._pairs)
        self._ran_before = [_tests_before(run) for run in (base, head)]

    def compare(self) -> Comparison:
        is_comparable = not self._obstacle(Kind.EXACT)
        return Comparison(
            self._base,
            self._head,
            (*self._of_variants(), *(one for pair in self._pairs for one in self._of_records(*pair))),
            sum(is_comparable and _same_workload(*pair) for pair in self._pairs),
            tuple(self._uncovered()),
            self._differences,
            self._floor,
            self._slowdown,
            tuple(self._notes()),
        )

    def _measured_pairs(self) -> Iterator[tuple[SavedRecord, SavedRecord]]:
        for after in self._head.records:
            before = self._before.get(after.test)
            if before is not None and before.status is after.status is Status.MEASURED:
                yield before, after

    def _of_records(self, before: SavedRecord, after: SavedRecord) -> Iterator[Judgement]:
        base, head = _record_metrics(self._base, before), _record_metrics(self._head, after)
        slowdown = machine_slowdown(after.probe_s, before.probe_s) or 1.0
        other_workload = "" if _same_workload(before, after) else "another workload than the baseline's"
        shares_memory = self._ran_before[0][before.test] == self._ran_before[1][after.test]
        for metric in self._present(base, head):
            rule = self._rules.of(metric, after.scenario, after.gate)
            if metric.kind is Kind.MEMORY and not shares_memory and rule.force is Force.BLOCKING:
                rule = replace(rule, force=Force.ADVISORY)  # what else ran in the process is in its peak too
            values = _Values(base.get(metric.name), head.get(metric.name), slowdown, self._noise(metric))
            yield self._judged(after.test, after.scenario, metric, rule, values, other_workload)

    def _of_variants(self) -> Iterator[Judgement]:
        for after in self._head.variants:
            before = self._base.variant(after.id)
            if before is None or not before.status is after.status is Status.MEASURED:
                continue
            base, head = variant_metrics(before), variant_metrics(after)
            for metric in self._present(base, head):
                margin = max(self._noise(metric), _quality_margin(metric, before, after))
                values = _Values(base.get(metric.name), head.get(metric.name), self._slowdown or 1.0, margin)
                obstacle = self._quality_obstacle(metric) if metric.name in {**before.quality, **after.quality} else ""
                judged = [
                    self._judged(after.id, "", metric, rule, values, obstacle, lost=after.quality_note)
                    for rule in self._variant_rules(metric, after.id)
                ]
                yield max(judged, key=_severity)

    def _variant_rules(self, metric: Metric, variant: str) -> list[Rule]:
        """That of each of its tests: what one of them allows, the others needn't."""
        tests = [record for record in self._head.records if record.variant == variant]
        return list(dict.fromkeys(self._rules.of(metric, one.scenario, one.gate) for one in tests)) or [
            self._rules.of(metric)
        ]

    def _quality_obstacle(self, metric: Metric) -> str:
        if metric.name not in OF_TEXT and self._base.reference != self._head.reference:
            return f"another reference: {self._head.reference}; the baseline's: {self._base.reference}"
        return self._obstacle(Kind.QUALITY)

    def _present(self, base: Mapping[str, float], head: Mapping[str, float]) -> Iterator[Metric]:
        return (metric for metric in self._metrics.values() if metric.name in base or metric.name in head)

    def _noise(self, metric: Metric) -> float:
        return self._floor.log_ratio if metric.kind is Kind.TIMING else 0.0

    def _judged(
        self,
        subject: str,
        scenario: str,
        metric: Metric,
        rule: Rule,
        values: _Values,
        obstacle: str = "",
        lost: str = "",
    ) -> Judgement:
        """obstacle: why nothing of the subject is comparable. lost: why a metric may be there no more."""
        reason = obstacle or self._obstacle(metric.kind)
        if values.base is None:
            verdict, reason = Verdict.NEW, ""
        elif values.head is None:
            verdict, reason = Verdict.VANISHED, lost or reason
        elif reason:
            verdict = Verdict.NOT_MEASURED
        else:
            level = at_base_speed(values.head, metric, values.slowdown)
            verdict = judge(metric.direction, rule, values.base, level, values.margin)
        slowdown = values.slowdown if metric.unit in CLOCKED else 1.0
        return Judgement(
            subject, scenario, metric, rule, verdict, values.base, values.head, slowdown, values.margin, reason
        )

    def _obstacle(self, kind: Kind) -> str:
        """Why metrics of that kind can't be compared; "" where they can."""
        return next((str(one) for one in self._differences if kind in one.unjudged), "")

    def _uncovered(self) -> Iterator[Uncovered]:
        """The tests that are not measured on both sides, except those that were on neither."""
        for test in dict.fromkeys([*self._after, *self._before]):
            before, after = self._before.get(test), self._after.get(test)
            was, now = (one is not None and one.status is Status.MEASURED for one in (before, after))
            if before is not None and was and after is None:
                is_left_out = leaves_out(self._head.selection, before) and self._head.selection != self._base.selection
                yield Uncovered(test, Coverage.NOT_SELECTED if is_left_out else Coverage.VANISHED)
            elif was and after is not None and not now:
                yield Uncovered(test, _LOST[after.status], after.reason)
            elif now and not was:
                yield Uncovered(test, Coverage.NEW, f"the baseline says: {before.reason}" if before else "")

    def _notes(self) -> Iterator[str]:
        for after in self._head.variants:
            before = self._base.variant(after.id)
            if before is not None and before.label and after.label and before.label != after.label:
                yield f"{after.id} ran as {after.label}; in the baseline as {before.label}"
        scenarios = {record.scenario for record in self._head.records}
        for scenario in dict.fromkeys(rule.scenario for rule in self._rules.named):
            if scenario and scenario not in scenarios:
                yield f"no test here is of the scenario {scenario}, which a rule names"
        unknown = {name for run in (self._base, self._head) for one in run.measured() for name in one.metrics}
        unknown -= self._metrics.keys()
        if unknown:
            yield f"not judged, because only the project itself knows what they are: {', '.join(sorted(unknown))}"


@dataclass(frozen=True)
class _Values:
    base: float | None
    head: float | None
    slowdown: float = 1.0
    margin: float = 0.0


def leaves_out(selection: Sequence[str], record: SavedRecord) -> bool:
    """Whether the selection of tests, as in Run.selection, explains why the record's test didn't run."""
    flags = [part for part in selection if part.startswith("-")]
    paths = [part for part in selection if not part.startswith("-")]
    for flag in flags:
        name, _, value = flag.partition(" ")
        if name != "--llm-variants" or record.variant not in [one.strip() for one in value.split(",")]:
            return True
    return not any(_is_within(record.test, path) for path in paths)


def _is_within(test: str, path: str) -> bool:
    return path in (".", "", test) or test.startswith((f"{path.rstrip('/')}/", f"{path}::", f"{path}["))


def _severity(one: Judgement) -> tuple[bool, bool, bool]:
    """Of several rules for one value the one counts by which it is worst."""
    is_bad = one.verdict in (Verdict.REGRESSED, Verdict.VANISHED)
    return one.is_blocking and is_bad, one.is_blocking and one.verdict is Verdict.INCONCLUSIVE, one.is_blocking


_LOST = {
    Status.SKIPPED: Coverage.SKIPPED,
    Status.ERROR: Coverage.ERRORED,
    Status.NOT_MEASURED: Coverage.NOT_MEASURED,
}


def at_base_speed(value: float, metric: Metric, slowdown: float) -> float:
    """What a value would be on a machine as fast as the baseline's was, by the probe: 1 says equally fast."""
    if metric.unit not in CLOCKED:
        return value
    return value * slowdown if metric.direction is Direction.HIGHER_IS_BETTER else value / slowdown


def variant_metrics(variant: VariantResult) -> dict[str, float]:
    """The metrics that are the same for all of a variant's tests."""
    of_load = {"load_s": variant.load_s, "first_generate_s": variant.first_generate_s}
    values = {**of_load, "weight_bytes": variant.weight_bytes, **variant.quality}
    return {name: value for name, value in values.items() if value is not None}


def _record_metrics(run: SavedRun, record: SavedRecord) -> dict[str, float]:
    variant = run.variant(record.variant)
    shared = variant_metrics(variant) if variant else {}
    return {name: value for name, value in record.metrics.items() if name not in shared}


def _tests_before(run: SavedRun) -> dict[str, tuple[str, ...]]:
    """By test those that were measured before it in the same process."""
    of_process: dict[str, tuple[str, ...]] = defaultdict(tuple)
    found = {}
    for record in run.measured():
        process = record.variant if run.provenance.isolated else ""
        found[record.test] = of_process[process]
        of_process[process] += (record.test,)
    return found


def _same_workload(before: SavedRecord, after: SavedRecord) -> bool:
    return before.workload == after.workload


def _mean_slowdown(pairs: Sequence[tuple[SavedRecord, SavedRecord]]) -> float | None:
    """Geometric mean over the tests that have the probe on both sides; None where there is none."""
    found = [machine_slowdown(after.probe_s, before.probe_s) for before, after in pairs]
    known = [slowdown for slowdown in found if slowdown is not None]
    return statistics.geometric_mean(known) if known else None


def _quality_margin(metric: Metric, before: VariantResult, after: VariantResult) -> float:
    """A log ratio within which a quality metric's change can't be told from chance."""
    if metric.name == "perplexity":
        return paired_margin(before.loss_blocks, after.loss_blocks)
    if metric.name == "kld_mean":
        errors = sum(one.quality.get("kld_error", 0.0) for one in (before, after))
        least = min(one.quality.get("kld_mean", 0.0) for one in (before, after))
        return math.log1p(errors / least) if least > 0 else 0.0
    return 0.0
