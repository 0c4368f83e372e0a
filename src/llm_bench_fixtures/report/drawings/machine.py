"""Where the time goes: prefill and decode stacked, and each phase against what the machine can do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.report.cells import describe_workload
from llm_bench_fixtures.report.drawings.labels import PointLabel, label_points
from llm_bench_fixtures.report.drawings.style import FONT_SIZE, SOFT, caption, drawable, marker, name_of, new_figure
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.page.looks import Look, looks_of
from llm_bench_fixtures.report.page.phases import phases_of
from llm_bench_fixtures.report.page.roofline import Point, Reach, reach_of, roofline_points
from llm_bench_fixtures.results.formatting import format_seconds, three_digits

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKER = 10  # points across
FADED = 0.45


def draw_phases(findings: Findings) -> Figure | None:
    """A bar a variant; None where no variant's tokens were timed."""
    phases = phases_of(findings)
    if not phases:
        return None
    figure, (axis,) = new_figure(1, 2.0 + 0.42 * len(phases), width=11.8)
    _stack(axis, phases, looks_of(findings.run))
    axis.set(title="Prefill, up to the first token, and decode, the rest (faded)", xlabel="milliseconds")
    run, some = findings.run, next(iter(findings.common.values()))
    caption(figure, f"{run.provenance.model}, {run.provenance.hardware}; {describe_workload(some)}.")
    return figure


def _stack(axis: Axes, phases: Mapping[str, tuple[float, float]], looks: Mapping[str, Look]) -> None:
    places = range(len(phases))
    colours = [looks[variant].colour for variant in phases]
    prefill, decode = ([seconds * 1e3 for seconds in them] for them in zip(*phases.values(), strict=True))
    axis.barh(places, prefill, color=colours, label="prefill")
    bars = axis.barh(places, decode, left=prefill, color=colours, alpha=FADED, label="decode")
    totals = [f"{format_seconds(first)} + {format_seconds(rest)}" for first, rest in phases.values()]
    axis.bar_label(bars, totals, padding=6, fontsize=FONT_SIZE * 0.85, color="#222")
    axis.set_yticks(places, [name_of(variant) for variant in phases])
    axis.margins(x=0.22)
    axis.invert_yaxis()
    axis.grid(visible=False, axis="y")


def draw_roofline(findings: Findings) -> Figure | None:
    """None where the machine's limits, or the work, are not known."""
    points = roofline_points(findings)
    if not points:
        return None
    provenance = findings.run.provenance
    reach = reach_of(points, provenance)
    figure, (axis,) = new_figure(1, 6.6, width=11.8)
    axis.set(
        xscale="log",
        yscale="log",
        xlim=(reach.left, reach.right),
        ylim=(reach.bottom / 1e9, reach.top / 1e9),
        xlabel="operations per byte read",
        ylabel="GFLOP/s",
        title="Roofline: filled prefill, open decode",
    )
    axis.minorticks_off()
    for numbered in (axis.xaxis, axis.yaxis):
        numbered.set_major_formatter("{x:g}")
    _draw_roofs(axis, provenance.matmul_flops_per_s, provenance.read_bytes_per_s or 1.0, reach)
    caption(figure, f"Grey: what {provenance.hardware} was measured to read and to multiply at most.")
    _draw_points(figure, axis, points, looks_of(findings.run))
    return figure


def _draw_roofs(axis: Axes, ceilings: Mapping[str, float], bandwidth: float, reach: Reach) -> None:
    """The slope of the memory, and a ceiling a dtype, each with its name."""
    small: Any = {"color": SOFT, "fontsize": FONT_SIZE * 0.8, "va": "bottom"}
    for dtype, ceiling in ceilings.items():
        xs = [reach.left, ceiling / bandwidth, reach.right]
        axis.plot(xs, [min(ceiling, bandwidth * x) / 1e9 for x in xs], color=SOFT, linewidth=1.5, zorder=1)
        text = f"{drawable(dtype)}: {three_digits(ceiling / 1e9)} GFLOP/s"
        axis.text(reach.right, ceiling / 1e9, text, ha="right", **small)
    middle = math.sqrt(max(reach.left, reach.bottom / bandwidth) * min(ceilings.values()) / bandwidth)
    text = f"memory: {three_digits(bandwidth / 1e9)} GB/s "
    axis.text(middle, bandwidth * middle / 1e9, text, ha="right", **small)


def _draw_points(figure: Figure, axis: Axes, points: Sequence[Point], looks: Mapping[str, Look]) -> None:
    for point in points:
        look = looks[point.variant]
        axis.plot(
            point.work.intensity,
            point.work.flops_per_s / 1e9,
            marker=marker(look),
            markersize=MARKER,
            markeredgewidth=2,
            color=look.colour,
            markerfacecolor=look.colour if point.is_prefill else "white",
            linestyle="none",
            label=drawable(point.variant),
        )
    labels = [
        PointLabel(
            point.work.intensity,
            point.work.flops_per_s / 1e9,
            name_of(point.variant),
            looks[point.variant].colour,
            MARKER * 0.7,
        )
        for point in points
    ]
    label_points(figure, axis, labels)
