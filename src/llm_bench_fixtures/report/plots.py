"""The report's plots. A plot without data is not drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.report.drawing import drawing
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.results import prefill_decode
from llm_bench_fixtures.results.folder import remove_pictures
from llm_bench_fixtures.results.metrics import METRICS
from llm_bench_fixtures.results.record import Record, Run
from llm_bench_fixtures.results.spread import quartiles
from llm_bench_fixtures.writing import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Paul Tol's "muted" and "bright" palettes, told apart also by colour-blind readers.
COLOURS = (
    "#332288", "#CC6677", "#117733", "#DDCC77", "#88CCEE", "#882255",
    "#44AA99", "#AA4499", "#999933", "#EE7733", "#555555", "#0077BB",
)  # fmt: skip
MARKERS = "osD^vP<>Xph*"
SUMMARY = "summary"  # the scenario of plots that belong to the table of all variants
ROOM = 1.04  # times the automatic end of an axis from zero: half a marker, however close together the values are
LOG_FROM = 20  # times the smallest value: above it the axis is logarithmic
_METRIC = {metric.name: metric for metric in METRICS}


@dataclass(frozen=True)
class Plot:
    """A picture on disk, and the scenario whose section it belongs to."""

    path: Path
    title: str
    scenario: str


Drawing = Callable[[Findings], "Figure | None"]


def write_plots(findings: Findings, folder: Path) -> list[Plot]:
    """Draw what the run has data for, into `folder`; our pictures of an earlier run are removed. Raises
    UnwritableFile."""
    plots = []
    remove_pictures(folder)
    with drawing(plot_style()):
        for name, title, scenario, draw in DRAWINGS:
            figure = draw(findings)
            if figure is not None:
                path = folder / f"{name}.png"
                with replacing(path, follows=False) as scratch:
                    figure.savefig(scratch, format="png")
                plots.append(Plot(path, title, scenario))
    return plots


def plot_style() -> Any:  # matplotlib types the keys one by one
    """Settings of matplotlib for all of our pictures."""
    return {
        "figure.dpi": 110,
        "figure.facecolor": "white",
        "savefig.facecolor": "white",
        "font.family": "DejaVu Sans",
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": "#e5e8ec",
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "legend.frameon": False,
        "legend.fontsize": 9,
        "text.parse_math": False,  # a name with dollars in it is no formula
    }


def _figure(columns: int, width: float, height: float) -> tuple[Figure, Sequence[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False)[0]
    return figure, list(axes)


def _colour(run: Run, variant: str) -> str:
    return COLOURS[_index(run, variant) % len(COLOURS)]


def _marker(run: Run, variant: str) -> str:
    return MARKERS[_index(run, variant) % len(MARKERS)]


def _index(run: Run, variant: str) -> int:
    return [item.id for item in run.variants].index(variant)


def _value(run: Run, record: Record, name: str) -> float:
    variant = run.variant(record.variant)
    value = _METRIC[name].of(record, variant) if variant else None
    return float("nan") if value is None else value


def _latency_error(record: Record) -> tuple[float, float]:
    """Distances in seconds from the median down to the lower and up to the upper quartile."""
    low, median, high = record.quartiles_s
    return median - low, high - median


def _lines(run: Run, scenario: str, x_of: Callable[[Record], int]) -> Iterator[tuple[str, list[Record]]]:
    """The records of each variant in order of x; variants with fewer than two points are left out."""
    records = [record for record in run.measured(scenario) if record.workload is not None]
    for variant in dict.fromkeys(record.variant for record in records):
        line = sorted((record for record in records if record.variant == variant), key=x_of)
        if len({x_of(record) for record in line}) > 1:
            yield variant, line


def _prompt_tokens(record: Record) -> int:
    return record.workload.prompt_tokens if record.workload else 0


def _batch_size(record: Record) -> int:
    return record.workload.batch_size if record.workload else 0


def _draw_sweep(
    run: Run,
    scenario: str,
    x_of: Callable[[Record], int],
    x_label: str,
    panels: Sequence[tuple[str, str, float]],
) -> Figure | None:
    """Each metric of `panels` (name, label, factor) against x, a line a variant, error bars of the quartiles."""
    lines = list(_lines(run, scenario, x_of))
    if not lines:
        return None
    figure, axes = _figure(len(panels), 11, 4.4)
    for axis, (name, label, factor) in zip(axes, panels, strict=True):
        for variant, records in lines:
            values = [_value(run, record, name) * factor for record in records]
            errors = [_error(record, name, value) for record, value in zip(records, values, strict=True)]
            axis.errorbar(
                [x_of(record) for record in records],
                values,
                yerr=list(zip(*errors, strict=True)),
                color=_colour(run, variant),
                marker=_marker(run, variant),
                markersize=5,
                linewidth=1.6,
                capsize=2.5,
                label=variant,
            )
        axis.set(xlabel=x_label, title=label, xscale="log")
        axis.set_ylim(bottom=0)
        ticks = sorted({x_of(record) for _, records in lines for record in records})
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
        axis.minorticks_off()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
    return figure


def _error(record: Record, name: str, value: float) -> tuple[float, float]:
    """Distances from `value`, the median, down and up to the quartiles of the rounds."""
    ttfts_s = prefill_decode.per_round(record, prefill_decode.ttft_s) if name == "ttft_s" else []
    if not ttfts_s:
        return _relative_error(record, value)
    low, median, high = quartiles(ttfts_s)
    return value * (1 - low / median), value * (high / median - 1)


def _relative_error(record: Record, value: float) -> tuple[float, float]:
    """The same distances, scaled from the latency to a value that is proportional to it."""
    low, high = _latency_error(record)
    median = record.median_s
    return value * low / median, value * high / median


def draw_prompt_length(findings: Findings) -> Figure | None:
    panels = (
        ("latency_s", "Latency, ms", 1e3),
        ("ttft_s", "Time to first token, ms", 1e3),
        ("output_tokens_per_s", "Output tokens per second", 1.0),
    )
    return _draw_sweep(findings.run, "prompt_length", _prompt_tokens, "prompt length, tokens", panels)


def draw_batch(findings: Findings) -> Figure | None:
    panels = (
        ("output_tokens_per_s", "Output tokens per second", 1.0),
        ("per_sample_latency_s", "Latency per sample, ms", 1e3),
    )
    return _draw_sweep(findings.run, "batch", _batch_size, "batch size", panels)


def draw_precision(findings: Findings) -> Figure | None:
    return _draw_bars(findings.run, "precision")


def draw_quantization(findings: Findings) -> Figure | None:
    return _draw_bars(findings.run, "quantization")


def _draw_bars(run: Run, scenario: str) -> Figure | None:
    """Latency, speed-up, weights and perplexity of each variant, from its first record of the scenario."""
    records = {record.variant: record for record in reversed(run.measured(scenario))}
    order = [variant.id for variant in run.variants if variant.id in records]
    if not order:
        return None
    candidates = (
        ("latency_s", "Latency, ms", 1e3),
        ("speedup", f"Speed-up over {run.reference}", 1.0),
        ("weight_bytes", "Weights, MB", 1e-6),
        ("perplexity", "Perplexity", 1.0),
    )
    known = {name for name, *_ in candidates if any(_value(run, record, name) > 0 for record in records.values())}
    panels = [panel for panel in candidates if panel[0] in {"latency_s", "weight_bytes", *known}]
    figure, axes = _figure(len(panels), 11, 1.2 + 0.34 * len(order))
    for axis, (name, label, factor) in zip(axes, panels, strict=True):
        values = [_value(run, records[variant], name) * factor for variant in order]
        errors = [_bar_error(run, records[variant], name, value) for variant, value in zip(order, values, strict=True)]
        bars = axis.barh(
            order,
            values,
            color=[_colour(run, variant) for variant in order],
            xerr=list(zip(*errors, strict=True)) if any(map(any, errors)) else None,
            error_kw={"ecolor": "#444", "capsize": 2.5, "linewidth": 1},
        )
        digits = 2 if name == "speedup" else 1
        labels = ["" if math.isnan(value) else f"{value:,.{digits}f}" for value in values]
        axis.bar_label(bars, labels, padding=6, fontsize=8, color="#333")
        axis.set_title(label)
        axis.margins(x=0.22)
        axis.invert_yaxis()
        axis.grid(visible=False, axis="y")
        if axis is not axes[0]:
            axis.set_yticklabels([])
    return figure


def _bar_error(run: Run, record: Record, name: str, value: float) -> tuple[float, float]:
    """Distances down and up: to the quartiles of the latency, or the ends of the speed-up's 95 % interval."""
    if name == "speedup" and not math.isnan(value):
        return value - _value(run, record, "speedup_low"), _value(run, record, "speedup_high") - value
    return _relative_error(record, value) if name == "latency_s" else (0.0, 0.0)


