"""The memory that the answer goes by against latency, and what each variant costs in quality beside its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llm_bench_fixtures.answer.peaks import memory_metric
from llm_bench_fixtures.report.bounds import bounds
from llm_bench_fixtures.report.cells import describe_workload
from llm_bench_fixtures.report.drawings.bars import LATENCY, value_of
from llm_bench_fixtures.report.drawings.labels import PointLabel, label_points
from llm_bench_fixtures.report.drawings.style import caption, drawable, marker, name_of, new_figure
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.page.looks import Look, looks_of
from llm_bench_fixtures.results.formatting import format_change
from llm_bench_fixtures.results.record import Record, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROOM = 1.12  # times the largest value: where an axis ends
LOG_FROM = 20  # times the smallest value: above it the axis is logarithmic
MARKER = 12  # points across


def draw_memory(findings: Findings) -> Figure | None:
    """None where fewer than two variants have a memory and a latency. Memory is the peak, or weights without peaks."""
    run, memory = findings.run, memory_metric(findings)
    records = [record for record in findings.common.values() if value_of(run, record, memory) > 0]
    if len(records) < 2:
        return None
    figure, (axis,) = new_figure(1, 6.6, width=11.8)
    looks = looks_of(run)
    for record in records:
        _draw_point(axis, run, record, memory, looks[record.variant])
    named = findings.metrics[memory].title.lower()
    axis.set(xlabel=f"{named}, MB", ylabel="latency, ms", title=_title(run, records))
    axis.set_xlim(0, ROOM * max(value_of(run, record, memory) for record in records) * 1e-6)
    _scale_latency(axis, records)
    on = f"{run.provenance.model}, {run.provenance.hardware}; {describe_workload(records[0])}"
    caption(figure, f"{on}. Bars: quartiles of the rounds.")
    label_points(figure, axis, [_label(run, record, memory, looks[record.variant]) for record in records])
    return figure


def _title(run: Run, records: list[Record]) -> str:
    """What the axes don't say."""
    beside = f"; beside each name its perplexity against {drawable(run.reference)}'s"
    is_compared = any(_change(run, record) for record in records)
    return f"Lower left is smaller and faster{beside if is_compared else ''}"


def _draw_point(axis: Axes, run: Run, record: Record, memory: str, look: Look) -> None:
    seconds = value_of(run, record, LATENCY)
    low, high = bounds(record, LATENCY, seconds)
    axis.errorbar(
        value_of(run, record, memory) * 1e-6,
        seconds * 1e3,
        yerr=[[(seconds - low) * 1e3], [(high - seconds) * 1e3]],
        color=look.colour,
        marker=marker(look),
        markersize=MARKER,
        linestyle="none",
        capsize=4,
        label=drawable(record.variant),
    )


def _scale_latency(axis: Axes, records: list[Record]) -> None:
    """Start the axis at zero; make it logarithmic if the largest value is many times the smallest."""
    values = [record.median_s * 1e3 for record in records]
    top = max(bounds(record, LATENCY, record.median_s)[1] * 1e3 for record in records)
    if max(values) > LOG_FROM * min(values):
        axis.set_yscale("log")
        axis.set_ylim(min(values) / 1.6, top * 1.6)
        axis.yaxis.set_major_formatter("{x:g}")
    else:
        axis.set_ylim(0, ROOM * top)


def _label(run: Run, record: Record, memory: str, look: Look) -> PointLabel:
    text = " ".join(filter(None, (name_of(record.variant), _change(run, record))))
    low, high = bounds(record, LATENCY, record.median_s)
    size = value_of(run, record, memory)
    return PointLabel(size * 1e-6, record.median_s * 1e3, text, look.colour, MARKER * 0.7, (low * 1e3, high * 1e3))


def _change(run: Run, record: Record) -> str:
    """Of the perplexity against the reference's; empty where the two can't be compared."""
    own, other = value_of(run, record, "perplexity"), 0.0
    reference = run.variant(run.reference)
    if reference is not None:
        other = reference.quality.get("perplexity", 0.0)
    return format_change(own / other) if own > 0 and other > 0 and record.variant != run.reference else ""
