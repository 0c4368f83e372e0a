"""The tables that have a row a benchmark, one for each scenario, and what has a row a case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from llm_bench_fixtures.answer.headline import OWN, in_shared_rounds, scenario_means
from llm_bench_fixtures.answer.threads import THREADS
from llm_bench_fixtures.errors import first_line
from llm_bench_fixtures.grouping import grouped
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.tables.table import LATENCY, SPEEDUP, VARIANT, WHAT_RAN, Cell, Column, Section, Table
from llm_bench_fixtures.report.words.measured import RatioRow, odd_ratios, scenarios_of, title_of
from llm_bench_fixtures.results.formatting import Notation
from llm_bench_fixtures.results.metrics import Metric, ReportTable, shown_in
from llm_bench_fixtures.results.record import Record, Run, Scenario, Status
from llm_bench_fixtures.results.speedup import record_speedup

READABLE = "quantization"  # the scenario of the package whose prompts are for reading


@dataclass(frozen=True)
class CaseRow:
    """How fast each variant is in one case."""

    scenario: Scenario
    case: str
    cells: Mapping[str, Cell]
    """Cells by variant, of all that were measured in some case. A speed-up over the reference has its 95 % interval,
    and is better or worse where the whole interval is on one side of 1. The reference's cell, and one without a
    speed-up, are latencies: their notation is SECONDS. `Cell()` where a variant didn't run the case."""

    @property
    def title(self) -> str:
        """The scenario's."""
        return title_of(self.scenario)


def case_rows(findings: Findings) -> list[CaseRow]:
    """Rows of all cases, in the scenarios' order."""
    records = {(one.scenario, one.case, one.variant): one for one in findings.run.measured()}
    variants = [one.id for one in findings.run.variants if any(one.id == variant for *_, variant in records)]
    rows, cases = [], dict.fromkeys(key[:2] for key in records)
    for scenario in scenarios_of(findings.run).values():
        for case in [case for name, case in cases if name == scenario.name]:
            found = {name: records.get((scenario.name, case, name)) for name in variants}
            cells = {name: _speedup_or_latency(one, findings) for name, one in found.items()}
            rows.append(CaseRow(scenario, case, cells))
    return rows


def _speedup_or_latency(record: Record | None, findings: Findings) -> Cell:
    if record is None:
        return Cell()
    found = None if record.variant == findings.run.reference else record_speedup(record)
    if found is None:
        return Cell(value=record.median_s, notation=Notation.SECONDS)
    return Cell.times(found, is_toned=not findings.ran_the_reference(record.variant))


def scenario_sections(findings: Findings) -> Iterator[Section]:
    """A table for each scenario that measured something, in the run's order of them; then any that it doesn't name."""
    run = findings.run
    for scenario in scenarios_of(run).values():
        if scenario.name == THREADS and findings.threads:
            continue  # threads have a table of their own
        records = [record for record in run.records if record.scenario == scenario.name and record.workload is not None]
        if records:
            table = _table(findings, records, _columns_of(scenario, findings))
            yield Section(title_of(scenario), table, scenario=scenario.name)


def mean_sections(findings: Findings) -> Iterator[Section]:
    """A row a variant, a column a scenario of which several cases were measured in blocks; nothing without any."""
    means = list(scenario_means(findings.run))
    scenarios = scenarios_of(findings.run)
    heads = (f"{title_of(scenarios[one.scenario])} ({one.cases})" for one in means)
    columns = (Column(VARIANT), *(Column(head, Notation.TIMES) for head in heads))
    variants = [one.id for one in findings.run.variants if any(one.id in mean.speedups for mean in means)]
    rows = tuple((Cell(name), *(Cell.times(mean.speedups.get(name)) for mean in means)) for name in variants)
    note = (
        f"Mean speed-ups over {findings.run.reference}, with 95 % intervals, over the cases that all variants of a "
        "scenario ran. Their number stands in brackets."
    )
    if rows:
        yield Section("Speed-ups by scenario", Table(columns, rows), note)


def scenario_of_texts(run: Run) -> str:
    """Scenario whose generated texts are shown side by side: the user's own prompts where these are to be shown, the
    scenario of readable prompts, else the one where most variants wrote something, the first of several; empty where
    none did."""
    wrote = dict.fromkeys((record.scenario, record.variant) for record in run.records if record.outputs)
    writers = Counter(scenario for scenario, _ in wrote)
    readable = [*([OWN] if run.provenance.prompts else []), READABLE]
    most = max(writers, key=writers.__getitem__, default="")
    return next((scenario for scenario in readable if scenario in writers), most)


