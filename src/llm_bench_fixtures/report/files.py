"""The report of one run, or of several: a folder with a page, its Markdown, a table for a paper, the data and the
plots. Its files are written one after the other: each fails alone, and what failed is told.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

import msgspec

from llm_bench_fixtures.answer.need import DEFAULT_NEED, Need
from llm_bench_fixtures.errors import UnwritableFile, reason_of
from llm_bench_fixtures.report.charts.pictures import write_plots
from llm_bench_fixtures.report.charts.spec import Plot
from llm_bench_fixtures.report.findings import Findings, findings_of
from llm_bench_fixtures.report.page.build import render_report, render_runs
from llm_bench_fixtures.report.renderers.latex import render_latex, render_runs_latex
from llm_bench_fixtures.report.renderers.markdown import render_markdown, render_runs_markdown
from llm_bench_fixtures.report.runs import RUN, Runs
from llm_bench_fixtures.results.folder import (
    AGREEMENT_FILE,
    EARLIER,
    LATEX_FILE,
    MARKDOWN_FILE,
    PAGE_FILE,
    PLOTS,
    TABLE_FILE,
    begun,
    forget_earlier,
    worth_of,
)
from llm_bench_fixtures.results.pooled import PooledRun
from llm_bench_fixtures.results.storage import RESULTS_FILE, write_run
from llm_bench_fixtures.results.table import IDENTITY, for_csv, run_table
from llm_bench_fixtures.writing import naming_unwritable, new_folder, write_whole

if TYPE_CHECKING:
    from llm_bench_fixtures.report.judged.changes import Changes
    from llm_bench_fixtures.results.metrics import Metric
    from llm_bench_fixtures.results.record import Run

NOT_DRAWN = "The run was interrupted, so no pictures were drawn: `llm-bench report {}` draws them."
# What to tell of results that are whole, and that this package refuses to read.
TOO_MUCH = (
    "{}: it is whole, but llm-bench and read_run will refuse it. The report has all of it. --benchmark-autosave keeps "
    "a run without the times of its tokens; fewer --llm-variants, --llm-rounds or --llm-new-tokens make a smaller one."
)
T = TypeVar("T")
Metrics: TypeAlias = "Mapping[str, Metric]"


@dataclass
class Attempts:
    """Files that were tried so far, and what became of them."""

    folder: Path
    problems: list[str] = field(default_factory=list)
    is_folder_unwritable: bool = False
    was_interrupted: bool = False

    def attempt(self, name: str, write: Callable[[], T]) -> T | None:
        """Result of `write`; where it fails, None, and what failed is told. After Ctrl-C nothing more is tried."""
        path = self.folder / name
        interrupted = f"{path} was not written: interrupted"
        if self.was_interrupted:
            self.problems.append(interrupted)
            return None
        try:
            with _hearing_ctrl_c(), naming_unwritable(path):
                return write()
        except KeyboardInterrupt:
            self.was_interrupted = True
            self.problems.append(interrupted)
        except UnwritableFile as error:
            self.is_folder_unwritable = True
            self.problems.append(str(error))
        except Exception as error:  # whatever a library that draws or renders raises
            self.problems.append(f"{path} was not written: {reason_of(error)}")
        return None

    def write_text(self, name: str, render: Callable[[], str]) -> None:
        self.attempt(name, lambda: write_whole(self.folder / name, render(), follows=False))

    def end(self) -> None:
        """Remove the report that was set aside, unless there are results of another run in it. Raises UnwritableFile
        for what could not be written, and KeyboardInterrupt."""
        if self.was_interrupted:
            raise KeyboardInterrupt
        if self.problems:
            raise UnwritableFile("\n".join(self.problems))
        if not (self.folder / EARLIER / RESULTS_FILE).exists():
            forget_earlier(self.folder)


@contextmanager
def _hearing_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt after Ctrl-C, of which a library in C++ may have made an error of its own."""
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        before(number, frame)

    signal.signal(signal.SIGINT, hear)
    try:
        yield
    except Exception as error:
        if heard:
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.signal(signal.SIGINT, before)


@dataclass(frozen=True)
class Published:
    """Result of writing a report."""

    findings: Findings | None
    """Findings of the run; None where these couldn't be found out."""
    folder: Path | None
    """Where the page is; None where there is none."""
    problems: tuple[str, ...]
    """Problems, a sentence each: what was not written and why, and where it is instead, and what will not be read
    again."""
    notes: tuple[str, ...] = ()
    """Notes, a sentence each, though nothing is wrong."""
    was_interrupted: bool = False
    """Whether Ctrl-C interrupted the writing."""


def write_report(
    run: Run,
    metrics: Metrics,
    folder: Path,
    need: Need = DEFAULT_NEED,
    changes: Changes | None = None,
    *,
    has_results: bool = False,
) -> Findings:
    """Claim the folder, set the report aside that is in it, and write results.json, results.csv, report.md,
    results.tex, plots/*.png and report.html; the data first, so that it is kept whatever happens to the rest. Returns
    what the report says of the run. Pooled runs have their own results.json elsewhere: runs.json says how far they
    agree.

    metrics: the registry, with what a project added to it. need: what a recommended variant must keep.
    changes: what the run changed against another. has_results: its results.json was read from there, and stays. Raises
    UnwritableFile where a part of it could not be written, or the folder isn't ours, and KeyboardInterrupt.
    """
    report = _Report(folder, run=run, metrics=metrics, need=need, changes=changes, has_results=has_results)
    with begun(folder, has_results=has_results):
        report.write()
        report.end()
    return cast("Findings", report.findings)  # where there are none, there is a problem


