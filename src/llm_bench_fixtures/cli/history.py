"""List the saved runs, the newest last. A commit marked * had changes that were not committed.

llm-bench history
llm-bench history --limit 0 --json

The name in the first column names the run in every other command.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from llm_bench_fixtures.cli.arguments import add_storage, working_folder
from llm_bench_fixtures.cli.console import counted, data_output, is_terminal, say
from llm_bench_fixtures.history.headings import Heading, Unreadable, headings, oldest_first
from llm_bench_fixtures.history.storage import find_storage, run_files
from llm_bench_fixtures.report.history import history_json, history_table
from llm_bench_fixtures.report.renderers.columns import columns
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.text import harmless_json

HELP = "list the saved runs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="the newest N. 0: all. Default: 20")
    parser.add_argument("--json", action="store_true", help="for programs")
    add_storage(parser)


def run(arguments: argparse.Namespace) -> int:
    storage = find_storage(arguments.storage, working_folder())
    unreadable: list[Unreadable] = []
    found = oldest_first(headings(counted(run_files(storage), "reading"), unreadable.append))
    most = arguments.limit if arguments.limit > 0 else len(found)
    if arguments.json:
        with data_output() as output:
            output.write(harmless_json(history_json(found[-most:], unreadable, storage)) + "\n")
    else:
        say(_lines(found, most, unreadable, storage))
    return 0


def _lines(found: Sequence[Heading], most: int, unreadable: Sequence[Unreadable], storage: Path) -> Iterator[str]:
    width = shutil.get_terminal_size().columns if is_terminal() else sys.maxsize
    if found:
        yield from columns(history_table(found, storage, most), width)
    yield ""
    yield f"{count(len(found), 'run')} in {storage}" + (f"; the newest {most} are shown" if most < len(found) else "")
    for item in unreadable:
        yield f"Can't be read: {item.reason}"
