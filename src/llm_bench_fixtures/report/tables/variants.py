"""The tables that have a row a variant: the summary, and the details of each of its columns."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from llm_bench_fixtures.report.cells import describe_headline, describe_workload, nothing_timed
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.tables.choices import choice_sections
from llm_bench_fixtures.report.tables.short import what_ran
from llm_bench_fixtures.report.tables.table import (
    ELSEWHERE,
    SUMMARY,
    VARIANT,
    WHAT_RAN,
    Cell,
    Column,
    Section,
    Table,
    metric_column,
)
from llm_bench_fixtures.report.tables.values import (
    CHANGE_ERROR,
    QUARTILES,
    headline_speedup,
    latency_cell,
    metric_cell,
    perplexity_change,
)
from llm_bench_fixtures.results.formatting import Notation
from llm_bench_fixtures.results.metrics import Kind, Metric, ReportTable, shown_in
from llm_bench_fixtures.results.metrics.choices import OF_CHOICES
from llm_bench_fixtures.results.record import Record, Run, VariantResult
from llm_bench_fixtures.statistics.spread import coefficient_of_variation, stability

CellOf = Callable[[VariantResult, Record | None], Cell]
CHANGE = Column("change", Notation.CHANGE, error_is=CHANGE_ERROR)


def summary_section(findings: Findings) -> Section:
    """One row a variant: speed on the common workload, memory and quality; those that didn't run with their reason."""
    columns = list(_summary_columns(findings))
    rows = []
    for variant in findings.run.variants:
        cells = [_summary_cell(cell, variant, findings) if variant.label else Cell() for _, cell in columns]
        rows.append((Cell(variant.id), Cell(what_ran(findings, variant)), *cells))
    where = describe_headline(findings)
    note = f"{where[:1].upper()}{where[1:]}." if where else nothing_timed(findings.run)
    table = Table((Column(VARIANT), Column(WHAT_RAN), *(column for column, _ in columns)), tuple(rows))
    return Section("All variants", table, note, SUMMARY)


def _summary_cell(cell: CellOf, variant: VariantResult, findings: Findings) -> Cell:
    """What is the record's, and not the variant's, has a mark where it isn't of the headline's workload."""
    elsewhere = findings.elsewhere.get(variant.id)
    found = cell(variant, elsewhere or findings.common.get(variant.id))
    is_marked = elsewhere and not found.is_missing and found != cell(variant, _bare(variant))
    return replace(found, mark=ELSEWHERE) if is_marked else found


def _bare(variant: VariantResult) -> Record:
    """A record of the variant without anything measured."""
    return Record("", "", "", variant.id, variant.status)


def _summary_columns(findings: Findings) -> Iterator[tuple[Column, CellOf]]:
    """The metrics of the table; the change follows the perplexity."""
    for metric in (*shown_in(ReportTable.SUMMARY, findings.metrics), *findings.added):
        column = metric_column(metric)
        if metric.name == "latency_s":
            yield replace(column, error_is=QUARTILES), lambda _, record: latency_cell(record)
        elif metric.name == "speedup":
            yield replace(column, notation=Notation.TIMES), lambda _, record: headline_speedup(record, findings)
        else:
            yield column, _cell_of(metric)
        if metric.name == "perplexity":
            yield CHANGE, lambda variant, _: perplexity_change(variant)


def _metric_columns(metrics: Iterable[Metric]) -> list[tuple[Column, CellOf]]:
    return [(metric_column(metric), _cell_of(metric)) for metric in metrics]


def _cell_of(metric: Metric) -> CellOf:
    """Quality over the corpus is the variant's, whether or not it has a record of the workload."""
    return lambda variant, record: metric_cell(
        metric, _bare(variant) if record is None and metric.name in variant.quality else record, variant
    )


def variant_sections(findings: Findings) -> Iterator[Section]:
    """The details of the summary: prefill and decode, variation between rounds, memory and counts, quality, answers."""
    records = findings.common
    shown = findings.reference or next(iter(records.values()), None)
    where = f"{describe_workload(shown)}." if shown else ""
    sure = (
        "From and to: the 95 % interval of the rounds' geometric mean in this process; another process differs by more."
    )
    of_rounds: tuple[Column, CellOf] = (Column("stability", Notation.TEXT), lambda _, record: _stability(record))
    parts: tuple[tuple[str, ReportTable, list[tuple[Column, CellOf]], str], ...] = (
        ("Prefill and decode", ReportTable.PREFILL_DECODE, [], f"On {where} {findings.decode}".strip()),
        ("Variation between rounds", ReportTable.VARIATION, [of_rounds], sure),
        ("Memory and exact counts", ReportTable.MEMORY, [], f"Of a round on {where}"),
    )
    for title, name, more, note in parts:
        table = _table(findings, [*_metric_columns(shown_in(name, findings.metrics)), *more])
        if records and table is not None:
            yield Section(title, table, note)
    yield from _quality_section(findings)
    yield from choice_sections(findings)


def _quality_section(findings: Findings) -> Iterator[Section]:
    """Over the corpus, and of the generated texts; nothing where neither is known."""
    run, metrics = findings.run, findings.metrics
    quality = [metric for metric in metrics.values() if _is_of_the_corpus(run, metric)]
    of_texts = [
        (metric_column(metric), _mean_over_records(run, metric)) for metric in shown_in(ReportTable.TEXTS, metrics)
    ]
    table = _table(findings, [*_metric_columns(quality), *of_texts])
    if table is not None:
        over = [f"Over the {run.provenance.corpus}; against {run.reference}."] if quality else []
        columns = " and ".join(column.name for column, _ in of_texts if column in table.columns)
        of_what = f"of the generated texts against {run.reference}'s, the mean of the benchmarks' means."
        yield Section("Quality", table, " ".join([*over, *([f"{columns}: {of_what}"] if columns else [])]))


def _mean_over_records(run: Run, metric: Metric) -> CellOf:
    """Over all of the variant's benchmarks that have a value."""

    def cell(variant: VariantResult, _: Record | None) -> Cell:
        found = [metric.of(record, variant) for record in run.records if record.variant == variant.id]
        values = [value for value in found if value is not None]
        return Cell(value=statistics.fmean(values) if values else None)

    return cell


def _is_of_the_corpus(run: Run, metric: Metric) -> bool:
    is_elsewhere = ReportTable.TEXTS in metric.tables or metric.name in OF_CHOICES
    is_quality = metric.kind is Kind.QUALITY and not is_elsewhere
    return is_quality and any(metric.name in variant.quality for variant in run.variants)


def _table(findings: Findings, columns: Sequence[tuple[Column, CellOf]]) -> Table | None:
    """A row a variant that loaded; columns in which no variant has a value are left out. None where none is left."""
    variants = [variant for variant in findings.run.variants if variant.label]
    common = findings.common
    cells = [(column, [cell(one, common.get(one.id)) for one in variants]) for column, cell in columns]
    filled = [(column, them) for column, them in cells if not all(one.is_missing for one in them)]
    if not filled:
        return None
    rows = zip(*([Cell(one.id) for one in variants], *(them for _, them in filled)), strict=True)
    return Table((Column(VARIANT), *(column for column, _ in filled)), tuple(rows))


def _stability(record: Record | None) -> Cell:
    variation = coefficient_of_variation(record.rounds_s) if record else None
    return Cell() if variation is None else Cell(stability(variation))
