"""Accept a saved run as a baseline, whatever its state: one that regressed on purpose, say. The reason is kept in it.

llm-bench bless latest --reason "int8 weights: smaller, and worth 0.4 % of perplexity"
"""

from __future__ import annotations

import argparse

from llm_bench_fixtures.cli.arguments import add_storage, select_in, storage_of
from llm_bench_fixtures.cli.console import say
from llm_bench_fixtures.history.saved import bless
from llm_bench_fixtures.history.storage import RUN_HELP
from llm_bench_fixtures.results.record import RunState

HELP = "accept a saved run as a baseline"
REASON_HELP = "why; it is shown wherever the run is compared with"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    parser.add_argument("--reason", required=True, metavar="TEXT", help=REASON_HELP)
    add_storage(parser)


def run(arguments: argparse.Namespace) -> None:
    place = select_in(storage_of(arguments), arguments.run)
    run = bless(place, arguments.reason)
    though = "" if run.state is RunState.COMPLETE else f", though {run.state}"
    say([f"{place} is a baseline now{though}: {arguments.reason}"])
