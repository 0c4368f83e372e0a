"""The report's pictures, as PNG and SVG: which there are, and how matplotlib draws any of them.

Letters can be read on a slide, and names stand next to what they name, where they cover nothing. A picture without data
is not drawn.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.processes.environment import setting
from llm_bench_fixtures.report.charts import spec
from llm_bench_fixtures.report.charts.variants import bar_charts, memory_chart, sweep_charts
from llm_bench_fixtures.report.charts.whole_run import phases_chart, roofline_chart, tradeoff_chart
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.tables.table import MACHINE, SUMMARY
from llm_bench_fixtures.results.folder import remove_pictures
from llm_bench_fixtures.statistics.spread import Estimate
from llm_bench_fixtures.text import printable
from llm_bench_fixtures.writing import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import BboxBase

FONT = "DejaVu Sans"  # matplotlib brings it along
FONT_SIZE = 14
SMALL = FONT_SIZE * 0.8
CAPTION_SIZE = FONT_SIZE * 0.75
WIDTHS = {1: 11.8}  # inches by the number of charts
WIDTH = 13.3  # inches, as a slide has
INCH = 70  # pixels of a chart on the page
AROUND = 0.8  # inches for the title and the caption
TITLE_WIDTH = 20  # characters of a title's line where there are more than two charts
WIDE = 0.54  # letters' mean width over the font's size, with some room
INK = "#222"
# Markers as plotly names them, and as matplotlib does.
MARKERS = {
    "circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "cross": "P", "x": "X", "triangle-down": "v",
    "star": "*",
}  # fmt: skip
DASHES: dict[str, Any] = {
    "solid": "-",
    "dash": (0, (5, 2)),
    "dot": (0, (1, 1.6)),
    "dashdot": (0, (5, 2, 1, 2)),
    "longdash": (0, (9, 3)),
    "longdashdot": (0, (9, 2, 1, 2)),
}
# Settings of matplotlib for all of our pictures.
STYLE: Any = {  # matplotlib types the keys one by one
    "figure.dpi": 110,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "font.family": FONT,
    "font.size": FONT_SIZE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": spec.SOFT,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": FONT_SIZE * 1.1,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": FONT_SIZE,
    "grid.color": "#e5e8ec",
    "svg.fonttype": "none",  # text stays text: it can be searched and edited, and takes a tenth of the bytes
    "svg.hashsalt": "llm-bench",  # so that the same run gives the same file
    "text.parse_math": False,  # a name with dollars in it is no formula
}
DIRECTIONS = 16
DISTANCES = (11, 20, 32, 46, 62, 80, 100, 125, 150, 180, 220, 260)  # points from a marker's middle to a label's edge
GAP = 3.0  # points between a marker and a label
LEADER = {"arrowstyle": "-", "linewidth": 0.8, "alpha": 0.5}


def write_plots(findings: Findings, folder: Path) -> list[spec.Plot]:
    """Draw what the run has data for, into `folder`; our pictures of an earlier run are removed. Raises
    UnwritableFile."""
    plots = []
    remove_pictures(folder)
    with drawing():
        for picture in pictures(findings):
            figure, path = draw(picture), folder / f"{picture.name}.svg"
            _save(figure, path.with_suffix(".png"))
            figure.set_layout_engine("none")  # everything has its place by now
            _save(figure, path, metadata={"Date": None})
            plots.append(spec.Plot(path, picture.title, picture.part))
    return plots


def _save(figure: Figure, path: Path, **settings: Any) -> None:
    """The path's ending says how it is drawn."""
    with replacing(path, follows=False) as scratch:
        figure.savefig(scratch, format=path.suffix[1:], **settings)


def pictures(findings: Findings) -> Iterator[spec.Picture]:
    """Pictures that the run has data for."""
    where = findings.run.provenance
    for name, title, part, charts in _drawn(findings):
        if found := tuple(filter(None, charts)):
            yield spec.Picture(name, title, part, found, f"{where.model}, {where.hardware}. {_notes(found)}")


def _drawn(findings: Findings) -> Iterator[tuple[str, str, str, Iterable[spec.Chart | None]]]:
    """Each picture's name, title, part and charts."""
    yield "tradeoff", "Quality against speed, with the memory of each variant", SUMMARY, [tradeoff_chart(findings)]
    yield "memory", "Memory against latency against perplexity", SUMMARY, [memory_chart(findings)]
    yield "phases", "Prefill and decode of each variant", MACHINE, [phases_chart(findings)]
    yield "roofline", "Prefill and decode against the limits of this machine", MACHINE, [roofline_chart(findings)]
    for name in ("precision", "quantization"):
        yield name, f"Latency, weights and perplexity by {name}", name, bar_charts(findings, name)
    sweeps = {
        "batch": "Throughput and speed-up against batch size",
        "prompt_length": "Time to first token and speed-up against prompt length",
    }
    for name, title in sweeps.items():
        yield name, title, name, [chart for chart in sweep_charts(findings) if chart.scenario == name]


