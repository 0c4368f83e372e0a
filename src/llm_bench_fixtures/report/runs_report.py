"""The report of several runs: one page, its Markdown, the table for a paper, and the data of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from llm_bench_fixtures.report.attempts import Attempts, begun
from llm_bench_fixtures.report.page.runs import build_runs_page
from llm_bench_fixtures.report.renderers.html import render_runs
from llm_bench_fixtures.report.renderers.latex import latex_table
from llm_bench_fixtures.report.renderers.markdown import LIMIT_BYTES, bullets, cut, escape, folded, markdown_table
from llm_bench_fixtures.report.runs import RUN, Runs
from llm_bench_fixtures.results.folder import LATEX_FILE, MARKDOWN_FILE, PAGE_FILE, TABLE_FILE
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.results.table import IDENTITY, for_csv, run_table
from llm_bench_fixtures.writing import write_whole

if TYPE_CHECKING:
    import pandas as pd

LEAST_ROWS = 12  # of the table
CAPTION = "Text generation by machine and model."


def write_runs_report(runs: Runs, folder: Path, *, has_results: bool = False) -> None:
    """Claim the folder, set the report aside that is in it, and write report.html, report.md, results.tex and
    results.csv.

    has_results: the results.json in it is one of the runs', and stays. Raises UnwritableFile where a part of it could
    not be written, or the folder isn't ours, and KeyboardInterrupt.
    """
    files: dict[str, Callable[[], str]] = {
        TABLE_FILE: lambda: _data(runs).to_csv(index=False),
        MARKDOWN_FILE: lambda: render_runs_markdown(runs),
        LATEX_FILE: lambda: "\n".join(latex_table(runs.table, CAPTION)) + "\n",
        PAGE_FILE: lambda: render_runs(build_runs_page(runs)),
    }
    attempts = Attempts(folder)
    with begun(folder, has_results=has_results):
        for name, render in files.items():
            attempts.attempt(name, partial(_write, folder / name, render))
        attempts.end()


def _write(path: Path, render: Callable[[], str]) -> None:
    write_whole(path, render(), follows=False)


def _data(runs: Runs) -> pd.DataFrame:
    """The runs' tables below each other, with the runs' labels in the column `run`."""
    import pandas as pd

    tables = [run_table(run.findings.run) for run in runs.runs]
    for run, table in zip(runs.runs, tables, strict=True):
        table[RUN] = run.label
    return for_csv(pd.concat(tables, ignore_index=True), IDENTITY)


def render_runs_markdown(runs: Runs) -> str:
    """The whole file. Every text from outside is escaped: it can't become markup.

    Of runs that are too many for a comment, rows and then whole parts are left out, and that is said.
    """
    rows = len(runs.table.rows)
    while rows > LEAST_ROWS and len("\n".join(_lines(runs, rows)).encode()) >= LIMIT_BYTES:
        rows -= len(runs.runs)
    return cut("\n".join(_lines(runs, rows)) + "\n", LIMIT_BYTES)


def _lines(runs: Runs, rows: int) -> Iterator[str]:
    yield from ("## Text generation by machine and model", "", *_common(runs), f"**{escape(runs.sentence)}**", "")
    if runs.table.rows:
        shown = replace(runs.table, rows=runs.table.rows[:rows])
        left_out = len(runs.table.rows) - len(shown.rows)
        yield from (*markdown_table(shown), "")
        if left_out:
            yield from (f"Left out here: {count(left_out, 'row')}, which `report.html` and `results.csv` have.", "")
    if runs.incomparable:
        yield from ("Not compared:", "", *bullets(runs.incomparable), "")
    answers = (f"{labels}: {sentence}" for labels, sentence in runs.answers)
    yield from folded("The answer of each run", bullets(answers))
    yield from folded("About the runs", [*markdown_table(runs.about), "", *bullets(runs.notes)])


def _common(runs: Runs) -> Iterator[str]:
    if runs.common:
        yield from (f"All of {escape(runs.common)}.", "")
