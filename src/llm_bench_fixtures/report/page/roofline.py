"""Each variant against the machine's limits: what it computes in a second over what it computes of each byte it reads.

The roof is the least of the two limits: the rate of matrix multiplication, and the bandwidth times the intensity.
Source: Williams, Waterman and Patterson, "Roofline", 2009.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.page.figures import escaped, hover, layout, short, title
from llm_bench_fixtures.report.page.looks import Look, looks_of
from llm_bench_fixtures.report.page.values import Chart, Json
from llm_bench_fixtures.results.formatting import format_share, three_digits
from llm_bench_fixtures.results.provenance import Provenance
from llm_bench_fixtures.results.record import VariantResult
from llm_bench_fixtures.results.roofline import PhaseWork, decode_work, prefill_work
from llm_bench_fixtures.text import readable

GREY = "#8a8f98"
ROOM = 2.5  # times the outermost point, on either side


MIXTURE = (
    " A mixture of experts is drawn as if all positions that run together used the same experts, which is the least "
    "that they read; where they use more, its points belong further to the left."
)


@dataclass(frozen=True)
class Point:
    """A phase of a variant."""

    variant: str
    phase: str
    work: PhaseWork
    roof_flops_per_s: float | None
    """What the machine's limits allow the variant at this intensity, in its own precision; None where unknown."""

    @property
    def is_prefill(self) -> bool:
        return self.phase == "prefill"


def roofline_chart(findings: Findings) -> Chart | None:
    """None where the machine's limits, or the work, are not known."""
    points, provenance = roofline_points(findings), findings.run.provenance
    if not points:
        return None
    variants = dict.fromkeys(point.variant for point in points)
    return Chart(
        name="roofline",
        title="Roofline",
        note=_note(points),
        description=(
            "Operations per second against operations per byte read, for the prefill and the decode of each of "
            f"{', '.join(variants)}, below the limits of this machine"
        ),
        figure=_figure(points, provenance, looks_of(findings.run)),
    )


def _note(points: Sequence[Point]) -> str:
    unknown = dict.fromkeys(point.variant for point in points if point.roof_flops_per_s is None)
    apart = (
        f" No ceiling was measured for the arithmetic of {', '.join(unknown)}: the ceilings shown are not theirs."
        if unknown
        else ""
    )
    least = MIXTURE if any(point.work.is_least for point in points) else ""
    return (
        "Filled: prefill. Open: decode. Grey: what this machine was measured to read and to multiply at most. The "
        "nearer to a line, the nearer to that limit: the slope is the memory's, a ceiling that of the matrix products. "
        f"Far below both neither limits, but overhead does.{apart}{least}"
    )


def roofline_points(findings: Findings) -> list[Point]:
    """Of each variant's phases; none where the machine's limits are not known."""
    provenance = findings.run.provenance
    is_known = provenance.read_bytes_per_s and provenance.matmul_flops_per_s
    return list(_points(findings)) if is_known else []


def _points(findings: Findings) -> Iterator[Point]:
    for variant, record in findings.common.items():
        for phase, work in (("prefill", prefill_work(record)), ("decode", decode_work(record))):
            if work is not None:
                yield Point(variant, phase, work, _own_roof(findings.run.variant(variant), work))


def _own_roof(variant: VariantResult | None, work: PhaseWork) -> float | None:
    if variant is None or not variant.matmul_flops_per_s or not variant.read_bytes_per_s:
        return None
    return min(variant.matmul_flops_per_s, variant.read_bytes_per_s * work.intensity)


@dataclass(frozen=True)
class Reach:
    """The ends of both axes: operations per byte, and operations per second."""

    left: float
    right: float
    bottom: float
    top: float


def reach_of(points: Sequence[Point], provenance: Provenance) -> Reach:
    """With room around the points and below the ceilings."""
    highest = max(provenance.matmul_flops_per_s.values())
    intensities = [point.work.intensity for point in points]
    ridge = highest / (provenance.read_bytes_per_s or 1.0)
    lowest = min(point.work.flops_per_s for point in points)
    return Reach(min(intensities) / ROOM, max(*intensities, ridge) * ROOM, lowest / ROOM, highest * ROOM)


def _figure(points: Sequence[Point], provenance: Provenance, looks: Mapping[str, Look]) -> Json:
    ceilings, reach = provenance.matmul_flops_per_s, reach_of(points, provenance)
    bandwidth = provenance.read_bytes_per_s or 1.0
    left, right = reach.left, reach.right
    x: Json = {"type": "log", "title": title("operations per byte read"), "range": _logs(left, right), "dtick": 1}
    y: Json = {
        "type": "log",
        "title": title("GFLOP/s"),
        "range": _logs(reach.bottom / 1e9, reach.top / 1e9),
        "dtick": 1,
    }
    roofs = [_roof(bandwidth, ceiling, left, right) for ceiling in ceilings.values()]
    names = [_roof_name(dtype, ceiling, right) for dtype, ceiling in ceilings.items()]
    names.append(_slope_name(bandwidth, left, reach.bottom, min(ceilings.values()) / bandwidth))
    traces = [_trace(point, looks[point.variant]) for point in points]
    return {"data": [*roofs, *traces], "layout": layout(x, y, height=420, annotations=names)}


def _logs(low: float, high: float) -> list[float]:
    return [math.log10(low), math.log10(high)]


def _roof(bandwidth: float, ceiling: float, left: float, right: float) -> Json:
    ridge = ceiling / bandwidth
    xs = [left, ridge, right]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": xs,
        "y": [min(ceiling, bandwidth * x) / 1e9 for x in xs],
        "line": {"color": GREY, "width": 1.5},
        "hoverinfo": "skip",
    }


def _roof_name(dtype: str, ceiling: float, right: float) -> Json:
    """Above the right end of the dtype's roof. On a logarithmic axis an annotation's place is a logarithm."""
    text = f"{escaped(dtype)}: {three_digits(ceiling / 1e9)} GFLOP/s"
    return _annotation(text, math.log10(right), math.log10(ceiling / 1e9), "right")


def _slope_name(bandwidth: float, left: float, lowest: float, ridge: float) -> Json:
    """Above the middle of the slope's visible part."""
    middle = math.sqrt(max(left, lowest / bandwidth) * ridge)
    text = f"memory: {three_digits(bandwidth / 1e9)} GB/s"
    return _annotation(text, math.log10(middle), math.log10(bandwidth * middle / 1e9), "right")


def _annotation(text: str, x: float, y: float, anchor: str) -> Json:
    return {
        "text": text,
        "x": x,
        "y": y,
        "xanchor": anchor,
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"color": GREY, "size": 11},
    }


def _trace(point: Point, look: Look) -> Json:
    work = point.work
    facts = [
        (point.phase, f"{three_digits(work.flops_per_s / 1e9)} GFLOP/s"),
        ("operations per byte", three_digits(work.intensity)),
    ]
    if point.roof_flops_per_s:
        facts.append(("of the roof of its precision", format_share(work.flops_per_s / point.roof_flops_per_s)))
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": escaped(point.variant),
        "meta": readable(point.variant),
        "x": [work.intensity],
        "y": [work.flops_per_s / 1e9],
        "text": [escaped(short(point.variant))],
        "customdata": [short(point.variant)],
        "textposition": "middle right",
        "textfont": {"color": look.colour, "size": 11},
        "cliponaxis": False,
        "marker": {
            "color": look.colour,
            "symbol": look.marker if point.is_prefill else f"{look.marker}-open",
            "size": 10,
            "line": {"color": look.colour, "width": 2},
        },
        "hoverinfo": "text",
        "hovertext": [hover(point.variant, facts)],
    }
