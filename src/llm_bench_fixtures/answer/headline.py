"""The workloads that the answer goes by: the user's own prompts where they are given, one at a time for latency and in
batches for throughput; else one prompt, and the largest batch.

Where a run has no prompt lengths to pool, the workload that most variants ran stands for one prompt.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from llm_bench_fixtures.grouping import grouped
from llm_bench_fixtures.results.pooled import pooled_record, with_rounds
from llm_bench_fixtures.results.record import Record, Run, Status
from llm_bench_fixtures.results.speedup import mean_speedup, record_log_ratio
from llm_bench_fixtures.statistics.ratio import FEWEST_PAIRS, Speedup

PROMPT_LENGTHS, BATCHES = "prompt_length", "batch"  # the scenarios that decide
OWN = "own"  # the one that decides in their place, in a run of the user's own prompts
SUPPORTING = ("edge_prompts", "padding")  # scenarios that decide only where a run has nothing else

Case: TypeAlias = Mapping[str, Record]
"""Records of one workload, by variant."""
_ByDigest: TypeAlias = Mapping[str, Case]


@dataclass(frozen=True)
class Headline:
    """The records by which variants are compared. Each mapping is by variant, in the run's order."""

    common: Mapping[str, Record]
    """One workload: that of one prompt whose latency and memory are shown, in the rounds that all variants shared."""
    cases: Mapping[str, tuple[Record, ...]]
    """One prompt: the same workloads for each variant of `common`, whose own record, with all its rounds, is among
    them."""
    largest_batch: Mapping[str, Record]
    """One workload: the largest batch that at least half of the variants ran, in the rounds that all shared."""
    elsewhere: Mapping[str, Record]
    """Other variants that were measured: each one's record of the workload that it shares with most others."""
    whole: Mapping[tuple[str, str, str], Record]
    """With all their rounds, the records of which `common` and `largest_batch` have some: by variant, test and digest
    of the workload."""

    def all_rounds(self, record: Record) -> Record:
        """The record with all its rounds."""
        return self.whole.get((record.variant, record.test, record.digest), record)


