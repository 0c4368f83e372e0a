"""A record's values for a chart: each with its interval, in the unit of the axis."""

from __future__ import annotations

from llm_bench_fixtures.report.charts.spec import Estimate
from llm_bench_fixtures.results import prefill_decode
from llm_bench_fixtures.results.formatting import with_unit
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME, Metric, Unit
from llm_bench_fixtures.results.record import Record, Run
from llm_bench_fixtures.results.speedup import record_speedup
from llm_bench_fixtures.statistics.spread import quartiles

LATENCY, SPEED, SPEEDUP = METRIC_BY_NAME["latency_s"], METRIC_BY_NAME["output_tokens_per_s"], METRIC_BY_NAME["speedup"]
SCALES = {Unit.SECONDS: (1e3, "ms"), Unit.BYTES: (1e-6, "MB")}  # from the base unit to that of an axis
UNSPREAD = (Unit.BYTES, Unit.SHARE, Unit.NONE)  # metrics in these have no rounds' spread


def estimate_of(run: Run, record: Record, metric: Metric) -> Estimate | None:
    """In the metric's base unit: with the ends of a speed-up's 95 % interval, or the quartiles of the rounds. None
    where the record doesn't have the metric."""
    variant = run.variant(record.variant)
    value = metric.of(record, variant) if variant else None
    if value is None:
        return None
    if metric is SPEEDUP:
        found = record_speedup(record)
        return Estimate(value, found.low, found.high) if found else Estimate(value, value, value)
    if metric.unit in UNSPREAD:
        return Estimate(value, value, value)
    ttfts_s = prefill_decode.per_round(record, prefill_decode.ttft_s) if metric.name == "ttft_s" else ()
    low, median, high = quartiles(ttfts_s or record.rounds_s)
    if metric is SPEED:
        low, median, high = 1 / high, 1 / median, 1 / low
    # of one round they are the value, but for rounding
    return Estimate(value, min(value * low / median, value), max(value * high / median, value))


def on_axis(estimate: Estimate, metric: Metric) -> Estimate:
    factor, _ = SCALES.get(metric.unit, (1.0, ""))
    return estimate.scaled(factor)


def axis_title(metric: Metric, reference: str) -> str:
    if metric is SPEEDUP:
        return f"{metric.title} over {reference}"
    _, unit = SCALES.get(metric.unit, (1.0, metric.unit))
    return f"{metric.title}, {unit}" if unit else metric.title


def in_words(estimate: Estimate, metric: Metric) -> str:
    """For the pointer. estimate: in the base unit."""
    value, low, high = (with_unit(one, metric) for one in (estimate.value, estimate.low, estimate.high))
    return value if estimate.is_exact else f"{value} ({low} to {high})"


def what_bars_are(metric: Metric) -> str:
    return "95 % interval" if metric is SPEEDUP else "quartiles of the rounds"
