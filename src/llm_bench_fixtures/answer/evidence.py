"""What the answer and the takeaways rest on, and which differences it supports.

Variants that took turns are compared by the interval of their speed-up, which is widened for as many comparisons as are
claimed at once (Bonferroni). What was measured at different times, such as two cases of one variant, is compared by the
noise floor. On a noisy machine no difference between variants is claimed that identical work shows as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

from llm_bench_fixtures.answer.headline import Headline, case_key, headline_of
from llm_bench_fixtures.answer.noise import MachineNoise, machine_noise, ran_the_same
from llm_bench_fixtures.answer.threads import without_sweep
from llm_bench_fixtures.results.noise import Gain, NoiseFloor, gain, noise_floor
from llm_bench_fixtures.results.record import Record, Run
from llm_bench_fixtures.results.speedup import drifts_apart, like_cases, mean_speedup, mean_speedup_between
from llm_bench_fixtures.statistics.ratio import Speedup
from llm_bench_fixtures.statistics.shrinkage import VarianceEstimate
from llm_bench_fixtures.statistics.spread import CONFIDENCE


@dataclass(frozen=True)
class Evidence(Headline):
    """A run's records of the headline's workloads, and its noise."""

    run: Run
    noise: NoiseFloor
    """How far apart identical work comes out that was measured at different times."""
    machine: MachineNoise
    drifts_between: Callable[[str, str], Sequence[VarianceEstimate | None]] = field(compare=False, repr=False)
    """How far two variants drift against each other, in each run."""

    @property
    def reference(self) -> Record | None:
        """The reference's record of the common workload, if only from its turns next to the others."""
        return self.common.get(self.run.reference)

    @property
    def others(self) -> list[Record]:
        """The records of the common workload of the variants that ran something else than the reference."""
        return [record for name, record in self.common.items() if not self.ran_the_reference(name)]

    def ran_the_reference(self, identifier: str) -> bool:
        """Whether it is the reference, or a variant that ran the same thing."""
        return ran_the_same(self.run, identifier, self.run.reference)

    @property
    def comparisons(self) -> int:
        """How many comparisons in blocks the report makes at once.

        On one prompt, and again at the largest batch: each variant with the reference, and the best with each other
        one. And each quantized variant with what it is made from, if that isn't the reference.
        """
        others = [record for record in self.others if record.reference_s]
        largest = [one for one in self.largest_batch.values() if one.reference_s]
        batches = [one for one in largest if not self.ran_the_reference(one.variant)]
        bases = [base for base in map(self.base_of, others) if base and base.reference_s and base is not self.reference]
        return sum(len(them) + max(len(them) - 1, 0) for them in (others, batches)) + len(bases)

    @property
    def confidence(self) -> float:
        """Confidence of each comparison, so that all of them hold at once with 95 %."""
        return 1 - (1 - CONFIDENCE) / max(self.comparisons, 1)

    def gain(self, of: Record, over: Record) -> Gain | Speedup:
        """How many times as fast one record is as another, and whether that may be claimed.

        Records of the common workload stand for all cases of one prompt. Over the reference it is the record's own
        speed-up, from the reference's rounds next to its own: those of the reference's own test may be others. Two
        cases are compared by the noise floor, though each stands in blocks: minutes lie between them. Between two
        variants that ran the same thing nothing is claimed.
        """
        if of.variant == over.variant or of.workload != over.workload:
            return gain(of, over, self.noise)
        in_turns = self._in_blocks(of, over)
        found = in_turns or gain(of, over, self.noise)
        if in_turns is None and of.reference_s:  # rounds in blocks, but too few: their scatter says next to nothing
            return Gain(found.ratio, is_faster=False, is_slower=False, is_unclear=True)
        is_same = ran_the_same(self.run, of.variant, over.variant)
        if is_same or self.machine.hides(found.ratio):
            return Gain(found.ratio, is_faster=False, is_slower=False, is_unclear=not is_same)
        return found

    def speedup(self, record: Record, confidence: float = CONFIDENCE) -> Speedup | None:
        """The record's over the reference; of the common workload, that of all cases of one prompt. None where one has
        too few rounds in blocks."""
        return mean_speedup(self.cases_of(record), confidence)

    def _in_blocks(self, of: Record, over: Record) -> Speedup | None:
        """None where one has too few rounds in blocks."""
        if over.variant == self.run.reference:
            return self.speedup(of, self.confidence)
        pairs = zip(self.cases_of(of), self.cases_of(over), strict=True)
        return mean_speedup_between(list(pairs), self.confidence, self.drifts_between(of.variant, over.variant))

    def cases_of(self, record: Record) -> tuple[Record, ...]:
        """The records that it stands for: of all cases of one prompt, or itself; with all their rounds."""
        cases, whole = self.cases.get(record.variant, ()), self.all_rounds(record)
        return cases if whole in cases else (whole,)

    def base_of(self, record: Record) -> Record | None:
        """The common workload's record of what a quantized variant is made from."""
        variant = self.run.variant(record.variant)
        return self.common.get(variant.base or "") if variant and variant.quantized else None


def evidence_of(run: Run) -> Evidence:
    """The evidence of a run without its sweep over threads."""
    run = without_sweep(run)
    floor = noise_floor(run)
    drifts = cache(partial(_drifts_between, like_cases(run.measured())))
    machine = machine_noise(run, floor)
    return Evidence(**vars(headline_of(run)), run=run, noise=floor, machine=machine, drifts_between=drifts)


def _drifts_between(alike: Mapping[str, Sequence[Record]], of: str, over: str) -> list[VarianceEstimate | None]:
    """How far two variants drift against each other, in each run. alike: each variant's like cases."""
    others = {case_key(one): one for one in alike.get(over, ())}
    pairs = ((one, others.get(case_key(one))) for one in alike.get(of, ()))
    return drifts_apart([(one, other) for one, other in pairs if other is not None])