def absent_texts(run: Run) -> str:
    """Which of the variants that ran wrote no text in the scenario whose texts are shown, and why; empty for nobody."""
    shown = scenario_of_texts(run)
    records = {record.variant: record for record in run.records if record.scenario == shown}
    writers = {record.variant for record in run.records if record.scenario == shown and record.outputs}
    others = [variant.id for variant in run.variants if variant.label and variant.id not in writers]
    if not writers or not others:
        return ""
    title = title_of(scenarios_of(run)[shown])
    whys = grouped(others, lambda variant: _why_no_text(records.get(variant), title))
    named = (f"{', '.join(variants)}, {why}" for why, variants in whys.items())
    return f"Without a text here: {'; '.join(named)}."


def _why_no_text(record: Record | None, title: str) -> str:
    """record: the variant's last one of the scenario."""
    if record is None:
        return f"which did not run “{title}”, whose texts these are"
    if record.status is not Status.MEASURED:
        return f"{'failed' if record.status is Status.ERROR else record.status} there: {first_line(record.reason)}"
    return "because what they wrote was not kept"


def _columns_of(scenario: Scenario, findings: Findings) -> list[Metric]:
    """Columns of the scenario, or the usual ones; then the project's own metrics that aren't among them."""
    own = [findings.metrics[name] for name in scenario.columns if name in findings.metrics]
    columns = own or shown_in(ReportTable.SCENARIO, findings.metrics)
    return [*columns, *(metric for metric in findings.added if metric not in columns)]


def _table(findings: Findings, records: Sequence[Record], metrics: Sequence[Metric]) -> Table:
    """Rows by case, the variants of each case together. The speed-up has a column where any of the records was measured
    in blocks."""
    cases = grouped(records, lambda record: record.case)
    found = [one for them in cases.values() for one in _in_shared_rounds(them)]
    columns = (*map(Column, ("case", VARIANT, WHAT_RAN)), LATENCY, SPEEDUP, *map(Column.of, metrics), Column("remarks"))
    rows = tuple(tuple(_row(findings, *one, metrics)) for one in found)
    notes = odd_ratios(_ratios(findings.run.reference, found))
    shown = list(range(len(columns)))
    if not any(record.reference_s for record in records):
        shown.remove(columns.index(SPEEDUP))
    if len(cases) == 1:
        shown.remove(0)
    return Table(columns, rows, tuple(notes)).with_columns(shown)


def _in_shared_rounds(case: Sequence[Record]) -> list[tuple[Record, Record]]:
    """The records of a case, in their order, each followed by itself in the rounds that all with its workload shared,
    whose figures are shown."""
    alike = [{one.test: one for one in them} for them in grouped(case, lambda one: one.digest).values()]
    shown = {one.test: one for them in alike for one in in_shared_rounds(them).values()}
    return [(one, shown[one.test]) for one in case]


def _ratios(reference: str, found: Sequence[tuple[Record, Record]]) -> Iterator[RatioRow]:
    of_reference = {shown.case: Cell.latency(shown) for _, shown in found if shown.variant == reference}
    for one, shown in found:
        name = f"{one.variant} ({one.case})" if one.case else one.variant
        yield name, of_reference.get(one.case, Cell()), Cell.latency(shown), Cell.times(record_speedup(one))


def _row(findings: Findings, record: Record, shown: Record, metrics: Sequence[Metric]) -> Iterator[Cell]:
    """shown: the record in the rounds whose figures are shown."""
    variant = findings.run.variant(record.variant)
    yield from map(Cell, (record.case, record.variant, variant.label if variant else ""))
    yield from (Cell.latency(shown), Cell.times(record_speedup(record)))
    yield from (Cell.of_metric(metric, shown, variant) for metric in metrics)
    reason, flags = first_line(record.reason), findings.flags[record.test]
    is_measured = record.status is Status.MEASURED
    remarks = (*flags, reason) if is_measured else (f"{record.status}: {reason}", *flags)
    yield Cell("; ".join(filter(None, remarks)))
