"""Which variants are not worth using, and by what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.answer.picks import Found, Pick
from llm_bench_fixtures.results.record import Record


@dataclass(frozen=True)
class Drawback:
    """Why one variant is not worth using."""

    variant: str
    slower_than: str = ""
    """The reference, or what a quantized variant is made from; empty where it ran the same as the reference."""
    found: Found | None = None
    """How many times as fast it is as that."""
    saved_bytes: int | None = None
    """By how much its weights are smaller than the reference's; None where that isn't known."""
    in_batches: Found | None = None
    """How many times as fast as the reference it is at the largest batch; None where that wasn't measured."""


def drawbacks_of(seen: Evidence, picks: Sequence[Pick]) -> Iterator[Drawback]:
    """Variants that ran the same as the reference, and those that cost time; but none that is best for some reader.
    None at all where something is to be used though it is slower, because the reference doesn't keep the limits."""
    if any(pick.choices and not pick.keeps_reference for pick in picks):
        return
    best = {name for pick in picks if pick.better for name in pick.alike}
    for name, record in seen.common.items():
        if name == seen.run.reference or name in best:
            continue
        if seen.ran_the_reference(name):
            yield Drawback(name)
        elif (found := _slower(record, seen)) is not None:
            yield found


def _slower(record: Record, seen: Evidence) -> Drawback | None:
    own, reference = (seen.largest_batch.get(name) for name in (record.variant, seen.run.reference))
    in_batches = seen.gain(own, reference) if own is not None and reference is not None else None
    if in_batches is not None and in_batches.is_faster:
        return None
    for other in (seen.reference, seen.base_of(record)):
        if other is not None and (found := seen.gain(record, other)).is_slower:
            shown = seen.speedup(record) if other is seen.reference else None
            return Drawback(record.variant, other.variant, shown or found, _saved(record.variant, seen), in_batches)
    return None


def _saved(identifier: str, seen: Evidence) -> int | None:
    own, reference = (seen.run.variant(name) for name in (identifier, seen.run.reference))
    if own is None or reference is None or own.weight_bytes is None or reference.weight_bytes is None:
        return None
    return reference.weight_bytes - own.weight_bytes
