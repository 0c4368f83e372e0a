"""Several runs as one.

Runs of the same thing are pooled: each record has the rounds of all runs, and still knows them run by run. Shards of a
suite are merged: each record is that of the shard that measured it, with its own reference's rounds.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.grouping import grouped
from llm_bench_fixtures.results.provenance import Provenance
from llm_bench_fixtures.results.record import Record, Run, Status, VariantResult
from llm_bench_fixtures.results.speedup import with_expected_variance

JOINED = ("rounds_s", "probe_s", "batches_s", "tokens_s", "energy_j", "waited_s")  # a value a round
COUNTS = ("pauses", "cold_steps", "bound_rounds", "crowded_rounds")
IN_BLOCKS = ("reference_s", "reference_waited_s", "core_to_core")
MEDIANS = ("load_s", "compile_s", "conversion_s", "first_generate_s", "resident_before_load_bytes")  # per variant
OF_QUALITY = ("quality", "quality_note", "loss_blocks", "item_blocks")
SAME_QUALITY = 1e-6  # relative
TELLING = (Status.MEASURED, Status.ERROR, Status.SKIPPED)  # most telling first: the status kept of two for one test


@dataclass(frozen=True)
class PooledRecord(Record):
    """One benchmark in several runs: the rounds of all of them, one run after the other."""

    runs: tuple[Record | None, ...] = ()

    @property
    def by_run(self) -> tuple[Record | None, ...]:
        return self.runs


@dataclass(frozen=True)
class PooledRun(Run):
    """Several runs of one version on one machine. What a report says of a run holds for all of them together."""

    runs: tuple[Run, ...] = ()


def pooled_record(runs: Sequence[Record | None]) -> Record:
    """One benchmark in several runs; None for a run that lacks it, but not for all. Of a single run it is the record.

    Its memory is that of the run with the middle peak, its further values are medians over the runs, and what is exact
    is the first run's. Where no run measured it, it is the first run's.
    """
    known = [one for one in runs if one is not None]
    measured = [one if one and one.status is Status.MEASURED else None for one in runs]
    found = [one for one in measured if one is not None]
    if len(runs) == 1 or not found:
        return known[0]
    fields = vars(found[0]) | {name: _joined(getattr(one, name) for one in found) for name in (*JOINED, *IN_BLOCKS)}
    peaks = sorted((one.memory for one in found if one.memory), key=lambda memory: memory.own_bytes)
    fields |= {
        "reason": "; ".join(dict.fromkeys(one.reason for one in found if one.reason)),
        **{name: sum(getattr(one, name) for one in found) for name in COUNTS},
        "memory": peaks[(len(peaks) - 1) // 2] if peaks else None,
        "extra": _medians([one.extra for one in found]),
        "metrics": _medians([one.metrics for one in found]),
    }
    return PooledRecord(**{**fields, "runs": tuple(measured)})


def with_rounds(record: Record, places: Sequence[int]) -> Record:
    """The record with these of its rounds, counted from 0; what it doesn't have of each round stays."""
    rounds = len(record.rounds_s)
    of_rounds = {name: values for name in (*JOINED, *IN_BLOCKS) if len(values := getattr(record, name)) == rounds}
    kept: dict[str, Any] = {name: tuple(values[place] for place in places) for name, values in of_rounds.items()}
    return replace(record, **kept)


