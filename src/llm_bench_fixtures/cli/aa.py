"""Compare a version with itself, to learn how small a change can be told from none on this machine.

VERSION is a git ref, a folder or a Python interpreter, as for `llm-bench pair`, and measured in the same way: K pairs
of fresh processes whose rounds take turns. The table gives, for each metric over all tests, the standard deviation
between pairs, the half-width of the interval that K pairs give, and the smallest change that they tell from none in
95 % of cases. A --threshold of `llm-bench pair` below that leaves verdicts inconclusive.

Examples:
  llm-bench aa
  llm-bench aa --pairs 12 --json floor.json -- -k precision --llm-variants fp32
"""

from __future__ import annotations

import argparse
import shutil

from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.options.parsers import parse_path

HELP = "measure this machine's noise floor: a version against itself"
THRESHOLD = 0.0  # nothing is to be judged


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from llm_bench_fixtures.cli.arguments import checked
    from llm_bench_fixtures.cli.paired_run import add_run_arguments

    parser.usage = "%(prog)s [VERSION] [options] [-- pytest arguments]"
    parser.add_argument("version", metavar="VERSION", nargs="?", default=".", help="default: . (this folder as it is)")
    parser.add_argument(
        "--json",
        type=checked(parse_path),
        metavar="FILE",
        help="where to keep the noise floor. Default: noise-floor.json in this user's cache folder",
    )
    add_run_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    from llm_bench_fixtures.cli.console import say
    from llm_bench_fixtures.cli.paired_run import run_sides, write_json
    from llm_bench_fixtures.paired import noise_floor
    from llm_bench_fixtures.report.noise_floor import floor_lines

    result = run_sides(arguments, arguments.version, arguments.version, threshold=THRESHOLD, grows=False)
    found = noise_floor.floors(result)
    say(floor_lines(found, result, shutil.get_terminal_size().columns))
    status = noise_floor.status_of(found, result)
    if status is ExitStatus.PASSED:
        path = arguments.json or noise_floor.default_floor_file()
        write_json(noise_floor.floor_json(found, result), path)
        say([f"kept in {path}"])
    return status
