"""The resolution of a machine, in words and a table."""

from __future__ import annotations

from collections.abc import Iterator

from llm_bench_fixtures.paired.resolution import CoarseResolution, Resolution
from llm_bench_fixtures.paired.result import PairedResult
from llm_bench_fixtures.report.columns import columns, wrapped_lines
from llm_bench_fixtures.report.paired import absences, measured_how, why_it_ended
from llm_bench_fixtures.report.tables.table import Table
from llm_bench_fixtures.results.formatting import format_share
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME
from llm_bench_fixtures.text import printable

HEADER = ("metric", "SD between pairs", "interval ±", "resolves")


def resolution_lines(found: tuple[Resolution, ...], result: PairedResult, width: int) -> Iterator[str]:
    """What `llm-bench aa` prints, in lines of `width` characters."""
    rows = [
        (METRIC_BY_NAME[row.metric].column, *map(format_share, (row.deviation, row.half_width, row.resolvable)))
        for row in found
    ]
    yield from wrapped_lines(f"{printable(result.base)} against itself: {measured_how(result)}", width)
    yield ""
    if rows:
        yield from (*columns(Table.of_texts(HEADER, rows, {1, 2, 3})), "")
    for text in (*absences(result.not_compared), *why_it_ended(result)):
        yield from wrapped_lines(text, width)


def resolution_warning(found: CoarseResolution, threshold: float, pairs: int) -> str:
    return (
        f"a threshold of {format_share(threshold)} is finer than what {pairs} pairs of a test resolve on this machine: "
        f"{format_share(found.resolvable)} for {_column(found.metric)}, as `llm-bench aa` measured "
        f"on {found.measured:%Y-%m-%d}. Verdicts take more pairs, or stay inconclusive."
    )


def _column(metric: str) -> str:
    return METRIC_BY_NAME[metric].column if metric in METRIC_BY_NAME else metric
