"""What a scenario changes, on the x axis: a line for each variant, with error bars and its name at its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from llm_bench_fixtures.report.bounds import SPEEDUP
from llm_bench_fixtures.report.drawings.labels import label_ends
from llm_bench_fixtures.report.drawings.style import DASHES, SOFT, caption, drawable, marker, new_figure
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.page.looks import Look, looks_of
from llm_bench_fixtures.report.page.sweeps import Lines, cases_of, heights, sweep_lines, title_of_panel, what_bars_are

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_prompt_length(findings: Findings) -> Figure | None:
    return _draw(findings, "prompt_length")


def draw_batch(findings: Findings) -> Figure | None:
    return _draw(findings, "batch")


def _draw(findings: Findings, scenario: str) -> Figure | None:
    """A panel for each of the page's charts of the sweep; None where it has none."""
    panels = [lines for lines in sweep_lines(findings) if lines.sweep.scenario == scenario]
    if not panels:
        return None
    looks = looks_of(findings.run)
    figure, axes = new_figure(len(panels), 5.8)
    bars = "; ".join(f"{lines.panel.metric.title.lower()}: {what_bars_are(lines.panel)}" for lines in panels)
    caption(figure, f"{findings.run.provenance.model}, {findings.run.provenance.hardware}. Bars: {bars}.")
    for axis, lines in zip(axes, panels, strict=True):
        _draw_lines(axis, lines, looks)
    figure.draw_without_rendering()  # so that the panels have their places, and their limits
    for axis, lines in zip(axes, panels, strict=True):
        ends = {variant: (points[-1].x, points[-1].value) for variant, points in lines.points.items()}
        label_ends(axis, ends, looks)
    return figure


def _draw_lines(axis: Axes, lines: Lines, looks: Mapping[str, Look]) -> None:
    for variant, points in lines.points.items():
        look = looks[variant]
        axis.errorbar(
            [point.x for point in points],
            [point.value for point in points],
            yerr=[[point.value - point.low for point in points], [point.high - point.value for point in points]],
            color=look.colour,
            marker=marker(look),
            linestyle=DASHES[look.dash],
            markersize=7,
            linewidth=2,
            elinewidth=1.2,
            capsize=3,
            label=drawable(variant),
        )
    cases = cases_of(lines)
    axis.set(xlabel=lines.sweep.unit, ylabel=drawable(lines.panel.axis), title=title_of_panel(lines), xscale="log")
    axis.set_ylim(*heights(lines))
    axis.set_xticks(cases, [str(case) for case in cases])
    axis.minorticks_off()
    axis.grid(visible=False, axis="x")
    if lines.panel.metric.name == SPEEDUP:
        axis.axhline(1.0, color=SOFT, linewidth=1.2, linestyle=":", zorder=0)
