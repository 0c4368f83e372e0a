from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pytest
import torch

from llm_bench_fixtures.measure.timing import instrumentation_ratios
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.workloads import Workload


class Clock(Protocol):
    def __call__(self) -> float: ...

    def advance(self, seconds: float) -> None: ...


def test_each_pair_is_the_same_call_with_and_without(
    clock: Clock, model_around: Callable[[Any], TransformersModel]
) -> None:
    """A call of 100 ms to which a streamer adds 1 ms for each of two tokens."""
    orders: list[bool] = []

    class Module:
        def generate(self, input_ids: torch.Tensor, **how: Any) -> torch.Tensor:
            timed = "streamer" in how
            orders.append(timed)
            clock.advance(0.102 if timed else 0.100)
            return input_ids

    ratios = instrumentation_ratios(
        model_around(Module()), Workload(((1, 2),), 2, 1), pairs=20, budget_s=60, clock=clock
    )
    assert ratios == pytest.approx([1.02] * 20)
    firsts = orders[::2]
    assert [not first for first in firsts] == orders[1::2]
    assert {True, False} == set(firsts)


@pytest.mark.parametrize(("budget_s", "pairs"), [(0.0, 1), (7.0, 3), (100.0, 20)])
def test_it_ends_when_its_time_is_spent(
    budget_s: float, pairs: int, clock: Clock, model_around: Callable[[Any], TransformersModel]
) -> None:
    """Each pair takes two seconds, and the first isn't counted."""

    class Module:
        def generate(self, input_ids: torch.Tensor, **how: Any) -> torch.Tensor:
            clock.advance(1.0)
            return input_ids

    ratios = instrumentation_ratios(model_around(Module()), Workload(((1, 2),), 2, 1), 20, budget_s, clock)
    assert len(ratios) == pairs
