"""The tables that have a row a benchmark: one for each scenario."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from llm_bench_fixtures.answer.scenario_means import scenario_means
from llm_bench_fixtures.errors import first_line
from llm_bench_fixtures.report.cells import latency_cell, metric_cell, speedup_cell, times_cell, title_of
from llm_bench_fixtures.report.document import Section, Table
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.results.formatting import MISSING
from llm_bench_fixtures.results.metrics import Metric, ReportTable, shown_in
from llm_bench_fixtures.results.record import Record, Run, Scenario, Status
from llm_bench_fixtures.statistics.ratio import Speedup

READABLE = "quantization"  # the scenario of the package whose prompts are for reading


def scenario_sections(findings: Findings) -> Iterator[Section]:
    """A table for each scenario that measured something, in the run's order of them; then any that it doesn't name."""
    run = findings.run
    named = {scenario.name: scenario for scenario in run.scenarios}
    met = dict.fromkeys(record.scenario for record in run.records)
    for scenario in {**named, **{name: Scenario(name) for name in met if name not in named}}.values():
        records = [record for record in run.records if record.scenario == scenario.name and record.workload is not None]
        if records:
            yield Section(
                title_of(scenario), _table(findings, records, _columns_of(scenario, findings)), scenario=scenario.name
            )


def means_sections(findings: Findings) -> Iterator[Section]:
    """A row a variant, a column a scenario of which several cases were measured in blocks; nothing without any."""
    means = list(scenario_means(findings.run))
    named = {scenario.name: scenario for scenario in findings.run.scenarios}
    titles = [title_of(named.get(one.scenario, Scenario(one.scenario))) for one in means]
    header = ("variant", *(f"{title} ({one.cases})" for title, one in zip(titles, means, strict=True)))
    variants = [one.id for one in findings.run.variants if any(one.id in mean.speedups for mean in means)]
    rows = tuple((name, *(_mean_cell(mean.speedups.get(name)) for mean in means)) for name in variants)
    note = (
        f"Mean speed-ups over {findings.run.reference}, with 95 % intervals, over the cases that all variants of a "
        "scenario ran. Their number stands in brackets."
    )
    if rows:
        yield Section("Speed-ups by scenario", Table(header, rows, frozenset(range(1, len(header)))), note)


def _mean_cell(found: Speedup | None) -> str:
    return times_cell(found.ratio, found.low, found.high) if found else MISSING


def scenario_of_texts(run: Run) -> str:
    """Whose generated texts are shown side by side: the scenario of readable prompts, else the one where most variants
    wrote something, the first of several; empty where none did."""
    writers: dict[str, set[str]] = defaultdict(set)
    for record in run.records:
        if record.outputs:
            writers[record.scenario].add(record.variant)
    if READABLE in writers:
        return READABLE
    return max(writers, key=lambda scenario: len(writers[scenario]), default="")


def not_asked_sentence(run: Run) -> str:
    """Which of the variants that ran wrote no text in the scenario whose texts are shown, and why; empty for nobody."""
    shown = scenario_of_texts(run)
    records = {record.variant: record for record in run.records if record.scenario == shown}
    writers = {record.variant for record in run.records if record.scenario == shown and record.outputs}
    others = [variant.id for variant in run.variants if variant.label and variant.id not in writers]
    if not writers or not others:
        return ""
    whys: dict[str, list[str]] = defaultdict(list)
    for variant in others:
        whys[_why_no_text(records.get(variant), _title_in(run, shown))].append(variant)
    named = (f"{', '.join(variants)}, {why}" for why, variants in whys.items())
    return f"Without a text here: {'; '.join(named)}."


def _title_in(run: Run, scenario: str) -> str:
    return next((title_of(one) for one in run.scenarios if one.name == scenario), title_of(Scenario(scenario)))


def _why_no_text(record: Record | None, title: str) -> str:
    """record: the variant's last one of the scenario."""
    if record is None:
        return f"because the texts are those of “{title}”, which was not run on them"
    if record.status is not Status.MEASURED:
        return f"{'failed' if record.status is Status.ERROR else record.status} there: {first_line(record.reason)}"
    return "because what they wrote was not kept"


def _columns_of(scenario: Scenario, findings: Findings) -> list[Metric]:
    """Its own columns, or the usual ones; then the project's own metrics that aren't among them."""
    own = [findings.metrics[name] for name in scenario.columns if name in findings.metrics]
    columns = own or shown_in(ReportTable.SCENARIO, findings.metrics)
    return [*columns, *(metric for metric in findings.added if metric not in columns)]


def _table(findings: Findings, records: Sequence[Record], metrics: Sequence[Metric]) -> Table:
    """Rows by case, the variants of each case together."""
    cases = list(dict.fromkeys(record.case for record in records))
    times = _time_columns(records)
    ordered = sorted(records, key=lambda record: cases.index(record.case))
    rows = [_row(findings, record, times, metrics) for record in ordered]
    header = ("case", "variant", "what ran", *times, *(metric.column for metric in metrics), "remarks")
    if len(cases) == 1:
        header, rows = header[1:], [row[1:] for row in rows]
    first = header.index("latency")
    return Table(header, tuple(rows), frozenset(range(first, len(header) - 1)))


def _time_columns(records: Sequence[Record]) -> dict[str, Callable[[Record], str]]:
    """The latency; beside it the speed-up, if any of the records was measured in blocks."""
    in_blocks = any(record.reference_s for record in records)
    return {"latency": latency_cell, **({"speed-up": speedup_cell} if in_blocks else {})}


def _row(
    findings: Findings, record: Record, times: Mapping[str, Callable[[Record], str]], metrics: Sequence[Metric]
) -> tuple[str, ...]:
    variant = findings.run.variant(record.variant)
    remarks = [*findings.flags[record.test]]
    if record.status is not Status.MEASURED:
        remarks.insert(0, f"{record.status}: {first_line(record.reason)}")
    elif record.reason:
        remarks.append(first_line(record.reason))
    cells = [metric_cell(metric, record, variant) for metric in metrics]
    if variant and variant.quality_note:
        named = zip(metrics, cells, strict=True)
        missing = {"perplexity"} - variant.quality.keys()
        cells = [variant.quality_note if metric.name in missing else cell for metric, cell in named]
    label = variant.label if variant else ""
    return (record.case, record.variant, label, *(cell(record) for cell in times.values()), *cells, "; ".join(remarks))
