"""Quality against speed, the memory as the marker's size, and the variants that no other beats.

A variant beats another where it is better beyond doubt in one of the three and worse beyond doubt in none: speed by the
quartiles of the rounds, or by the intervals of the speed-ups where all have one; quality by its 95 % interval, where
near-lossless variants are all alike; memory by what the gate lets pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from llm_bench_fixtures.answer.peaks import Peaks, memory_metric, peaks_of
from llm_bench_fixtures.answer.standings import NEAR, interval_of, is_near_lossless, near_lossless
from llm_bench_fixtures.options.quality_limit import QualityMeasure
from llm_bench_fixtures.report.bounds import bounds
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.page.figures import error_bars, escaped, hover, layout, padded, short, title
from llm_bench_fixtures.report.page.looks import Look, looks_of
from llm_bench_fixtures.report.page.pareto import Range, Standing, front
from llm_bench_fixtures.report.page.values import Chart, Json
from llm_bench_fixtures.report.renderers.figures import texts
from llm_bench_fixtures.report.variants import summary_section
from llm_bench_fixtures.results.formatting import MISSING
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME, Metric, Tolerance
from llm_bench_fixtures.results.record import Record, Run, VariantResult
from llm_bench_fixtures.results.speedup import record_speedup
from llm_bench_fixtures.text import readable

SPEED = "output_tokens_per_s"
LARGEST, SMALLEST = 46.0, 9.0  # pixels across a marker
ALIKE = Range(-100 * NEAR, 100 * NEAR)  # the changes in percent between which quality is near-lossless
MARK = "≈"  # before the name of a near-lossless variant
BAND = "rgba(0, 158, 115, 0.10)"
BAND_NAME = f"within ± {100 * NEAR:g} %"


@dataclass(frozen=True)
class Point:
    """A variant's place."""

    record: Record
    speed: Range
    """Where its tokens per second lie: the quartiles of the rounds."""
    tokens_per_s: float
    change: float
    """Of the perplexity against the reference's, in percent."""
    changes: Range
    """The 95 % interval of the change."""
    is_alike: bool
    """Its quality is near-lossless, or the reference's own."""
    peaks: Peaks
    """Of memory, in bytes."""

    @property
    def variant(self) -> str:
        return self.record.variant

    @property
    def told_change(self) -> float:
        """The change, as far as it tells variants apart."""
        return 0.0 if self.is_alike else self.change


def tradeoff_chart(findings: Findings) -> Chart | None:
    """None where fewer than two variants have a speed, a quality and a memory."""
    points, memory = tradeoff_points(findings), METRIC_BY_NAME[memory_metric(findings)]
    if len(points) < 2:
        return None
    best = pareto_front(findings, points)
    return Chart(
        name="tradeoff",
        title="Quality, speed and memory",
        note=_note(findings.run, memory, [point.variant for point in points if point.variant in best]),
        description=(
            "Change of perplexity against tokens per second, a marker for each of "
            f"{', '.join(point.variant for point in points)}"
        ),
        figure=_figure(findings, points, best),
    )


def tradeoff_points(findings: Findings) -> list[Point]:
    """Of the variants that have a speed, a quality and a memory."""
    peaks = peaks_of(findings, memory_metric(findings))
    found = (_point(findings.run, record, peaks.get(variant)) for variant, record in findings.common.items())
    return [point for point in found if point is not None]


def pareto_front(findings: Findings, points: Sequence[Point]) -> frozenset[str]:
    """The variants of the points that no other one beats."""
    return front(_standings(points, METRIC_BY_NAME[memory_metric(findings)]))


def _note(run: Run, memory: Metric, best: Sequence[str]) -> str:
    alone = f"{best[0]} alone; each other variant is beaten by another one" if len(best) == 1 else ""
    front_words = alone or f"none is shown to be better on the whole ({', '.join(best)})"
    marked = f" {MARK}: near-lossless, with the whole interval in the band; not ordered." if near_lossless(run) else ""
    return (
        f"Higher and further right is better; the smaller the marker, the less memory ({memory.title.lower()}). "
        f"Filled: on the Pareto front of the three; {front_words}.{marked}"
    )


def _value(run: Run, record: Record, name: str) -> float | None:
    variant = run.variant(record.variant)
    return METRIC_BY_NAME[name].of(record, variant) if variant else None


def _point(run: Run, record: Record, peaks: Peaks | None) -> Point | None:
    speed, variant = _value(run, record, SPEED), run.variant(record.variant)
    change = _change(run, variant)
    if not speed or peaks is None or variant is None or change is None:
        return None
    found = interval_of(variant, QualityMeasure.PPL_RATIO)
    changes = Range((found.low - 1) * 100, (found.high - 1) * 100) if found else Range(change, change)
    is_alike = variant.id == run.reference or is_near_lossless(variant)
    return Point(record, Range(*bounds(record, SPEED, speed)), speed, change, changes, is_alike, peaks)


def _change(run: Run, variant: VariantResult | None) -> float | None:
    """Of the perplexity against the reference's, in percent. None where it was not compared."""
    if variant is None:
        return None
    if variant.id == run.reference and "perplexity" in variant.quality:
        return 0.0
    ratio = variant.quality.get(QualityMeasure.PPL_RATIO)
    return None if ratio is None else (ratio - 1) * 100


