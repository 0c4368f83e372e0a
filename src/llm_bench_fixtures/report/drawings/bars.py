"""A bar for each variant: latency, speed-up, weights and perplexity of a scenario."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llm_bench_fixtures.answer.standings import NEAR, interval_of
from llm_bench_fixtures.options.quality_limit import QualityMeasure
from llm_bench_fixtures.report.bounds import SPEEDUP, bounds
from llm_bench_fixtures.report.cells import describe_workload
from llm_bench_fixtures.report.drawings.style import BAND, FONT_SIZE, caption, drawable, name_of, new_figure
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.page.looks import Look, looks_of
from llm_bench_fixtures.results.formatting import MINUS, five_digits, three_digits
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME
from llm_bench_fixtures.results.record import Record, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LATENCY = "latency_s"
RATIO = "ppl_ratio"
TITLE_WIDTH = 20  # characters of a panel's title on a line
ROOM = 0.36  # of what the bars take, for their numbers


@dataclass(frozen=True)
class Panel:
    metric: str
    title: str
    factor: float
    """From the base unit to the one of the panel."""
    base: float = 0.0
    """What is taken off the value, in the base unit."""


def draw_precision(findings: Findings) -> Figure | None:
    return _draw(findings, "precision")


def draw_quantization(findings: Findings) -> Figure | None:
    return _draw(findings, "quantization")


def value_of(run: Run, record: Record, name: str) -> float:
    """The metric, or NaN where the record has none."""
    variant = run.variant(record.variant)
    value = METRIC_BY_NAME[name].of(record, variant) if variant else None
    return math.nan if value is None else value


def _draw(findings: Findings, scenario: str) -> Figure | None:
    """From each variant's first record of the scenario; None where there is none."""
    run = findings.run
    records = {record.variant: record for record in reversed(run.measured(scenario))}
    order = [variant.id for variant in run.variants if variant.id in records]
    if not order:
        return None
    shown = [records[variant] for variant in order]
    panels = _panels(run, shown)
    figure, axes = new_figure(len(panels), 2.0 + 0.42 * len(order))
    on = f"{run.provenance.model}, {run.provenance.hardware}; {describe_workload(shown[0])}"
    near = f" Shaded: within ± {100 * NEAR:g} %." if panels[-1].metric == RATIO else ""
    caption(figure, f"{on}. Bars: quartiles of the rounds; of speed-up and perplexity the 95 % interval.{near}")
    looks = looks_of(run)
    for axis, panel in zip(axes, panels, strict=True):
        _draw_bars(axis, run, shown, panel, looks)
        if panel.metric == RATIO:
            _draw_band(axis)
        axis.set_yticklabels([name_of(variant) for variant in order] if axis is axes[0] else [])
    return figure


def _panels(run: Run, records: Sequence[Record]) -> list[Panel]:
    """Latency and weights; the others where some record has them."""
    known = {name for name in (SPEEDUP, "perplexity") if any(value_of(run, record, name) > 0 for record in records)}
    is_compared = any(value_of(run, record, RATIO) > 0 for record in records)
    change = Panel(RATIO, "Perplexity change, %", 100.0, 1.0)
    panels = (
        Panel(LATENCY, "Latency, ms", 1e3),
        Panel(SPEEDUP, f"Speed-up over {drawable(run.reference)}", 1.0),
        Panel("weight_bytes", "Weights, MB", 1e-6),
        change if is_compared else Panel("perplexity", "Perplexity", 1.0),
    )
    return [panel for panel in panels if panel.metric in {LATENCY, "weight_bytes", RATIO, *known}]


def _draw_bars(axis: Axes, run: Run, records: Sequence[Record], panel: Panel, looks: Mapping[str, Look]) -> None:
    values = [value_of(run, record, panel.metric) - panel.base for record in records]
    if panel.metric == RATIO:
        values = [0.0 if one.variant == run.reference else value for one, value in zip(records, values, strict=True)]
    errors = [_error(run, record, panel, value) for record, value in zip(records, values, strict=True)]
    bars = axis.barh(
        range(len(records)),
        [value * panel.factor for value in values],
        color=[looks[record.variant].colour for record in records],
        alpha=0.85,
        xerr=list(zip(*errors, strict=True)) if any(map(any, errors)) else None,
        error_kw={"ecolor": "#222", "capsize": 3, "linewidth": 1.2},
    )
    written = {RATIO: _change, "perplexity": five_digits}.get(panel.metric, three_digits)
    labels = ["" if math.isnan(value) else written(value * panel.factor) for value in values]
    axis.bar_label(bars, labels, padding=6, fontsize=FONT_SIZE * 0.85, color="#222")
    axis.set_title(textwrap.fill(panel.title, TITLE_WIDTH))
    axis.set_yticks(range(len(records)))
    axis.margins(x=ROOM)
    axis.locator_params(axis="x", nbins=4)
    axis.invert_yaxis()
    axis.grid(visible=False, axis="y")


def _change(percent: float) -> str:
    return f"{round(percent, 2) + 0.0:+.2f}".replace("-", MINUS)  # no "-0.00"


def _draw_band(axis: Axes) -> None:
    """Where the perplexity is near the reference's: in sight whatever the bars, so that none within it looks long."""
    left, right = axis.get_xlim()
    near = 100 * NEAR
    more = (right - left) * ROOM / 4  # the numbers have signs here, and two more digits
    axis.set_xlim(min(left, -near * (1 + ROOM)), max(right + more, near * (1 + ROOM)))
    axis.axvspan(-near, near, color=BAND, alpha=0.1, linewidth=0, zorder=0)


def _error(run: Run, record: Record, panel: Panel, value: float) -> tuple[float, float]:
    """Distances down and up, in the panel's unit."""
    if math.isnan(value):
        return 0.0, 0.0
    if panel.metric == RATIO:
        variant = run.variant(record.variant)
        found = interval_of(variant, QualityMeasure.PPL_RATIO) if variant else None
        low, high = (found.low - panel.base, found.high - panel.base) if found else (value, value)
    elif panel.metric in (LATENCY, SPEEDUP):
        low, high = bounds(record, panel.metric, value)
    else:
        return 0.0, 0.0
    return (value - low) * panel.factor, (high - value) * panel.factor
