"""Variants in a chart: how they are told apart, and their values, each with its interval, in the unit of the axis.

A colour stands for a backend; a marker and a dash tell variants of the same colour apart. The colours are Okabe and
Ito's ("Color universal design", 2008), which colour-blind readers tell apart. Those that stand first have a contrast of
three to one both on white and on the page's dark ground.
"""

from __future__ import annotations

from collections import Counter

from llm_bench_fixtures.answer.intervals import interval_of
from llm_bench_fixtures.answer.need import QualityMeasure
from llm_bench_fixtures.report.charts.spec import Estimate, Look, exactly
from llm_bench_fixtures.results import prefill_decode
from llm_bench_fixtures.results.formatting import with_unit
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME, Metric, Unit
from llm_bench_fixtures.results.record import Record, Run, VariantResult
from llm_bench_fixtures.results.speedup import record_speedup
from llm_bench_fixtures.statistics.spread import quartiles

LATENCY, SPEED, SPEEDUP = METRIC_BY_NAME["latency_s"], METRIC_BY_NAME["output_tokens_per_s"], METRIC_BY_NAME["speedup"]
SCALES = {Unit.SECONDS: (1e3, "ms"), Unit.BYTES: (1e-6, "MB")}  # from the base unit to that of an axis
UNSPREAD = (Unit.BYTES, Unit.SHARE, Unit.NONE)  # metrics in these have no rounds' spread
COLOURS = {"torch": "#0072B2", "onnxruntime": "#D55E00", "bitsandbytes": "#009E73"}
OTHER_COLOURS = ("#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")  # of further backends, in their order
MARKERS = (
    ("circle", "●"), ("square", "■"), ("diamond", "◆"), ("triangle-up", "▲"), ("cross", "✚"), ("x", "✖"),
    ("triangle-down", "▼"), ("star", "★"),
)  # fmt: skip
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


def looks_of(run: Run) -> dict[str, Look]:
    """By variant."""
    colours = _colours(run)
    met: Counter[str] = Counter()
    looks = {}
    for variant in run.variants:
        colour = colours[variant.backend]
        place = met[colour]
        met[colour] += 1
        marker, sign = MARKERS[place % len(MARKERS)]
        looks[variant.id] = Look(colour, marker, sign, DASHES[place % len(DASHES)])
    return looks


def numbered_looks(count: int) -> list[Look]:
    """For what has no backend, such as several runs, or the lines of a history."""
    colours = (*COLOURS.values(), *OTHER_COLOURS)
    return [
        Look(colours[place % len(colours)], *MARKERS[place % len(MARKERS)], DASHES[place // len(colours) % len(DASHES)])
        for place in range(count)
    ]


def _colours(run: Run) -> dict[str, str]:
    """By backend."""
    others = dict.fromkeys(variant.backend for variant in run.variants if variant.backend not in COLOURS)
    own = {backend: OTHER_COLOURS[place % len(OTHER_COLOURS)] for place, backend in enumerate(others)}
    return COLOURS | own


def estimate_of(run: Run, record: Record, metric: Metric) -> Estimate | None:
    """In the metric's base unit: with the ends of a speed-up's 95 % interval, or the quartiles of the rounds. None
    where the record doesn't have the metric."""
    variant = run.variant(record.variant)
    value = metric.of(record, variant) if variant else None
    if value is None:
        return None
    if metric is SPEEDUP:
        found = record_speedup(record)
        return Estimate(value, found.low, found.high) if found else exactly(value)
    if metric.unit in UNSPREAD:
        return exactly(value)
    ttfts_s = prefill_decode.per_round(record, prefill_decode.ttft_s) if metric.name == "ttft_s" else ()
    low, median, high = quartiles(ttfts_s or record.rounds_s)
    if metric is SPEED:
        low, median, high = 1 / high, 1 / median, 1 / low
    # of one round they are the value, but for rounding
    return Estimate(value, min(value * low / median, value), max(value * high / median, value))


def perplexity_change(run: Run, variant: VariantResult | None) -> Estimate | None:
    """The perplexity's change against the reference's, in percent, with its 95 % interval. None where it was not
    compared."""
    if variant is None:
        return None
    if variant.id == run.reference:
        return exactly(0.0) if "perplexity" in variant.quality else None
    found, ratio = interval_of(variant, QualityMeasure.PPL_RATIO), variant.quality.get(QualityMeasure.PPL_RATIO)
    return Estimate(ratio, found.low, found.high).scaled(100.0, 1.0) if found and ratio is not None else None


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
