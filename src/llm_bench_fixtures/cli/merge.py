"""Make one run of the shards of a suite, such as a CI matrix measures by variant or scenario, and its report.

The shards must be of one commit, machine, model and set of libraries, with the same options. Each variant stays paired
with the reference of its own shard.

llm-bench merge shard-1/ shard-2/ -o whole
llm-bench gate whole                       judge it as a run of one job
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from llm_bench_fixtures.cli.arguments import add_output, add_storage, select_in, storage_of
from llm_bench_fixtures.cli.console import ConsoleProgress
from llm_bench_fixtures.cli.report import check_differ, check_no_copies, report_one
from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.history.saved import SavedAt, read_saved_run
from llm_bench_fixtures.history.storage import RUN_HELP
from llm_bench_fixtures.history.together import why_runs_apart
from llm_bench_fixtures.progress import Phase, Progress
from llm_bench_fixtures.results.pooled import merged_run
from llm_bench_fixtures.results.record import Run

HELP = "make one run of the shards of a suite"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"{RUN_HELP}. At least two")
    add_output(parser)
    add_storage(parser)
    parser.set_defaults(need=None, want=None)  # what the runs themselves were asked


def run(arguments: argparse.Namespace) -> None:
    if len(arguments.runs) < 2:
        raise InvalidSetting("name at least two RUNs, such as the folders of two jobs' reports")
    storage = storage_of(arguments)
    paths = [select_in(storage, text) for text in arguments.runs]
    check_differ(paths)
    _check_output(arguments.output, paths)
    progress = Progress(ConsoleProgress())
    with progress.activity(Phase.REPORTING, "reading the shards"):
        shards = [read_saved_run(path) for path in paths]
    _check_together(shards)
    report_one(merged_run(shards), (), None, arguments, progress)


def _check_output(folder: Path, paths: Sequence[SavedAt]) -> None:
    for path in paths:
        if isinstance(path, Path) and folder.resolve() in path.resolve().parents:
            raise InvalidSetting(f"{path} is in {folder}, where the merged run is to be: name another folder with -o")


def _check_together(shards: Sequence[Run]) -> None:
    """Raise InvalidSetting, with what differs, where the shards are not of one run."""
    check_no_copies(shards)
    for one, other in combinations(shards, 2):
        if reasons := [f"\n  {reason}" for reason in why_runs_apart(*_completed(one, other))]:
            text = f"{other.source} can't be merged with {one.source}:{''.join(reasons)}"
            raise InvalidSetting(f"{text}\n`llm-bench report` compares them on one page.")


def _completed(one: Run, other: Run) -> tuple[Run, Run]:
    """Each with the corpus and prompts as the other tells them, where only that one came to score or to cut them."""
    from llm_bench_fixtures.session.provenance import completed_by

    origins = completed_by(one.provenance, other.provenance), completed_by(other.provenance, one.provenance)
    return replace(one, provenance=origins[0]), replace(other, provenance=origins[1])
