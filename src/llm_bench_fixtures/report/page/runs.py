"""The page of several runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from llm_bench_fixtures.answer.picks import Reader
from llm_bench_fixtures.report.charts.looks import looks_of
from llm_bench_fixtures.report.charts.plotly import Json, figures_of
from llm_bench_fixtures.report.charts.runs import runs_charts
from llm_bench_fixtures.report.charts.spec import Chart
from llm_bench_fixtures.report.page.tables import glossary, page_table
from llm_bench_fixtures.report.page.values import Chip, PageTable, Row, Term
from llm_bench_fixtures.report.runs import ReadersRow, Runs
from llm_bench_fixtures.report.tables.table import Table
from llm_bench_fixtures.results.formatting import count


@dataclass(frozen=True)
class RunsPage:
    """Everything that the page of several runs shows, from top to bottom."""

    title: str
    sentence: str
    readers: tuple[tuple[Reader, tuple[ReadersRow, ...]], ...]
    chips: tuple[Chip, ...]
    charts: tuple[Chart, ...]
    table: PageTable
    incomparable: tuple[str, ...]
    answers: tuple[tuple[str, str], ...]
    """By the run's label, its answer in one sentence."""
    about: PageTable
    footnotes: tuple[str, ...]
    glossary: tuple[Term, ...]

    @property
    def figures(self) -> dict[str, Json]:
        """What the page's script draws."""
        return figures_of(self.charts)


def build_runs_page(runs: Runs) -> RunsPage:
    terms = glossary(runs.table.names, runs.runs[0].findings.metrics)
    return RunsPage(
        title=f"Text generation in {count(len(runs.runs), 'run')}{f': {runs.common}' if runs.common else ''}",
        sentence=runs.sentence,
        readers=runs.readers,
        chips=_chips(runs),
        charts=tuple(runs_charts(runs.runs)),
        table=_main_table(runs.table, terms),
        incomparable=runs.incomparable,
        answers=runs.answers,
        about=page_table(runs.about, "Where the runs come from", {}),
        footnotes=runs.notes,
        glossary=tuple(terms.values()),
    )


def _chips(runs: Runs) -> tuple[Chip, ...]:
    """The variants that ran in any of the runs."""
    found: dict[str, Chip] = {}
    for run in runs.runs:
        looks = looks_of(run.findings.run)
        ran = (variant for variant in run.findings.run.variants if variant.label)
        found |= {one.id: Chip(one.id, looks[one.id].colour, one.label) for one in ran if one.id not in found}
    return tuple(found.values())


def _main_table(table: Table, terms: Mapping[str, Term]) -> PageTable:
    """The run's label below the variant's id, so that the table fits a narrow screen."""
    found = page_table(table, "The variants by machine and model", terms)
    first, _, *others = found.heads
    return replace(found, heads=(first, *others), rows=tuple(map(_with_run, found.rows)))


def _with_run(row: Row) -> Row:
    variant, run, *others = row.cells
    return replace(row, cells=(replace(variant, detail=run.text), *others))
