"""What the answer and the takeaways rest on, and which differences it supports.

Variants that were measured in blocks are compared by the interval of their speed-up, which is widened for as many
comparisons as are claimed at once (Bonferroni). What was taken apart, such as two cases of one variant, is compared by
the noise floor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llm_bench_fixtures.results.noise import Gain, NoiseFloor, gain
from llm_bench_fixtures.results.record import Record, Run
from llm_bench_fixtures.results.speedup import record_speedup, speedup_between
from llm_bench_fixtures.statistics.ratio import CONFIDENCE, Speedup


@dataclass(frozen=True)
class Evidence:
    """A run's records of the common workload, its noise, and what it says of the machine."""

    run: Run
    common: Mapping[str, Record]
    """By variant, in the run's order: its record of the workload that most variants ran."""
    best_batch: Mapping[str, Record]
    """By variant, in the run's order: its record with the most tokens per second over the batch sizes."""
    noise: NoiseFloor
    """How far apart identical work comes out that was taken apart."""
    decode: str
    """How near the reference's decode comes to the machine's limits; empty where that isn't known."""

    @property
    def reference(self) -> Record | None:
        """The reference's record of the common workload."""
        return self.common.get(self.run.reference)

    @property
    def others(self) -> list[Record]:
        """The records of the common workload of the variants that ran something else than the reference."""
        return [record for name, record in self.common.items() if not self.ran_the_reference(name)]

    def ran_the_reference(self, identifier: str) -> bool:
        """Whether it is the reference, or a variant that ran the same thing."""
        return self._configuration(identifier) == self._configuration(self.run.reference)

    @property
    def comparisons(self) -> int:
        """How many comparisons in blocks the report makes at once.

        On the workload that most variants ran, and again at the batch sizes: each variant with the reference, and the
        best with each other one. And each quantized variant with what it is made from, if that isn't the reference.
        """
        others = [record for record in self.others if record.reference_s]
        batches = [one for name, one in self.best_batch.items() if one.reference_s and not self.ran_the_reference(name)]
        bases = [(record, self.base_of(record)) for record in others]
        more = [one for one, base in bases if base is not None and base is not self.reference and in_blocks(one, base)]
        return sum(len(them) + max(len(them) - 1, 0) for them in (others, batches)) + len(more)

    @property
    def confidence(self) -> float:
        """Of each of these comparisons, so that all of them hold at once with 95 %."""
        return 1 - (1 - CONFIDENCE) / max(self.comparisons, 1)

    def gain(self, of: Record, over: Record) -> Gain | Speedup:
        """How many times as fast one record is as another, and whether that may be claimed.

        Over the reference it is the record's own speed-up, from the reference's rounds next to its own: those of the
        reference's own test may be others. Two cases are compared by the noise floor, though each stands in blocks:
        minutes lie between them. Between two variants that ran the same thing nothing is claimed.
        """
        if of.variant == over.variant or of.workload != over.workload:
            return gain(of, over, self.noise)
        is_over_reference = over.variant == self.run.reference
        compared = record_speedup(of, self.confidence) if is_over_reference else None
        found = compared or speedup_between(of, over, self.confidence) or gain(of, over, self.noise)
        is_same = self._configuration(of.variant) == self._configuration(over.variant)
        return Gain(found.ratio, is_faster=False, is_slower=False) if is_same else found

    def base_of(self, record: Record) -> Record | None:
        """The common workload's record of what a quantized variant is made from."""
        variant = self.run.variant(record.variant)
        return self.common.get(variant.base or "") if variant and variant.quantized else None

    def _configuration(self, identifier: str) -> str:
        variant = self.run.variant(identifier)
        return variant.configuration if variant else ""


def in_blocks(*records: Record) -> bool:
    """Whether all of the records were measured in blocks with the reference."""
    return all(record.reference_s for record in records)
