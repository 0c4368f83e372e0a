"""Several runs in a chart: for each variant a marker for each run, with error bars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from llm_bench_fixtures.report.bounds import SPEEDUP, bounds
from llm_bench_fixtures.report.comparable import Aspect
from llm_bench_fixtures.report.page.figures import error_bars, escaped, hover, layout, short, title
from llm_bench_fixtures.report.page.looks import MARKERS
from llm_bench_fixtures.report.page.values import Chart, Json
from llm_bench_fixtures.report.runs import RunBeside
from llm_bench_fixtures.results.formatting import with_unit
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME, Metric
from llm_bench_fixtures.text import readable

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#7F7F7F")  # Okabe and Ito's, as the other charts have them
ROW, TOP = 44, 120  # pixels of a variant, and of what is not the plot
SPREAD = 0.5  # of a row, over which the runs are apart


@dataclass(frozen=True)
class Panel:
    """What a chart shows."""

    aspect: Aspect
    metric: Metric
    factor: float
    """From the base unit to the axis'."""
    unit: str
    bars: str
    axis: str
    """Plotly's type of it."""


PANELS = (
    Panel(Aspect.LATENCY, METRIC_BY_NAME["latency_s"], 1e3, "ms", "quartiles of the rounds", "log"),
    Panel(Aspect.SPEEDUP, METRIC_BY_NAME[SPEEDUP], 1.0, "over the run's own reference", "95 % interval", "linear"),
)


@dataclass(frozen=True)
class Point:
    """What one variant does in one run, in the metric's base unit."""

    variant: str
    run: str
    """The run's label."""
    value: float
    low: float
    high: float


def runs_charts(runs: Sequence[RunBeside]) -> Iterator[Chart]:
    """A chart for each metric that at least two of the runs can be compared by."""
    places = {run.label: at for at, run in enumerate(runs)}
    for panel in PANELS:
        compared = [run for run in runs if panel.aspect not in run.left_out]
        points = [point for run in compared for point in _points(run, panel.metric)]
        labels = dict.fromkeys(point.run for point in points)
        if len(labels) > 1:
            yield Chart(
                name=f"runs-{panel.metric.name}",
                title=panel.metric.title,
                note=f"Bars: {panel.bars}; {panel.metric.direction}.",
                description=f"{panel.metric.title} of each variant, a marker for each of {', '.join(labels)}",
                figure=_figure(points, panel, places),
            )


def _points(run: RunBeside, metric: Metric) -> Iterator[Point]:
    for name, record in run.findings.common.items():
        variant = run.findings.run.variant(name)
        value = metric.of(record, variant) if variant else None
        if value is not None:
            yield Point(name, run.label, value, *bounds(record, metric.name, value))


def _figure(points: Sequence[Point], panel: Panel, places: Mapping[str, int]) -> Json:
    """A row a variant. places: of all runs, so that each has its colour in every chart."""
    rows = {variant: row for row, variant in enumerate(dict.fromkeys(point.variant for point in points))}
    x: Json = {"title": title(f"{panel.metric.title}, {panel.unit}"), "type": panel.axis}
    y: Json = {
        "tickvals": list(rows.values()),
        "ticktext": [escaped(short(variant)) for variant in rows],
        "range": [len(rows) - 0.5, -0.5],
        "showgrid": False,
    }
    named = [_named(label, places) for label in dict.fromkeys(point.run for point in points)]
    traces = [_trace(point, rows[point.variant], panel, places) for point in points]
    legend: Json = {"orientation": "h", "y": 1.02, "yanchor": "bottom"}
    found = layout(x, y, height=TOP + ROW * len(rows), legend=legend)
    return {"data": [*named, *traces], "layout": {**found, "showlegend": True}}


def _named(label: str, places: Mapping[str, int]) -> Json:
    """The run's entry of the legend: a trace of its own, which stays whatever variants are shown."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": escaped(label),
        "x": [None],
        "y": [None],
        "marker": _marker(places[label]),
    }


def _marker(place: int) -> Json:
    return {"color": COLOURS[place % len(COLOURS)], "symbol": MARKERS[place % len(MARKERS)][0], "size": 9}


def _trace(point: Point, row: int, panel: Panel, places: Mapping[str, int]) -> Json:
    at = places[point.run]
    low, value, high = (one * panel.factor for one in (point.low, point.value, point.high))
    told = [with_unit(one, panel.metric) for one in (point.value, point.low, point.high)]
    facts = [("run", point.run), (panel.metric.title, f"{told[0]} ({told[1]} to {told[2]})")]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": escaped(short(point.run)),
        "meta": readable(point.variant),
        "showlegend": False,
        "x": [value],
        "y": [row + SPREAD * ((at + 0.5) / len(places) - 0.5)],
        "error_x": error_bars(COLOURS[at % len(COLOURS)], [high - value], [value - low]),
        "marker": _marker(at),
        "hoverinfo": "text",
        "hovertext": [hover(point.variant, facts)],
    }
