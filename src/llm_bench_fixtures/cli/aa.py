"""Compare a version with itself, to measure this machine's resolution: the smallest change that shows on it.

VERSION is a git ref, a folder or a Python interpreter, as for `llm-bench pair`, and is measured in the same way. With a
smaller --threshold than the changes that the table names, `llm-bench pair` leaves verdicts inconclusive.

Examples:
  llm-bench aa
  llm-bench aa --pairs 12 --json resolution.json -- -k precision --llm-variants fp32
"""

from __future__ import annotations

import argparse
import shutil

from llm_bench_fixtures.cli.console import say, write_json
from llm_bench_fixtures.cli.pair import add_run_arguments, make_plan, run_sides
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.gate.options import NOTHING
from llm_bench_fixtures.options.parsers import parse_path
from llm_bench_fixtures.paired import resolution
from llm_bench_fixtures.report.judged.pair import resolution_lines
from llm_bench_fixtures.writing import check_writable

HELP = "measure this machine's resolution: a version against itself"
JSON_HELP = (
    "where to keep the resolution. Default: noise-floor.json in this user's cache folder, where `llm-bench pair` reads "
    "it"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [VERSION] [options] [-- pytest arguments]"
    parser.add_argument("version", metavar="VERSION", nargs="?", default=".", help="default: . (this folder as it is)")
    parser.add_argument("--json", type=parse_path, metavar="FILE", help=JSON_HELP)
    add_run_arguments(parser)
    parser.set_defaults(threshold=0.0, grows=False, allow=NOTHING)  # nothing is to be judged


def run(arguments: argparse.Namespace) -> int:
    path = arguments.json or resolution.default_file()
    check_writable(path)
    result = run_sides(arguments.version, arguments.version, make_plan(arguments))
    found = resolution.resolutions(result)
    say(resolution_lines(found, result, shutil.get_terminal_size().columns))
    status = resolution.status_of(found, result)
    if status is ExitStatus.PASSED:
        say([f"kept in {write_json(resolution.resolutions_json(found, result), path)}"])
    return status
