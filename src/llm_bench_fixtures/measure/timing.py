"""One round of a workload: every batch generated once, each on a fenced clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llm_bench_fixtures.errors import GenerationMismatch

if TYPE_CHECKING:
    import torch

    from llm_bench_fixtures.models import LoadedModel
    from llm_bench_fixtures.workloads import Batch, CacheKind, TokenIds


@dataclass(frozen=True)
class Round:
    """batch_s: seconds from each batch's start to its last token. outputs: each batch's (B, T + new) int64 tensor."""

    batch_s: tuple[float, ...]
    outputs: tuple[torch.Tensor, ...]


def run_round(
    model: LoadedModel,
    batches: Sequence[Batch],
    new_tokens: int,
    cache: CacheKind,
    clock: Callable[[], float] = time.perf_counter,
) -> Round:
    """Generate each batch in turn. The device is idle when the first starts and when this returns."""
    batch_s = []
    outputs = []
    model.device.synchronize()
    for batch in batches:
        started = clock()
        output = model.generate(batch.input_ids, batch.attention_mask, new_tokens, cache)
        model.device.synchronize()
        batch_s.append(clock() - started)
        outputs.append(output)
    return Round(tuple(batch_s), tuple(outputs))


def continuations(done: Round, batches: Sequence[Batch], new_tokens: int) -> list[TokenIds]:
    """The new tokens of each prompt, in order. Raises GenerationMismatch unless each got `new_tokens`."""
    rows: list[TokenIds] = []
    for batch, output in zip(batches, done.outputs, strict=True):
        rows += [tuple(row) for row in output[:, batch.input_ids.shape[1] :].tolist()]
    wrong = sorted({len(row) for row in rows if len(row) != new_tokens})
    if wrong:
        raise GenerationMismatch(f"generate returned {wrong} new tokens where {new_tokens} were asked for")
    return rows
