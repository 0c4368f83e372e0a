"""Make the report of a saved run again, compare it with another run, or combine several runs. Nothing is measured.

llm-bench report latest                         the page, Markdown, CSV, LaTeX and plots, into llm-bench-report/
llm-bench report latest --fit 48GB              what of each variant fits in that memory
llm-bench report 3 -o again --need 'top1_agreement>=99%, tpot_s<=50ms'
llm-bench report latest --against main          the same page, with what changed since the newest run of main
llm-bench report 3 4 5                          runs of the same commit, model and machine are pooled: one answer with
                                                narrower intervals, and how far the runs agree
llm-bench report laptop/results.json server/results.json -o machines
                                                one page that compares machines, models or commits
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from llm_bench_fixtures.answer.need import DEFAULT_NEED, NEED, WANT, Need, need_from
from llm_bench_fixtures.cli.arguments import add_option, add_output, add_storage, rules_in, select_in, storage_of
from llm_bench_fixtures.cli.console import ConsoleProgress, say, warn
from llm_bench_fixtures.errors import InvalidSetting, UnreadableResults
from llm_bench_fixtures.gate import options
from llm_bench_fixtures.gate.comparison import compare_runs
from llm_bench_fixtures.history.saved import SavedAt, read_saved_run
from llm_bench_fixtures.history.storage import RUN_HELP
from llm_bench_fixtures.history.together import is_same_run, pools_of
from llm_bench_fixtures.options.parsers import Setting, parse_optional_size
from llm_bench_fixtures.progress import Phase, Progress
from llm_bench_fixtures.report.files import write_report, write_runs_report
from llm_bench_fixtures.report.findings import findings_of
from llm_bench_fixtures.report.judged.changes import changes_against
from llm_bench_fixtures.report.renderers.terminal import summary_lines, wrapped
from llm_bench_fixtures.report.runs import RunPlace, Runs, runs_of
from llm_bench_fixtures.results.folder import EARLIER
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.metrics.tasks import with_tasks
from llm_bench_fixtures.results.pooled import pooled_run
from llm_bench_fixtures.results.record import Run
from llm_bench_fixtures.results.storage import RESULTS_FILE

FIT = Setting("fit", parse_optional_size)

MOST_SAID = 12  # sentences on several runs, in the terminal

HELP = "make the report of a saved run again, or of several runs together"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"{RUN_HELP}. Several are pooled or compared")
    parser.add_argument("--against", metavar="RUN", help="the run to compare with; only for a single RUN")
    add_output(parser)
    add_option(parser, "--fit", FIT, "memory to fit the model into, such as 24GB. Default: as the run has it")
    own = "Default: what the run itself was asked"
    add_option(parser, "--need", NEED, f"as --llm-need, by which the run is judged anew. {own}")
    add_option(parser, "--want", WANT, f"as --llm-want: latency, throughput or memory. {own}")
    parser.set_defaults(need=None, want=None)
    add_option(parser, "--rules", options.RULES, f"how --against judges: {options.RULES.option.help}")
    add_storage(parser)


def run(arguments: argparse.Namespace) -> None:
    if not arguments.runs:
        raise InvalidSetting("name at least one RUN, such as `latest`; llm-bench history lists the saved ones")
    rules_in(arguments)  # refused before anything is read
    storage = storage_of(arguments)
    paths = [select_in(storage, text) for text in arguments.runs]
    against = select_in(storage, arguments.against, paths[0]) if arguments.against else None
    check_differ(paths)
    _check_against(paths, against)
    _check_output(arguments.output, (*paths, *([against] if against else [])))
    progress = Progress(ConsoleProgress())
    found, unreadable = _read(paths, progress)
    runs = [_pooled([found[place] for place in places]) for places in pools_of(found)]
    if arguments.fit:
        runs = [replace(one, provenance=replace(one.provenance, fit_bytes=arguments.fit)) for one in runs]
    if len(runs) == 1:
        for reason in unreadable:
            warn(f"left out: {reason}")
        report_one(runs[0], paths, against, arguments, progress)
    else:
        report_several(runs, unreadable, paths, arguments, progress)


def _read(paths: Sequence[SavedAt], progress: Progress) -> tuple[list[Run], list[str]]:
    """The runs, and why others of several can't be read. Raises UnreadableResults where none can."""
    found, errors = [], []
    for path in paths:
        with progress.activity(Phase.REPORTING, f"reading {path}"):
            try:
                found.append(read_saved_run(path))
            except UnreadableResults as error:
                errors.append(error)
    if not found:
        listed = "\n".join(map(str, errors))
        raise errors[0] if len(errors) == 1 else UnreadableResults(f"none of the runs can be read:\n{listed}")
    return found, list(map(str, errors))


def check_differ(paths: Sequence[SavedAt]) -> None:
    """Raise InvalidSetting for a run that is named twice."""
    found = [_one(path) for path in paths]
    if twice := next((path for path, one in zip(paths, found, strict=True) if found.count(one) > 1), None):
        raise InvalidSetting(f"{twice} is named twice: name each run once")


