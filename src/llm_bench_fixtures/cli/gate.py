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

from llm_bench_fixtures.cli.arguments import add_option, add_results, rules_in, select_in, storage_of, working_folder
from llm_bench_fixtures.cli.console import command, say, show_report
from llm_bench_fixtures.gate import options
from llm_bench_fixtures.gate.decision import decide_run
from llm_bench_fixtures.history.baseline import Likeness, find_baseline
from llm_bench_fixtures.history.saved import read_saved_run
from llm_bench_fixtures.history.storage import LATEST, RUN_HELP
from llm_bench_fixtures.report.judged.changes import decision_json, gate_report, github_annotations
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.text import first_few
from llm_bench_fixtures.writing import check_writable

HELP = "judge a saved run by another one"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", default=LATEST, metavar="RUN", help=f"{RUN_HELP}. Default: {LATEST}")
    add_option(parser, "--baseline", options.BASELINE)
    add_option(parser, "--rules", options.RULES)
    add_option(parser, "--missing", options.MISSING)
    add_results(parser, "write the decision, every cause and every value as JSON")


def run(arguments: argparse.Namespace) -> int:
    rules = rules_in(arguments)
    storage = storage_of(arguments)
    check_writable(arguments.summary, arguments.json)
    head = read_saved_run(select_in(storage, arguments.run))
    likeness = Likeness((head.provenance.model,), head.provenance.random_weights, head.selection)
    baseline = find_baseline(storage, arguments.baseline, likeness, working_folder(), head)
    say(first_few([f"Not a baseline: {reason}" for reason in baseline.passed_over]))
    decision = decide_run(head, baseline, rules, registry(), arguments.missing)
    try:
        show_report(gate_report(decision), lambda: decision_json(decision), arguments)
    finally:  # where the JSON can't be written, too
        if os.environ.get("GITHUB_ACTIONS") == "true":
            command(github_annotations(decision))
    return decision.status
