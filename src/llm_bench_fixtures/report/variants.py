"""The tables that have a row a variant: the summary, and the details of each of its columns."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping

from llm_bench_fixtures.report.blocks import speedup_or_ratio
from llm_bench_fixtures.report.cells import (
    describe_headline,
    describe_workload,
    latency_cell,
    metric_cell,
    nothing_timed,
)
from llm_bench_fixtures.report.choices import choice_sections
from llm_bench_fixtures.report.document import SUMMARY, Section, Table
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.quality import change_cell
from llm_bench_fixtures.report.short_table import marked, what_ran
from llm_bench_fixtures.results.formatting import MISSING, format_metric
from llm_bench_fixtures.results.metrics import Kind, Metric, ReportTable, shown_in
from llm_bench_fixtures.results.metrics.choices import OF_CHOICES
from llm_bench_fixtures.results.record import Record, Run, VariantResult
from llm_bench_fixtures.statistics.spread import coefficient_of_variation, stability

Cell = Callable[[VariantResult, Record | None], str]


def summary_section(findings: Findings) -> Section:
    """One row a variant: speed on the common workload, memory and quality; those that didn't run with their reason."""
    columns = {**_summary_columns(findings), **_metric_columns(findings.added)}
    rows = []
    for variant in findings.run.variants:
        values = [_summary_value(cell, variant, findings) if variant.label else MISSING for cell in columns.values()]
        rows.append((variant.id, what_ran(findings, variant), *values))
    where = describe_headline(findings)
    note = f"{where[:1].upper()}{where[1:]}." if where else nothing_timed(findings.run)
    header = ("variant", "what ran", *columns)
    return Section("All variants", Table(header, tuple(rows), frozenset(range(2, len(header)))), note, SUMMARY)


def _summary_value(cell: Cell, variant: VariantResult, findings: Findings) -> str:
    """What is the record's, and not the variant's, has a mark where it isn't of the headline's workload."""
    elsewhere = findings.elsewhere.get(variant.id)
    value = cell(variant, elsewhere or findings.common.get(variant.id))
    bare = Record("", "", "", variant.id, variant.status)
    return marked(value) if elsewhere and value != cell(variant, bare) else value


def _summary_columns(findings: Findings) -> dict[str, Cell]:
    """The metrics of the table; the change follows the perplexity."""
    behind: dict[str, dict[str, Cell]] = {"perplexity": {"change": lambda variant, _: change_cell(variant)}}
    columns: dict[str, Cell] = {}
    for metric in shown_in(ReportTable.SUMMARY, findings.metrics):
        columns |= {metric.column: _summary_cell(metric, findings), **behind.get(metric.name, {})}
    return columns


def _summary_cell(metric: Metric, findings: Findings) -> Cell:
    if metric.name == "latency_s":
        return lambda _, record: latency_cell(record)
    if metric.name == "speedup":
        return lambda _, record: speedup_or_ratio(record, findings)
    return _or_note(_cell(metric)) if metric.name == "perplexity" else _cell(metric)


def _metric_columns(metrics: Iterable[Metric]) -> dict[str, Cell]:
    return {metric.column: _cell(metric) for metric in metrics}


def _cell(metric: Metric) -> Cell:
    return lambda variant, record: _value_cell(metric, record, variant)


def _value_cell(metric: Metric, record: Record | None, variant: VariantResult) -> str:
    """Quality over the corpus is the variant's, whether or not it has a record of the workload."""
    if record is None and metric.name in variant.quality:
        record = Record("", "", "", variant.id, variant.status)
    return metric_cell(metric, record, variant)


def _or_note(cell: Cell) -> Cell:
    """The cell, or why the variant has no quality."""

    def noted(variant: VariantResult, record: Record | None) -> str:
        missing = "perplexity" not in variant.quality
        return variant.quality_note if missing and variant.quality_note else cell(variant, record)

    return noted


def variant_sections(findings: Findings) -> Iterator[Section]:
    """The details of the summary: prefill and decode, variation between rounds, memory and counts, quality, answers."""
    records = findings.common
    shown = findings.reference or next(iter(records.values()), None)
    where = f"{describe_workload(shown)}." if shown else ""
    sure = (
        "From and to: the 95 % interval of the rounds' geometric mean in this process; another process differs by more."
    )
    of_rounds: dict[str, Cell] = {"stability": lambda _, record: _stability(record)}
    parts: tuple[tuple[str, ReportTable, dict[str, Cell], str], ...] = (
        ("Prefill and decode", ReportTable.PREFILL_DECODE, {}, f"On {where} {findings.decode}".strip()),
        ("Variation between rounds", ReportTable.VARIATION, of_rounds, sure),
        ("Memory and exact counts", ReportTable.MEMORY, {}, f"Of a round on {where}"),
    )
    for title, name, more, note in parts:
        table = _table(findings, {**_metric_columns(shown_in(name, findings.metrics)), **more})
        if records and table is not None:
            yield Section(title, table, note)
    yield from _quality_section(findings)
    yield from choice_sections(findings)


def _quality_section(findings: Findings) -> Iterator[Section]:
    """Over the corpus, and of the generated texts; nothing where neither is known."""
    run, metrics = findings.run, findings.metrics
    quality = [metric for metric in metrics.values() if _is_of_the_corpus(run, metric)]
    of_texts = {metric.column: _mean_over_records(run, metric) for metric in shown_in(ReportTable.TEXTS, metrics)}
    table = _table(findings, {**_metric_columns(quality), **of_texts})
    if table is not None:
        over = [f"Over the {run.provenance.corpus}; against {run.reference}."] if quality else []
        columns = " and ".join(title for title in of_texts if title in table.header)
        of_what = f"of the generated texts against {run.reference}'s, the mean of the benchmarks' means."
        yield Section("Quality", table, " ".join([*over, *([f"{columns}: {of_what}"] if columns else [])]))


def _mean_over_records(run: Run, metric: Metric) -> Cell:
    """Over all of the variant's benchmarks that have a value."""

    def cell(variant: VariantResult, _: Record | None) -> str:
        found = [metric.of(record, variant) for record in run.records if record.variant == variant.id]
        values = [value for value in found if value is not None]
        return format_metric(statistics.fmean(values) if values else None, metric)

    return cell


def _is_of_the_corpus(run: Run, metric: Metric) -> bool:
    is_elsewhere = ReportTable.TEXTS in metric.tables or metric.name in OF_CHOICES
    is_quality = metric.kind is Kind.QUALITY and not is_elsewhere
    return is_quality and any(metric.name in variant.quality for variant in run.variants)


def _table(findings: Findings, columns: Mapping[str, Cell]) -> Table | None:
    """A row a variant that loaded; columns in which no variant has a value are left out. None where none is left."""
    variants = [variant for variant in findings.run.variants if variant.label]
    common = findings.common
    cells = {title: [cell(variant, common.get(variant.id)) for variant in variants] for title, cell in columns.items()}
    filled = {title: column for title, column in cells.items() if set(column) != {MISSING}}
    if not filled:
        return None
    header = ("variant", *filled)
    rows = tuple((variant.id, *row) for variant, *row in zip(variants, *filled.values(), strict=True))
    return Table(header, rows, frozenset(range(1, len(header))))


def _stability(record: Record | None) -> str:
    variation = coefficient_of_variation(record.rounds_s) if record else None
    return MISSING if variation is None else stability(variation)