def _standings(points: Sequence[Point], memory: Metric) -> list[Standing]:
    speedups = [record_speedup(point.record) for point in points]
    side_by_side = [Range(found.low, found.high) for found in speedups if found]
    speeds = side_by_side if len(side_by_side) == len(points) else [point.speed for point in points]
    return [
        Standing(
            point.variant,
            (
                speed,
                ALIKE if point.is_alike else Range(-point.changes.high, -point.changes.low),
                _memory_range(point.peaks, memory.default_tolerance),
            ),
        )
        for point, speed in zip(points, speeds, strict=True)
    ]


def _memory_range(peaks: Peaks, tolerance: Tolerance) -> Range:
    """One such range is above another exactly where picks.is_less says that it is less memory."""
    return Range(-peaks.high - max(tolerance.absolute, tolerance.relative * peaks.high), -peaks.low)


def _figure(findings: Findings, points: Sequence[Point], best: frozenset[str]) -> Json:
    looks = looks_of(findings.run)
    largest = max(point.peaks.shown for point in points)
    across, up = reach_of(points)
    x: Json = {"title": title("output tokens per second"), "range": across}
    y: Json = {"title": title("perplexity against the reference's"), "range": up, "ticksuffix": " %"}
    rows, alike = _facts_by_variant(findings), near_lossless(findings.run)
    traces = [
        _named(
            _trace(point, looks[point.variant], largest, point.variant in best, rows.get(point.variant, [])),
            f"{MARK} {short(point.variant)}" if point.variant in alike else short(point.variant),
        )
        for point in sorted(points, key=lambda point: -point.peaks.shown)  # the small ones stay on top
    ]
    line = _front_line([point for point in points if point.variant in best])
    return {"data": [line, *traces], "layout": layout(x, y, height=460, shapes=[_band()], annotations=[_band_name()])}


def reach_of(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    """The ends of the axes, of speed and of quality, which gets better upwards."""
    changes = [end for point in points for end in (point.changes.low, point.changes.high)]
    low, high = padded([ALIKE.low, ALIKE.high, *changes], 0.1)
    left, right = padded([end for point in points for end in (point.speed.low, point.speed.high)], 0.1)
    return [max(left, 0.0), right], [high, low]


def _band() -> Json:
    """Where the perplexity is near the reference's. A variant is near-lossless if its whole interval is within."""
    return {
        "type": "rect",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": ALIKE.low,
        "y1": ALIKE.high,
        "layer": "below",
        "line": {"width": 0},
        "fillcolor": BAND,
    }


def _band_name() -> Json:
    return {
        "text": BAND_NAME,
        "x": 0,
        "xref": "paper",
        "xanchor": "left",
        "xshift": 6,
        "y": ALIKE.low,
        "yanchor": "top",
        "showarrow": False,
        "font": {"color": "#5f8f80", "size": 11},
    }


def _facts_by_variant(findings: Findings) -> dict[str, list[tuple[str, str]]]:
    """The cells of the summary, those that say something."""
    table = summary_section(findings).table
    return {
        variant: [(name, one) for name, one in zip(table.names[1:], others, strict=True) if one != MISSING]
        for variant, *others in texts(table)
    }


def front_steps(points: Sequence[Point]) -> list[Point]:
    """From the fastest to the slowest of the front, those that give the best quality at their speed."""
    steps: list[Point] = []
    for point in sorted(points, key=lambda point: -point.tokens_per_s):
        if not steps or point.told_change < steps[-1].told_change:
            steps.append(point)
    return steps


def _front_line(points: Sequence[Point]) -> Json:
    steps = front_steps(points)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "Pareto front",
        "x": [point.tokens_per_s for point in steps],
        "y": [point.change for point in steps],
        "line": {"color": "#8a8f98", "width": 1.5, "dash": "dot"},
        "hoverinfo": "skip",
    }


def _named(trace: Json, label: str) -> Json:
    """The trace with the label, which the page's script measures as it is without markup."""
    return {**trace, "text": [escaped(label)], "customdata": [label]}


def _trace(point: Point, look: Look, largest: float, is_best: bool, facts: Sequence[tuple[str, str]]) -> Json:
    on_front = [("Pareto front", "no other variant beats it")] if is_best else []
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": escaped(point.variant),
        "meta": readable(point.variant),
        "x": [point.tokens_per_s],
        "y": [point.change],
        "error_x": error_bars(
            look.colour, [point.speed.high - point.tokens_per_s], [point.tokens_per_s - point.speed.low]
        ),
        "error_y": error_bars(look.colour, [point.changes.high - point.change], [point.change - point.changes.low]),
        "textposition": "top center",
        "textfont": {"color": look.colour, "size": 12},
        "cliponaxis": False,
        "marker": {
            "color": look.colour if is_best else "rgba(0,0,0,0)",
            "opacity": 0.8 if is_best else 1,
            "symbol": "circle",
            "size": max(LARGEST * math.sqrt(point.peaks.shown / largest), SMALLEST),
            "line": {"color": look.colour, "width": 2},
        },
        "hoverinfo": "text",
        "hovertext": [hover(point.variant, [*facts, *on_front])],
    }
