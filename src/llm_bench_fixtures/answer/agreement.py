"""How far pooled runs agree on the headline's workload, and machines on the order of the variants."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.answer.peaks import memory_metric
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME
from llm_bench_fixtures.results.pooled import PooledRun, quality_differences
from llm_bench_fixtures.results.record import Record
from llm_bench_fixtures.results.speedup import log_ratios_by_run, mean_speedup
from llm_bench_fixtures.statistics.pooling import chance_of_distance
from llm_bench_fixtures.statistics.ratio import Speedup

CHANCE = 0.01  # below which runs disagree, shared by all variants (Bonferroni)

Pairs: TypeAlias = Collection[tuple[str, str]]
"""Pairs of variants, the first of which is shown to be faster than the second."""


@dataclass(frozen=True)
class FiguresByRun:
    """A metric of one variant, in base units."""

    runs: tuple[float | None, ...]
    """Figure in each run; None where it has none."""
    pooled: float | None

    @property
    def spread(self) -> float | None:
        """How far the runs are apart: the largest over the smallest, less 1. None for fewer than two."""
        known = [value for value in self.runs if value]
        return max(known) / min(known) - 1 if len(known) > 1 else None


@dataclass(frozen=True)
class VariantAgreement:
    """Figures of one variant in each run, and in all together."""

    variant: str
    speedups: tuple[Speedup | None, ...]
    """Speed-up in each run; None where it wasn't measured in blocks, as for the reference."""
    pooled: Speedup | None
    disagrees: bool
    """Whether the runs' speed-ups are farther apart than chance explains."""
    latency_s: FiguresByRun
    memory: FiguresByRun

    @property
    def spread(self) -> float | None:
        """How far the runs' speed-ups are apart: the largest over the smallest, less 1."""
        return FiguresByRun(tuple(one.ratio if one else None for one in self.speedups), None).spread


@dataclass(frozen=True)
class Agreement:
    """Several runs of one version on one machine."""

    runs: tuple[str, ...]
    """The file of each."""
    memory_metric: str
    variants: tuple[VariantAgreement, ...]
    """Variants that ran the headline's workload, in the run's order."""
    quality_differences: tuple[str, ...]
    """Quality is exact, so there should be none."""
    of_fewer: tuple[tuple[str, int, int], ...] = ()
    """Speed-ups that only some of the runs have: the variant, the batch size, and how many runs."""


def agreement_of(seen: Evidence) -> Agreement | None:
    """None for a single run."""
    run = seen.run
    if not isinstance(run, PooledRun):
        return None
    metric = memory_metric(seen)
    chance = CHANCE / max(len(seen.others), 1)
    files, of_fewer = tuple(one.source for one in run.runs), tuple(_of_fewer(seen, len(run.runs)))
    variants = tuple(_of_variant(seen, run, record, metric, chance) for record in seen.common.values())
    return Agreement(files, metric, variants, tuple(quality_differences(run)), of_fewer)


def _of_fewer(seen: Evidence, runs: int) -> Iterator[tuple[str, int, int]]:
    for record in (*seen.common.values(), *seen.largest_batch.values()):
        if record.variant != seen.run.reference:
            known = sum(one is not None for one in log_ratios_by_run(seen.cases_of(record)))
            if 0 < known < runs:
                yield record.variant, record.facts.batch_size, known


def _of_variant(seen: Evidence, run: PooledRun, record: Record, metric: str, chance: float) -> VariantAgreement:
    is_reference = record.variant == run.reference
    cases = () if is_reference else seen.cases_of(record)
    known = [one for one in log_ratios_by_run(cases) if one is not None]
    by_run = zip(*(case.by_run for case in cases), strict=True)
    speedups = tuple(mean_speedup([one for one in them if one]) if all(them) else None for them in by_run)
    pooled = None if is_reference else seen.speedup(record)
    disagrees = bool(known) and chance_of_distance(known) < chance
    latency_s, memory = (_figures(run, record, name) for name in ("latency_s", metric))
    return VariantAgreement(record.variant, speedups, pooled, disagrees, latency_s, memory)


def _figures(run: PooledRun, record: Record, metric: str) -> FiguresByRun:
    places = [(run, record), *zip(run.runs, record.by_run, strict=True)]
    pooled, *values = (
        METRIC_BY_NAME[metric].of(one, variant) if one and (variant := of.variant(record.variant)) else None
        for of, one in places
    )
    return FiguresByRun(tuple(values), pooled)


def shown_order(seen: Evidence) -> Iterator[tuple[str, str]]:
    """Yield the pairs of variants of which the run shows which one is faster: that one first."""
    for over, of in combinations(seen.common.values(), 2):  # the reference stands first
        gain = seen.gain(of, over)
        if gain.is_faster or gain.is_slower:
            yield (of.variant, over.variant) if gain.is_faster else (over.variant, of.variant)


def rank(variant: str, variants: Collection[str], shown: Pairs) -> tuple[int, int]:
    """The best and the worst that the variant may have."""
    faster = sum((other, variant) in shown for other in variants)
    slower = sum((variant, other) in shown for other in variants)
    return 1 + faster, len(variants) - slower


def contradicted(variant: str, machines: Sequence[Pairs]) -> list[str]:
    """The variants that it is shown to be faster than on one machine, and slower on another."""
    slower = {after for pairs in machines for before, after in pairs if before == variant}
    faster = {before for pairs in machines for before, after in pairs if after == variant}
    return sorted(slower & faster)
