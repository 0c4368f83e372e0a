"""Columns of tables that have a row a variant, on the headline's workload."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from llm_bench_fixtures.answer.peaks import WEIGHTS
from llm_bench_fixtures.errors import first_line
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.tables.cases import scenarios_of
from llm_bench_fixtures.report.tables.table import (
    ELSEWHERE,
    VARIANT,
    WHAT_RAN,
    Cell,
    Column,
    Figures,
    Table,
    metric_column,
)
from llm_bench_fixtures.report.tables.values import QUARTILES, headline_speedup, latency_cell, metric_cell
from llm_bench_fixtures.report.words.workload import describe_prompts, title_of
from llm_bench_fixtures.results.formatting import Notation
from llm_bench_fixtures.results.metrics import Metric
from llm_bench_fixtures.results.record import Record, VariantResult


def table_by_variant(variants: Iterable[VariantResult], figures: Sequence[Figures]) -> Table:
    rows = ((Cell(one.id), *(column.cells.get(one.id, Cell()) for column in figures)) for one in variants)
    return Table((Column(VARIANT), *(one.column for one in figures)), tuple(rows))


def what_ran_column(findings: Findings) -> Figures:
    return Figures(Column(WHAT_RAN), {one.id: Cell(what_ran(findings, one)) for one in findings.run.variants})


def what_ran(findings: Findings, variant: VariantResult) -> str:
    """In words, with what is unusual about it and what its figures are of if not of the headline's workload; why it
    didn't run, or has no quality."""
    if not variant.label:
        return f"{variant.status}: {first_line(variant.reason)}"
    record = findings.elsewhere.get(variant.id)
    title = title_of(scenarios_of(findings.run)[record.scenario]) if record else ""
    where = [f"{ELSEWHERE} {describe_prompts(record)} (“{title}”)"] if record else []
    has_no_quality = variant.quality_note and "perplexity" not in variant.quality
    why = [f"quality not measured: {variant.quality_note}"] if has_no_quality else []
    return "; ".join([variant.label, *findings.variant_flags[variant.id], *where, *why])


def metric_figures(metric: Metric, findings: Findings) -> Figures:
    """The values on the headline's workload."""
    ran = [one for one in findings.run.variants if one.label]
    return Figures(metric_column(metric), {one.id: _cell(metric, one, findings.common.get(one.id)) for one in ran})


def headline_figures(metric: Metric, findings: Findings) -> Figures:
    """The same with what is known of latencies and speed-ups beside the value; of a variant that was not measured on
    the headline's workload the values on another, with a mark."""
    column, cells = metric_column(metric), dict(metric_figures(metric, findings).cells)
    for name, record in {**findings.common, **findings.elsewhere}.items():
        variant = findings.run.variant(name)
        if metric.name == "latency_s":
            cells[name] = latency_cell(record)
        elif metric.name == "speedup":
            cells[name] = headline_speedup(record, findings)
        elif variant and name in findings.elsewhere:
            cells[name] = metric_cell(metric, record, variant)
        if variant and name in findings.elsewhere and not cells[name].is_missing:
            is_the_variants = cells[name] == metric_cell(metric, _bare(variant), variant)
            cells[name] = replace(cells[name], mark="" if is_the_variants else ELSEWHERE)
    notation = Notation.TIMES if metric.name == "speedup" else column.notation
    return Figures(replace(column, notation=notation, error_is=QUARTILES if metric.name == "latency_s" else ""), cells)


def _cell(metric: Metric, variant: VariantResult, record: Record | None) -> Cell:
    """Weights and quality over the corpus are the variant's, whether or not it has a record of the workload."""
    is_the_variants = metric.name == WEIGHTS or metric.name in variant.quality
    return metric_cell(metric, _bare(variant) if record is None and is_the_variants else record, variant)


def _bare(variant: VariantResult) -> Record:
    """A record of the variant without anything measured."""
    return Record("", "", "", variant.id, variant.status)
