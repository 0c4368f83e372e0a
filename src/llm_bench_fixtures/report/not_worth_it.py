"""Which variants do not pay here, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.answer.picks import Pick
from llm_bench_fixtures.report.cells import headline_prompts, times_cell
from llm_bench_fixtures.results.formatting import format_bytes, three_digits
from llm_bench_fixtures.results.noise import Gain
from llm_bench_fixtures.results.record import Record, VariantResult
from llm_bench_fixtures.statistics.ratio import Speedup


@dataclass(frozen=True)
class Remark:
    """Something about one variant."""

    variant: str
    text: str
    """Without the variant's id, and without a full stop."""


def scope_of(seen: Evidence) -> str:
    """On what the remarks rest; empty where nothing was measured."""
    some = seen.reference or next(iter(seen.common.values()), None)
    if some is None or some.workload is None:
        return ""
    return f"{headline_prompts(seen)}, batch {some.workload.batch_size}"


def not_worth_it(seen: Evidence, picks: Sequence[Pick]) -> Iterator[Remark]:
    """Variants that ran what the reference ran, and those that cost time; unless they are the best for some reader."""
    recommended = {name for pick in picks if pick.is_proven for name in pick.variants}
    for name, record in seen.common.items():
        variant = seen.run.variant(name)
        if variant is None or name == seen.run.reference or name in recommended:
            continue
        text = _why_not(variant, record, seen)
        if text:
            yield Remark(name, text)


def _why_not(variant: VariantResult, record: Record, seen: Evidence) -> str:
    """Empty where nothing speaks against it."""
    if seen.ran_the_reference(variant.id):
        return f"runs what {seen.run.reference} runs"
    in_batches = _gain_in_batches(variant.id, seen)
    if in_batches is not None and in_batches.is_faster:
        return ""
    for other in (seen.reference, seen.base_of(record)):
        if other is not None and seen.gain(record, other).is_slower:
            return f"{_slowness(record, other, seen)}{_saving(variant, seen)}{_batches_words(in_batches)}"
    return ""


def _gain_in_batches(identifier: str, seen: Evidence) -> Gain | Speedup | None:
    """Over the reference, at the largest batch; None where they weren't measured in batches."""
    own, reference = (seen.largest_batch.get(name) for name in (identifier, seen.run.reference))
    return seen.gain(own, reference) if own is not None and reference is not None else None


def _batches_words(in_batches: Gain | Speedup | None) -> str:
    if in_batches is None:
        return ""
    return ", slower in batches too" if in_batches.is_slower else ", no gain shown in batches"


def _slowness(record: Record, other: Record, seen: Evidence) -> str:
    """Beside the reference with the speed-up's interval."""
    found = seen.speedup(record) if other is seen.reference else None
    if found is not None:
        return f"runs at {times_cell(found.ratio, found.low, found.high)} {other.variant}'s speed"
    return f"takes {three_digits(1 / seen.gain(record, other).ratio)}× as long as {other.variant}"


def _saving(variant: VariantResult, seen: Evidence) -> str:
    """What it saves for that time: bytes of weights, which are exact."""
    reference = seen.run.variant(seen.run.reference)
    own, other = variant.weight_bytes, reference.weight_bytes if reference else None
    if own is None or other is None:
        return ""
    if own < other:
        return f" and saves {format_bytes(other - own)} of {format_bytes(other)} of weights"
    return " and saves no weights"
