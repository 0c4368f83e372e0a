"""List the saved runs, the newest last. A commit marked * had changes that were not committed.

llm-bench history
llm-bench history --limit 0 --json
llm-bench history --history sqlite:///history.db
llm-bench history import .benchmarks --history URL   save the runs of a folder to a database
llm-bench history push --history URL                 send the runs that a database couldn't take when they were made

import and push name runs that can't be saved, save the others, and exit with 4.
The name in the first column names the run in every other command.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress

from llm_bench_fixtures.cli.arguments import add_storage, storage_in, working_folder
from llm_bench_fixtures.cli.console import counted, data_output, is_terminal, say, tell_passed_over
from llm_bench_fixtures.errors import HistoryUnavailable, InvalidSetting, NotOurResults, UnreadableResults
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.history.database import Database
from llm_bench_fixtures.history.headings import Heading, Unreadable
from llm_bench_fixtures.history.saved import read_saved_run
from llm_bench_fixtures.history.storage import UNSENT, Storage, find_storage, name_in, run_files
from llm_bench_fixtures.report.history import history_json, run_name, table_of_runs
from llm_bench_fixtures.report.renderers.terminal import columns
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.text import harmless_json

HELP = "list the saved runs, or save them to a database"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", type=_action, metavar="import|push", help="save runs to a database")
    parser.add_argument("folder", nargs="?", metavar="DIR", help="folder of the runs. Default: as for --storage")
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="the newest N. 0: all. Default: 20")
    parser.add_argument("--json", action="store_true", help="for programs")
    add_storage(parser)


def _action(text: str) -> str:
    """Parse the action. What is typed is not repeated in errors: it may be an address with a password."""
    if text not in ("import", "push"):
        raise argparse.ArgumentTypeError("expected import or push; --history names a database, --storage a folder")
    return text


def run(arguments: argparse.Namespace) -> int:
    if arguments.action:
        return _send(arguments)
    storage = storage_in(arguments)
    unreadable: list[Unreadable] = []
    found, total = storage.newest(max(arguments.limit, 0), unreadable.append)
    if arguments.json:
        with data_output() as output:
            output.write(harmless_json(history_json(found, unreadable, storage)) + "\n")
    else:
        say(_lines(found, total, unreadable, storage))
    return ExitStatus.PASSED


def _lines(found: Sequence[Heading], total: int, unreadable: Sequence[Unreadable], storage: Storage) -> Iterator[str]:
    width = shutil.get_terminal_size().columns if is_terminal() else sys.maxsize
    if found:
        yield from columns(table_of_runs((storage.short_name(run.place), run) for run in found), width)
    yield ""
    yield f"{count(total, 'run')} in {storage}" + (f"; the newest {len(found)} are shown" if len(found) < total else "")
    for item in unreadable:
        yield f"Can't be read: {item.reason}"


def _send(arguments: argparse.Namespace) -> int:
    """Save runs of a folder to the database. What was to be pushed is removed once it is there. A run that can't be
    saved is named and stops no other."""
    if not arguments.history:
        raise InvalidSetting(f"{arguments.action}: name the database with --history URL")
    folder = find_storage(arguments.folder, working_folder())
    is_push = arguments.action == "push"
    database, new, there, failed = Database(arguments.history), 0, 0, 0
    paths = run_files(folder / UNSENT) if is_push else run_files(folder)
    for path in counted(paths, "sending"):
        try:
            _, is_new = database.save(read_saved_run(path), "" if is_push else run_name(name_in(folder, path)))
        except (UnreadableResults, HistoryUnavailable) as error:
            reason = str(error)
            if isinstance(error, HistoryUnavailable):
                database.check()  # raises where it would take no other run either
                reason = f"{path}: this run can't be saved: {error.reason}"
            tell_passed_over(Unreadable(path, reason))
            failed += not isinstance(error, NotOurResults)
            continue
        new += is_new
        there += not is_new
        if is_push:
            with suppress(OSError):  # sent again, it is there already
                path.unlink()
    say([f"{count(new, 'run')} saved to {database}" + (f"; {there} there already" if there else "")])
    return ExitStatus.USAGE if failed else ExitStatus.PASSED
