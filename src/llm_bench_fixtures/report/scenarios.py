"""The tables that have a row a benchmark: one for each scenario."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llm_bench_fixtures.errors import first_line
from llm_bench_fixtures.report.cells import latency_cell, metric_cell
from llm_bench_fixtures.report.document import Section, Table
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.results.metrics import Metric, ReportTable, shown_in
from llm_bench_fixtures.results.record import Record, Scenario, Status


def scenario_sections(findings: Findings) -> Iterator[Section]:
    """A table for each scenario that measured something, in the run's order of them; then any that it doesn't name."""
    run = findings.run
    named = {scenario.name: scenario for scenario in run.scenarios}
    met = dict.fromkeys(record.scenario for record in run.records)
    for scenario in {**named, **{name: Scenario(name) for name in met if name not in named}}.values():
        records = [record for record in run.records if record.scenario == scenario.name and record.workload is not None]
        if records:
            title = scenario.title or scenario.name.replace("_", " ").capitalize()
            yield Section(title, _table(findings, records, _columns_of(scenario, findings)), scenario=scenario.name)


def _columns_of(scenario: Scenario, findings: Findings) -> list[Metric]:
    """Its own columns, or the usual ones; then the project's own metrics that aren't among them."""
    own = [findings.metrics[name] for name in scenario.columns if name in findings.metrics]
    columns = own or shown_in(ReportTable.SCENARIO, findings.metrics)
    return [*columns, *(metric for metric in findings.added if metric not in columns)]


def _table(findings: Findings, records: Sequence[Record], metrics: Sequence[Metric]) -> Table:
    """Rows by case, the variants of each case together."""
    cases = list(dict.fromkeys(record.case for record in records))
    rows = [_row(findings, record, metrics) for record in sorted(records, key=lambda record: cases.index(record.case))]
    with_case = len(cases) > 1
    header = ("case", "variant", "what ran", "latency", *(metric.column for metric in metrics), "remarks")
    if not with_case:
        header, rows = header[1:], [row[1:] for row in rows]
    first = header.index("latency")
    return Table(header, tuple(rows), frozenset(range(first, first + 1 + len(metrics))))


def _row(findings: Findings, record: Record, metrics: Sequence[Metric]) -> tuple[str, ...]:
    variant = findings.run.variant(record.variant)
    remarks = [*findings.flags[record.test]]
    if record.status is not Status.MEASURED:
        remarks.insert(0, f"{record.status}: {first_line(record.reason)}")
    cells = [metric_cell(metric, record, variant) for metric in metrics]
    if variant and variant.quality_note:
        named = zip(metrics, cells, strict=True)
        missing = {"perplexity"} - variant.quality.keys()
        cells = [variant.quality_note if metric.name in missing else cell for metric, cell in named]
    label = variant.label if variant else ""
    return (record.case, record.variant, label, latency_cell(record), *cells, "; ".join(remarks))