def headline_of(run: Run) -> Headline:
    records = [record for record in compared_records(run) if record.workload is not None]
    by_digest = _by_digest(records)
    own = [record for record in records if record.scenario == OWN] if run.provenance.prompts else []
    plain = [one for one in records if one.scenario == PROMPT_LENGTHS and one.facts.is_plain]
    known = (one for one in (*run.records, *records) if one.status is not Status.NOT_REACHED)
    settled = {(one.scenario, one.case, one.variant) for one in known}
    own = _of_one_cache(own, by_digest)
    alone, batches = ([one for one in own if (one.facts.batch_size > 1) is many] for many in (False, True))
    lengths = _one_at_a_time(alone, by_digest, settled) or _one_at_a_time(plain, by_digest, settled)
    shown = lengths[(len(lengths) - 1) // 2] if lengths else max(by_digest.values(), key=_suitability, default={})
    pooled = lengths if _are_in_blocks(lengths, run.reference) else [shown]
    common = _ordered(run, shown)
    batch = _ordered(run, _largest_batch(batches or [one for one in records if one.scenario == BATCHES], by_digest))
    cases = {name: tuple(case[name] for case in pooled) for name in common}
    elsewhere = _ordered(run, _elsewhere(records, by_digest, common))
    whole = {(one.variant, one.test, one.digest): one for case in (common, batch) for one in case.values()}
    return Headline(in_shared_rounds(common), cases, in_shared_rounds(batch), elsewhere, whole)


def in_shared_rounds(case: Case) -> Case:
    """The records of a workload in the rounds next to which all its variants ran, so that their times are of the same
    minutes: some variants run more rounds than others. As they are where these are fewer than two."""
    in_turns = [{*one.reference_s} for one in case.values() if one.reference_s]
    shared = set.intersection(*in_turns) if in_turns else set()
    if len(shared) < FEWEST_PAIRS or all(len(one) == len(shared) for one in in_turns):
        return case
    return {name: _next_to(one, shared) if one.reference_s else one for name, one in case.items()}


def _next_to(record: Record, reference_s: Collection[float]) -> Record:
    return with_rounds(record, [place for place, one in enumerate(record.reference_s) if one in reference_s])


def compared_records(run: Run) -> list[Record]:
    """The measured records, and one of the reference for each workload that it lacks: its turns next to the others'."""
    measured = run.measured()
    if run.variant(run.reference) is None:
        return measured
    own = {record.digest for record in measured if record.variant == run.reference}
    longest_last = sorted(measured, key=lambda record: len(record.reference_s))
    beside = {one.digest: one for one in longest_last if one.reference_s and one.digest not in own}
    return [*measured, *(_reference_turns(run.reference, record) for record in beside.values())]


def _reference_turns(reference: str, record: Record) -> Record:
    """A record of the reference from its rounds next to the given one: latencies, without tokens or memory."""
    return pooled_record([run and _turns_in_one_run(reference, run) for run in record.by_run])


def _turns_in_one_run(reference: str, record: Record) -> Record:
    return Record(
        test="",
        scenario=record.scenario,
        case=record.case,
        variant=reference,
        status=Status.MEASURED,
        workload=record.workload,
        rounds_s=record.reference_s,
        waited_s=record.reference_waited_s,
        reference_s=record.reference_s,
        reference_waited_s=record.reference_waited_s,
        expected_variance=record.expected_variance,
    )


def _of_one_cache(own: Sequence[Record], by_digest: _ByDigest) -> list[Record]:
    """Records with the first cache of --llm-cache that two variants ran with."""
    by_cache = grouped(own, lambda one: one.facts.cache)
    compared = (of for of in by_cache.values() if any(len(by_digest[one.facts.digest]) > 1 for one in of))
    return next(compared, [*own])


def _one_at_a_time(
    records: Sequence[Record], by_digest: _ByDigest, settled: Collection[tuple[str, str, str]]
) -> list[Case]:
    """The records' cases that all compared variants ran, that of the shortest prompts first.

    settled: scenario, case and variant of what was measured, or is known not to be. A case that one of the records'
    variants has yet to reach, or had no time for, leaves no variant out: it is left out itself, where there are others.
    """
    variants = {one.variant for one in records}
    reached = [one for one in records if all((one.scenario, one.case, name) in settled for name in variants)]
    lengths = sorted((one.facts for one in reached or records), key=lambda one: one.prompt_tokens)
    cases = shared_by_most([by_digest[digest] for digest in dict.fromkeys(one.digest for one in lengths)])
    return cases if cases and len(cases[0]) > 1 else []


def shared_by_most(cases: Sequence[Case]) -> list[Case]:
    """The cases of the variants that ran at least half of them, as far as all of these variants ran them."""
    ran = Counter(name for case in cases for name in case)
    compared = {name for name, times in ran.items() if 2 * times >= len(cases)}
    return [{name: case[name] for name in case if name in compared} for case in cases if case.keys() >= compared]


def _are_in_blocks(cases: Sequence[Case], reference: str) -> bool:
    """Whether each speed-up over the reference is one of blocks; medians from different minutes aren't pooled."""
    others = [record for case in cases for name, record in case.items() if name != reference]
    return bool(others) and all(record_log_ratio(record) is not None for record in others)


def _largest_batch(records: Sequence[Record], by_digest: _ByDigest) -> Case:
    """The largest batch that at least half of the variants with any batch ran."""
    ran = Counter((one.batch_size, one.digest) for one in (record.facts for record in records))
    sizes = {size: by_digest[digest] for size, digest in sorted(ran, key=ran.__getitem__)}
    variants = {name for case in sizes.values() for name in case}
    most = [size for size, case in sizes.items() if 2 * len(case) >= len(variants)]
    return sizes[max(most)] if most else max(sizes.values(), key=len, default={})


def _elsewhere(records: Sequence[Record], by_digest: _ByDigest, common: Case) -> Case:
    """The earliest of a variant's most suitable records."""
    others = [record for record in records if record.variant not in common]
    best_first = sorted(others, key=lambda record: _suitability(by_digest[record.digest]), reverse=True)
    return {record.variant: record for record in reversed(best_first)}


def _suitability(case: Case) -> tuple[bool, int, int]:
    """How well a workload stands for the run: for several variants and not by supporting scenarios alone, then for as
    many variants as possible, then with few prompts."""
    is_decisive = len(case) > 1 and any(record.scenario not in SUPPORTING for record in case.values())
    return is_decisive, len(case), -max(record.facts.prompts for record in case.values())


def _by_digest(records: Sequence[Record]) -> _ByDigest:
    """Records by workload and variant, each from the case that most variants ran: measured next to each other."""
    variants = Counter(place for place, _ in {(case_key(record), record.variant) for record in records})
    found: dict[str, dict[str, Record]] = {record.digest: {} for record in records}  # the earliest first
    for record in sorted(records, key=lambda record: -variants[case_key(record)]):
        found[record.digest].setdefault(record.variant, record)
    return found


def case_key(record: Record) -> tuple[str, str, str]:
    """Scenario, case and workload: what variants that are compared have in common."""
    return record.scenario, record.case, record.digest


def _ordered(run: Run, records: Case) -> Case:
    return {variant.id: records[variant.id] for variant in run.variants if variant.id in records}


@dataclass(frozen=True)
class ScenarioMean:
    """The mean speed-ups over the cases of a scenario that most of its variants ran in blocks."""

    scenario: str
    cases: int
    speedups: Mapping[str, Speedup]
    """Mean speed-ups by variant, without the reference."""


def scenario_means(run: Run) -> Iterator[ScenarioMean]:
    """Yield the means of scenarios with at least two cases that most of their variants ran in blocks."""
    scenarios: dict[str, dict[str, dict[str, Record]]] = defaultdict(lambda: defaultdict(dict))
    for record in run.measured():
        if record.variant != run.reference and record_log_ratio(record) is not None:
            scenarios[record.scenario][record.case][record.variant] = record
    for scenario, cases in scenarios.items():
        shared = shared_by_most(list(cases.values()))
        if len(shared) > 1:
            found = {name: mean_speedup([one[name] for one in shared]) for name in shared[0]}
            yield ScenarioMean(scenario, len(shared), {name: one for name, one in found.items() if one})
