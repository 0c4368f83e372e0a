"""Show what differs between two saved runs, by cause, and the tests without a verdict. Nothing is run.

llm-bench compare 3 latest
llm-bench compare main llm-bench-report/results.json --summary comparison.md
"""

from __future__ import annotations

import argparse

from llm_bench_fixtures.cli.arguments import add_option, add_results, rules_in, select_in, storage_of
from llm_bench_fixtures.cli.console import show_report
from llm_bench_fixtures.gate import options
from llm_bench_fixtures.gate.comparison import compare_runs
from llm_bench_fixtures.history.saved import read_saved_run
from llm_bench_fixtures.history.storage import RUN_HELP
from llm_bench_fixtures.report.judged.changes import comparison_json, comparison_report
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.writing import check_writable

HELP = "show what differs between two saved runs"
SUMMARY_HELP = "append the comparison as Markdown, for a comment or a step summary"
JSON_HELP = "write every cause and every value as JSON"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("base", metavar="BASE", help=f"the run to compare with, {RUN_HELP}")
    parser.add_argument("head", metavar="HEAD", help="the run that is compared, named the same way")
    add_option(parser, "--rules", options.RULES)
    add_results(parser, JSON_HELP, SUMMARY_HELP)


def run(arguments: argparse.Namespace) -> None:
    rules = rules_in(arguments)
    storage = storage_of(arguments)
    check_writable(arguments.summary, arguments.json)
    head = select_in(storage, arguments.head)
    base = select_in(storage, arguments.base, head)
    comparison = compare_runs(read_saved_run(base), read_saved_run(head), rules, registry())
    show_report(comparison_report(comparison), lambda: comparison_json(comparison), arguments)
