"""The report of several runs: one page with its charts, its Markdown, the table for a paper, and the data of all of
them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from llm_bench_fixtures.report.charts.plotly import figures_of
from llm_bench_fixtures.report.charts.variants import runs_charts
from llm_bench_fixtures.report.files import Attempts
from llm_bench_fixtures.report.page.tables import PageTable, chips_of, glossary
from llm_bench_fixtures.report.renderers.html import render_page
from llm_bench_fixtures.report.renderers.latex import caption_of, latex_table
from llm_bench_fixtures.report.renderers.markdown import (
    bullets,
    comment,
    escape,
    explained_table,
    folded,
    markdown_table,
)
from llm_bench_fixtures.report.runs import MOST_SHOWN, RUN, Runs, about_table, answers_table, notes
from llm_bench_fixtures.results.folder import LATEX_FILE, MARKDOWN_FILE, PAGE_FILE, TABLE_FILE, begun
from llm_bench_fixtures.results.table import IDENTITY, for_csv, run_table

if TYPE_CHECKING:
    import pandas as pd


def write_runs_report(runs: Runs, folder: Path, *, has_results: bool = False) -> None:
    """Claim the folder, set the report aside that is in it, and write report.html, report.md, results.tex and
    results.csv.

    has_results: the results.json in it is one of the runs', and stays. Raises UnwritableFile where a part of it could
    not be written, or the folder isn't ours, and KeyboardInterrupt.
    """
    attempts = Attempts(folder)
    with begun(folder, has_results=has_results):
        attempts.write_text(TABLE_FILE, lambda: _data(runs).to_csv(index=False))
        attempts.write_text(MARKDOWN_FILE, lambda: render_runs_markdown(runs))
        attempts.write_text(LATEX_FILE, lambda: render_runs_latex(runs))
        attempts.write_text(PAGE_FILE, lambda: render_runs(runs))
        attempts.end()


def _data(runs: Runs) -> pd.DataFrame:
    """The runs' tables below each other, with the runs' labels in the column `run`."""
    import pandas as pd

    tables = [run_table(run.findings.run).assign(**{RUN: run.label}) for run in runs.runs]
    return for_csv(pd.concat(tables, ignore_index=True), IDENTITY)


def render_runs_latex(runs: Runs) -> str:
    """The table with its legend."""
    return latex_table(runs.table, caption_of([run.findings.run.provenance for run in runs.runs], runs.workload))


def render_runs_markdown(runs: Runs) -> str:
    """The whole file, the most needed first, and cut where it is too long for a comment. Every text from outside is
    escaped: it can't become markup."""
    return comment(_lines(runs))


def _lines(runs: Runs) -> Iterator[str]:
    yield from ("## Text generation by machine and model", "")
    if runs.common:
        yield from (f"All of {escape(runs.common)}.", "")
    for warning in runs.noisy:
        yield from (f"> **{escape(warning)}**", "")
    yield from (f"**{escape(runs.sentence)}**", "")
    if runs.ranks:
        yield from (escape(runs.ranks.sentence), "")
    if runs.workload:
        yield from (f"Workload: {escape(runs.workload)}.", "")
    yield from explained_table(runs.table)
    yield from (*bullets(runs.pooled), "")
    if runs.incomparable:
        yield from ("Not compared:", "", *bullets(runs.incomparable), "")
    for section in runs.agreement:
        yield from folded(section.title, [escape(section.note), "", *markdown_table(section.table)])
    answers = (f"{labels}: {sentence}" for labels, sentence in runs.answers)
    yield from folded("The answer of each run", bullets(answers))
    yield from folded("About the runs", [*markdown_table(about_table(runs.runs)), "", *bullets(notes(runs.runs))])


def render_runs(runs: Runs) -> str:
    """The page of several runs."""
    are_few, table = len(runs.runs) <= MOST_SHOWN, runs.table
    charts = tuple(runs_charts(runs.runs)) if are_few else ()
    terms = glossary(table.names, runs.runs[0].findings.metrics)
    page = {
        "title": runs.title,
        "footnotes": tuple(notes(runs.runs)),
        "glossary": tuple(terms.values()),
        "figures": figures_of(charts),
    }
    shown = table.with_columns((0, *range(2, len(table.columns))))
    return render_page(
        "runs.html",
        page,
        runs=runs,
        chips=chips_of(run.findings.run for run in runs.runs),
        charts=charts,
        answers=None if are_few else PageTable("What to use where", answers_table(runs)),
        agreement=[PageTable(one.title, one.table, one.note) for one in runs.agreement],
        main=PageTable("The variants by machine and model", shown, terms=terms),
        about=PageTable("Where the runs come from", about_table(runs.runs)),
    )
