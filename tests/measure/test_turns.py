"""A turn: rounds, each with what its threads waited for, which ends once its process is asleep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from llm_bench_fixtures.measure import turns
from llm_bench_fixtures.measure.timing import run_round
from llm_bench_fixtures.measure.turns import take_turn
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.workloads import Prompts, Workload


@pytest.fixture
def workload(prompts: Prompts) -> Workload:
    return Workload((prompts.exact(6),), new_tokens=2, batch_size=1)


def tell(*readings: float | None) -> Callable[[], float | None]:
    """Gives one reading after the other."""
    left = iter(readings)
    return lambda: next(left)


def test_a_turn_is_a_round_unless_asked_for_more(tiny_fp32: TransformersModel, workload: Workload) -> None:
    (done,) = take_turn(tiny_fp32, workload)
    assert done.continuations == run_round(tiny_fp32, workload).continuations
    assert 0 < done.latency_s < 60
    assert done.probe_s is None


@pytest.mark.parametrize(
    ("readings", "waited_s"),
    [((3.0, 3.25), 0.25), ((3.0, 2.5), 0.0), ((None, None), None)],
    ids=["waited", "a thread that had waited has ended", "the system doesn't tell"],
)
def test_what_its_threads_waited_is_the_difference(
    readings: tuple[float | None, float | None],
    waited_s: float | None,
    tiny_fp32: TransformersModel,
    workload: Workload,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "waited_s", tell(*readings))
    assert [done.waited_s for done in take_turn(tiny_fp32, workload)] == [waited_s]


def test_of_a_server_only_the_clients_threads_could_be_told(
    tiny_fp32: TransformersModel, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "waited_s", tell(3.0, 3.25))
    monkeypatch.setattr(tiny_fp32, "facts", replace(tiny_fp32.facts, is_remote=True))
    assert [done.waited_s for done in take_turn(tiny_fp32, workload)] == [None]


def test_probe_round_and_sleep_come_in_this_order(
    tiny_fp32: TransformersModel, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The waiting is read next to the round, so that neither the probe's nor that of falling asleep is in it."""
    order: list[str] = []

    def noting(name: str, function: Callable[..., object]) -> Callable[..., object]:
        return lambda *args: order.append(name) or function(*args)

    monkeypatch.setattr(turns, "run_probe", noting("probe", lambda _: (0.5, 0.25)))
    monkeypatch.setattr(turns, "waited_s", noting("read", lambda: 0.0))
    monkeypatch.setattr(turns, "run_round", noting("round", run_round))
    monkeypatch.setattr(turns, "fall_asleep", noting("asleep", lambda: None))
    turn = take_turn(tiny_fp32, workload, rounds=2, probes=True)
    assert [done.probe_s for done in turn] == [(0.5, 0.25)] * 2
    assert order == ["probe", "read", "round", "read"] * 2 + ["asleep"]


def test_a_turn_begins_on_a_core_before_anything_runs(
    tiny_fp32: TransformersModel, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[object] = []
    monkeypatch.setattr(turns, "begin_on", order.append)
    monkeypatch.setattr(turns, "warm", lambda *_: order.append("warmed"))
    monkeypatch.setattr(turns, "run_round", lambda *_: order.append("round") or run_round(tiny_fp32, workload))
    take_turn(tiny_fp32, workload, core=3, warms=True)
    take_turn(tiny_fp32, workload, core=4)
    take_turn(tiny_fp32, workload)
    assert order == [3, "warmed", "round", 4, "round", "round"]
