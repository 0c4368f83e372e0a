"""The report's pictures, as PNG and SVG, and the charts that only they have: bars of a scenario's variants, and memory
against latency. A picture without data is not drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.answer.peaks import memory_metric
from llm_bench_fixtures.answer.standings import NEAR
from llm_bench_fixtures.report.charts import spec
from llm_bench_fixtures.report.charts.draw import draw, drawing
from llm_bench_fixtures.report.charts.variants import (
    LATENCY,
    SPEEDUP,
    axis_title,
    estimate_of,
    looks_of,
    on_axis,
    perplexity_change,
    sweep_charts,
)
from llm_bench_fixtures.report.charts.whole_run import phases_chart, roofline_chart, tradeoff_chart
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.tables.table import MACHINE, SUMMARY
from llm_bench_fixtures.report.words.measured import describe_workload
from llm_bench_fixtures.results.folder import remove_pictures
from llm_bench_fixtures.results.formatting import MINUS, format_change, three_digits
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME
from llm_bench_fixtures.results.record import Run
from llm_bench_fixtures.writing import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOM_FOR_NUMBERS = 0.45  # room for the numbers at the bars' ends, over what the bars take
WEIGHTS = METRIC_BY_NAME["weight_bytes"]
BEYOND = 1.12  # times the largest value: where an axis ends
LOG_FROM = 20  # times the smallest value: above it the axis is logarithmic
LOG_ROOM = 1.6


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


def bar_charts(findings: Findings, scenario: str) -> Iterator[spec.Chart]:
    """Bar charts from each variant's first record of the scenario; none without a record."""
    run = findings.run
    records = {record.variant: record for record in reversed(run.measured(scenario))}
    shown = [records[variant.id] for variant in run.variants if variant.id in records]
    if not shown:
        return
    note = (
        f"On {describe_workload(shown[0])}. Bars: quartiles of the rounds; 95 % interval of speed-up and perplexity. "
        f"Shaded: perplexity within ± {100 * NEAR:g} %."
    )
    looks = {name: look for name, look in looks_of(run).items() if name in records}
    for metric in (LATENCY, SPEEDUP, WEIGHTS):
        lengths = {one.variant: on_axis(found, metric) for one in shown if (found := estimate_of(run, one, metric))}
        if lengths or metric is not SPEEDUP:
            chart = _bar_chart(axis_title(metric, run.reference), looks, lengths, three_digits)
            yield replace(chart, note=note) if metric is LATENCY else chart
    changes = {one.variant: found for one in shown if (found := perplexity_change(run, run.variant(one.variant)))}
    if changes.keys() - {run.reference}:
        chart = _bar_chart("Perplexity change, %", looks, changes, _signed)
        low, high = chart.x.ends
        near = 100 * NEAR  # in sight whatever the bars, so that none within it looks long
        across = (min(low, -near * 1.3), max(high, near * (1 + ROOM_FOR_NUMBERS)))
        yield replace(chart, x=replace(chart.x, ends=across), bands=(spec.Band(-near, near, is_of_x=True),))


def _signed(percent: float) -> str:
    return f"{round(percent, 2) + 0.0:+.2f}".replace("-", MINUS)  # no "-0.00"


def _bar_chart(
    title: str, looks: Mapping[str, spec.Look], lengths: Mapping[str, spec.Estimate], written: Callable[[float], str]
) -> spec.Chart:
    """A row for each variant with a look."""
    ends = [0.0, *spec.ends_of(lengths.values())]
    room = ROOM_FOR_NUMBERS * (max(ends) - min(ends))
    bars = (
        spec.Bar(name, row, lengths[name], look, text=written(lengths[name].value))
        for row, (name, look) in enumerate(looks.items())
        if name in lengths
    )
    return spec.Chart(
        name=title,
        title=title,
        x=spec.Axis("", (min(ends) - room * (min(ends) < 0), max(ends) + room or 1.0)),
        y=spec.rows_axis(list(looks)),
        bars=tuple(bars),
        height=spec.AROUND_ROWS + spec.ROW * len(looks),
    )


def memory_chart(findings: Findings) -> spec.Chart | None:
    """None where fewer than two variants have a memory and a latency. Memory is the peak, or weights without peaks."""
    run, memory = findings.run, METRIC_BY_NAME[memory_metric(findings)]
    looks, series = looks_of(run), []
    for record in findings.common.values():
        size, latency = estimate_of(run, record, memory), estimate_of(run, record, LATENCY)
        if size is not None and size.value > 0 and latency is not None:
            point, name = spec.Point(on_axis(size, memory), on_axis(latency, LATENCY)), record.variant
            series.append(spec.Series(name, (point,), looks[name], name, _change_in_words(run, name), size=9))
    if len(series) < 2:
        return None
    details = f"; numbers: perplexity change against {run.reference}" if any(one.detail for one in series) else ""
    sizes, latencies = zip(*((one.points[0].x.value, one.points[0].y.value) for one in series), strict=True)
    top = max(one.points[0].y.high for one in series)
    is_log = max(latencies) > LOG_FROM * min(latencies)
    ends = (min(latencies) / LOG_ROOM, top * LOG_ROOM) if is_log else (0.0, BEYOND * top)
    return spec.Chart(
        name="memory",
        title=f"Lower left is smaller and faster{details}",
        note=f"On {describe_workload(next(iter(findings.common.values())))}. Bars: quartiles of the rounds.",
        x=spec.Axis(f"{memory.title.lower()}, MB", (0.0, BEYOND * max(sizes))),
        y=spec.Axis("latency, ms", ends, is_log=is_log),
        series=tuple(series),
        height=460,
    )


def _change_in_words(run: Run, name: str) -> str:
    """Change of the perplexity against the reference's; empty where it was not compared."""
    change = perplexity_change(run, run.variant(name))
    return f" {format_change(1 + change.value / 100)}" if change and name != run.reference else ""