def draw_tradeoff(findings: Findings) -> Figure | None:
    """Weights against latency, with the perplexity, where it is known, beside each point."""
    run = findings.run
    records = [record for record in findings.common.values() if _value(run, record, "weight_bytes") > 0]
    if len(records) < 2:
        return None
    has_quality = any(_value(run, record, "perplexity") > 0 for record in records)
    figure, (axis,) = _figure(1, 9, 5.2)
    for record in records:
        variant = record.variant
        perplexity = _value(run, record, "perplexity")
        label = f"{variant}  ({perplexity:,.1f})" if perplexity > 0 else variant
        axis.errorbar(
            _value(run, record, "weight_bytes") * 1e-6,
            _value(run, record, "latency_s") * 1e3,
            yerr=[[error * 1e3] for error in _latency_error(record)],
            color=_colour(run, variant),
            marker=_marker(run, variant),
            markersize=9,
            linestyle="none",
            capsize=2.5,
            label=label,
        )
    axis.set(xlabel="weights, MB", ylabel="latency, ms", title="Lower left is smaller and faster")
    axis.set_xlim(0, ROOM * axis.get_xlim()[1])
    _scale_latency(axis, [_value(run, record, "latency_s") for record in records])
    figure.legend(loc="outside right center", title="variant (perplexity)" if has_quality else "variant")
    return figure


def _scale_latency(axis: Axes, values: Sequence[float]) -> None:
    """Start the axis at zero; make it logarithmic if the largest value is many times the smallest."""
    if max(values) > LOG_FROM * min(values):
        axis.set_yscale("log")
    else:
        axis.set_ylim(0, ROOM * axis.get_ylim()[1])


DRAWINGS: tuple[tuple[str, str, str, Drawing], ...] = (
    ("tradeoff", "Memory against latency against perplexity", SUMMARY, draw_tradeoff),
    ("precision", "Latency, weights and perplexity by precision", "precision", draw_precision),
    ("quantization", "Latency, weights and perplexity by quantization", "quantization", draw_quantization),
    ("batch", "Throughput and latency per sample against batch size", "batch", draw_batch),
    ("prompt_length", "Latency and throughput against prompt length", "prompt_length", draw_prompt_length),
)
