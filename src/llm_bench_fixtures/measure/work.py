"""What one round of a workload makes the machine do: counts that are the same from run to run, and the least time for
them.

Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore
architectures", 2009, for the least time.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from llm_bench_fixtures.measure.passes import watch_forward_passes
from llm_bench_fixtures.measure.timing import run_round
from llm_bench_fixtures.models.transformers import TransformersModel

if TYPE_CHECKING:
    from llm_bench_fixtures.measure.flops import FlopCounter
    from llm_bench_fixtures.models.model import Model, ModelFacts
    from llm_bench_fixtures.workloads import TokenIds, Workload


@dataclass(frozen=True)
class Passes:
    """The forward passes of one round."""

    count: int

    cache_bytes: int
    """Of the keys and values, the most that one batch held."""

    cache_bytes_read: int
    """Of the keys and values, summed over the decode steps."""


@dataclass(frozen=True)
class Observed:
    """What one round was seen to do."""

    output_digest: str
    """Of the new tokens of each prompt in order; batching and padding aren't in it."""

    passes: Passes | None
    """None where they can't be seen."""

    reason: str = ""
    """Why the passes can't be seen."""


@dataclass(frozen=True)
class Work:
    """Exact counts of one round."""

    prompt_tokens: int
    """Padding not counted."""

    new_tokens: int
    batches: int

    forward_passes: int | None
    """None where they can't be seen, and passes_reason says why; the same holds for the cache's bytes."""

    prefill_flops: int | None
    """Of the forward passes that give each batch's first token. None where they can't be counted, and flops_reason says
    why."""

    decode_flops: int | None
    """Of all other forward passes."""

    flops_reason: str

    weight_bytes_read: int | None
    """By each forward pass; None where the backend doesn't tell."""

    cache_bytes: int | None
    """Of the keys and values, the most that one batch held."""

    cache_bytes_read: int | None
    """Of the keys and values, summed over the decode steps."""

    output_digest: str
    """Of the new tokens of each prompt in order; batching and padding aren't in it."""

    passes_reason: str = ""

    @property
    def decode_passes(self) -> int | None:
        """Forward passes after each batch's first. None where passes can't be seen."""
        return self.forward_passes - self.batches if self.forward_passes else None


def count_work(workload: Workload, observed: Observed, flops: FlopCounter, facts: ModelFacts) -> Work:
    """The counts of a round. flops: of the architecture of --llm-model."""
    counts = flops.round(workload) if facts.runs_source else None
    other = f"{facts.label} is not the model of --llm-model, whose config they are counted from"
    passes = observed.passes
    return Work(
        workload.prompt_tokens,
        workload.new_tokens * len(workload.prompts),
        len(workload.groups),
        passes.count if passes else None,
        counts.prefill if counts else None,
        counts.decode if counts else None,
        flops.reason if facts.runs_source else other,
        facts.weight_bytes_read,
        passes.cache_bytes if passes else None,
        passes.cache_bytes_read if passes else None,
        observed.output_digest,
        observed.reason,
    )


def observe_round(model: Model, workload: Workload) -> Observed:
    """Generate each batch once and watch its forward passes, each batch with a cache of its own."""
    rows: list[TokenIds] = []
    batches: list[list[int]] = []
    for group in workload.groups:
        model.forget_caches()
        with watch_forward_passes(model.module if isinstance(model, TransformersModel) else None) as held:
            rows += run_round(model, replace(workload, prompts=group, batch_size=len(group))).continuations
        batches.append(held)
    digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]
    if not all(batches):
        return Observed(digest, None, f"{model.facts.label} doesn't run through transformers")
    return Observed(digest, _passes(batches))


def _passes(batches: list[list[int]]) -> Passes:
    """batches: of each, the bytes of keys and values after each of its passes."""
    return Passes(sum(map(len, batches)), max(map(max, batches)), sum(held for batch in batches for held in batch[1:]))


def roofline_s(flops: float, moved_bytes: float, flops_per_s: float, bytes_per_s: float) -> float:
    """The least time for the work: that of computing or of moving, whichever is longer (Williams et al. 2009)."""
    return max(flops / flops_per_s, moved_bytes / bytes_per_s)
