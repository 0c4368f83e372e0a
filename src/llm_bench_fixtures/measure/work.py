"""What one round of a workload makes the machine do: counts that are the same from run to run, and the least time for
them.

Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore
architectures", 2009, for the least time.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from llm_bench_fixtures.errors import reason_of
from llm_bench_fixtures.measure.binding import finding_threads, settle_binding
from llm_bench_fixtures.measure.kept import KeptForModel
from llm_bench_fixtures.measure.limits import drop_probe
from llm_bench_fixtures.measure.memory import MemoryPeak, PeakMemory
from llm_bench_fixtures.measure.passes import CacheBytes, watch_forward_passes
from llm_bench_fixtures.measure.quality import has_scored
from llm_bench_fixtures.measure.timing import run_round
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.processes.allocator import filling_holes, giving_freed_memory_back
from llm_bench_fixtures.reading import Count, Text
from llm_bench_fixtures.workloads import CacheKind, TokenIds, Workload, short_digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llm_bench_fixtures.measure.flops import FlopCounter
    from llm_bench_fixtures.models.model import Model, ModelFacts

BRIEF_TOKENS = 3  # tokens that warm up where a round takes seconds


@dataclass(frozen=True)
class Observed:
    """Observations of one round, by their names in `Work`."""

    output_digest: str
    """Digest of the new tokens of each prompt in order; independent of batching and padding."""

    forward_passes: int | None
    """None where they can't be seen: passes_reason says why."""

    cache_bytes: int | None = None
    """Bytes of keys and values, the most that one batch held. None where they can't be counted, and where the model
    keeps none: cache_reason says which."""

    cache_bytes_read: int | None = None
    """Bytes of keys and values read, summed over the decode steps. None where cache_bytes is."""

    state_bytes: int | None = None
    """Bytes of recurrent layers' states, the most that one batch held. None where they can't be counted."""

    passes_reason: str = ""
    cache_reason: str = ""


@dataclass(frozen=True)
class Work:
    """Exact counts of one round."""

    prompt_tokens: Count
    """Padding not counted."""

    new_tokens: Count
    batches: Count

    forward_passes: Count | None
    """None where they can't be seen, and passes_reason says why; the same holds for the cache's bytes."""

    prefill_flops: Count | None
    """FLOPs of the forward passes that give each batch's first token. None where they can't be counted: flops_reason
    says why."""

    decode_flops: Count | None
    """FLOPs of all other forward passes."""

    flops_reason: Text

    weight_bytes_read: Count | None
    """Weight bytes that each forward pass reads, of a mixture of experts at least; None where the backend doesn't
    report it."""

    cache_bytes: Count | None
    """Bytes of keys and values, the most that one batch held. None where the model keeps none, and where they can't be
    counted: cache_reason says which."""

    cache_bytes_read: Count | None
    """Bytes of keys and values read, summed over the decode steps."""

    output_digest: Text
    """Digest of the new tokens of each prompt in order; independent of batching and padding."""

    passes_reason: Text = ""

    state_bytes: Count | None = None
    """Bytes of recurrent layers' states, the most that one batch held; each decode step reads them whole. None where
    they can't be counted."""

    cache_reason: Text = ""
    """Why the bytes of the cache are None where passes were seen."""

    weight_bytes_most: Count | None = None
    """Weight bytes of a forward pass whose positions use all experts of a mixture between them. None where that equals
    weight_bytes_read, or isn't reported."""

    @property
    def decode_passes(self) -> int | None:
        """Forward passes after each batch's first. None where passes can't be seen."""
        return self.forward_passes - self.batches if self.forward_passes else None


def count_work(workload: Workload, observed: Observed, flops: FlopCounter, facts: ModelFacts) -> Work:
    """The counts of a round. flops: of the architecture of --llm-model."""
    counts = flops.round(workload) if facts.runs_source else None
    other = f"{facts.label} is not the model of --llm-model, whose config they are counted from"
    return Work(
        prompt_tokens=workload.prompt_tokens,
        new_tokens=workload.all_new_tokens,
        batches=len(workload.groups),
        prefill_flops=counts.prefill if counts else None,
        decode_flops=counts.decode if counts else None,
        flops_reason=flops.reason if facts.runs_source else other,
        weight_bytes_read=facts.weight_bytes_read,
        weight_bytes_most=facts.weight_bytes_most,
        **asdict(observed),
    )


def observe_round(model: Model, workload: Workload) -> Observed:
    """Generate each batch once and watch its forward passes, each batch with a cache of its own.

    What can't be seen is None, with the reason; only what `generate` itself raises is raised.
    """
    rows: list[TokenIds] = []
    batches: list[Sequence[CacheBytes]] = []
    with ExitStack() as watching:
        held, reason = _watch(model, watching)
        for group, new_tokens in zip(workload.groups, workload.new_tokens_by_batch, strict=True):
            model.forget_caches()
            alone = replace(workload, prompts=group, new_tokens=new_tokens, batch_size=len(group), lengths=())
            before = len(held)
            rows += run_round(model, alone).continuations
            batches.append(held[before:])
    return _observed(model, workload, workload.answers(rows), batches, reason)


