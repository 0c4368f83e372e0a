"""Where the time goes: prefill and decode stacked, and each phase against what the machine can do.

The roof is the least of two limits: the rate of matrix multiplication, and the bandwidth times the intensity.
Source: Williams, Waterman and Patterson, "Roofline", 2009.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from llm_bench_fixtures.report.charts import spec
from llm_bench_fixtures.report.charts.variants import looks_of
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.words.measured import describe_workload
from llm_bench_fixtures.results import prefill_decode
from llm_bench_fixtures.results.formatting import format_seconds, format_share, three_digits
from llm_bench_fixtures.results.record import VariantResult
from llm_bench_fixtures.results.roofline import PhaseWork, decode_work, prefill_work

_prefill_s = partial(prefill_decode.median_of_rounds, of_round=prefill_decode.prefill_s)
_decode_s = partial(prefill_decode.median_of_rounds, of_round=prefill_decode.decode_s)
OPACITIES = {"prefill": 1.0, "decode": 0.45}
ROOM_FOR_TEXT = 1.28  # times the longest bar
ROOM = 2.5  # times the outermost point of the roofline, on either side
GIGA = 1e9
MIXTURE = (
    " A mixture of experts is drawn as if all positions that run together used the same experts, which is the least "
    "that they read; where they use more, its points belong further to the left."
)


def phases_chart(findings: Findings) -> spec.Chart | None:
    """A bar a variant; None where no variant's tokens were timed."""
    known = {
        variant: (prefill_s, _decode_s(record) or 0.0)
        for variant, record in findings.common.items()
        if (prefill_s := _prefill_s(record))
    }
    if not known:
        return None
    looks = looks_of(findings.run)
    bars = [bar for row, (name, both) in enumerate(known.items()) for bar in _bars(name, both, row, looks[name])]
    longest_s = max(map(sum, known.values()))
    return spec.Chart(
        name="phases",
        title="Prefill and decode",
        note=(
            "Solid: prefill, up to the first token. Faded: decode, the rest. "
            f"On {describe_workload(next(iter(findings.common.values())))}."
        ),
        description=f"Milliseconds of prefill and of decode, a bar for each of {', '.join(known)}",
        x=spec.Axis("milliseconds", (0.0, longest_s * 1e3 * ROOM_FOR_TEXT)),
        y=spec.rows_axis(list(known)),
        bars=tuple(bars),
        height=spec.AROUND_ROWS + spec.ROW * len(known),
    )


def _bars(variant: str, seconds: tuple[float, float], row: int, look: spec.Look) -> Iterator[spec.Bar]:
    """Prefill, and behind it decode."""
    start = 0.0
    total_s = sum(seconds)
    for phase, phase_s in zip(OPACITIES, seconds, strict=True):
        facts = ((phase, f"{format_seconds(phase_s)}, {format_share(phase_s / total_s)}"),)
        text = " + ".join(map(format_seconds, seconds)) if start else ""
        yield spec.Bar(variant, row, spec.exactly(phase_s * 1e3), look, start, text, facts, OPACITIES[phase])
        start += phase_s * 1e3


@dataclass(frozen=True)
class RooflinePoint:
    """The work of a variant's prefill or decode."""

    variant: str
    name: str
    work: PhaseWork
    roof_flops_per_s: float | None
    """Floating-point operations per second that the machine's limits allow the variant at this intensity, in its own
    precision; None where unknown."""


def roofline_chart(findings: Findings) -> spec.Chart | None:
    """None where the machine's limits, or the work, are not known."""
    ceilings, bandwidth = findings.run.provenance.matmul_flops_per_s, findings.run.provenance.read_bytes_per_s
    phases = list(_phases(findings))
    if not (phases and ceilings and bandwidth):
        return None
    x, y = _axes(phases, bandwidth, max(ceilings.values()))
    looks, (left, right) = looks_of(findings.run), x.ends
    return spec.Chart(
        name="roofline",
        title="Roofline",
        note=_note(phases),
        description=(
            "Operations per second against operations per byte read, for the prefill and the decode of each of "
            f"{', '.join(dict.fromkeys(phase.variant for phase in phases))}, below the limits of this machine"
        ),
        x=x,
        y=y,
        lines=tuple(_roof(bandwidth, ceiling, left, right) for ceiling in ceilings.values()),
        texts=tuple(_names(bandwidth, ceilings, x, y)),
        series=tuple(_series(phase, looks[phase.variant]) for phase in phases),
        height=420,
    )


