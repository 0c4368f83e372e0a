"""What variants made of lm-evaluation-harness's tasks: columns of the tables of variants, and a table a task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from llm_bench_fixtures.measure.tasks import TaskFacts, TaskMetric
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.tables.table import Cell, Column, Figures, Section, table_by_variant
from llm_bench_fixtures.results.formatting import Notation, count
from llm_bench_fixtures.results.metrics.tasks import CHANGE_ERROR, GAINED, LOST, value_name
from llm_bench_fixtures.results.record import VariantResult

FLIPS: Mapping[str, tuple[str, ...]] = {"flips": (LOST, GAINED)}
EACH_WAY: Mapping[str, tuple[str, ...]] = {**FLIPS, "right → wrong": (LOST,), "wrong → right": (GAINED,)}
DROPPABLE = 3  # flips leave a narrow table late; what was asked for never does


def task_figures(findings: Findings) -> Iterator[Figures]:
    """Each task's first metric, and the answers that flip."""
    for task in findings.run.provenance.tasks:
        for metric in task.metrics[:1]:
            yield from _figures(findings, task, metric, FLIPS)


def task_sections(findings: Findings) -> Iterator[Section]:
    """A row a variant that was asked, with all metrics."""
    run = findings.run
    for task in run.provenance.tasks:
        figures = [one for metric in task.metrics for one in _figures(findings, task, metric, EACH_WAY)]
        asked = [one for one in run.loaded if not all(column.cells[one.id].is_missing for column in figures)]
        items = count(task.of, "item") if task.items == task.of else f"{task.items:,} of {count(task.of, 'item')}"
        version = f", version {task.version}" if task.version else ""
        note = f"By lm-evaluation-harness {task.harness}: {items}, {task.shots}-shot{version}."
        yield Section(f"Task {task.name}", table_by_variant(asked, figures), note)


def _figures(
    findings: Findings, task: TaskFacts, metric: TaskMetric, counts: Mapping[str, tuple[str, ...]]
) -> Iterator[Figures]:
    """The metric, then columns of counts. counts: by the column's name, the endings of what it sums up."""
    name = value_name(task.name, metric.name)
    error_is = f"one standard error of a task's difference from {findings.run.reference}, from pairs of items"
    column = replace(Column.of(findings.metrics[name]), error_is=error_is)
    error = f"{name}_{CHANGE_ERROR}"
    yield Figures(
        column, {one.id: Cell(value=one.quality.get(name), error=one.quality.get(error)) for one in findings.run.loaded}
    )
    for head, endings in counts.items():
        names = [f"{name}_{ending}" for ending in endings]
        found = {one.id: _count(one, names, task.items) for one in findings.run.loaded}
        if any(not cell.is_missing for cell in found.values()):
            yield Figures(Column(f"{column.name} {head}", Notation.COUNT, droppable=DROPPABLE), found)


def _count(variant: VariantResult, names: list[str], items: int) -> Cell:
    found = [variant.quality[name] for name in names if name in variant.quality]
    return Cell.counted(round(sum(found)), items) if found else Cell()
