"""The end of pytest's output: header, summary table fitted to the width, takeaways, and where the report is."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from llm_bench_fixtures.report.columns import columns
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.variants import summary_section

LABEL = "what ran"
ESSENTIAL = ("variant", LABEL, "latency", "tokens/s", "perplexity")  # shown however narrow the terminal
# The others give way there: first those that aren't named here, then these, the least needed first.
DISPENSABLE = ("top-1", "KLD", "TTFT", "peak memory", "change", "weights", "TPOT", "speed-up")


def summary_lines(findings: Findings, folder: Path, width: int) -> Iterator[str]:
    """Lines of at most `width` characters."""
    provenance = findings.run.provenance
    yield ""
    yield f" llm-bench: {provenance.model} "[:width].center(width, "=")
    yield from _wrap(findings.header, width)
    for candidate in provenance.passed_over:
        yield from _wrap(f"Not used: {candidate}", width, indent="  ")
    section = summary_section(findings)
    yield from _wrap(section.note, width)
    yield ""
    yield from (line[:width] for line in columns(section.table, width, _dispensable(section.table.header), LABEL))
    if findings.takeaways:
        yield ""
    for sentence in findings.takeaways:
        yield from _wrap(f"- {sentence}", width, indent="  ")
    for cost in findings.instrumentation:
        yield ""
        yield from _wrap(cost, width)
    yield ""
    yield f"Report: {folder / 'report.html'}"


def _dispensable(header: Sequence[str]) -> tuple[str, ...]:
    return (*(name for name in header if name not in (*ESSENTIAL, *DISPENSABLE)), *DISPENSABLE)


def _wrap(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)
