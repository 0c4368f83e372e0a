"""What a model can't run: caches that it can't generate with, texts longer than its context, batches beyond memory."""

from __future__ import annotations

from llm_bench_fixtures.errors import OutOfMemory, WorkloadUnsupported
from llm_bench_fixtures.models.handle import ModelHandle
from llm_bench_fixtures.models.model import Model
from llm_bench_fixtures.workloads import CacheKind, Workload

LEAST_FLOAT_BYTES = 2


def check_supported(model: Model | ModelHandle, workload: Workload) -> None:
    """Raise WorkloadUnsupported where the model has no such cache, or too short a context, and OutOfMemory where not
    even the least that a batch takes is free."""
    check_cache(model, workload.cache)
    check_fits(model, sum(workload.longest))
    check_memory(model, workload)


def check_memory(model: Model | ModelHandle, workload: Workload) -> None:
    """Raise OutOfMemory, before any tensor is made, for a batch that can't be run in the memory that is free.

    What it takes at least: the states of all positions before and after a layer, and a row of logits for each prompt,
    in 16 bits. Some workloads that pass need more than there is; an allocation fails then.
    """
    facts = model.facts
    if not facts.width:
        return
    rows, columns = workload.batch_size, max(workload.widths)
    needed = rows * (2 * columns * facts.width + facts.vocabulary) * LEAST_FLOAT_BYTES
    free = model.device.free_bytes
    if needed > free:
        raise OutOfMemory(
            f"{model.variant.id}: out of memory, a batch of {rows} prompts of {columns} tokens takes at least "
            f"{needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free"
        )


def check_cache(model: Model | ModelHandle, cache: CacheKind) -> None:
    """Raise WorkloadUnsupported where the model can't generate with the cache."""
    if cache not in model.facts.cache_kinds:
        raise WorkloadUnsupported(f"{model.variant.id} can't generate with cache {cache}")


def check_fits(model: Model | ModelHandle, tokens: int) -> None:
    """Raise WorkloadUnsupported where a row of that many tokens, padding and new ones included, is too long."""
    if tokens > model.facts.context_length:
        raise WorkloadUnsupported(
            f"{tokens} tokens, padding and new ones included, don't fit the model's context of "
            f"{model.facts.context_length}"
        )
