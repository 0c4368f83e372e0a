"""What a model can't run by its nature: caches that it can't generate with, texts longer than its context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llm_bench_fixtures.errors import WorkloadUnsupported

if TYPE_CHECKING:
    from llm_bench_fixtures.models.handle import ModelHandle
    from llm_bench_fixtures.models.model import Model
    from llm_bench_fixtures.workloads import CacheKind, Workload


def check_supported(model: Model | ModelHandle, workload: Workload) -> None:
    """Raise WorkloadUnsupported where the model has no such cache, or too short a context."""
    check_cache(model, workload.cache)
    check_fits(model, workload.longest_sequence)


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
