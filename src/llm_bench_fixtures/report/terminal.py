"""The end of pytest's output: header, summary table fitted to the width, takeaways, and where the report is."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from llm_bench_fixtures.report.cells import instrumentation_sentences
from llm_bench_fixtures.report.columns import columns
from llm_bench_fixtures.report.sections import header_line
from llm_bench_fixtures.report.takeaways import takeaways
from llm_bench_fixtures.report.variants import summary_section
from llm_bench_fixtures.results.metrics import Metric
from llm_bench_fixtures.results.record import Run

LABEL = "what ran"
ESSENTIAL = ("variant", LABEL, "latency", "tokens/s", "perplexity")  # shown however narrow the terminal
# The others give way there: first those that aren't named here, then these, the least needed first.
DISPENSABLE = ("top-1", "KLD", "TTFT", "peak memory", "change", "weights", "TPOT", "speed-up")


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
    yield from (line[:width] for line in columns(section.table, width, _dispensable(section.table.header), LABEL))
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


def _dispensable(header: Sequence[str]) -> tuple[str, ...]:
    return (*(name for name in header if name not in (*ESSENTIAL, *DISPENSABLE)), *DISPENSABLE)


def _wrap(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)