def _notes(charts: Sequence[spec.Chart]) -> str:
    """Notes of the charts; of several, each with its chart's title."""
    noted = [chart for chart in charts if chart.note]
    return " ".join(f"{chart.title}: {chart.note}" if len(noted) > 1 else chart.note for chart in noted)


@contextmanager
def drawing() -> Iterator[None]:
    """Have matplotlib imported, with our settings.

    No window is opened, so $MPLBACKEND, which may name what isn't installed, doesn't count.
    """
    with setting("MPLBACKEND", "agg"):
        import matplotlib
    with matplotlib.rc_context(STYLE):
        yield


def draw(picture: spec.Picture) -> Figure:
    """The charts in a row, and below them the caption. Within `drawing`."""
    from matplotlib.figure import Figure

    charts = picture.charts
    height = max(chart.height for chart in charts) / INCH + AROUND
    figure = Figure(figsize=(WIDTHS.get(len(charts), WIDTH), height), layout="constrained")
    axes = list(figure.subplots(1, len(charts), squeeze=False)[0])
    letters = int(figure.get_figwidth() * 72 / (CAPTION_SIZE * WIDE))  # that fit on a line
    caption = textwrap.fill(drawable(picture.caption), letters)
    figure.supxlabel(caption, x=0.01, ha="left", fontsize=CAPTION_SIZE, color=spec.SOFT)
    for axis, chart in zip(axes, charts, strict=True):
        _set_up(axis, chart, is_narrow=len(charts) > 2, has_names=axis is axes[0] or chart.y != charts[0].y)
        _draw(axis, chart)
    for axis, chart in zip(axes, charts, strict=True):
        named = [(one, f"{spec.short(drawable(one.label))}{one.detail}") for one in chart.series if one.label]
        label_ends(axis, [one for one in named if one[0].is_line])
        if points := [one for one in named if not one[0].is_line]:
            label_points(figure, axis, points)
    return figure


def _set_up(axis: Axes, chart: spec.Chart, *, is_narrow: bool, has_names: bool) -> None:
    """has_names: the rows' names are shown, rather than those of the chart to the left."""
    title = drawable(chart.title)
    axis.set_title(textwrap.fill(title, TITLE_WIDTH) if is_narrow else title)
    for side, one in (("x", chart.x), ("y", chart.y)):
        scale = "log" if one.is_log else "linear"
        axis.set(**{f"{side}scale": scale, f"{side}label": drawable(one.title), f"{side}lim": one.ends})
        axis.grid(visible=one.has_grid, axis="x" if side == "x" else "y")
        _set_ticks(getattr(axis, f"{side}axis"), one, is_narrow=is_narrow)
    axis.minorticks_off()
    if not has_names:
        axis.set_yticklabels([])


def _set_ticks(axis: Any, told: spec.Axis, *, is_narrow: bool) -> None:
    """axis: matplotlib's XAxis or YAxis."""
    if told.ticks:
        axis.set_ticks([at for at, _ in told.ticks], [spec.short(drawable(text)) for _, text in told.ticks])
    elif told.is_log or told.suffix:
        axis.set_major_formatter(f"{{x:g}}{told.suffix}")
    elif is_narrow:
        from matplotlib.ticker import MaxNLocator

        axis.set_major_locator(MaxNLocator(3))


def _draw(axis: Axes, chart: spec.Chart) -> None:
    for band in chart.bands:
        span = axis.axvspan if band.is_of_x else axis.axhspan
        span(band.low, band.high, color=spec.NEAR_COLOUR, alpha=0.1, linewidth=0, zorder=0)
    for line in chart.lines:
        xs, ys = zip(*line.places, strict=True)
        axis.plot(xs, ys, color=line.colour, linestyle=DASHES[line.dash], linewidth=line.width, zorder=1)
    for text in chart.texts:
        anchors = {"ha": "right" if text.is_right else "left", "va": "top" if text.is_below else "bottom"}
        axis.text(text.x, text.y, drawable(f" {text.text} "), color=spec.SOFT, fontsize=SMALL, **anchors)  # type: ignore[arg-type]
    for bar in chart.bars:
        _draw_bar(axis, bar)
    for series in chart.series:
        _draw_series(axis, series)


def _draw_bar(axis: Axes, bar: spec.Bar) -> None:
    length = bar.length
    errors: Any = {"xerr": _errors([length]), "error_kw": {"ecolor": INK, "capsize": 3, "linewidth": 1.2}}
    axis.barh(bar.row, length.value, left=bar.start, color=bar.look.colour, alpha=0.85 * bar.opacity, **errors)
    end, side = (length.low, -1) if length.value < 0 else (length.high, 1)
    axis.annotate(
        bar.text,
        (bar.start + end, bar.row),
        xytext=(6 * side, 0),
        textcoords="offset points",
        ha="left" if side > 0 else "right",
        va="center_baseline",
        fontsize=FONT_SIZE * 0.85,
        color=INK,
    )


