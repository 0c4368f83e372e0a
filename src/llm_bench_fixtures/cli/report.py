"""Make the report of a saved run again, compare it with another one, or put several runs on one page. Nothing is run.

llm-bench report latest                         the page, Markdown, CSV, LaTeX and plots, into llm-bench-report/
llm-bench report 3 -o again --quality-limit top1_agreement:99%
llm-bench report latest --against main          the same page, with what changed since the newest run of main
llm-bench report laptop/results.json server/results.json -o machines
                                                one page: the variants by machine and model

A run that pytest-benchmark saved lacks the generated texts and the times of single tokens, unless it was saved with
--benchmark-save-data: then the report says so, and leaves out what needs them. The results.json of a report has all.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from llm_bench_fixtures.cli.arguments import add_option, add_storage, checked, storage_of
from llm_bench_fixtures.cli.console import ConsoleProgress, say
from llm_bench_fixtures.errors import InvalidSetting, UnreadableResults
from llm_bench_fixtures.gate import options
from llm_bench_fixtures.gate.comparison import compare_runs
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.gate.rules import Rules, check_targets
from llm_bench_fixtures.history.saved import read_saved_run
from llm_bench_fixtures.history.storage import RUN_HELP, select_run
from llm_bench_fixtures.options.parsers import Setting, parse_path
from llm_bench_fixtures.options.quality_limit import QualityLimit, parse_quality_limit
from llm_bench_fixtures.progress import Phase, Progress
from llm_bench_fixtures.report.files import write_report
from llm_bench_fixtures.report.findings import Findings, findings_of
from llm_bench_fixtures.report.judged.changes import Changes, changes_against
from llm_bench_fixtures.report.renderers.columns import wrapped
from llm_bench_fixtures.report.renderers.terminal import summary_lines
from llm_bench_fixtures.report.runs import Runs, runs_of
from llm_bench_fixtures.report.runs_report import write_runs_report
from llm_bench_fixtures.results.folder import EARLIER
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import Run
from llm_bench_fixtures.results.storage import RESULTS_FILE

REPORT = Setting("report", parse_path)
QUALITY_LIMIT = Setting("quality_limit", parse_quality_limit)

HELP = "make the report of a saved run again, or of several"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help=f"{RUN_HELP}. Several are shown on one page")
    parser.add_argument(
        "--against", metavar="RUN", help="the run to compare with, named the same way; for one RUN only"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=checked(REPORT.parse),
        default=REPORT.read({}),
        metavar="DIR",
        help="folder for the report. Default: %(default)s",
    )
    add_option(parser, "--quality-limit", QUALITY_LIMIT)
    add_option(parser, "--rules", options.RULES, f"how --against judges: {options.RULES.option.help}")
    add_storage(parser)


def run(arguments: argparse.Namespace) -> int:
    check_targets([rule.target for rule in arguments.rules], registry())
    storage = storage_of(arguments)
    paths = [select_run(storage, text) for text in arguments.runs]
    against = select_run(storage, arguments.against, paths[0]) if arguments.against else None
    _check(paths, against)
    _check_output(arguments.output, (*paths, *([against] if against else [])))
    progress = Progress(ConsoleProgress())
    if len(paths) == 1:
        _report_one(paths[0], against, arguments, progress)
    else:
        _report_several(paths, arguments, progress)
    return ExitStatus.PASSED


def _check(paths: Sequence[Path], against: Path | None) -> None:
    """Raise InvalidSetting for runs that can't stand beside each other."""
    found = [path.resolve() for path in paths]
    if len(set(found)) < len(found):
        raise InvalidSetting("a run is named twice: name each once")
    if against is not None and len(found) > 1:
        raise InvalidSetting("--against compares one run with another: name one RUN, or leave --against out")
    if against is not None and against.resolve() in found:
        raise InvalidSetting(f"{against} is the run itself: name another one for --against")


def _check_output(folder: Path, paths: Sequence[Path]) -> None:
    """Raise InvalidSetting for a run in the folder of the report that was set aside, which a new one replaces."""
    for path in paths:
        if path.resolve().parent == (folder / EARLIER).resolve():
            raise InvalidSetting(f"{path} would be lost, as {folder} keeps one earlier report: name another folder")


def _report_one(path: Path, against: Path | None, arguments: argparse.Namespace, progress: Progress) -> None:
    folder: Path = arguments.output
    with progress.activity(Phase.REPORTING, "reading the run"):
        found = read_saved_run(path)
        changes = _changes(path, against, arguments) if against else None
    with progress.activity(Phase.REPORTING, "writing the report"):
        findings = write_report(
            found,
            registry(),
            folder,
            arguments.quality_limit,
            changes,
            has_results=_is_in(folder, [path]),
        )
    width = shutil.get_terminal_size().columns
    say([*summary_lines(findings, folder, width), *_not_shown(found, width), *_set_aside(folder)])


def _changes(path: Path, against: Path, arguments: argparse.Namespace) -> Changes:
    base, head = (read_saved_run(one) for one in (against, path))
    comparison = compare_runs(base, head, Rules(arguments.rules), registry())
    return changes_against(comparison, arguments.quality_limit)


def _not_shown(found: Run, width: int) -> Iterator[str]:
    """The metrics of the project itself, of which a saved run has nothing but the values."""
    names = {name for record in found.measured() for name in record.extra}
    names |= {name for variant in found.variants for name in variant.quality}
    unknown = sorted(names - registry().keys())
    if unknown:
        text = f"Only in results.csv, because only the project itself knows what they are: {', '.join(unknown)}."
        yield from wrapped(text, width)


def _report_several(paths: Sequence[Path], arguments: argparse.Namespace, progress: Progress) -> None:
    named: list[tuple[str, Findings]] = []
    unreadable: list[str] = []
    for path in paths:
        with progress.activity(Phase.REPORTING, f"reading {path}"):
            try:
                named.append((str(path), _findings(path, arguments.quality_limit)))
            except UnreadableResults as error:
                unreadable.append(str(error))
    if not named:
        raise UnreadableResults("none of the runs can be read:\n" + "\n".join(unreadable))
    with progress.activity(Phase.REPORTING, "writing the report"):
        runs = runs_of(named, unreadable)
        write_runs_report(runs, arguments.output, has_results=_is_in(arguments.output, paths))
    say([*_lines(runs, arguments.output), *_set_aside(arguments.output)])


def _is_in(folder: Path, paths: Sequence[Path]) -> bool:
    """Whether one of the runs is what the report in the folder was made of."""
    return (folder / RESULTS_FILE).resolve() in [path.resolve() for path in paths]


def _set_aside(folder: Path) -> Iterator[str]:
    """Where the results of another run are that were in the folder."""
    if (folder / EARLIER / RESULTS_FILE).exists():
        yield f"The report of an earlier run is in {folder / EARLIER}."


def _findings(path: Path, quality_limit: QualityLimit) -> Findings:
    return findings_of(read_saved_run(path), registry(), quality_limit)


def _lines(runs: Runs, folder: Path) -> Iterator[str]:
    width = shutil.get_terminal_size().columns
    yield from wrapped(runs.sentence, width)
    for sentence in runs.incomparable:
        yield from wrapped(f"- {sentence}", width, indent="  ")
    yield f"Report: {folder / 'report.html'}"
