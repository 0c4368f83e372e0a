"""Variants in a chart: how they are told apart, and their values, each with its interval, in the unit of the axis; and
charts of variants: lines over what a scenario changes (prompt length, batch size), points of several runs, and, for
pictures alone, bars of a scenario's variants, and memory against latency.

A colour stands for a backend; a marker and a dash tell variants of the same colour apart. The colours are Okabe and
Ito's ("Color universal design", 2008), which colour-blind readers tell apart. Those that stand first have a contrast of
three to one both on white and on the page's dark ground.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from llm_bench_fixtures.answer.intervals import quality_estimate
from llm_bench_fixtures.answer.need import QualityMeasure
from llm_bench_fixtures.answer.peaks import memory_metric
from llm_bench_fixtures.answer.standings import NEAR
from llm_bench_fixtures.report.charts import spec
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.runs import Aspect, RunBeside
from llm_bench_fixtures.report.words.measured import describe_workload
from llm_bench_fixtures.results import prefill_decode
from llm_bench_fixtures.results.formatting import MINUS, format_change, three_digits, with_unit
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME, Metric, Unit
from llm_bench_fixtures.results.record import Record, Run, VariantResult, WorkloadFacts
from llm_bench_fixtures.results.speedup import record_speedup
from llm_bench_fixtures.statistics.spread import Estimate, exactly, quartiles

LATENCY, SPEED, SPEEDUP = METRIC_BY_NAME["latency_s"], METRIC_BY_NAME["output_tokens_per_s"], METRIC_BY_NAME["speedup"]
SCALES = {Unit.SECONDS: (1e3, "ms"), Unit.BYTES: (1e-6, "MB")}  # from the base unit to that of an axis
UNSPREAD = (Unit.BYTES, Unit.SHARE, Unit.NONE)  # metrics in these have no rounds' spread
COLOURS = {"torch": "#0072B2", "onnxruntime": "#D55E00", "bitsandbytes": "#009E73"}
OTHER_COLOURS = ("#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")  # further backends, in their order
MARKERS = (
    ("circle", "●"), ("square", "■"), ("diamond", "◆"), ("triangle-up", "▲"), ("cross", "✚"), ("x", "✖"),
    ("triangle-down", "▼"), ("star", "★"),
)  # fmt: skip
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
BEYOND = 1.15  # times the outermost case: where the axis of a sweep ends
RUNS_ROW, AROUND_RUNS = 44, 120  # pixels of a row, and of what is around all of them, in a chart of several runs
RUNS_SPREAD = 0.5  # share of a row over which the runs are apart
LOG_ROOM = 1.3
ROOM_FOR_NUMBERS = 0.45  # room for the numbers at the bars' ends, over what the bars take
WEIGHTS = METRIC_BY_NAME["weight_bytes"]
BEYOND_LARGEST = 1.12  # times the largest value: where an axis ends
LOG_FROM = 20  # times the smallest value: above it the axis is logarithmic
WIDE_LOG_ROOM = 1.6
PANELS = ((Aspect.LATENCY, LATENCY), (Aspect.SPEEDUP, SPEEDUP))


def looks_of(run: Run) -> dict[str, spec.Look]:
    """Colour, marker and dash of each variant."""
    others = dict.fromkeys(variant.backend for variant in run.variants if variant.backend not in COLOURS)
    colours = COLOURS | dict(zip(others, itertools.cycle(OTHER_COLOURS), strict=False))
    met: Counter[str] = Counter()
    looks = {}
    for variant in run.variants:
        colour = colours[variant.backend]
        looks[variant.id] = _look(colour, met[colour], met[colour])
        met[colour] += 1
    return looks


def numbered_looks(names: Iterable[str]) -> dict[str, spec.Look]:
    """Looks by name for what has no backend, such as several runs, or the lines of a history. names: each once."""
    colours = (*COLOURS.values(), *OTHER_COLOURS)
    return {name: _look(colours[at % len(colours)], at, at // len(colours)) for at, name in enumerate(names)}


def _look(colour: str, marker: int, dash: int) -> spec.Look:
    """marker, dash: their numbers, in which they begin anew."""
    return spec.Look(colour, *MARKERS[marker % len(MARKERS)], DASHES[dash % len(DASHES)])


def drawn_estimate(run: Run, record: Record, metric: Metric) -> Estimate | None:
    """Estimate in the metric's base unit: with the ends of a speed-up's 95 % interval, or the quartiles of the rounds.
    None where the record doesn't have the metric."""
    variant = run.variant(record.variant)
    value = metric.of(record, variant) if variant else None
    if value is None:
        return None
    if metric is SPEEDUP:
        found = record_speedup(record)
        return Estimate(found.low, found.high, value=value) if found else exactly(value)
    if metric.unit in UNSPREAD:
        return exactly(value)
    ttfts_s = prefill_decode.per_round(record, prefill_decode.ttft_s) if metric.name == "ttft_s" else ()
    low, median, high = quartiles(ttfts_s or record.rounds_s)
    if metric is SPEED:
        low, median, high = 1 / high, 1 / median, 1 / low
    # for a single round both ends equal the value, but for rounding
    return Estimate(min(value * low / median, value), max(value * high / median, value), value=value)


