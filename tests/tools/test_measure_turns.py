"""Whether turns are noted as the clock counted them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from llm_bench_fixtures.measure import turns
from llm_bench_fixtures.models.loading import IsolatedModel
from llm_bench_fixtures.processes.calls import NEVER

if TYPE_CHECKING:
    from types import ModuleType


@pytest.fixture
def measure_turns() -> ModuleType:
    import measure_turns

    return measure_turns


def test_turns_keep_their_cold_steps(measure_turns: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: what preempts a call was taken for its function, so that nothing was noted."""
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(IsolatedModel, "in_turns", lambda _, *what, **how: asked.append((*what, how)))
    measure_turns.uncorrected()
    object.__new__(IsolatedModel).in_turns(NEVER, turns.take_turns, "a workload", rounds=3)
    assert asked == [(NEVER, measure_turns.raw_turns, "a workload", {"rounds": 3})]
    monkeypatch.setattr(turns, "without_cold_steps", lambda _: "corrected")
    monkeypatch.setattr(turns, "take_turns", lambda *_, **__: turns.without_cold_steps("as it was"))
    assert measure_turns.raw_turns() == "as it was"
