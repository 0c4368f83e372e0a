"""What a reader should use, in figures for people."""

from __future__ import annotations

from llm_bench_fixtures.answer.peaks import PEAKS
from llm_bench_fixtures.answer.picks import Choice, Pick, Reader
from llm_bench_fixtures.report.cells import times_cell
from llm_bench_fixtures.results.formatting import format_bytes, format_seconds, three_digits


def figure_of(choice: Choice, pick: Pick) -> str:
    """The choice's latency, throughput or memory."""
    if pick.reader is Reader.MEMORY:
        return format_bytes(choice.value)
    return format_seconds(choice.value) if pick.reader is Reader.LATENCY else f"{three_digits(choice.value)} tokens/s"


def against(choice: Choice) -> str:
    """The ratio to the reference with its interval: "1.38× (1.34–1.41)"."""
    return times_cell(choice.ratio, choice.low, choice.high)


def gain_words(choice: Choice, pick: Pick, reference: str) -> str:
    """What the reader gains: "1.38× (1.34–1.41) as fast as fp32", "2.00 MB of weights instead of 4.00 MB"."""
    if pick.reader is Reader.LATENCY:
        return f"{against(choice)} as fast as {reference}"
    if pick.reader is Reader.THROUGHPUT:
        return f"{against(choice)} {reference}'s throughput at batch {pick.batch_size}"
    beside = f" instead of {figure_of(pick.reference, pick)}" if pick.reference else ""
    return f"{figure_of(choice, pick)} of {'memory' if pick.metric in PEAKS else 'weights'}{beside}"
