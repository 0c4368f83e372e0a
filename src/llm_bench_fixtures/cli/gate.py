"""Judge a saved run by another, as `pytest --llm-gate` judges the run that it makes. Nothing is run.

The exit status says why it ended so: 0 passed, 20 regressed, 21 no baseline, 22 not comparable with its baseline,
23 other tests than in its baseline, 24 not measured, 4 can't be done as asked. If several apply, the first of
24, 21, 20, 22, 23 is returned.

  llm-bench gate                                  the newest run, by the newest complete one before it
  llm-bench gate llm-bench-report --baseline 3    the last report, by run 0003
  llm-bench gate --baseline branch:main --rules "latency_s:20%,own_memory_bytes:5%"
"""

from __future__ import annotations

import argparse
import os

from llm_bench_fixtures.cli.arguments import (
    add_details,
    add_option,
    add_storage,
    check_files,
    select_in,
    storage_of,
    working_folder,
)
from llm_bench_fixtures.cli.console import command, say, show_report, write_json
from llm_bench_fixtures.gate import options
from llm_bench_fixtures.gate.decision import Decision, decide_run
from llm_bench_fixtures.gate.rules import Rules, check_targets
from llm_bench_fixtures.history.baseline import Likeness, find_baseline
from llm_bench_fixtures.history.saved import read_saved_run
from llm_bench_fixtures.history.storage import LATEST, RUN_HELP, Storage
from llm_bench_fixtures.report.judged.gate import decision_json, gate_report, github_annotations
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import Run
from llm_bench_fixtures.text import first_few

HELP = "judge a saved run by another one"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", default=LATEST, metavar="RUN", help=f"{RUN_HELP}. Default: {LATEST}")
    add_option(parser, "--baseline", options.BASELINE)
    add_option(parser, "--rules", options.RULES)
    add_option(parser, "--missing", options.MISSING)
    add_option(parser, "--summary", options.SUMMARY)
    add_details(parser, "write the decision, every cause and every value as JSON")
    add_storage(parser)


def run(arguments: argparse.Namespace) -> int:
    check_targets([rule.target for rule in arguments.rules], registry())
    storage = storage_of(arguments)
    check_files(arguments.summary, arguments.json)
    decision = _decide(read_saved_run(select_in(storage, arguments.run)), storage, arguments)
    show_report(gate_report(decision), arguments.summary, verbose=arguments.verbose)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        command(github_annotations(decision))
    if arguments.json:
        write_json(decision_json(decision), arguments.json)
    return decision.status


def _decide(head: Run, storage: Storage | None, arguments: argparse.Namespace) -> Decision:
    likeness = Likeness((head.provenance.model,), head.provenance.random_weights, head.selection)
    baseline = find_baseline(storage, arguments.baseline, likeness, working_folder(), head)
    say(first_few([f"Not a baseline: {reason}" for reason in baseline.passed_over]))
    return decide_run(head, baseline, Rules(arguments.rules), registry(), arguments.missing)
