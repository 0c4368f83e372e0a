"""The speed of variants in other numbers of threads than the default. The answer ignores this sweep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from llm_bench_fixtures.answer.noise import MachineNoise
from llm_bench_fixtures.results.pooled import PooledRun
from llm_bench_fixtures.results.record import Record, Run
from llm_bench_fixtures.results.speedup import mean_speedup_between
from llm_bench_fixtures.statistics.ratio import Speedup
from llm_bench_fixtures.statistics.spread import CONFIDENCE

THREADS = "threads"  # the scenario


@dataclass(frozen=True)
class InThreads:
    """A variant in another number of threads, compared with the same variant in the default number."""

    threads: int
    of: Record
    over: Record
    """The record in the default number."""
    found: Speedup | None
    """Speed-up over the default; None for too few rounds."""
    is_hidden: bool = False
    """Whether identical work differed as much in this run."""

    @property
    def is_better(self) -> bool:
        return self.found is not None and self.found.is_faster and not self.is_hidden

    @property
    def is_worse(self) -> bool:
        return self.found is not None and self.found.is_slower and not self.is_hidden


def compare_threads(run: Run, machine: MachineNoise) -> tuple[InThreads, ...]:
    """Every comparison of the sweep, in its order. All intervals hold together with 95 % (Bonferroni)."""
    pairs = list(_pairs(run))
    confidence = 1 - (1 - CONFIDENCE) / max(len(pairs), 1)
    found = []
    for threads, of, over in pairs:
        speedup = mean_speedup_between([(of, over)], confidence) if of.reference_s and over.reference_s else None
        is_hidden = speedup is not None and machine.hides(speedup.ratio)
        found.append(InThreads(threads, of, over, speedup, is_hidden))
    return tuple(found)


def _pairs(run: Run) -> Iterator[tuple[int, Record, Record]]:
    records = {record.variant: record for record in run.measured(THREADS)}
    for variant in run.variants:
        own, default = records.get(variant.id), records.get(variant.threads_of or "")
        if own and default and variant.threads:
            yield variant.threads, own, default


def without_sweep(run: Run) -> Run:
    """The run without the sweep, and without variants that were measured only there. A run that is nothing but a sweep
    keeps the records of its default number."""
    others = [record for record in run.records if record.scenario != THREADS]
    elsewhere = {record.variant for record in others}
    swept = {one.id for one in run.variants if one.threads is not None and one.id not in elsewhere}
    if not swept:
        return run
    if isinstance(run, PooledRun):
        run = replace(run, runs=tuple(map(without_sweep, run.runs)))
    variants = tuple(one for one in run.variants if one.id not in swept)
    records = others or [record for record in run.records if record.variant not in swept]
    return replace(run, variants=variants, records=tuple(records))
