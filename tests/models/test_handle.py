"""The handle's own work; that of a model in another process is in test_isolated.py."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from llm_bench_fixtures.models.handle import LocalModel
from llm_bench_fixtures.workloads import CacheKind


@dataclass(frozen=True)
class Placed:
    """A tensor that knows where it lies, and nothing else."""

    place: str

    def to(self, place: str) -> Placed:
        return Placed(place)

    def cpu(self) -> Placed:
        return Placed("cpu")


@pytest.mark.parametrize("call", ["generate", "logits"])
def test_an_accelerators_tensors_stay_in_the_models_process(call: str) -> None:
    """Bug: ids from a tokenizer were refused on CUDA, and what came back was in the other process' device memory."""
    seen: list[Placed] = []

    def run(ids: Placed, mask: Placed, *_: object) -> Placed:
        seen.extend((ids, mask))
        return ids

    device = SimpleNamespace(name="cuda:0")
    model = SimpleNamespace(variant=None, device=device, generate=run, logits=run)
    handle = LocalModel(cast(Any, model), cast(Any, None), cast(Any, None))
    more = (2, CacheKind.DYNAMIC) if call == "generate" else ()
    assert getattr(handle, call)(Placed("cpu"), Placed("cpu"), *more) == Placed("cpu")
    assert seen == [Placed("cuda:0")] * 2