def perplexity_change(run: Run, variant: VariantResult | None) -> Estimate | None:
    """The perplexity's change against the reference's, in percent, with its 95 % interval. None where it was not
    compared."""
    if variant is None:
        return None
    if variant.id == run.reference:
        return exactly(0.0) if "perplexity" in variant.quality else None
    found = quality_estimate(variant.quality, QualityMeasure.PPL_RATIO)
    return found.scaled(100.0, 1.0) if found else None


def on_axis(estimate: Estimate, metric: Metric) -> Estimate:
    factor, _ = SCALES.get(metric.unit, (1.0, ""))
    return estimate.scaled(factor)


def axis_title(metric: Metric, reference: str) -> str:
    if metric is SPEEDUP:
        return f"{metric.title} over {reference}"
    _, unit = SCALES.get(metric.unit, (1.0, metric.unit))
    return f"{metric.title}, {unit}" if unit else metric.title


def in_words(estimate: Estimate, metric: Metric) -> str:
    """Words for the pointer. estimate: in the base unit."""
    value, low, high = (with_unit(one, metric) for one in (estimate.value, estimate.low, estimate.high))
    return value if estimate.is_exact else f"{value} ({low} to {high})"


def what_bars_are(metric: Metric) -> str:
    return "95 % interval" if metric is SPEEDUP else "quartiles of the rounds"


@dataclass(frozen=True)
class SweptScenario:
    """A scenario whose cases are numbers, and two metrics to draw over them."""

    scenario: str
    unit: str
    """Unit of the cases, on the axis."""
    case: Callable[[WorkloadFacts], int]
    metric: Metric
    instead: Metric
    """The second metric where the run has no speed-ups of blocks."""


SWEEPS = (
    SweptScenario("prompt_length", "prompt tokens", lambda facts: facts.prompt_tokens, METRIC_BY_NAME["ttft_s"], SPEED),
    SweptScenario("batch", "batch size", lambda facts: facts.batch_size, SPEED, METRIC_BY_NAME["per_sample_latency_s"]),
)


def sweep_charts(findings: Findings) -> Iterator[spec.Chart]:
    """Two for each sweep that has at least two cases of a variant."""
    run = findings.run
    in_blocks = any(record_speedup(record) for record in run.measured())
    for sweep in SWEEPS:
        for metric in (sweep.metric, SPEEDUP if in_blocks else sweep.instead):
            if points := dict(_points(run, sweep, metric)):
                yield _chart(run, sweep, metric, points)


def _points(run: Run, sweep: SweptScenario, metric: Metric) -> Iterator[tuple[str, tuple[spec.Point, ...]]]:
    """Points of each variant that has the metric of at least two cases, in the order of the cases."""
    for variant in run.variants:
        found = []
        for record in run.measured(sweep.scenario):
            estimate = drawn_estimate(run, record, metric) if record.variant == variant.id else None
            if estimate is not None and record.workload is not None:
                case = sweep.case(record.workload)
                rounds = ("rounds", str(len(record.rounds_s)))
                facts = ((sweep.unit, str(case)), (metric.title, in_words(estimate, metric)), rounds)
                found.append(spec.Point(exactly(case), on_axis(estimate, metric), facts))
        if len({point.x for point in found}) > 1:
            yield variant.id, tuple(sorted(found, key=lambda point: point.x.value))


def _chart(run: Run, sweep: SweptScenario, metric: Metric, points: Mapping[str, tuple[spec.Point, ...]]) -> spec.Chart:
    looks, is_speedup = looks_of(run), metric is SPEEDUP
    cases = sorted({int(point.x.value) for line in points.values() for point in line})
    across = (cases[0] / BEYOND, cases[-1] * BEYOND)
    low, high = spec.padded(spec.ends_of(point.y for line in points.values() for point in line))
    y = spec.Axis(axis_title(metric, run.reference), (low if is_speedup else 0.0, high))
    return spec.Chart(
        name=f"{sweep.scenario}-{metric.name}",
        title=f"{metric.title} by {sweep.scenario.replace('_', ' ')}",
        note=f"Bars: {what_bars_are(metric)}; {metric.direction}.",
        description=f"{y.title} against {sweep.unit}, a line for each of {', '.join(points)}",
        x=spec.Axis(sweep.unit, across, is_log=True, ticks=tuple((case, str(case)) for case in cases), has_grid=False),
        y=y,
        series=tuple(spec.Series(name, line, looks[name], name, is_line=True) for name, line in points.items()),
        lines=(spec.Line(tuple((x, 1.0) for x in across), dash="dot"),) if is_speedup else (),
        scenario=sweep.scenario,
    )