def _observed(
    model: Model, workload: Workload, rows: Sequence[TokenIds], batches: Sequence[Sequence[CacheBytes]], reason: str
) -> Observed:
    """rows: each prompt's new tokens. batches: as `passes_of` takes them. reason: why one of these is empty."""
    digest = short_digest(rows)
    if not all(batches):
        reason = reason or f"{model.facts.label} doesn't run through transformers"
        return Observed(digest, None, passes_reason=reason)
    return passes_of(digest, batches, keeps_cache=workload.cache is not CacheKind.OFF)


def _watch(model: Model, watching: ExitStack) -> tuple[Sequence[CacheBytes], str]:
    """List that fills with the bytes after each forward pass, and why it stays empty where the model can't be
    watched."""
    module = model.module if isinstance(model, TransformersModel) else None
    try:
        return watching.enter_context(watch_forward_passes(module)), ""
    except Exception as error:  # what a model's code refuses; its round can be measured all the same
        return (), f"{model.facts.label} can't be watched: {reason_of(error)}"


def passes_of(digest: str, batches: Sequence[Sequence[CacheBytes]], *, keeps_cache: bool) -> Observed:
    """digest: of the output. batches: of each, what was kept after each of its passes. keeps_cache: whether it was told
    to keep something."""
    count = sum(map(len, batches))
    held = [kept for batch in batches for kept in batch]
    keys, states = max(kept.keys_and_values for kept in held), max(kept.states for kept in held)
    reason = next((kept.reason for kept in held if kept.reason), "")
    if keeps_cache and not reason and not keys and not states:
        reason = "the model keeps its cache where it can't be seen"
    if reason:
        return Observed(digest, count, cache_reason=reason)
    if keeps_cache and not keys:
        reason = "the model keeps states of recurrent layers, and no keys and values"
        return Observed(digest, count, state_bytes=states, cache_reason=reason)
    read = sum(kept.keys_and_values for batch in batches for kept in batch[1:])
    return Observed(digest, count, keys, read, states)


def roofline_s(flops: float, moved_bytes: float, flops_per_s: float, bytes_per_s: float) -> float:
    """The least time for the work: that of computing or of moving, whichever is longer (Williams et al. 2009)."""
    return max(flops / flops_per_s, moved_bytes / bytes_per_s)


@dataclass(frozen=True)
class Observation:
    observed: Observed
    peak: MemoryPeak
    after_scoring: bool = False
    """Whether the model had scored before."""


def observe(model: Model, workload: Workload) -> Observation:
    """Run the workload once more, and watch its forward passes, its memory and, for `settle_binding`, its threads."""
    drop_probe(model)  # what it holds would be counted as the workload's
    model.forget_caches()  # and so would what an engine keeps of other, larger runs
    model.device.release_cached_memory(oldest=False)  # before the holes that it leaves are filled
    with filling_holes(), giving_freed_memory_back(), PeakMemory(model.device) as memory, finding_threads(model):
        observed = observe_round(model, workload)
    return Observation(observed, memory.peak, has_scored(model))


@dataclass(frozen=True)
class _Watch:
    memory: PeakMemory
    passes: Sequence[CacheBytes]
    reason: str
    """Why these stay empty."""
    watching: ExitStack
    """Closed, it ends."""


_WATCHES: KeptForModel[_Watch] = KeptForModel()


def begin_observing(model: Model, workload: Workload) -> bool:
    """Warm up with BRIEF_TOKENS, and watch the next round, which is timed, until `end_observing`.

    It costs that round nothing but a note of each forward pass, 0.1 to 0.2 ms. Unlike in `observe`, what is freed is
    kept, and the batches share what an engine keeps. False where memory can only be watched by looking all the time.
    """
    _end_watch(model)
    drop_probe(model)
    model.forget_caches()
    with ExitStack() as watching:
        memory = watching.enter_context(PeakMemory(model.device))
        if memory.takes_time:
            return False
        settle_binding(model, workload, BRIEF_TOKENS)
        passes, reason = _watch(model, watching)
        _WATCHES.put(model, _Watch(memory, passes, reason, watching.pop_all()))
    return True


def end_observing(model: Model, workload: Workload, continuations: Sequence[TokenIds]) -> Observation:
    """Observation of the round since `begin_observing`. continuations: its new tokens."""
    watch = _end_watch(model)
    if watch is None:
        raise RuntimeError("end_observing without begin_observing")
    shares = workload.new_tokens_by_batch if workload.lengths else [1] * len(workload.groups)
    each, left = divmod(len(watch.passes), sum(shares))
    ends = accumulate((each * share for share in shares), initial=0)
    batches, reason = [watch.passes[start:end] for start, end in pairwise(ends)], watch.reason
    if left:
        batches, reason = [()], f"{model.facts.label} ran unlike numbers of passes for its batches"
    return Observation(_observed(model, workload, continuations, batches, reason), watch.memory.peak, has_scored(model))


def _end_watch(model: Model) -> _Watch | None:
    """The watch that was begun last, ended: also one that a failure had left."""
    watch = _WATCHES.pop(model)
    if watch is not None:
        watch.watching.close()
    return watch
