"""Measure whether HEAD is slower than BASE, with processes of both that take turns.

BASE and HEAD are each one of these; the first that fits is taken:
  a git ref       main, HEAD~1, v1.2: checked out in a worktree of its own, which is removed at the end
  a folder        ../other, or . for this one with what is not committed
  an interpreter  .venv/bin/python: runs this folder's tests, to judge its libraries
Write ./NAME for a folder that has a ref's name. Only what git tracks is in a ref's worktree.

Each side runs in its folder, whose `src` and whose own modules come before what is installed. Arguments after `--` go
to pytest; if there is no path among them, `benchmarks/` is run if it exists. Only tests that take `llm_benchmark` run.

exit status:
   0  nothing got worse
   2  interrupted; the verdicts are those of the complete pairs
   4  something on the command line can't be used
  20  something got worse
  22  HEAD times other workloads, or was measured under other conditions
  23  HEAD skips a test, or lacks a value that BASE has
  24  nothing was measured that could be compared
  25  no regression was found, but some comparisons are inconclusive
  26  a test failed, or a process that ran tests died, hung or couldn't start
  27  something got worse by less than the threshold, though its interval reaches beyond it

Examples:
  llm-bench pair main
  llm-bench pair HEAD~1 HEAD --threshold 5% -- -k precision --llm-variants fp32,bf16
  llm-bench pair old-venv/bin/python new-venv/bin/python --summary comment.md
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn

from llm_bench_fixtures.cli.arguments import add_details, working_folder
from llm_bench_fixtures.cli.console import show_report, warn
from llm_bench_fixtures.errors import InvalidSetting, PlatformUnsupported
from llm_bench_fixtures.gate.options import parse_allowed
from llm_bench_fixtures.options.parsers import integer_of_at_least, parse_path, parse_seconds, parse_share, parse_time
from llm_bench_fixtures.options.table import paths_that_stand_alone
from llm_bench_fixtures.paired import resolution
from llm_bench_fixtures.paired.control import SUITE_PAIRS, PairedRun, PairPlan
from llm_bench_fixtures.paired.display import Display
from llm_bench_fixtures.paired.result import PairedResult
from llm_bench_fixtures.paired.sides import PAIR, open_side
from llm_bench_fixtures.paired.trial import TrialPace
from llm_bench_fixtures.paired.workers import Command
from llm_bench_fixtures.processes.affinity import choose_lanes, usable_cores
from llm_bench_fixtures.processes.environment import worker_environment
from llm_bench_fixtures.processes.scratch import ScratchFolder
from llm_bench_fixtures.progress import about
from llm_bench_fixtures.report.judged.pair import pair_json, pair_report, resolution_warning
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.statistics.ratio import LEAST_PAIRS
from llm_bench_fixtures.writing import check_writable

HELP = "compare the speed of two versions in processes that take turns"
PAIRS = 8
TIMEOUT_S = 300.0
AT_ONCE = 2

THRESHOLD_HELP = "changes within ±CHANGE are unchanged. Default: 3%%"
ALLOW_HELP = (
    "what doesn't make the exit status red: slight (worse by less than the threshold), changed (workloads), skipped "
    "(tests of HEAD), vanished (values), inconclusive. Default: nothing"
)
PAIRS_HELP = f"pairs of fresh processes before the first verdicts. Default: {PAIRS}"
ROUNDS_HELP = (
    "maximum rounds of each test per pair, and as many of its prefill alone. Default: "
    f"{TrialPace.rounds}; fewer if they would take more than {TrialPace.time_s:g} s, or than the time that all tests "
    "have"
)
TIME_HELP = (
    "time limit, such as 20m or 90s; a pair begins only if it is expected to fit. Default: "
    f"{about(PairPlan.test_time_s)} for each test that both sides have, but at most {about(PairPlan.suite_time_s)}, or "
    f"what {SUITE_PAIRS} pairs take"
)
AT_ONCE_HELP = (
    f"pairs that run at the same time, each on cores of its own, as far as cores and memory allow. Default: {AT_ONCE}"
)
THREADS_HELP = (
    "threads of each process. The rounds of both sides of a pair run on the same N cores. Default: 1, with which the "
    "times vary least"
)
TIMEOUT_HELP = (
    "a process that is silent for this long counts as hung; waiting for a free core doesn't count. Default: "
    f"{TIMEOUT_S:g}"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s BASE [HEAD] [options] [-- pytest arguments]"
    parser.add_argument("base", metavar="BASE", help="what HEAD is compared with")
    parser.add_argument("head", metavar="HEAD", nargs="?", default=".", help="default: . (this folder as it is)")
    threshold = parse_share("3%")
    parser.add_argument("--threshold", type=parse_share, default=threshold, metavar="CHANGE", help=THRESHOLD_HELP)
    parser.add_argument("--allow", type=parse_allowed, default=frozenset(), metavar="WHAT[,WHAT]", help=ALLOW_HELP)
    parser.add_argument("--summary", type=parse_path, metavar="FILE.md", help="also write the result as Markdown")
    add_details(parser, "write everything as JSON, with the raw rounds")
    add_run_arguments(parser)
    parser.set_defaults(grows=True)


def run(arguments: argparse.Namespace) -> int:
    check_writable(arguments.json, arguments.summary)
    coarse = resolution.coarser_than(arguments.threshold, arguments.pairs, arguments.threads, resolution.default_file())
    if coarse is not None:
        warn(resolution_warning(*coarse, arguments.threshold, arguments.pairs))
    result = run_sides(arguments.base, arguments.head, make_plan(arguments))
    show_report(pair_report(result), lambda: pair_json(result), arguments)
    return result.status


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that `llm-bench aa` has too."""
    add, at_least_one = parser.add_argument, integer_of_at_least(1)
    add("--pairs", type=integer_of_at_least(LEAST_PAIRS), default=PAIRS, metavar="K", help=PAIRS_HELP)
    add("--rounds", type=at_least_one, default=TrialPace.rounds, metavar="R", help=ROUNDS_HELP)
    add("--time", type=parse_time, metavar="TIME", help=TIME_HELP)
    add("--at-once", type=at_least_one, default=AT_ONCE, metavar="N", help=AT_ONCE_HELP)
    add("--threads", type=parse_threads, default=1, metavar="N", help=THREADS_HELP)
    add("--timeout", type=parse_seconds, default=TIMEOUT_S, metavar="SECONDS", help=TIMEOUT_HELP)


