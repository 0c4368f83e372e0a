"""Quality against speed, the memory as the marker's size, and the variants that no other beats (the Pareto front).

A variant beats another where it is better beyond doubt in something and worse beyond doubt in nothing, as the answer
compares them: on one prompt and at the largest batch by the intervals of their speed-ups, the memory by what the gate
lets pass, the quality by its 95 % interval, where near-lossless variants are all alike. And whoever keeps the answer's
limits isn't beaten by who doesn't. So a variant that the answer recommends is on the front; of those that it
can't tell apart, one may need less memory, but that is no reason to call the recommended one beaten.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from llm_bench_fixtures.answer.need import Reader
from llm_bench_fixtures.answer.peaks import Peaks, is_less, memory_metric, peaks_of
from llm_bench_fixtures.answer.standings import NEAR, is_near_lossless, near_lossless, standings_for
from llm_bench_fixtures.report.charts import spec
from llm_bench_fixtures.report.charts.variants import SPEED, estimate_of, looks_of, perplexity_change
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.renderers.figures import head, texts
from llm_bench_fixtures.report.tables.variants import summary_section
from llm_bench_fixtures.report.words.measured import describe_workload
from llm_bench_fixtures.results.formatting import MISSING, format_bytes
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME
from llm_bench_fixtures.results.record import Record

LARGEST, SMALLEST = 34.0, 7.0  # points across a marker
ALIKE = (-100 * NEAR, 100 * NEAR)  # the changes in percent between which quality is near-lossless
MARK = "≈"  # before the name of a near-lossless variant


@dataclass(frozen=True)
class Candidate:
    """A variant's speed, quality and memory."""

    record: Record
    tokens_per_s: spec.Estimate
    change: spec.Estimate
    """Change of the perplexity against the reference's, in percent."""
    is_alike: bool
    """Whether its quality is near-lossless, or the reference's own."""
    keeps_limits: bool
    peaks: Peaks
    """Peaks of memory, in bytes."""

    @property
    def variant(self) -> str:
        return self.record.variant


def tradeoff_chart(findings: Findings) -> spec.Chart | None:
    """None where fewer than two variants have a speed, a quality and a memory."""
    found = list(_candidates(findings))
    if len(found) < 2:
        return None
    run, looks, best = findings.run, looks_of(findings.run), front(findings, found)
    largest, facts = max(one.peaks.shown for one in found), _facts_by_variant(findings)
    low, high = spec.padded([*ALIKE, *spec.ends_of(one.change for one in found)], 0.1)
    left, right = spec.padded(spec.ends_of(one.tokens_per_s for one in found), 0.1)
    left = max(left, 0.0)
    return spec.Chart(
        name="tradeoff",
        title="Quality, speed and memory",
        note=_note(findings, [one.variant for one in found if one.variant in best]),
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
            _series(one, looks[one.variant], largest, one.variant in best, facts.get(one.variant, ()))
            for one in sorted(found, key=lambda one: -one.peaks.shown)  # the small ones stay on top
        ),
        height=460,
    )


def _candidates(findings: Findings) -> Iterator[Candidate]:
    """The variants that have a speed, a quality and a memory."""
    run, peaks = findings.run, peaks_of(findings, memory_metric(findings))
    standings = standings_for(Reader.LATENCY, findings, findings.answer.need)
    for name, record in findings.common.items():
        variant, speed = run.variant(name), estimate_of(run, record, SPEED)
        change = perplexity_change(run, variant)
        if variant is not None and speed is not None and change is not None and name in peaks:
            is_alike = name == run.reference or is_near_lossless(variant)
            yield Candidate(record, speed, change, is_alike, standings.admits(variant), peaks[name])


def front(findings: Findings, candidates: Sequence[Candidate]) -> frozenset[str]:
    """The variants that no other one beats, and those that the answer recommends."""
    unbeaten = {one.variant for one in candidates if not any(_beats(findings, other, one) for other in candidates)}
    recommended = {name for one in findings.answer.recommendations for name in one.pick.alike}
    return frozenset(one.variant for one in candidates if one.variant in unbeaten | recommended)


def _beats(findings: Findings, one: Candidate, other: Candidate) -> bool:
    return one is not other and any(_gains(findings, one, other)) and not any(_gains(findings, other, one))


def _gains(findings: Findings, one: Candidate, other: Candidate) -> Iterator[bool]:
    """Yield for each quantity whether one is better than the other in it beyond doubt."""
    batches = findings.largest_batch
    yield findings.gain(one.record, other.record).is_faster
    if one.variant in batches and other.variant in batches:
        yield findings.gain(batches[one.variant], batches[other.variant]).is_faster
    yield is_less(one.peaks, other.peaks, memory_metric(findings))
    yield not (one.is_alike and other.is_alike) and one.change.high < other.change.low
    yield one.keeps_limits and not other.keeps_limits


def _note(findings: Findings, best: Sequence[str]) -> str:
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
    heads = [head(column) for column in table.columns[1:]]
    return {
        variant: tuple((name, one) for name, one in zip(heads, others, strict=True) if one != MISSING)
        for variant, *others in texts(table)
    }


def _steps(candidates: Sequence[Candidate]) -> Iterator[tuple[float, float]]:
    """Steps of the best quality at each speed, from the fastest candidate to the slowest."""
    best = math.inf
    for one in sorted(candidates, key=lambda one: -one.tokens_per_s.value):
        change = 0.0 if one.is_alike else one.change.value  # as far as it tells variants apart
        if change < best:
            best = change
            yield one.tokens_per_s.value, one.change.value


def _series(one: Candidate, look: spec.Look, largest: float, is_best: bool, facts: spec.Facts) -> spec.Series:
    label = f"{MARK} {one.variant}" if one.is_alike and one.change.value else one.variant
    on_front = (("Pareto front", "on it"),) if is_best else ()
    return spec.Series(
        one.variant,
        (spec.Point(one.tokens_per_s, one.change, (*facts, *on_front)),),
        replace(look, marker="circle"),
        label,
        f", {format_bytes(one.peaks.shown)}",
        size=max(LARGEST * math.sqrt(one.peaks.shown / largest), SMALLEST),
        is_filled=is_best,
        opacity=0.8 if is_best else 1.0,
    )
