"""What a scenario changes, on the x axis: prompt length and batch size, a line for each variant with error bars."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from llm_bench_fixtures.report.bounds import SPEEDUP, bounds
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.page.figures import (
    LABEL_ROOM,
    end_labels,
    error_bars,
    escaped,
    hover,
    layout,
    padded,
    title,
)
from llm_bench_fixtures.report.page.looks import Look, looks_of
from llm_bench_fixtures.report.page.values import Chart, Json
from llm_bench_fixtures.results.formatting import with_unit
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME, Metric
from llm_bench_fixtures.results.record import Record, Run, WorkloadFacts
from llm_bench_fixtures.results.speedup import record_speedup
from llm_bench_fixtures.text import readable


@dataclass(frozen=True)
class Sweep:
    """A scenario whose cases are numbers, and two metrics to draw over them."""

    scenario: str
    unit: str
    """Of the cases, on the axis."""
    case: Callable[[WorkloadFacts], int]
    metric: str
    instead: str
    """The second metric where the run has no speed-ups of blocks."""


@dataclass(frozen=True)
class Panel:
    """A metric on an axis."""

    metric: Metric
    factor: float
    """From the base unit to the one on the axis."""
    axis: str


@dataclass(frozen=True)
class Point:
    """A record's place in a sweep, in the axis' units."""

    x: int
    value: float
    low: float
    high: float
    record: Record


@dataclass(frozen=True)
class Lines:
    """A metric over a sweep."""

    sweep: Sweep
    panel: Panel
    points: Mapping[str, Sequence[Point]]
    """By variant, in the order of the cases; each at two cases or more."""


SWEEPS = (
    Sweep("prompt_length", "prompt tokens", lambda facts: facts.prompt_tokens, "ttft_s", "output_tokens_per_s"),
    Sweep("batch", "batch size", lambda facts: facts.batch_size, "output_tokens_per_s", "per_sample_latency_s"),
)


def sweep_charts(findings: Findings) -> Iterator[Chart]:
    """Two for each sweep that has at least two cases of a variant."""
    return (_chart(findings.run, lines) for lines in sweep_lines(findings))


def sweep_lines(findings: Findings) -> Iterator[Lines]:
    """What the charts draw, and the pictures too."""
    run = findings.run
    in_blocks = any(record_speedup(record) for record in run.measured())
    for sweep in SWEEPS:
        for name in (sweep.metric, SPEEDUP if in_blocks else sweep.instead):
            panel = _panel(run, name)
            points = dict(_lines(run, sweep, panel))
            if points:
                yield Lines(sweep, panel, points)


def _panel(run: Run, name: str) -> Panel:
    metric = METRIC_BY_NAME[name]
    if name == SPEEDUP:
        return Panel(metric, 1.0, f"{metric.title} over {run.reference}")
    if name.endswith("_s") and not name.endswith("_per_s"):
        return Panel(metric, 1e3, f"{metric.title}, ms")
    return Panel(metric, 1.0, f"{metric.title}, {metric.unit}")


def _chart(run: Run, lines: Lines) -> Chart:
    sweep, panel = lines.sweep, lines.panel
    return Chart(
        name=f"{sweep.scenario}-{panel.metric.name}",
        title=title_of_panel(lines),
        note=f"Bars: {what_bars_are(panel)}; {panel.metric.direction}.",
        description=f"{panel.axis} against {sweep.unit}, a line for each of {', '.join(lines.points)}",
        figure=_figure(lines, looks_of(run)),
        scenario=sweep.scenario,
    )


def title_of_panel(lines: Lines) -> str:
    return f"{lines.panel.metric.title} by {lines.sweep.scenario.replace('_', ' ')}"


def what_bars_are(panel: Panel) -> str:
    return "95 % interval" if panel.metric.name == SPEEDUP else "quartiles of the rounds"


def cases_of(lines: Lines) -> list[int]:
    """All of the variants' cases, ascending."""
    return sorted({point.x for points in lines.points.values() for point in points})


def _lines(run: Run, sweep: Sweep, panel: Panel) -> Iterator[tuple[str, list[Point]]]:
    """Of each variant that has the metric of at least two cases, in the order of the cases."""
    for variant in run.variants:
        records = [record for record in run.measured(sweep.scenario) if record.variant == variant.id]
        points = [point for record in records if (point := _point(run, record, sweep, panel))]
        if len({point.x for point in points}) > 1:
            yield variant.id, sorted(points, key=lambda point: point.x)


def _point(run: Run, record: Record, sweep: Sweep, panel: Panel) -> Point | None:
    variant = run.variant(record.variant)
    value = panel.metric.of(record, variant) if variant else None
    if value is None or record.workload is None:
        return None
    low, high = bounds(record, panel.metric.name, value)
    value, low, high = (one * panel.factor for one in (value, low, high))
    return Point(sweep.case(record.workload), value, low, high, record)


def heights(lines: Lines) -> tuple[float, float]:
    """The ends of the axis: from zero, but for a speed-up."""
    points = [point for line in lines.points.values() for point in line]
    low, high = padded([value for point in points for value in (point.low, point.high)])
    return (low if lines.panel.metric.name == SPEEDUP else 0.0), high


def _figure(lines: Lines, looks: Mapping[str, Look]) -> Json:
    sweep, panel, cases = lines.sweep, lines.panel, cases_of(lines)
    low, high = heights(lines)
    x: Json = {
        "type": "log",
        "title": title(sweep.unit),
        "tickvals": list(cases),
        "ticktext": [str(case) for case in cases],
        "range": list(padded((math.log10(cases[0]), math.log10(cases[-1])), 0.05)),
        "showgrid": False,
    }
    y: Json = {"title": title(panel.axis), "range": [low, high]}
    ends = {variant: line[-1].value for variant, line in lines.points.items()}
    shapes = [_as_fast()] if panel.metric.name == SPEEDUP else []
    labels = end_labels(ends, looks, low, high)
    traces = [_trace(variant, line, looks[variant], panel, sweep) for variant, line in lines.points.items()]
    return {"data": traces, "layout": layout(x, y, right=LABEL_ROOM, annotations=labels, shapes=shapes)}


def _as_fast() -> Json:
    """The line where a variant is as fast as the reference."""
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": 1,
        "y1": 1,
        "layer": "below",
        "line": {"color": "#8a8f98", "width": 1, "dash": "dot"},
    }


def _trace(variant: str, line: Sequence[Point], look: Look, panel: Panel, sweep: Sweep) -> Json:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": escaped(variant),
        "meta": readable(variant),
        "x": [point.x for point in line],
        "y": [point.value for point in line],
        "error_y": error_bars(
            look.colour, [point.high - point.value for point in line], [point.value - point.low for point in line]
        ),
        "line": {"color": look.colour, "width": 1.8, "dash": look.dash},
        "marker": {"color": look.colour, "symbol": look.marker, "size": 7},
        "hoverinfo": "text",
        "hovertext": [_hover(variant, point, panel, sweep) for point in line],
    }


def _hover(variant: str, point: Point, panel: Panel, sweep: Sweep) -> str:
    low, value, high = (with_unit(one / panel.factor, panel.metric) for one in (point.low, point.value, point.high))
    facts = [
        (sweep.unit, str(point.x)),
        (panel.metric.title, f"{value} ({low} to {high})"),
        ("rounds", str(len(point.record.rounds_s))),
    ]
    return hover(variant, facts)
