"""What a scenario changes, on the x axis: prompt length and batch size, a line for each variant with error bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from llm_bench_fixtures.report.charts.spec import Axis, Chart, Line, Point, Series, ends_of, exactly, padded
from llm_bench_fixtures.report.charts.variants import (
    SPEED,
    SPEEDUP,
    axis_title,
    estimate_of,
    in_words,
    looks_of,
    on_axis,
    what_bars_are,
)
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME, Metric
from llm_bench_fixtures.results.record import Run, WorkloadFacts
from llm_bench_fixtures.results.speedup import record_speedup

BEYOND = 1.15  # times the outermost case: where the axis ends


@dataclass(frozen=True)
class Sweep:
    """A scenario whose cases are numbers, and two metrics to draw over them."""

    scenario: str
    unit: str
    """Of the cases, on the axis."""
    case: Callable[[WorkloadFacts], int]
    metric: Metric
    instead: Metric
    """The second metric where the run has no speed-ups of blocks."""


SWEEPS = (
    Sweep("prompt_length", "prompt tokens", lambda facts: facts.prompt_tokens, METRIC_BY_NAME["ttft_s"], SPEED),
    Sweep("batch", "batch size", lambda facts: facts.batch_size, SPEED, METRIC_BY_NAME["per_sample_latency_s"]),
)


def sweep_charts(findings: Findings) -> Iterator[Chart]:
    """Two for each sweep that has at least two cases of a variant."""
    run = findings.run
    in_blocks = any(record_speedup(record) for record in run.measured())
    for sweep in SWEEPS:
        for metric in (sweep.metric, SPEEDUP if in_blocks else sweep.instead):
            points = dict(_points(run, sweep, metric))
            if points:
                yield _chart(run, sweep, metric, points)


def _points(run: Run, sweep: Sweep, metric: Metric) -> Iterator[tuple[str, tuple[Point, ...]]]:
    """Of each variant that has the metric of at least two cases, in the order of the cases."""
    for variant in run.variants:
        found = []
        for record in run.measured(sweep.scenario):
            estimate = estimate_of(run, record, metric) if record.variant == variant.id else None
            if estimate is not None and record.workload is not None:
                case = sweep.case(record.workload)
                rounds = ("rounds", str(len(record.rounds_s)))
                facts = ((sweep.unit, str(case)), (metric.title, in_words(estimate, metric)), rounds)
                found.append(Point(exactly(case), on_axis(estimate, metric), facts))
        if len({point.x for point in found}) > 1:
            yield variant.id, tuple(sorted(found, key=lambda point: point.x.value))


def _chart(run: Run, sweep: Sweep, metric: Metric, points: Mapping[str, tuple[Point, ...]]) -> Chart:
    looks, is_speedup = looks_of(run), metric is SPEEDUP
    cases = sorted({int(point.x.value) for line in points.values() for point in line})
    across = (cases[0] / BEYOND, cases[-1] * BEYOND)
    low, high = padded(ends_of(point.y for line in points.values() for point in line))
    y = Axis(axis_title(metric, run.reference), (low if is_speedup else 0.0, high))
    return Chart(
        name=f"{sweep.scenario}-{metric.name}",
        title=f"{metric.title} by {sweep.scenario.replace('_', ' ')}",
        note=f"Bars: {what_bars_are(metric)}; {metric.direction}.",
        description=f"{y.title} against {sweep.unit}, a line for each of {', '.join(points)}",
        x=Axis(sweep.unit, across, is_log=True, ticks=tuple((case, str(case)) for case in cases), has_grid=False),
        y=y,
        series=tuple(Series(name, line, looks[name], name, is_line=True) for name, line in points.items()),
        lines=(Line(tuple((x, 1.0) for x in across), dash="dot"),) if is_speedup else (),
        scenario=sweep.scenario,
    )
