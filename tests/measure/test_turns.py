"""A round in turns, with what its threads waited for: whole, which ends once its process is asleep, or in slices."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from llm_bench_fixtures.measure import turns
from llm_bench_fixtures.measure.timing import Pauses, Round, run_round
from llm_bench_fixtures.measure.turns import take_turns, turns_of
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.workloads import Prompts, Workload


@pytest.fixture
def workload(prompts: Prompts) -> Workload:
    return Workload((prompts.exact(6),), new_tokens=2, batch_size=1)


def tell(*readings: float | None) -> Callable[..., float | None]:
    """Gives one reading after the other."""
    left = iter(readings)
    return lambda *_: next(left)


def whole(model: TransformersModel, workload: Workload, **how: Any) -> Round:
    """A round, which is in one piece."""
    (done,) = take_turns(model, pytest.fail, workload, **how)
    return done


def sliced(model: TransformersModel, workload: Workload, **how: Any) -> Round:
    (done,) = take_turns(model, lambda: None, workload, **how)
    return done


def test_a_turn_is_a_whole_round(tiny_fp32: TransformersModel, workload: Workload) -> None:
    done = whole(tiny_fp32, workload)
    assert done.continuations == run_round(tiny_fp32, workload).continuations
    assert 0 < done.latency_s < 60
    assert (done.probe_s, done.pauses) == (None, 0)


def test_a_round_in_slices_pauses_after_so_many_tokens_and_gives_the_same_tokens(
    tiny_fp32: TransformersModel, prompts: Prompts
) -> None:
    """Two batches of 8 tokens, in slices of three: the last one has the four that are left."""
    workload = Workload(prompts.varied(2), new_tokens=8, batch_size=1)
    pauses: list[None] = []
    (done,) = take_turns(tiny_fp32, lambda: pauses.append(None), workload, slice_tokens=3)
    assert [batch.paused_after for batch in done.batches] == [(2, 5), (0, 3)]
    assert done.pauses == len(pauses) == 4
    assert done.continuations == run_round(tiny_fp32, workload).continuations


@pytest.mark.parametrize(
    ("prompts_run", "new_tokens", "rounds", "slice_tokens", "turns"),
    [(1, 8, 1, 3, 2), (2, 8, 1, 3, 5), (1, 8, 3, 3, 6), (1, 8, 3, 9, 1), (2, 5, 2, 5, 2), (1, 8, 2, 0, 1)],
    ids=["a round", "two batches", "three in a row", "longer than a round", "as long as a batch", "whole rounds"],
)
def test_turns_are_told_beforehand(
    prompts_run: int,
    new_tokens: int,
    rounds: int,
    slice_tokens: int,
    turns: int,
    tiny_fp32: TransformersModel,
    prompts: Prompts,
) -> None:
    workload = Workload(prompts.varied(prompts_run), new_tokens=new_tokens, batch_size=1)
    pauses: list[None] = []
    take_turns(tiny_fp32, lambda: pauses.append(None), workload, rounds=rounds, slice_tokens=slice_tokens)
    assert turns_of(workload.new_tokens_by_batch, rounds, slice_tokens) == len(pauses) + 1 == turns


def test_the_time_of_others_is_not_in_the_round(tiny_fp32: TransformersModel, prompts: Prompts) -> None:
    """Two pauses of 0.2 s each, in a round of some 20 ms."""
    workload = Workload((prompts.exact(6),), new_tokens=6, batch_size=1)
    run_round(tiny_fp32, workload)
    began_s = time.perf_counter()
    done = run_round(tiny_fp32, workload, pauses=Pauses(lambda: time.sleep(0.2), 2))
    assert done.latency_s <= time.perf_counter() - began_s - 0.4


@pytest.mark.parametrize(
    ("readings", "waited_s"),
    [((3.0, 3.0, 3.25), 0.25), ((3.0, 3.0, 2.5), 0.0), ((None,), None)],
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
    assert whole(tiny_fp32, workload).waited_s == waited_s


def test_in_slices_what_a_hypervisor_took_is_not_counted(
    tiny_fp32: TransformersModel, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took it from the others, too; and in the pause between 3.25 and 9.0 others had their turn."""
    monkeypatch.setattr(turns, "waited_s", pytest.fail)
    monkeypatch.setattr(turns, "threads_waited_s", tell(3.0, 3.0, 3.25, 9.0, 9.5))
    assert sliced(tiny_fp32, workload, slice_tokens=1).waited_s == 0.75