def publish(
    run: Run, metrics: Metrics, folder: Path, need: Need, changes: Changes | None = None, *, draws: bool = True
) -> Published:
    """Write the report into the claimed folder as far as it can be written. What fails leaves the rest alone; if the
    folder can't be written to, the whole report is written into a new one among the temporary folders. Once it is
    whole, the one that was set aside is removed, unless that is worth more.

    draws: whether to draw the pictures, which takes longer than all the rest."""
    report = _Report(folder, run=run, metrics=metrics, need=need, changes=changes, draws=draws)
    report.write()
    problems = list(report.problems)
    stays = not problems and forget_earlier(folder, worth_of(run))
    notes = (f"The report of an earlier run, which measured more, stays in {folder / EARLIER}.",) if stays else ()
    if report.is_folder_unwritable and not report.was_interrupted:
        problems += _write_elsewhere(report)
    problems += [NOT_DRAWN.format(report.page_folder)] if report.page_folder and not draws else []
    problems += [TOO_MUCH.format(report.results_fault)] if report.results_fault else []
    return Published(report.findings, report.page_folder, tuple(problems), notes, report.was_interrupted)


def publish_so_far(run: Run, metrics: Metrics, folder: Path, need: Need, so_far: str) -> Findings | None:
    """Write the report of a run that goes on into the claimed folder, without pictures, and return what it says. What
    isn't written now is at the end, whose report replaces this one.

    so_far: as in `Findings`. Raises KeyboardInterrupt.
    """
    report = _Report(folder, run=run, metrics=metrics, need=need, draws=False, so_far=so_far)
    report.write()
    if report.was_interrupted:
        raise KeyboardInterrupt
    return report.findings


def _write_elsewhere(report: _Report) -> list[str]:
    """Returns what to tell of it."""
    before, report.problems = report.folder, []
    try:
        report.folder = new_folder()
    except UnwritableFile as error:
        return [f"Nor is there another place for the report: {error}"]
    report.write()
    return [f"The report is in {report.folder} instead of {before}.", *report.problems]


@dataclass(kw_only=True)
class _Report(Attempts):
    """Writes one file after the other."""

    run: Run
    metrics: Metrics
    need: Need
    changes: Changes | None = None
    has_results: bool = False
    draws: bool = True
    so_far: str = ""
    findings: Findings | None = None
    page_folder: Path | None = None
    results_fault: str = ""
    """Why nobody will read its results again."""

    def write(self) -> None:
        if not (self.has_results or isinstance(self.run, PooledRun)):
            self.attempt(RESULTS_FILE, self._write_results)
        self.write_text(TABLE_FILE, lambda: for_csv(run_table(self.run), IDENTITY).to_csv(index=False))
        found = self.findings = self.findings or self._find()
        if found is None:
            return
        if found.agreement is not None:
            self.write_text(AGREEMENT_FILE, lambda: json.dumps(msgspec.to_builtins(found.agreement), indent=2))
        self.write_text(MARKDOWN_FILE, lambda: render_markdown(found))
        self.write_text(LATEX_FILE, lambda: render_latex(found))
        plots = self.attempt(PLOTS, lambda: write_plots(found, self.folder / PLOTS)) if self.draws else []
        self.attempt(PAGE_FILE, lambda: self._write_page(found, plots or []))

    def _write_results(self) -> None:
        path = self.folder / RESULTS_FILE
        run = replace(self.run, interrupted=True) if self.so_far else self.run  # unless it is replaced, it was killed
        fault = write_run(run, path, follows=False)
        self.results_fault = fault and f"{path} {fault}"

    def _find(self) -> Findings | None:
        """Find what the report says, after Ctrl-C too: the terminal shows it."""
        try:
            return findings_of(self.run, self.metrics, self.need, self.changes, self.so_far)
        except Exception as error:  # a bug of ours, which may cost the report but not the run
            self.problems.append(f"There is no report but {RESULTS_FILE}: {reason_of(error)}")
            return None

    def _write_page(self, findings: Findings, plots: list[Plot]) -> None:
        write_whole(self.folder / PAGE_FILE, render_report(findings, plots), follows=False)
        self.page_folder = self.folder


def write_runs_report(runs: Runs, folder: Path, *, has_results: bool = False) -> None:
    """Claim the folder, set the report aside that is in it, and write report.html, report.md, results.tex and
    results.csv.

    has_results: the results.json in it is one of the runs', and stays. Raises UnwritableFile where a part of it could
    not be written, or the folder isn't ours, and KeyboardInterrupt.
    """
    attempts = Attempts(folder)
    with begun(folder, has_results=has_results):
        attempts.write_text(TABLE_FILE, lambda: _runs_csv(runs))
        attempts.write_text(MARKDOWN_FILE, lambda: render_runs_markdown(runs))
        attempts.write_text(LATEX_FILE, lambda: render_runs_latex(runs))
        attempts.write_text(PAGE_FILE, lambda: render_runs(runs))
        attempts.end()


def _runs_csv(runs: Runs) -> str:
    """The runs' tables below each other, with the runs' labels in the column `run`."""
    import pandas as pd

    tables = [run_table(run.findings.run).assign(**{RUN: run.label}) for run in runs.runs]
    return for_csv(pd.concat(tables, ignore_index=True), IDENTITY).to_csv(index=False)
