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

from llm_bench_fixtures.cli.arguments import add_details, check_files
from llm_bench_fixtures.cli.console import show_report, warn, write_json
from llm_bench_fixtures.cli.paired_run import add_run_arguments, make_plan, run_sides
from llm_bench_fixtures.gate.options import parse_allowed
from llm_bench_fixtures.options.parsers import parse_path, parse_share
from llm_bench_fixtures.paired import resolution
from llm_bench_fixtures.report.judged.pair import pair_json, pair_report, resolution_warning

HELP = "compare the speed of two versions in processes that take turns"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s BASE [HEAD] [options] [-- pytest arguments]"
    parser.add_argument("base", metavar="BASE", help="what HEAD is compared with")
    parser.add_argument("head", metavar="HEAD", nargs="?", default=".", help="default: . (this folder as it is)")
    parser.add_argument(
        "--threshold",
        type=parse_share,
        default=parse_share("3%"),
        metavar="CHANGE",
        help="changes within ±CHANGE are unchanged. Default: 3%%",
    )
    parser.add_argument(
        "--allow",
        type=parse_allowed,
        default=frozenset(),
        metavar="WHAT[,WHAT]",
        help="what doesn't make the exit status red: slight (worse by less than the threshold), changed (workloads), "
        "skipped (tests of HEAD), vanished (values), inconclusive. Default: nothing",
    )
    parser.add_argument("--summary", type=parse_path, metavar="FILE.md", help="also write the result as Markdown")
    add_details(parser, "write everything as JSON, with the raw rounds")
    add_run_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    check_files(arguments.json, arguments.summary)
    coarse = resolution.coarser_than(arguments.threshold, arguments.pairs, arguments.threads, resolution.default_file())
    if coarse is not None:
        warn(resolution_warning(*coarse, arguments.threshold, arguments.pairs))
    plan = make_plan(arguments, threshold=arguments.threshold, grows=True, allowed=arguments.allow)
    result = run_sides(arguments.base, arguments.head, plan)
    show_report(pair_report(result), arguments.summary, verbose=arguments.verbose)
    if arguments.json:
        write_json(pair_json(result), arguments.json)
    return result.status