def test_a_preempted_round_reads_what_slices_read_and_does_not_wait_for_its_threads(
    tiny_fp32: TransformersModel, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is suspended after its turn anyway."""
    for name in ("waited_s", "fall_asleep"):
        monkeypatch.setattr(turns, name, pytest.fail)
    monkeypatch.setattr(turns, "threads_waited_s", tell(3.0, 3.0, 3.25))
    assert whole(tiny_fp32, workload, is_preempted=True).waited_s == 0.25


def test_in_slices_where_the_system_does_not_tell_nothing_is_known(
    tiny_fp32: TransformersModel, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "threads_waited_s", lambda _: None)
    assert sliced(tiny_fp32, workload, slice_tokens=1).waited_s is None


def test_of_a_server_only_the_clients_threads_could_be_told(
    tiny_fp32: TransformersModel, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "waited_s", tell(3.0, 3.25))
    monkeypatch.setattr(tiny_fp32, "facts", replace(tiny_fp32.facts, is_remote=True))
    assert whole(tiny_fp32, workload).waited_s is None


def test_probe_round_and_sleep_come_in_this_order(
    tiny_fp32: TransformersModel, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The waiting is read next to the round, so that neither the probe's nor that of falling asleep is in it."""
    order: list[str] = []

    def noting(name: str, function: Callable[..., object]) -> Callable[..., object]:
        return lambda *args, **how: order.append(name) or function(*args, **how)

    monkeypatch.setattr(turns, "run_probe", noting("probe", lambda _: (0.5, 0.25)))
    monkeypatch.setattr(turns, "waited_s", noting("read", lambda: 0.0))
    monkeypatch.setattr(turns, "run_round", noting("round", run_round))
    monkeypatch.setattr(turns, "fall_asleep", noting("asleep", lambda: None))
    assert whole(tiny_fp32, workload, probes=True).probe_s == (0.5, 0.25)
    assert order == ["probe", "read", "read", "round", "read", "asleep"]


def test_rounds_in_a_row_share_what_warms_them_and_their_slices(
    tiny_fp32: TransformersModel, prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rounds of 8 tokens in slices of three: the second one begins in the middle of a slice."""
    warmed: list[int] = []
    monkeypatch.setattr(turns, "generate_some", lambda _, __, tokens, **how: warmed.append(tokens))
    workload = Workload((prompts.exact(6),), new_tokens=8, batch_size=1)
    done = take_turns(tiny_fp32, lambda: None, workload, rounds=2, slice_tokens=3, warms=True)
    assert [one.batches[0].paused_after for one in done] == [(2,), (0, 3)]
    assert warmed == [2]


@pytest.mark.parametrize(("slice_tokens", "warming_tokens"), [(0, 10), (3, 10), (1, 2)])
def test_what_warms_up_runs_bound_and_before_the_round(
    slice_tokens: int,
    warming_tokens: int,
    tiny_fp32: TransformersModel,
    workload: Workload,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then others suspend the process, so that nothing has to fall asleep, or all of the round is over."""
    order: list[object] = []

    class Noted:
        threads = cores = ()

        @contextmanager
        def applied(self, draw: int) -> Iterator[None]:
            order.append(("bound", draw))
            yield
            order.append("free")

    monkeypatch.setattr(turns, "binding_of", lambda _: Noted())
    monkeypatch.setattr(turns, "generate_some", lambda _, __, tokens, **how: order.append(("warmed", tokens)))
    monkeypatch.setattr(
        turns, "run_round", lambda *_, **how: order.append("round") or run_round(tiny_fp32, workload, **how)
    )
    monkeypatch.setattr(turns, "fall_asleep", lambda: order.append("asleep"))
    take_turns(tiny_fp32, lambda: None, workload, slice_tokens=slice_tokens, draw=3, warms=True)
    asleep = [] if slice_tokens else ["asleep"]
    assert order == [("bound", 3), ("warmed", warming_tokens), "round", *asleep, "free"]
    take_turns(tiny_fp32, lambda: None, workload)
    assert order[4 + len(asleep) :] == ["round", "asleep"]
