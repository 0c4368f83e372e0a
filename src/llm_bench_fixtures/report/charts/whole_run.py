"""Charts of a whole run: quality against speed with the variants that no other beats (the Pareto front), prefill and
decode stacked, and each phase against what the machine can do (the roofline).

The roof is the least of two limits: the rate of matrix multiplication, and the bandwidth times the intensity.
Source: Williams, Waterman and Patterson, "Roofline", 2009.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from llm_bench_fixtures.answer.front import front
from llm_bench_fixtures.answer.need import Reader
from llm_bench_fixtures.answer.peaks import memory_metric, peaks_of
from llm_bench_fixtures.answer.standings import NEAR, alike_in_quality, near_lossless, standings_for
from llm_bench_fixtures.report.charts import spec
from llm_bench_fixtures.report.charts.variants import SPEED, drawn_estimate, looks_of, perplexity_change
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.tables.by_variant import summary_section
from llm_bench_fixtures.report.words.measured import describe_workload
from llm_bench_fixtures.results import prefill_decode
from llm_bench_fixtures.results.formatting import MISSING, format_bytes, format_seconds, format_share, three_digits
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME
from llm_bench_fixtures.results.record import VariantResult
from llm_bench_fixtures.results.roofline import PhaseWork, decode_work, prefill_work
from llm_bench_fixtures.statistics.spread import Estimate, exactly

LARGEST, SMALLEST = 34.0, 7.0  # points across a marker
ALIKE = (-100 * NEAR, 100 * NEAR)  # the changes in percent between which quality is near-lossless
MARK = "≈"  # before the name of a near-lossless variant
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


@dataclass(frozen=True)
class Candidate:
    """A variant's speed, quality and memory."""

    variant: str
    tokens_per_s: Estimate
    change: Estimate
    """Change of the perplexity against the reference's, in percent."""
    is_alike: bool
    """Whether its quality is near-lossless, or the reference's own."""
    memory_bytes: float


def tradeoff_chart(findings: Findings) -> spec.Chart | None:
    """None where fewer than two variants have a speed, a quality and a memory."""
    found = list(_candidates(findings))
    if len(found) < 2:
        return None
    run, looks = findings.run, looks_of(findings.run)
    standings = standings_for(Reader.LATENCY, findings, findings.answer.need)
    best = front([one.variant for one in found], standings, [one.pick for one in findings.answer.recommendations])
    largest, facts = max(one.memory_bytes for one in found), _facts_by_variant(findings)
    low, high = spec.padded([*ALIKE, *spec.ends_of(one.change for one in found)], 0.1)
    left, right = spec.padded(spec.ends_of(one.tokens_per_s for one in found), 0.1)
    left = max(left, 0.0)
    return spec.Chart(
        name="tradeoff",
        title="Quality, speed and memory",
        note=_tradeoff_note(findings, [one.variant for one in found if one.variant in best]),
        description=(
            "Change of perplexity against tokens per second, a marker for each of "
            f"{', '.join(one.variant for one in found)}"
        ),
        x=spec.Axis("output tokens per second", (left, right)),
        y=spec.Axis(f"perplexity against {run.reference}'s", (high, low), suffix=" %"),  # better upwards
        bands=(spec.Band(*ALIKE),),
        texts=(spec.Text(f"within ± {100 * NEAR:g} %", left, ALIKE[0], is_below=True),),
        lines=(spec.Line(tuple(_steps([one for one in found if one.variant in best])), dash="dot"),),
        series=tuple(
            _tradeoff_series(one, looks[one.variant], largest, one.variant in best, facts.get(one.variant, ()))
            for one in sorted(found, key=lambda one: -one.memory_bytes)  # the small ones stay on top
        ),
        height=460,
    )


def _candidates(findings: Findings) -> Iterator[Candidate]:
    """The variants that have a speed, a quality and a memory."""
    run, peaks, alike = findings.run, peaks_of(findings, memory_metric(findings)), alike_in_quality(findings.run)
    for name, record in findings.common.items():
        speed, change = drawn_estimate(run, record, SPEED), perplexity_change(run, run.variant(name))
        if speed is not None and change is not None and name in peaks:
            yield Candidate(name, speed, change, name in alike, peaks[name].value)