def _note(phases: Sequence[RooflinePoint]) -> str:
    unknown = dict.fromkeys(phase.variant for phase in phases if phase.roof_flops_per_s is None)
    apart = (
        f" No ceiling was measured for the arithmetic of {', '.join(unknown)}: the ceilings shown are not theirs."
        if unknown
        else ""
    )
    least = MIXTURE if any(phase.work.is_least for phase in phases) else ""
    return (
        "Filled: prefill. Open: decode. Grey: the machine's measured limits, memory bandwidth (slope) and matrix "
        "products (ceilings). A point near a line is held back by that limit; one far below both, by overhead."
        f"{apart}{least}"
    )


def _phases(findings: Findings) -> Iterator[RooflinePoint]:
    for variant, record in findings.common.items():
        for name, work in (("prefill", prefill_work(record)), ("decode", decode_work(record))):
            if work is not None:
                yield RooflinePoint(variant, name, work, own_roof(findings.run.variant(variant), work))


def own_roof(variant: VariantResult | None, work: PhaseWork) -> float | None:
    if variant is None or not variant.matmul_flops_per_s or not variant.read_bytes_per_s:
        return None
    return min(variant.matmul_flops_per_s, variant.read_bytes_per_s * work.intensity)


def _axes(phases: Sequence[RooflinePoint], bandwidth: float, highest: float) -> tuple[spec.Axis, spec.Axis]:
    """Axes with room around the points and the ceilings. highest: the highest ceiling."""
    intensities = [phase.work.intensity for phase in phases]
    lowest = min(phase.work.flops_per_s for phase in phases)
    across = (min(intensities) / ROOM, max(*intensities, highest / bandwidth) * ROOM)
    up = (lowest / ROOM / GIGA, highest * ROOM / GIGA)
    return spec.Axis("operations per byte read", across, is_log=True), spec.Axis("GFLOP/s", up, is_log=True)


def _roof(bandwidth: float, ceiling: float, left: float, right: float) -> spec.Line:
    return spec.Line(tuple((x, min(ceiling, bandwidth * x) / GIGA) for x in (left, ceiling / bandwidth, right)))


def _names(bandwidth: float, ceilings: Mapping[str, float], x: spec.Axis, y: spec.Axis) -> Iterator[spec.Text]:
    """Each ceiling's at its right end, and the slope's above the middle of its visible part."""
    for dtype, ceiling in ceilings.items():
        yield spec.Text(f"{dtype}: {three_digits(ceiling / GIGA)} GFLOP/s", x.ends[1], ceiling / GIGA, is_right=True)
    start = max(x.ends[0], y.ends[0] * GIGA / bandwidth)
    middle = math.sqrt(start * min(ceilings.values()) / bandwidth)
    yield spec.Text(f"memory: {three_digits(bandwidth / GIGA)} GB/s", middle, bandwidth * middle / GIGA, is_right=True)


def _series(phase: RooflinePoint, look: spec.Look) -> spec.Series:
    work = phase.work
    facts = [
        (phase.name, f"{three_digits(work.flops_per_s / GIGA)} GFLOP/s"),
        ("operations per byte", three_digits(work.intensity)),
    ]
    if phase.roof_flops_per_s:
        facts.append(("of the roof of its precision", format_share(work.flops_per_s / phase.roof_flops_per_s)))
    point = spec.Point(spec.exactly(work.intensity), spec.exactly(work.flops_per_s / GIGA), tuple(facts))
    return spec.Series(phase.variant, (point,), look, phase.variant, size=7.5, is_filled=phase.name == "prefill")
