"""What `llm-bench pair` and `llm-bench aa` have in common: their options, and the run itself."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn

from llm_bench_fixtures.cli.arguments import checked
from llm_bench_fixtures.errors import PlatformUnsupported
from llm_bench_fixtures.gate.allowances import NOTHING, Allowance
from llm_bench_fixtures.options.parsers import integer_of_at_least, parse_seconds
from llm_bench_fixtures.paired.affinity import choose_cores, steady_environment
from llm_bench_fixtures.paired.control import PairedRun, Plan
from llm_bench_fixtures.paired.display import Display
from llm_bench_fixtures.paired.result import PairedResult
from llm_bench_fixtures.paired.sides import open_side
from llm_bench_fixtures.paired.statistics import LEAST_PAIRS
from llm_bench_fixtures.paired.trial import Pace
from llm_bench_fixtures.paired.workers import Command
from llm_bench_fixtures.results.storage import write_whole

PAIRS = 8
TIMEOUT_S = 300.0
MAX_TIME_PER_TEST_S = 60.0


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    pace = Pace()
    parser.add_argument(
        "--pairs",
        type=checked(integer_of_at_least(LEAST_PAIRS)),
        default=PAIRS,
        metavar="K",
        help=f"pairs of fresh processes before the first verdicts. Default: {PAIRS}",
    )
    parser.add_argument(
        "--rounds",
        type=checked(integer_of_at_least(1)),
        default=pace.rounds,
        metavar="R",
        help=f"rounds of each test in each pair, at most. Default: {pace.rounds}; fewer where they would take more "
        f"than {pace.time_s:g} s, but at least {pace.least_rounds}",
    )
    parser.add_argument(
        "--max-time",
        type=checked(parse_seconds),
        metavar="SECONDS",
        help="after which no more pairs begin; start-up included. Default: "
        f"{MAX_TIME_PER_TEST_S:g} for each test that both sides have",
    )
    parser.add_argument(
        "--threads",
        type=checked(integer_of_at_least(1)),
        default=1,
        metavar="N",
        help="threads of each process. The rounds of both sides run on the same N cores. Default: 1, which is the "
        "steadiest",
    )
    parser.add_argument(
        "--timeout",
        type=checked(parse_seconds),
        default=TIMEOUT_S,
        metavar="SECONDS",
        help=f"the longest silence of a process before it is taken to hang. Default: {TIMEOUT_S:g}",
    )


def run_sides(
    given: argparse.Namespace,
    base: str,
    head: str,
    *,
    threshold: float,
    grows: bool,
    allowed: frozenset[Allowance] = NOTHING,
) -> PairedResult:
    """Open the sides and run their pairs. Raises what opening them raises; all else is in the result.

    A second Ctrl-C, while the sides are cleaned up, loses no result.
    """
    if os.name != "posix":
        raise PlatformUnsupported("the processes of a pair inherit a socket, which they can on Linux and macOS only")
    here = Path.cwd()
    cores = choose_cores(given.threads)
    command = Command(tuple(given.passed_on), steady_environment(given.threads, cores), cores, given.timeout)
    plan = Plan(
        command,
        given.threads,
        threshold,
        given.pairs,
        Pace(rounds=given.rounds),
        MAX_TIME_PER_TEST_S,
        given.max_time,
        grows,
        allowed,
    )
    result = None
    try:
        with ExitStack() as stack:
            stack.enter_context(terminated_as_interrupted())
            scratch = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="llm-bench-pair-", ignore_cleanup_errors=True))
            )
            sides = [stack.enter_context(open_side(name, here, scratch)) for name in dict.fromkeys((base, head))]
            result = PairedRun((sides[0], sides[-1]), plan, Display(sys.stderr), scratch).run()
    except KeyboardInterrupt:
        if result is None:
            raise
    return result


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Have SIGTERM, with which a CI system ends a job, clean up as Ctrl-C does."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def write_json(data: Any, path: Path) -> None:
    """Raises UnwritableFile."""
    write_whole(path, json.dumps(data, allow_nan=False) + "\n")
