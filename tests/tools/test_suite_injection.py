"""Slowing a variant of a suite down by work in its process."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from llm_bench_fixtures.measure.turns import take_turns
from llm_bench_fixtures.models.loading import IsolatedModel
from llm_bench_fixtures.processes.calls import NEVER

if TYPE_CHECKING:
    from types import ModuleType

    from llm_bench_fixtures.workloads import Workload


@pytest.fixture
def injection() -> ModuleType:
    import suite_injection

    return suite_injection


class Told:
    """A model that tells of four tokens."""

    def generate(self, *, on_token: object = None) -> str:
        for _ in range(4):
            assert callable(on_token)
            on_token()
        return "text"


def test_the_work_comes_before_each_token_is_told(injection: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two and a half products a token are two and three in turn."""
    told: list[object] = []
    monkeypatch.setattr(injection, "multiplier", lambda: told.append)
    model = Told()
    with injection.working(model, 2.5):
        assert model.generate(on_token=lambda: told.append("token")) == "text"
    assert told == [2, "token", 3, "token", 2, "token", 3, "token"]
    model.generate(on_token=lambda: None)
    assert len(told) == 8


def test_the_turns_of_one_variant_become_longer_and_nothing_else(
    injection: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: what preempts a call was taken for its function, so that nothing became slower."""
    asked: list[tuple[object, ...]] = []
    monkeypatch.setenv("LLM_BENCH_SLOW", "int8:0.1")
    monkeypatch.setattr(IsolatedModel, "in_turns", lambda _, *what, **how: asked.append((*what, how)))
    monkeypatch.setattr(IsolatedModel, "call", lambda _, *what: asked.append(what))
    config = SimpleNamespace(add_cleanup=lambda _: None)
    injection.pytest_configure(config)
    for variant in ("int8", "fp32"):
        model = object.__new__(IsolatedModel)
        model.variant = SimpleNamespace(id=variant)
        for function in (take_turns, print):
            model.in_turns(NEVER, function, "workload", rounds=3)
    whole = [(NEVER, function, "workload", {"rounds": 3}) for function in (print, take_turns, print)]
    slower = (injection.settle_products, "workload", 0.1), (NEVER, injection.slower_turns, "workload", {"rounds": 3})
    assert asked == [*slower, *whole]


def test_the_products_make_a_round_longer_by_the_share(injection: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fastest of three rounds takes 2 s for 20 tokens; a tenth of 0.1 s is 5 products of 2 ms."""
    from llm_bench_fixtures.measure.timing import BatchTimes, Round

    rounds = iter((3.0, 2.0, 2.5))
    batches = (BatchTimes((0.1,) * 10, 1.0), BatchTimes((0.1,) * 10, 1.0))
    monkeypatch.setattr(injection, "run_round", lambda model, workload: Round(next(rounds), batches, ()))
    monkeypatch.setattr(injection, "product_s", lambda: 0.002)
    workload: Workload | None = None
    assert injection.products_for(None, workload, 0.1) == pytest.approx(5)
