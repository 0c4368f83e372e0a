"""Slowing a variant of a suite down by work in its process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

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


def test_the_products_make_a_round_longer_by_the_share(injection: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fastest of three rounds takes 2 s for 20 tokens; a tenth of 0.1 s is 5 products of 2 ms."""
    from llm_bench_fixtures.measure.timing import BatchTimes, Round

    rounds = iter((3.0, 2.0, 2.5))
    batches = (BatchTimes((0.1,) * 10, 1.0), BatchTimes((0.1,) * 10, 1.0))
    monkeypatch.setattr(injection, "run_round", lambda model, workload: Round(next(rounds), batches, ()))
    monkeypatch.setattr(injection, "product_s", lambda: 0.002)
    workload: Workload | None = None
    assert injection.products_for(None, workload, 0.1) == pytest.approx(5)