def parse_threads(text: str) -> int:
    threads, cores = integer_of_at_least(1)(text), usable_cores()
    if threads > cores:
        raise InvalidSetting(f"{threads} threads would wait for each other on {count(cores, 'core')}")
    return threads


def make_plan(given: argparse.Namespace) -> PairPlan:
    """given: the options of this command, and what goes to pytest. Raises InvalidSetting."""
    for flag, value in paths_that_stand_alone(given.passed_on, Path()):
        raise InvalidSetting(
            f"{flag} {value}: pytest would take that path for a folder of tests, and its root folder from it. "
            f"Write {flag}={value}, with an equals sign"
        )
    commands = tuple(
        Command(tuple(given.passed_on), worker_environment(given.threads, cores), cores, given.timeout)
        for cores in choose_lanes(given.threads, given.at_once)
    )
    return PairPlan(
        commands=commands,
        threads=given.threads,
        threshold=given.threshold,
        pairs=given.pairs,
        pace=TrialPace(rounds=given.rounds),
        time_limit_s=given.time,
        grows=given.grows,
        allowed=given.allow,
    )


def run_sides(base: str, head: str, plan: PairPlan) -> PairedResult:
    """Open the sides and run their pairs; a version that is compared with itself is opened once. Raises what opening
    them raises; all other failures are in the result.

    A second Ctrl-C, while the sides are cleaned up, loses no result.
    """
    if os.name != "posix":
        raise PlatformUnsupported("the processes of a pair inherit a socket, which they can on Linux and macOS only")
    result = None
    try:
        with terminated_as_interrupted(), ExitStack() as stack:
            scratch = stack.enter_context(ScratchFolder(PAIR)).path
            here = working_folder()
            sides = [stack.enter_context(open_side(name, here, scratch)) for name in dict.fromkeys((base, head))]
            result = PairedRun((sides[0], sides[-1]), plan, Display(sys.stderr), scratch).run()
    except KeyboardInterrupt:
        if result is None:
            raise
    return result


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM, with which a CI system ends a job, and SIGHUP of a closed terminal clean up as Ctrl-C does; one that
    is ignored (nohup) stays so."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    heard = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is not signal.SIG_IGN]
    before = {one: signal.signal(one, interrupt) for one in heard}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
