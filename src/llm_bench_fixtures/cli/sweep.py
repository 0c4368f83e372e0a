"""Measure models × machines × options, each cell a session of its own, on a Ray cluster or on this machine.

FILE lists them in TOML, as [[model]], [[machine]] and [[options]], each with a `name`, `arguments` of pytest and an
`environment`; a model with what --llm-model takes as its `model`, a machine with the `resources`, `labels` and `gpus`
that a node of Ray's must have. Above them stand `suite`, `folder`, `arguments` and `environment` of all cells, and
`leave_out` for cells that are not to run.

Each node that measures is started with `ray start --resources '{"llm-bench": 1}'`, and runs one cell at a time. Without
--address the cells run here, one after the other, and [[machine]] is left out. Started again, only what is missing is
measured.

exit status: 0, 1 where a cell has no run, a test of it failed, or its run is not in the database of --history, 2
interrupted, 4 refused, before anything is measured

Examples:
  llm-bench sweep sweep.toml
  llm-bench sweep sweep.toml --address auto -o fleet
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from llm_bench_fixtures.cli.arguments import HISTORY, add_option, add_output, working_folder
from llm_bench_fixtures.cli.console import ConsoleProgress, counted, say, warn
from llm_bench_fixtures.cli.report import report_several
from llm_bench_fixtures.errors import LlmBenchError, UnreadableResults
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.history.database import Database
from llm_bench_fixtures.history.saved import read_saved_run
from llm_bench_fixtures.history.storage import FOLDER
from llm_bench_fixtures.options.parsers import parse_path
from llm_bench_fixtures.paired.display import Display
from llm_bench_fixtures.progress import Progress, about
from llm_bench_fixtures.report.runs import RunPlace
from llm_bench_fixtures.results.folder import WHOLE, claim, held, release
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.results.record import Run
from llm_bench_fixtures.sweep.cluster import connected
from llm_bench_fixtures.sweep.kept import CELLS, SweepFolder, commit_in
from llm_bench_fixtures.sweep.node import CellOutcome
from llm_bench_fixtures.sweep.plan import Sweep, SweepCell, read_plan
from llm_bench_fixtures.writing import check_folder

HELP = "measure models on many machines, with Ray"
ADDRESS_HELP = "of a Ray cluster, or auto for the one that this machine is part of"
STORAGE_HELP = f"folder of the history, to which each cell's run is added. Default: {FOLDER} here"
MOST_NAMED = 3  # running cells, in the line of progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=parse_path, metavar="FILE", help="the sweep, in TOML")
    parser.add_argument("--address", metavar="ADDRESS", help=ADDRESS_HELP)
    add_output(parser, "folder for the cells' runs and the report. Default: %(default)s", default="llm-bench-sweep")
    parser.add_argument("--storage", type=parse_path, metavar="DIR", help=STORAGE_HELP)
    add_option(parser, "--history", HISTORY, "database for each whole run, too, as --llm-history names it")
    parser.set_defaults(need=None, want=None)  # what the runs themselves were asked


def run(arguments: argparse.Namespace) -> int:
    plan = read_plan(arguments.file, is_local=arguments.address is None)
    folder: Path = arguments.output
    storage: Path = arguments.storage or working_folder() / FOLDER
    check_folder(storage)
    if arguments.history:
        Database(arguments.history).check()
    claim(folder)
    kept = SweepFolder(folder, storage, commit_in(plan.folder), arguments.history)
    (folder / CELLS).mkdir(exist_ok=True)
    try:
        with held(folder / CELLS):
            missing = kept.missing(plan.cells)
            if there := [cell for cell in plan.cells if cell not in missing]:
                done = count(len(there), "cell")
                say([f"{done} of {len(plan.cells)} kept from {folder}, {len(missing)} to measure"])
                if failed := [cell.name for cell in there if not kept.has_ended_well(cell)]:
                    again = f"remove {folder / CELLS / failed[0]} to measure it again"
                    say([f"kept although a test or the gate failed: {', '.join(failed)}; {again}"])
                _send(kept, [cell for cell in there if not kept.is_sent(cell)], Database(arguments.history))
            is_whole = _measure(plan, missing, kept, arguments.address) if missing else True
    except LlmBenchError:  # such as a cell without a node that fits
        with suppress(OSError):
            (folder / CELLS).rmdir()
        release(folder)
        raise
    _report(plan.cells, kept, arguments)
    if not is_whole:
        warn("llm-bench sweep: interrupted; started again, it measures what is missing")
        return ExitStatus.INTERRUPTED
    return ExitStatus.PASSED if all(kept.has_ended_well(cell) and kept.is_sent(cell) for cell in plan.cells) else 1


def _send(kept: SweepFolder, cells: Sequence[SweepCell], database: Database) -> None:
    """Save to the database the runs that were measured without it, or while it did not answer."""
    sent = 0
    for cell in counted(cells, "sending"):
        if problems := kept.send(cell):
            warn(problems[0])
            database.check()  # raises where it would take no other run either
        sent += not problems
    if sent:
        say([f"{count(sent, 'run')} of earlier cells saved to the database"])


def _measure(plan: Sweep, cells: Sequence[SweepCell], kept: SweepFolder, address: str | None) -> bool:
    """Whether it came to its end, and was not interrupted."""
    by_name = {cell.name: cell for cell in cells}
    shown = _Progress(len(cells), Display(sys.stderr))
    try:
        with connected(address, plan.folder) as cluster:
            cluster.check(cells)
            with closing(cluster.run(cells, shown.told)) as outcomes:
                for outcome in outcomes:
                    for problem in kept.save(by_name[outcome.cell], outcome):
                        warn(problem)
                    shown.ended(outcome, kept.worth(by_name[outcome.cell]))
    except KeyboardInterrupt:
        return False
    finally:
        shown.display.clear()
    return True


@dataclass
class _Progress:
    """The line of progress."""

    total: int
    display: Display
    started: float = field(default_factory=time.monotonic)
    over: int = 0
    hosts: Mapping[str, str] = field(default_factory=dict)

    def told(self, hosts: Mapping[str, str]) -> None:
        self.hosts = hosts
        self.display.now(self._line)

    def ended(self, outcome: CellOutcome, worth: float) -> None:
        self.over += 1
        what = f"measured on {outcome.host}"
        if worth != WHOLE:
            what = f"{outcome.host} measured {'part of it' if worth > 0 else 'no benchmark'}"
        how = outcome.reason or f"{what} in {about(outcome.seconds)}"
        if outcome.status and not outcome.reason:
            how += f", pytest's exit status was {outcome.status}"
        self.display.done(f"[{self.over}/{self.total}] {outcome.cell}: {how}{self._left()}")

    def _line(self) -> str:
        running = [f"{cell} on {host}" for cell, host in list(self.hosts.items())[:MOST_NAMED]]
        more = len(self.hosts) - len(running)
        text = ", ".join([*running, *([f"{more} more"] if more > 0 else [])]) or "waiting for a node"
        return f"{self.over} of {count(self.total, 'cell')}; {text}{self._left()}"

    def _left(self) -> str:
        """Time left, in words, from how fast cells have ended so far."""
        left = self.total - self.over
        left_s = (time.monotonic() - self.started) / self.over * left if self.over else 0.0
        return f"; about {about(left_s)} left" if self.over and left else ""


def _report(cells: Sequence[SweepCell], kept: SweepFolder, arguments: argparse.Namespace) -> None:
    """Report on all cells that have a run, whenever it was measured."""
    runs: list[Run] = []
    places, absent = [], []
    for cell in cells:
        note = kept.note(cell)
        if note is None or note.reason:
            absent.append(f"{cell.name}: {note.reason if note else 'not measured yet'}")
            continue
        try:
            runs.append(read_saved_run(kept.results(cell)))
        except UnreadableResults as error:
            absent.append(f"{cell.name}: {error}")
        else:
            places.append(RunPlace(cell.name, cell.machine.name, cell.what or cell.name))
    if not runs:
        warn(f"llm-bench sweep: no report, as no cell has a run; {arguments.output / CELLS} says why")
        return
    report_several(runs, absent, (), arguments, Progress(ConsoleProgress()), places)