def _draw_series(axis: Axes, series: spec.Series) -> None:
    look, xs, ys = series.look, [one.x for one in series.points], [one.y for one in series.points]
    axis.errorbar(
        [one.value for one in xs],
        [one.value for one in ys],
        xerr=_errors(xs),
        yerr=_errors(ys),
        color=look.colour,
        marker=MARKERS[look.marker] if series.size else "",
        markersize=series.size,
        markerfacecolor=look.colour if series.is_filled else "none",
        markeredgewidth=1 if series.is_line else 2,
        alpha=series.opacity,
        linestyle=DASHES[look.dash] if series.is_line else "none",
        linewidth=2,
        elinewidth=1.2,
        capsize=3,
        label=drawable(series.variant),
    )


def _errors(estimates: list[Estimate]) -> Any:
    """Below and above, as matplotlib takes them; None where all are exact."""
    if all(one.is_exact for one in estimates):
        return None
    return [[one.value - one.low for one in estimates], [one.high - one.value for one in estimates]]


def drawable(text: str) -> str:
    """The text on one line, in the characters that the font has. For any other stands its number, so that two names of
    such characters still differ."""
    known = _characters()
    shown = printable(text)
    return "".join(one if ord(one) in known else f"\\u{{{ord(one):x}}}" for one in shown)


@cache
def _characters() -> frozenset[int]:
    """Characters that the font has."""
    from matplotlib.font_manager import FontProperties, findfont
    from matplotlib.ft2font import FT2Font

    return frozenset(FT2Font(findfont(FontProperties(family=FONT))).get_charmap())


def label_points(figure: Figure, axis: Axes, labelled: Sequence[tuple[spec.Series, str]]) -> None:
    """Each text joined to its series' point, and as near to it as can be without covering a point, a bar or another
    text; next to the point where there is no such place. The axis must have its limits."""
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()  # so that the axis has its place
    pixels, frame = figure.dpi / 72, axis.get_window_extent()
    taken = [box for series, _ in labelled for box in _boxes(axis, series, pixels)]
    for series, text in labelled:
        point = series.points[0].x.value, series.points[0].y.value
        note = axis.annotate(
            text,
            point,
            xytext=(0, 0),
            textcoords="offset points",
            ha="center",
            va="center",
            color=series.look.colour,
            arrowprops={**LEADER, "color": series.look.colour, "shrinkA": 0, "shrinkB": 0},
            zorder=1.5,  # so that the line ends beneath the marker
        )
        (x, y), size = axis.transData.transform(point), Text.get_window_extent(note)  # without the line
        box = Bbox.from_bounds(x - size.width / 2, y - size.height / 2, size.width, size.height)
        moves = list(_moves(box, pixels))
        free = (move for move in moves if _is_free(box.translated(*move), frame, taken))
        across, up = next(free, moves[0])
        note.set_position((across / pixels, up / pixels))
        taken.append(box.translated(across, up))


def _boxes(axis: Axes, series: spec.Series, pixels: float) -> Iterator[BboxBase]:
    """Boxes of the marker and of the error bars, whichever way the axes run. pixels: of a typographic point."""
    from matplotlib.transforms import Bbox

    x, y = series.points[0].x, series.points[0].y
    for room, start, end in (
        (series.size / 2 + GAP, (x.value, y.value), (x.value, y.value)),
        (2.0, (x.low, y.value), (x.high, y.value)),
        (2.0, (x.value, y.low), (x.value, y.high)),
    ):
        ends = axis.transData.transform([start, end])
        yield Bbox([ends.min(axis=0), ends.max(axis=0)]).padded(room * pixels)


def _moves(box: BboxBase, pixels: float) -> Iterator[spec.Place]:
    """Pixels to move a text's box from the middle of its point, from the nearest to the furthest, at each distance to
    the right first."""
    for distance in DISTANCES:
        for number in range(DIRECTIONS):
            turn = (number + 1) // 2 * (-1) ** number / DIRECTIONS * 2 * math.pi
            across, up = distance * pixels + box.width / 2, distance * pixels + box.height / 2
            yield math.cos(turn) * across, math.sin(turn) * up


def _is_free(box: BboxBase, frame: BboxBase, taken: Sequence[BboxBase]) -> bool:
    """Whether it is within the frame and covers nothing."""
    return frame.count_contains(box.corners()) == 4 and not box.count_overlaps(taken)


def label_ends(axis: Axes, labelled: Sequence[tuple[spec.Series, str]]) -> None:
    """Each text to the right of the plot, as near to its line's end as the others allow, and joined to it.

    The axis must have its limits.
    """
    to_axes = axis.transData + axis.transAxes.inverted()
    ends = [(series.points[-1].x.value, series.points[-1].y.value) for series, _ in labelled]
    places = spec.apart([float(to_axes.transform(end)[1]) for end in ends])
    for (series, text), end, place in zip(labelled, ends, places, strict=True):
        axis.annotate(
            text,
            end,
            xytext=(1.05, place),
            textcoords="axes fraction",
            va="center",
            color=series.look.colour,
            arrowprops={**LEADER, "color": series.look.colour, "shrinkA": 2, "shrinkB": 6, "relpos": (0, 0.5)},
            annotation_clip=False,
        )
