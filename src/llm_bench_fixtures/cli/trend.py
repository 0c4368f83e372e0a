"""Draw how the numbers changed from run to run: a page with one line per metric and variant, which marks where a line
steps. Different machines, models, corpora or libraries have charts of their own.

llm-bench trend
llm-bench trend --branch main --metric latency_s,perplexity --variant fp32,bf16 -o trend.html
llm-bench trend --test 'benchmarks/test_batch.py*'

A step is advice, not a verdict: it shows between which commits to look.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from llm_bench_fixtures.cli.arguments import add_output, add_storage, storage_in, working_folder
from llm_bench_fixtures.cli.console import say, tell_passed_over
from llm_bench_fixtures.errors import NothingToShow, UnknownName
from llm_bench_fixtures.history.git import commits_address
from llm_bench_fixtures.history.headings import Unreadable
from llm_bench_fixtures.history.storage import Storage
from llm_bench_fixtures.history.trend import DEFAULT_METRICS, Group, TrendFilter
from llm_bench_fixtures.models.backends import CATALOGUE
from llm_bench_fixtures.models.variants import is_variant, near_variants
from llm_bench_fixtures.options.parsers import parse_names
from llm_bench_fixtures.report.history import render_trend, trend_lines
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.writing import check_writable, write_whole

HELP = "draw how the numbers changed from run to run"
METRIC_HELP = f"metrics to draw. Default: {', '.join(DEFAULT_METRICS)}"
TEST_HELP = "only tests whose id contains this, or matches it as a shell pattern"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_output(parser, "page to write. Default: %(default)s", "FILE", "llm-bench-trend.html")
    add("--metric", type=parse_names, default=DEFAULT_METRICS, metavar="NAME[,NAME...]", help=METRIC_HELP)
    add("--test", default="", metavar="PATTERN", help=TEST_HELP)
    add("--variant", type=parse_names, default=(), metavar="ID[,ID...]", help="variants to draw. Default: all")
    add("--branch", default="", metavar="NAME", help="only runs of this branch. Default: of all")
    add_storage(parser)


def run(arguments: argparse.Namespace) -> None:
    from llm_bench_fixtures.history.steps import read_trend  # with numpy, which other commands do without

    here = working_folder()
    check_writable(arguments.output)
    storage = storage_in(arguments)
    metrics = tuple(dict.fromkeys(arguments.metric))
    chosen = TrendFilter(metrics, arguments.test, arguments.variant, arguments.branch)
    unreadable: list[Unreadable] = []
    groups = read_trend(storage, chosen, unreadable.append)
    for item in unreadable:
        tell_passed_over(item)
    _check(groups, chosen, storage)
    page = render_trend(groups, chosen, unreadable, storage, commits_address(here))
    write_whole(arguments.output, page)
    say([*trend_lines(groups), f"Page: {arguments.output}"])


def _check(groups: Sequence[Group], chosen: TrendFilter, storage: Storage) -> None:
    """Raise NothingToShow or UnknownName where something was asked for and nothing of it was found."""
    runs = storage.newest(0, lambda _: None)[0] if not groups else []
    if runs:
        raise UnknownName("branch", chosen.branch, sorted({run.provenance.branch or "(none)" for run in runs}))
    if not groups:
        raise NothingToShow(f"none of the runs in {storage} can be read")
    found = {line.metric for group in groups for line in group.lines}
    for name in chosen.metrics:
        if name not in found and name not in registry():
            raise UnknownName("metric", name, registry())
    drawn = {line.variant for group in groups for line in group.lines}
    if others := [name for name in sorted(set(chosen.variants) - drawn) if not is_variant(name, CATALOGUE)]:
        saved = {variant for one in storage.values(chosen.metrics, lambda _: None) for _, variant in one.benchmarks}
        for name in others:
            if name not in saved:
                near = [one for one in near_variants(name, CATALOGUE) if one in saved]
                raise UnknownName("variant", name, sorted(saved), near)
    if not found:
        raise NothingToShow(
            f"no run in {storage} has {', '.join(chosen.metrics)} of a test like {chosen.tests or '*'!r} on "
            f"{', '.join(chosen.variants) or 'any variant'}. llm-bench export lists what there is"
        )