def _tradeoff_note(findings: Findings, best: Sequence[str]) -> str:
    alone = f"only {best[0]}; each other variant is beaten by another one"
    front_words = alone if len(best) == 1 else f"no variant is shown to be better overall than any of {', '.join(best)}"
    lossless = near_lossless(findings.run)
    marked = f" {MARK}: near-lossless, with the whole interval in the band; not ordered." if lossless else ""
    memory = METRIC_BY_NAME[memory_metric(findings)].title.lower()
    return (
        f"Higher and further right is better; a smaller marker needs less memory ({memory}). Filled: on the Pareto "
        f"front; {front_words}. Dotted: the best quality at each speed.{marked} "
        f"On {describe_workload(next(iter(findings.common.values())))}."
    )


def _facts_by_variant(findings: Findings) -> dict[str, spec.Facts]:
    """The cells of the summary, those that say something."""
    table = summary_section(findings).table
    heads = [column.head for column in table.columns[1:]]
    found = {variant: zip(heads, others, strict=True) for variant, *others in table.texts}
    return {variant: tuple(one for one in facts if one[1] != MISSING) for variant, facts in found.items()}


def _steps(candidates: Sequence[Candidate]) -> Iterator[tuple[float, float]]:
    """Steps of the best quality at each speed, from the fastest candidate to the slowest."""
    best = math.inf
    for one in sorted(candidates, key=lambda one: -one.tokens_per_s.value):
        change = 0.0 if one.is_alike else one.change.value  # as far as it tells variants apart
        if change < best:
            best = change
            yield one.tokens_per_s.value, one.change.value


def _tradeoff_series(one: Candidate, look: spec.Look, largest: float, is_best: bool, facts: spec.Facts) -> spec.Series:
    label = f"{MARK} {one.variant}" if one.is_alike and one.change.value else one.variant
    on_front = (("Pareto front", "on it"),) if is_best else ()
    point = spec.Point(one.tokens_per_s, one.change, (*facts, *on_front))
    size = max(LARGEST * math.sqrt(one.memory_bytes / largest), SMALLEST)
    detail, look = f", {format_bytes(one.memory_bytes)}", replace(look, marker="circle")
    opacity = 0.8 if is_best else 1.0
    return spec.Series(one.variant, (point,), look, label, detail, size, is_filled=is_best, opacity=opacity)


def phases_chart(findings: Findings) -> spec.Chart | None:
    """A bar a variant; None where no variant's tokens were timed."""
    times = {variant: (_prefill_s(record), _decode_s(record) or 0.0) for variant, record in findings.common.items()}
    known = {variant: (prefill_s, decode_s) for variant, (prefill_s, decode_s) in times.items() if prefill_s}
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
        yield spec.Bar(variant, row, exactly(phase_s * 1e3), look, start, text, facts, OPACITIES[phase])
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
        note=_roofline_note(phases),
        description=(
            "Operations per second against operations per byte read, for the prefill and the decode of each of "
            f"{', '.join(dict.fromkeys(phase.variant for phase in phases))}, below the limits of this machine"
        ),
        x=x,
        y=y,
        lines=tuple(_roof(bandwidth, ceiling, left, right) for ceiling in ceilings.values()),
        texts=tuple(_names(bandwidth, ceilings, x, y)),
        series=tuple(_roofline_series(phase, looks[phase.variant]) for phase in phases),
        height=420,
    )


def _roofline_note(phases: Sequence[RooflinePoint]) -> str:
    names = ", ".join(dict.fromkeys(phase.variant for phase in phases if phase.roof_flops_per_s is None))
    apart = f" No ceiling was measured for the arithmetic of {names}: the ceilings shown are not theirs." * bool(names)
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


def _roofline_series(phase: RooflinePoint, look: spec.Look) -> spec.Series:
    work = phase.work
    rate = f"{three_digits(work.flops_per_s / GIGA)} GFLOP/s"
    facts = [(phase.name, rate), ("operations per byte", three_digits(work.intensity))]
    if phase.roof_flops_per_s:
        facts.append(("of the roof of its precision", format_share(work.flops_per_s / phase.roof_flops_per_s)))
    point = spec.Point(exactly(work.intensity), exactly(work.flops_per_s / GIGA), tuple(facts))
    return spec.Series(phase.variant, (point,), look, phase.variant, size=7.5, is_filled=phase.name == "prefill")