def _joined(values: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Values of all runs; none where a run has none, as they would belong to other rounds."""
    known = list(values)
    return tuple(chain.from_iterable(known)) if all(known) else ()


def _medians(values: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(chain.from_iterable(values))
    return {name: statistics.median(one[name] for one in values if name in one) for name in names}


def summed(values: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Sums by name."""
    sums: dict[str, float] = defaultdict(float)
    for name, value in chain.from_iterable(one.items() for one in values):
        sums[name] += value
    return dict(sums)


def joined_fields(runs: Sequence[Run]) -> dict[str, Any]:
    """The fields that runs have together, whether they are pooled or merged."""
    return {
        "session_s": sum(run.session_s for run in runs),
        "phase_s": summed(run.phase_s for run in runs),
        "interrupted": any(run.interrupted for run in runs),
        "failed_tests": sum(run.failed_tests for run in runs),
        "scenarios": tuple(dict.fromkeys(chain.from_iterable(run.scenarios for run in runs))),
    }


def pooled_run(runs: Sequence[Run]) -> PooledRun:
    """runs: of the same version, model and machine, the first of which says where the numbers come from. A benchmark
    that only some runs measured has the rounds of these; loads of a server are those of the first run that has any."""
    first = runs[0]
    tests = dict.fromkeys(record.test for run in runs for record in run.records)
    of_test = [{record.test: record for record in run.records} for run in runs]
    ratios = grouped((pair for run in runs for pair in run.instrumentation_ratios.items()), lambda pair: pair[0])
    fields: dict[str, Any] = {
        "variants": tuple(pooled_variants(runs)),
        "records": tuple(pooled_record([records.get(test) for records in of_test]) for test in tests),
        "instrumentation_ratios": {name: tuple(chain(*(own for _, own in found))) for name, found in ratios.items()},
        "loads": next((run.loads for run in runs if run.loads), ()),
        "checked": {},
        "earlier": (),
        "runs": tuple(runs),
    }
    return PooledRun(**vars(first) | joined_fields(runs) | fields)


def pooled_variants(runs: Sequence[Run]) -> Iterator[VariantResult]:
    """Each as the first run has it that measured it, with the median of what a load costs, and with the quality and the
    execution modes that any run has."""
    for name in dict.fromkeys(variant.id for run in runs for variant in run.variants):
        known = [variant for run in runs if (variant := run.variant(name))]
        loaded = [variant for variant in known if variant.status is Status.MEASURED] or known
        scored = [variant for variant in loaded if variant.quality]
        costs = {cost: [value for one in loaded if (value := getattr(one, cost)) is not None] for cost in MEDIANS}
        medians: dict[str, Any] = {cost: statistics.median(values) for cost, values in costs.items() if values}
        kept = {part: getattr(scored[0], part) for part in (*OF_QUALITY, "unscored")} if scored else {}
        modes = {found.mode: found for one in reversed(loaded) for found in one.equivalence}
        yield replace(loaded[0], **medians, **kept, equivalence=tuple(modes.values()))


def quality_differences(run: PooledRun) -> Iterator[str]:
    """Differences of the runs' quality, by variant and metric: it is exact, so that there should be none."""
    for variant in run.variants:
        for name in variant.quality:
            scored = (one.variant(variant.id) for one in run.runs)
            values = [one.quality[name] for one in scored if one and name in one.quality]
            if not math.isclose(min(values), max(values), rel_tol=SAME_QUALITY):
                yield f"{name} of {variant.id}: {min(values):.6g} to {max(values):.6g}"


def merged_run(shards: Sequence[Run]) -> Run:
    """shards: at least two, which may be put together. The last that began is the run's own session.

    A benchmark of the reference that several shards measured is the one with the most rounds. Raises InvalidSetting
    where several measured another benchmark: these are no shards.
    """
    runs = sorted(shards, key=lambda run: run.provenance.started)
    *before, last = runs
    found = grouped(((record, run) for run in shards for record in run.records), lambda pair: pair[0].test)
    kept = {test: _kept(test, records) for test, records in found.items()}
    limits = [run.time_limit_s for run in runs]
    checks = [pair for run in runs for pair in run.checked.items()]
    sessions = (run.sessions({test for test, (_, shard) in kept.items() if shard is run}) for run in before)
    fields: dict[str, Any] = {
        "provenance": _provenance([run.provenance for run in runs]),
        "variants": tuple(pooled_variants(shards)),
        "records": with_expected_variance(record for record, _ in kept.values()),
        "time_limit_s": None if None in limits else max(filter(None, limits)),
        "instrumentation_ratios": {name: own for run in runs for name, own in run.instrumentation_ratios.items()},
        "loads": tuple(chain.from_iterable(run.loads for run in runs)),
        "selection": last.selection if all(run.selection == last.selection for run in runs) else (),
        "regressed": any(run.regressed for run in runs),
        "refused": "; ".join(dict.fromkeys(run.refused for run in runs if run.refused)),
        "checked": dict(checks) | {test: reason for test, reason in checks if not reason},  # passed before skipped
        "earlier": tuple(chain.from_iterable(sessions)),
        "blessing": None,
    }
    return replace(last, **joined_fields(runs) | fields)


def _kept(test: str, found: Sequence[tuple[Record, Run]]) -> tuple[Record, Run]:
    """The test's record that is kept, with its shard."""
    measured = [(one, run) for one, run in found if one.status is Status.MEASURED]
    if len(measured) > 1 and measured[0][0].variant != measured[0][1].reference:
        sources = " and ".join(run.source for _, run in measured)
        raise InvalidSetting(
            f"{sources} all measured {test}, so they are no shards: `llm-bench report` pools runs of one benchmark"
        )
    return min(found, key=lambda pair: _rank(pair[0]))


def _rank(record: Record) -> tuple[int, int]:
    return TELLING.index(record.status) if record.status in TELLING else len(TELLING), -len(record.rounds_s)


def _provenance(origins: Sequence[Provenance]) -> Provenance:
    """The last, with what only others tell."""
    last = origins[-1]
    by_name = {task.name: task for origin in origins for task in origin.tasks}
    known: dict[str, Any] = {
        name: next((value for origin in reversed(origins) if (value := getattr(origin, name))), getattr(last, name))
        for name in ("read_bytes_per_s", "matmul_flops_per_s", "memory_bytes")
    }
    # One that scored the corpus, or cut the prompts, adds how.
    known |= {name: max((getattr(origin, name) for origin in origins), key=len) for name in ("corpus", "prompts")}
    digests = {part: digest for origin in origins for part, digest in origin.model_digests.items()}
    return replace(last, **known, tasks=tuple(by_name.values()), model_digests=digests)
