"""The page's first chart as a picture: quality against speed, and the memory as the marker's size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from llm_bench_fixtures.answer.peaks import memory_metric
from llm_bench_fixtures.answer.standings import near_lossless
from llm_bench_fixtures.report.cells import describe_workload
from llm_bench_fixtures.report.drawings.labels import PointLabel, label_points
from llm_bench_fixtures.report.drawings.style import BAND, FONT_SIZE, SOFT, caption, drawable, name_of, new_figure
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.page.looks import Look, looks_of
from llm_bench_fixtures.report.page.tradeoff import (
    ALIKE,
    BAND_NAME,
    MARK,
    Point,
    front_steps,
    pareto_front,
    reach_of,
    tradeoff_points,
)
from llm_bench_fixtures.results.formatting import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LARGEST, SMALLEST = 34.0, 7.0  # points across a marker
BAND_INK = "#4a7a6b"
GAP = 3.0  # points between a marker and a name


def draw_tradeoff(findings: Findings) -> Figure | None:
    """What the page's chart has; None where fewer than two variants have a speed, a quality and a memory."""
    points = tradeoff_points(findings)
    if len(points) < 2:
        return None
    figure, (axis,) = new_figure(1, 6.6, width=11.8)
    across, up = reach_of(points)
    axis.set(
        xlim=across,
        ylim=up,
        xlabel="output tokens per second",
        ylabel=f"perplexity against {drawable(findings.run.reference)}'s, %",
        title="Higher and further right is better; the smaller, the less memory",
    )
    caption(figure, _caption(findings, points))
    _draw_band(axis)
    best, looks = pareto_front(findings, points), looks_of(findings.run)
    steps = front_steps([point for point in points if point.variant in best])
    axis.plot(*zip(*((one.tokens_per_s, one.change) for one in steps), strict=True), color=SOFT, linestyle=":")
    sizes = _sizes(points)
    for point in sorted(points, key=lambda point: -point.peaks.shown):  # the small ones stay on top
        _draw_point(axis, point, looks[point.variant], sizes[point.variant], is_best=point.variant in best)
    alike = near_lossless(findings.run)
    label_points(figure, axis, [_label(one, looks[one.variant], sizes[one.variant], alike) for one in points])
    return figure


def _caption(findings: Findings, points: Sequence[Point]) -> str:
    run, memory = findings.run, findings.metrics[memory_metric(findings)].title.lower()
    marked = f" {MARK}: near-lossless, not ordered." if near_lossless(run) else ""
    return (
        f"{run.provenance.model}, {run.provenance.hardware}; {describe_workload(points[0].record)}. Beside each name: "
        f"{memory}. Filled: on the Pareto front of the three.{marked} Bars: quartiles of the rounds, 95 % interval of "
        "the perplexity."
    )


def _draw_band(axis: Axes) -> None:
    """Where the perplexity is near the reference's, with its name at the left."""
    axis.axhspan(ALIKE.low, ALIKE.high, color=BAND, alpha=0.1, linewidth=0)
    axis.text(
        0.01,
        ALIKE.low,
        BAND_NAME,
        transform=axis.get_yaxis_transform(),
        va="top",
        color=BAND_INK,
        fontsize=FONT_SIZE * 0.8,
    )


def _sizes(points: Sequence[Point]) -> Mapping[str, float]:
    """Across each variant's marker, in points: its area grows with the memory."""
    largest = max(point.peaks.shown for point in points)
    return {one.variant: max(LARGEST * math.sqrt(one.peaks.shown / largest), SMALLEST) for one in points}


def _draw_point(axis: Axes, point: Point, look: Look, size: float, *, is_best: bool) -> None:
    axis.errorbar(
        point.tokens_per_s,
        point.change,
        xerr=[[point.tokens_per_s - point.speed.low], [point.speed.high - point.tokens_per_s]],
        yerr=[[point.change - point.changes.low], [point.changes.high - point.change]],
        color=look.colour,
        marker="o",
        markersize=size,
        markerfacecolor=look.colour if is_best else "none",
        markeredgewidth=2,
        alpha=0.8 if is_best else 1.0,
        linestyle="none",
        elinewidth=1.2,
        capsize=3,
        label=drawable(point.variant),
    )


def _label(point: Point, look: Look, size: float, alike: Sequence[str]) -> PointLabel:
    mark = f"{MARK} " if point.variant in alike else ""
    return PointLabel(
        point.tokens_per_s,
        point.change,
        f"{mark}{name_of(point.variant)}, {format_bytes(point.peaks.shown)}",
        look.colour,
        size / 2 + GAP,
        (point.changes.low, point.changes.high),
        (point.speed.low, point.speed.high),
    )
