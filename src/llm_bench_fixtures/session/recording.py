"""The record of a benchmark: from its timed rounds and what was observed besides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from llm_bench_fixtures.errors import TokenizerFailed
from llm_bench_fixtures.measure.work import Observation, Work, count_work
from llm_bench_fixtures.models.handle import ModelHandle
from llm_bench_fixtures.models.model import ModelFacts
from llm_bench_fixtures.progress import Phase
from llm_bench_fixtures.results.record import MemoryFacts, Record, Status, WorkloadFacts
from llm_bench_fixtures.session.case import Measured
from llm_bench_fixtures.session.session import BenchSession
from llm_bench_fixtures.workloads import Prompts, TokenIds, Workload

RATIO_DECIMALS = 3
TIME_DIGITS = 7  # digits of a token's seconds: clocks are no finer than 0.1 µs, and records stay small


def record_of(
    session: BenchSession,
    blank: Record,
    model: ModelHandle,
    prompts: Prompts,
    workload: Workload,
    measured: Measured,
    continuations: Sequence[TokenIds] = (),
    *,
    keeps_texts: bool = True,
) -> Record:
    """blank: names the benchmark. prompts: decode what was generated. continuations: where no round was timed.
    keeps_texts: whether what was generated is in the record."""
    timed, observation, is_remote = measured.rounds, measured.observation, model.facts.is_remote
    continuations = timed[-1].continuations if timed else continuations
    outputs, unread = _decoded(prompts, continuations if keeps_texts else (), is_remote)
    record = replace(
        blank,
        status=Status.MEASURED if timed else Status.NOT_MEASURED,
        reason="; ".join(filter(None, ("" if timed else "--benchmark-disable", unread))),
        workload=_workload_facts(workload),
        batch_rows=tuple(map(len, workload.groups)),
        work=_work(session, model, workload, observation) if observation else None,
        memory=_memory_facts(observation, model.facts) if observation and not is_remote else None,
        outputs=outputs,
        extra=session.reference.compare_texts(model.variant, workload, continuations),
    )
    return with_times(record, measured, is_remote=is_remote)


def with_times(record: Record, measured: Measured, *, is_remote: bool = False) -> Record:
    """The record with the times of these rounds, and with the energy that they took on this machine."""
    timed = measured.rounds
    return replace(
        record,
        rounds_s=measured.rounds_s,
        batches_s=tuple(tuple(batch.end_s for batch in done.batches) for done in timed),
        tokens_s=tuple(tuple(_rounded(batch.tokens_s) for batch in done.batches) for done in timed),
        pauses=sum(done.pauses for done in timed),
        cold_steps=sum(done.cold_steps for done in timed),
        bound_rounds=sum(done.is_bound for done in timed),
        crowded_rounds=measured.crowded_rounds,
        energy_j=tuple(done.energy_j for done in timed if done.energy_j is not None and not is_remote),
        probe_s=tuple(done.probe_s for done in timed if done.probe_s is not None),
        waited_s=_rounded(measured.waited_s),
        reference_s=measured.reference_s,
        reference_waited_s=_rounded(measured.reference_waited_s),
        core_to_core=tuple(round(one, RATIO_DECIMALS) for one in measured.core_to_core),
    )


def _decoded(prompts: Prompts, continuations: Sequence[TokenIds], is_remote: bool) -> tuple[tuple[str, ...], str]:
    """The texts of what was generated, with special tokens, such as one that ends a text; where they can't be had,
    none, and why. is_remote: whether a server did it, whose special tokens may be a filling."""
    try:
        return tuple(prompts.decode(ids, skip_special_tokens=is_remote) for ids in continuations), ""
    except TokenizerFailed as error:
        return (), f"no texts: {error}"


def _work(session: BenchSession, model: ModelHandle, workload: Workload, observation: Observation) -> Work:
    with session.progress.activity(Phase.COUNTING, "counting the model's operations"):
        return count_work(workload, observation.observed, session.setup.flops, model.facts)


def _memory_facts(observation: Observation, facts: ModelFacts) -> MemoryFacts:
    peak, before = observation.peak, facts.libraries_before_load_bytes
    is_by_device = len(peak.cuda_by_device) > 1 or bool(facts.weight_bytes_by_device)
    return MemoryFacts(
        peak_resident_bytes=peak.rise_over(facts.resident_before_load_bytes),
        cuda_allocated_bytes=peak.cuda_allocated_bytes,
        cuda_reserved_bytes=peak.cuda_reserved_bytes,
        cuda_by_device=peak.cuda_by_device if is_by_device else {},
        method=peak.method.value,
        after_scoring=observation.after_scoring,
        library_bytes=None if peak.library_bytes is None or before is None else peak.library_bytes - before,
    )


def _workload_facts(workload: Workload) -> WorkloadFacts:
    prompt, new = workload.longest
    return WorkloadFacts(
        digest=workload.digest,
        prompts_digest=workload.prompts_digest,
        prompts=len(workload.prompts),
        batch_size=workload.batch_size,
        prompt_tokens=workload.prompt_tokens,
        padded_tokens=workload.padded_tokens,
        new_tokens=workload.all_new_tokens,
        cache=workload.cache.value,
        padding_side=workload.padding.side.value,
        longest_prompt=prompt,
        longest_new=new,
    )


def _rounded(seconds: Sequence[float]) -> tuple[float, ...]:
    return tuple(round(value, TIME_DIGITS) for value in seconds)