def _check_against(paths: Sequence[SavedAt], against: SavedAt | None) -> None:
    """Raise InvalidSetting unless --against names another run than a single RUN."""
    if against is None:
        return
    if len(paths) > 1:
        raise InvalidSetting("--against compares one run with another: name one RUN, or leave --against out")
    if _one(against) == _one(paths[0]):
        raise InvalidSetting(f"{against} is the run itself: name another one for --against")


def _one(place: SavedAt) -> SavedAt:
    """One form of a place, so that a file named in two ways is recognized."""
    return place.resolve() if isinstance(place, Path) else place


def check_no_copies(runs: Sequence[Run]) -> None:
    """Raise InvalidSetting for rounds that are kept in two files: pooled, they would seem to agree."""
    for one, other in combinations(runs, 2):
        if is_same_run(one, other):
            raise InvalidSetting(f"{one.source} and {other.source} hold rounds of the same run: name one of them")


def _pooled(runs: Sequence[Run]) -> Run:
    check_no_copies(runs)
    return pooled_run(runs) if len(runs) > 1 else runs[0]


def _check_output(folder: Path, paths: Sequence[SavedAt]) -> None:
    """Raise InvalidSetting for a run in the folder of the report that was set aside, which a new one replaces."""
    for path in paths:
        if isinstance(path, Path) and path.resolve().parent == (folder / EARLIER).resolve():
            raise InvalidSetting(f"{path} would be lost, as {folder} keeps one earlier report: name another folder")


def report_one(
    found: Run, paths: Sequence[SavedAt], against: SavedAt | None, arguments: argparse.Namespace, progress: Progress
) -> None:
    """Write the run's report and say what it says. paths: the files that it was read from."""
    folder: Path = arguments.output
    with progress.activity(Phase.REPORTING, "writing the report"):
        need = _need(found, arguments)
        changes = None
        if against:
            comparison = compare_runs(read_saved_run(against), found, rules_in(arguments), registry())
            changes = changes_against(comparison, need)
        findings = write_report(found, registry(), folder, need, changes, has_results=_is_in(folder, paths))
    width = shutil.get_terminal_size().columns
    say([*summary_lines(findings, folder, width), *_not_shown(found, width), *_set_aside(folder)])


def _need(run: Run, arguments: argparse.Namespace) -> Need:
    """What is asked now, else what the run was asked."""
    origin = run.provenance
    given = {name: text for name, text in (("need", origin.need), ("want", origin.want)) if text}
    try:
        own = need_from(given)
    except InvalidSetting as error:  # as of a project's own metric, which only the project itself knows
        warn(f"{run.source}: what it was asked can't be used here: {error}. --need and --want ask anew")
        own = DEFAULT_NEED
    return Need(own.limits if arguments.need is None else arguments.need, arguments.want or own.want)


def _not_shown(found: Run, width: int) -> Iterator[str]:
    """The metrics of the project itself, of which a saved run has nothing but the values."""
    names = {name for record in found.measured() for name in record.extra}
    names |= {name for variant in found.variants for name in variant.quality}
    unknown = sorted(names - with_tasks(registry(), found.provenance.tasks).keys())
    if unknown:
        text = f"Only in results.csv, because only the project itself knows what they are: {', '.join(unknown)}."
        yield from wrapped(text, width)


def report_several(
    found: Sequence[Run],
    unreadable: Sequence[str],
    paths: Sequence[SavedAt],
    arguments: argparse.Namespace,
    progress: Progress,
    places: Sequence[RunPlace] = (),
) -> None:
    """Write one report of the runs and say what it says. unreadable: why others are not in it. paths: the files that
    they were read from. places: of a sweep's runs."""
    with progress.activity(Phase.REPORTING, "writing the report"):
        runs = runs_of([findings_of(run, registry(), _need(run, arguments)) for run in found], unreadable, places)
        write_runs_report(runs, arguments.output, has_results=_is_in(arguments.output, paths))
    say([*_lines(runs, arguments.output), *_set_aside(arguments.output)])


def _is_in(folder: Path, paths: Sequence[SavedAt]) -> bool:
    """Whether one of the runs is what the report in the folder was made of."""
    return (folder / RESULTS_FILE).resolve() in map(_one, paths)


def _set_aside(folder: Path) -> Iterator[str]:
    """Where the results of another run are that were in the folder."""
    if (folder / EARLIER / RESULTS_FILE).exists():
        yield f"The report of an earlier run is in {folder / EARLIER}."


def _lines(runs: Runs, folder: Path) -> Iterator[str]:
    width = shutil.get_terminal_size().columns
    for sentence in (*runs.noisy, runs.sentence):
        yield from wrapped(sentence, width)
    sentences = (*([runs.ranks.sentence] if runs.ranks else []), *runs.pooled, *runs.incomparable)
    for sentence in sentences[:MOST_SAID]:
        yield from wrapped(f"- {sentence}", width, indent="  ")
    if len(sentences) > MOST_SAID:
        yield f"- {len(sentences) - MOST_SAID} more are in the report"
    yield f"Report: {folder / 'report.html'}"