def runs_charts(runs: Sequence[RunBeside]) -> Iterator[spec.Chart]:
    """A chart for each metric that at least two of the runs can be compared by."""
    looks = numbered_looks(run.label for run in runs)
    for aspect, metric in PANELS:
        found = {run.label: _estimates(run, metric) for run in runs if aspect not in run.left_out}
        found = {label: estimates for label, estimates in found.items() if estimates}
        if len(found) > 1:
            yield _metric_chart(metric, found, looks)


def _estimates(run: RunBeside, metric: Metric) -> dict[str, Estimate]:
    """Estimates by variant."""
    records = run.findings.common.items()
    return {name: one for name, record in records if (one := drawn_estimate(run.findings.run, record, metric))}


def _metric_chart(
    metric: Metric, found: Mapping[str, Mapping[str, Estimate]], looks: Mapping[str, spec.Look]
) -> spec.Chart:
    """A row a variant. looks: of all runs, so that each looks the same in every chart."""
    variants = list(dict.fromkeys(name for estimates in found.values() for name in estimates))
    places = {label: RUNS_SPREAD * ((at + 0.5) / len(looks) - 0.5) for at, label in enumerate(looks)}
    series = []
    for label, estimates in found.items():
        for name, one in estimates.items():
            place = exactly(variants.index(name) + places[label])
            facts = (("run", label), (metric.title, in_words(one, metric)))
            series.append(spec.Series(name, (spec.Point(on_axis(one, metric), place, facts),), looks[label], size=6.5))
    ends = spec.ends_of(on_axis(one, metric) for estimates in found.values() for one in estimates.values())
    across = spec.padded(ends) if metric is SPEEDUP else (min(ends) / LOG_ROOM, max(ends) * LOG_ROOM)
    return spec.Chart(
        name=f"runs-{metric.name}",
        title=metric.title,
        note=f"Bars: {what_bars_are(metric)}; {metric.direction}.",
        description=f"{metric.title} of each variant, a marker for each of {', '.join(found)}",
        x=spec.Axis(axis_title(metric, "the run's own reference"), across, is_log=metric is not SPEEDUP),
        y=spec.rows_axis(variants),
        series=tuple(series),
        keys=tuple((label, looks[label]) for label in found),
        height=AROUND_RUNS + RUNS_ROW * len(variants),
    )


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
        lengths = {one.variant: on_axis(found, metric) for one in shown if (found := drawn_estimate(run, one, metric))}
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
    title: str, looks: Mapping[str, spec.Look], lengths: Mapping[str, Estimate], written: Callable[[float], str]
) -> spec.Chart:
    """A row for each variant with a look."""
    ends = [0.0, *spec.ends_of(lengths.values())]
    room = ROOM_FOR_NUMBERS * (max(ends) - min(ends))
    known = [(row, name, lengths[name]) for row, name in enumerate(looks) if name in lengths]
    bars = (spec.Bar(name, row, length, looks[name], text=written(length.value)) for row, name, length in known)
    x = spec.Axis("", (min(ends) - room * (min(ends) < 0), max(ends) + room or 1.0))
    height = spec.AROUND_ROWS + spec.ROW * len(looks)
    return spec.Chart(title, title, x, spec.rows_axis(list(looks)), bars=tuple(bars), height=height)


def memory_chart(findings: Findings) -> spec.Chart | None:
    """None where fewer than two variants have a memory and a latency. Memory is the peak, or weights without peaks."""
    run, memory = findings.run, METRIC_BY_NAME[memory_metric(findings)]
    looks, series = looks_of(run), []
    for record in findings.common.values():
        size, latency = drawn_estimate(run, record, memory), drawn_estimate(run, record, LATENCY)
        if size is not None and size.value > 0 and latency is not None:
            point, name = spec.Point(on_axis(size, memory), on_axis(latency, LATENCY)), record.variant
            series.append(spec.Series(name, (point,), looks[name], name, _change_in_words(run, name), size=9))
    if len(series) < 2:
        return None
    details = f"; numbers: perplexity change against {run.reference}" if any(one.detail for one in series) else ""
    sizes, latencies = zip(*((one.points[0].x.value, one.points[0].y.value) for one in series), strict=True)
    top = max(one.points[0].y.high for one in series)
    is_log = max(latencies) > LOG_FROM * min(latencies)
    ends = (min(latencies) / WIDE_LOG_ROOM, top * WIDE_LOG_ROOM) if is_log else (0.0, BEYOND_LARGEST * top)
    x = spec.Axis(f"{memory.title.lower()}, MB", (0.0, BEYOND_LARGEST * max(sizes)))
    y = spec.Axis("latency, ms", ends, is_log=is_log)
    title = f"Lower left is smaller and faster{details}"
    note = f"On {describe_workload(next(iter(findings.common.values())))}. Bars: quartiles of the rounds."
    return spec.Chart("memory", title, x, y, note, series=tuple(series), height=460)


def _change_in_words(run: Run, name: str) -> str:
    """Change of the perplexity against the reference's; empty where it was not compared."""
    change = perplexity_change(run, run.variant(name))
    return f" {format_change(1 + change.value / 100)}" if change and name != run.reference else ""
