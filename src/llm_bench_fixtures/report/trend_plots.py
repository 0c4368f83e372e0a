"""The picture of a group of runs: a panel for each metric that moved, a line for each variant."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from llm_bench_fixtures.history.headings import Heading
from llm_bench_fixtures.history.trend import Group, Line
from llm_bench_fixtures.report.charts.draw import drawable, drawing
from llm_bench_fixtures.report.charts.looks import numbered_looks
from llm_bench_fixtures.report.history import COMMIT_DIGITS
from llm_bench_fixtures.results.metrics import Metric
from llm_bench_fixtures.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

COLUMNS = 2
FAINT, CLEAR = 0.4, 0.7  # how opaque the runs are beside their levels, and alone
MOST_TICKS = 8
POINTS_UP_TO = 60  # runs that are each shown as a point
MOST_CHARACTERS = 40  # of a variant's name


def draw_trend(group: Group, lines: Sequence[Line], metrics: Mapping[str, Metric]) -> bytes:
    """A PNG. lines: the lines of the group to show, at least one."""
    with drawing():
        figure = trend_figure(group, lines, metrics)
        picture = BytesIO()
        figure.savefig(picture, format="png")
    return picture.getvalue()


def trend_figure(group: Group, lines: Sequence[Line], metrics: Mapping[str, Metric]) -> Figure:
    """A panel a metric, in two columns."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(line.metric for line in lines))
    variants = list(dict.fromkeys(line.variant for line in lines))
    looks = numbered_looks(len(variants))
    colours = {variant: look.colour for variant, look in zip(variants, looks, strict=True)}
    columns = min(COLUMNS, len(names))
    rows = math.ceil(len(names) / columns)
    figure = Figure(figsize=(6.6 * columns + 1.4, 3.2 * rows + 0.3))
    figure.set_layout_engine("constrained", h_pad=0.12)
    axes = figure.subplots(rows, columns, squeeze=False).flat
    for axis, name in zip(axes, names, strict=False):
        _draw_panel(axis, [line for line in lines if line.metric == name], colours)
        axis.set_title(f"{drawable(metrics[name].title if name in metrics else name)}, against its first level")
        _label_runs(axis, group.runs)
    for axis in list(axes)[len(names) :]:
        axis.remove()
    handles = [_handle(variant, colour) for variant, colour in colours.items()]
    figure.legend(handles=handles, loc="outside right upper")
    return figure


def _draw_panel(axis: Axes, lines: Sequence[Line], colours: Mapping[str, str]) -> None:
    """Draw each run thin. If a line steps, draw its levels thick, with a dotted line at each step."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for line in lines:
        colour = colours[line.variant]
        marker = "o" if len(line.positions) <= POINTS_UP_TO else ""
        changes = [_percent(value, line) for value in line.values]
        alpha = FAINT if len(line.levels) > 1 else CLEAR
        axis.plot(line.positions, changes, color=colour, alpha=alpha, linewidth=0.8, marker=marker, markersize=3)
        for level in line.levels if len(line.levels) > 1 else ():
            axis.plot([level.first, level.last], [_percent(level.value, line)] * 2, color=colour, linewidth=2.2)
        for before, after in line.steps:
            axis.axvline((before.last + after.first) / 2, color=colour, linewidth=1.2, linestyle=":")
    axis.yaxis.set_major_locator(MaxNLocator(6))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda percent, _: f"{percent:+.4g} %" if percent else "0 %"))


def _percent(value: float, line: Line) -> float:
    return (value / line.levels[0].value - 1) * 100


def _label_runs(axis: Axes, runs: Sequence[Heading]) -> None:
    """Label as many runs as there is room for, by commit, or by day if a run has no commit."""
    count = min(len(runs), MOST_TICKS)
    positions = sorted({round(index * (len(runs) - 1) / max(count - 1, 1)) for index in range(count)})
    axis.set_xticks(positions, [_label(runs[position]) for position in positions], rotation=25, ha="right", fontsize=8)
    axis.set_xlim(-0.5, len(runs) - 0.5)


def _label(run: Heading) -> str:
    return printable(run.provenance.commit[:COMMIT_DIGITS]) or f"{run.started:%Y-%m-%d}"


def _handle(variant: str, colour: str) -> Line2D:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, linewidth=2.2, label=drawable(variant[:MOST_CHARACTERS]))
