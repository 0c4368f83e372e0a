"""The end of pytest's output: header, summary table fitted to the width, takeaways, and where the report is."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from llm_bench_fixtures.report.cells import instrumentation_sentences
from llm_bench_fixtures.report.document import Table
from llm_bench_fixtures.report.sections import header_line
from llm_bench_fixtures.report.variants import summary_section
from llm_bench_fixtures.results.formatting import MISSING
from llm_bench_fixtures.results.metrics import Metric
from llm_bench_fixtures.results.record import Run
from llm_bench_fixtures.results.takeaways import takeaways

# Columns that give way first on a narrow terminal, the least needed first.
DISPENSABLE = ("top-1", "KLD", "TTFT", "peak memory", "change", "weights", "TPOT", "speed-up")
LABEL = "what ran"
LEAST_LABEL = 12


def summary_lines(run: Run, metrics: Mapping[str, Metric], folder: Path, width: int) -> Iterator[str]:
    """Lines of at most `width` characters."""
    yield ""
    yield f" llm-bench: {run.provenance.model} "[:width].center(width, "=")
    yield from _wrap(header_line(run), width)
    for candidate in run.provenance.passed_over:
        yield from _wrap(f"Not used: {candidate}", width, indent="  ")
    section = summary_section(run, metrics)
    yield from _wrap(section.note, width)
    yield ""
    yield from fit_table(section.table, width)
    sentences = takeaways(run)
    if sentences:
        yield ""
        for sentence in sentences:
            yield from _wrap(f"- {sentence}", width, indent="  ")
    for cost in instrumentation_sentences(run):
        yield ""
        yield from _wrap(cost, width)
    yield ""
    yield f"Report: {folder / 'report.html'}"


def _wrap(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)


def fit_table(table: Table, width: int) -> Iterator[str]:
    """The table in columns. Where it is too wide, the labels are cut and stand whole below it; then columns go."""
    columns = [name for name in table.header if _has_values(table, name)]
    for dropped in (None, *DISPENSABLE):
        columns = [name for name in columns if name != dropped]
        widths = {name: max(map(len, _column(table, name))) for name in columns}
        over = max(_total(widths) - width, 0)
        widths[LABEL] = max(widths[LABEL] - over, LEAST_LABEL)
        if _total(widths) <= width:
            break
    yield from _lines(table, widths, width)
    names, labels = _column(table, table.header[0]), _column(table, LABEL)
    for name, label in zip(names, labels, strict=True):
        if len(label) > widths[LABEL]:
            yield from _wrap(f"{name}: {label}", width, indent="  ")


def plain_table(table: Table, width: int, dispensable: Sequence[str]) -> Iterator[str]:
    """The table in columns. Where it is too wide, those of `dispensable` go, in their order; no cell is ever cut."""
    widths = {name: max(map(len, _column(table, name))) for name in table.header if _has_values(table, name)}
    for dropped in dispensable:
        if _total(widths) > width:
            widths.pop(dropped, None)
    yield from _lines(table, widths, _total(widths))


def _lines(table: Table, widths: Mapping[str, int], width: int) -> Iterator[str]:
    """The columns that have a width, each cell cut to it, with a rule below the header."""
    lines = zip(*(_cells(table, name, width) for name, width in widths.items()), strict=True)
    for index, cells in enumerate(lines):
        yield "  ".join(cells).rstrip()[:width]
        if index == 0:
            yield "-" * min(_total(widths), width)


def _has_values(table: Table, name: str) -> bool:
    return any(cell != MISSING for cell in _column(table, name)[1:])


def _column(table: Table, name: str) -> list[str]:
    index = table.header.index(name)
    return [name, *(row[index] for row in table.rows)]


def _cells(table: Table, name: str, width: int) -> list[str]:
    right = table.header.index(name) in table.numeric
    cut = [cell if len(cell) <= width else f"{cell[: width - 1]}…" for cell in _column(table, name)]
    return [cell.rjust(width) if right else cell.ljust(width) for cell in cut]


def _total(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + 2 * (len(widths) - 1)
