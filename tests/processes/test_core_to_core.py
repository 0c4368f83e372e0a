"""How long data takes from core to core: one real look, looks with made-up times, and when they are due."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from llm_bench_fixtures.processes import core_to_core as module
from llm_bench_fixtures.processes.core_to_core import REST_S, RESTS, ROUNDS, CoreLooks, core_to_core

if TYPE_CHECKING:
    from conftest import FakeClock

Reads = Callable[[object, int, int], tuple[float, float]]
Machine = Callable[[int, Reads], "list[set[int]]"]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads can't choose their cores here")
def test_a_look_leaves_the_thread_where_it_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading what another core has written takes longer than reading it again, and not a thousand times as long."""
    monkeypatch.setattr(module, "free_cores", lambda: None)
    before = os.sched_getaffinity(0)
    found = core_to_core()
    assert os.sched_getaffinity(0) == before
    assert (found is None) == (len(before) < 2)
    assert found is None or 0.5 < found < 1000


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Makes a machine with so many idle cores on which reads take these times; gives where threads are moved."""

    def made(cores: int, reads_s: Reads) -> list[set[int]]:
        moved: list[set[int]] = []
        monkeypatch.setattr(module, "can_pin", lambda: True)
        monkeypatch.setattr(module, "free_cores", lambda: cores)
        monkeypatch.setattr(module, "_reads_s", reads_s)
        monkeypatch.setattr(os, "cpu_count", lambda: cores)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(cores)}, raising=False)
        monkeypatch.setattr(os, "sched_setaffinity", lambda _, own: moved.append({*own}), raising=False)
        return moved

    return made


@pytest.mark.parametrize(("cores", "between"), [(2, "01 10"), (3, "01 12 20"), (16, "02 24 46 68 8a ac ce e0")])
def test_data_goes_around_all_cores_or_eight_of_them(cores: int, between: str, machine: Machine) -> None:
    """The first of four rounds, of which each read takes 100 s, warms up. The others take 1 s, 2 s and 3 s first, and
    half a second again, so that the medians are 2 and 0.5."""
    sent: list[str] = []
    ring = between.split()

    def reads_s(_: object, writer: int, reader: int) -> tuple[float, float]:
        sent.append(f"{writer:x}{reader:x}")
        return (100.0, 1.0, 2.0, 3.0)[(len(sent) - 1) // len(ring)], 0.5

    moved = machine(cores, reads_s)
    assert core_to_core() == 4.0
    assert sent == ROUNDS * ring
    assert moved == [{*range(cores)}]


def reads_nothing(*_: object) -> tuple[float, float]:
    raise AssertionError("nothing is sent")


def test_one_core_has_no_other(machine: Machine) -> None:
    machine(1, reads_nothing)
    assert core_to_core() is None


def test_where_threads_cant_choose_their_cores_nothing_is_told(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(2, reads_nothing)
    monkeypatch.setattr(module, "can_pin", lambda: False)
    assert core_to_core() is None


def test_no_look_begins_while_another_program_runs(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(2, reads_nothing)
    monkeypatch.setattr(module, "free_cores", lambda: 1)
    assert core_to_core() is None


def test_what_another_program_has_disturbed_is_not_told(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins to run meanwhile."""
    free = [2, 1]
    moved = machine(2, lambda *_: (4.0, 1.0))
    monkeypatch.setattr(module, "free_cores", lambda: free.pop(0))
    assert core_to_core() is None
    assert (free, moved) == ([], [{0, 1}])


def test_cores_that_a_container_loses_tell_nothing(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError

    machine(2, lambda *_: refuse() or (1.0, 1.0))
    monkeypatch.setattr(os, "sched_setaffinity", refuse, raising=False)
    assert core_to_core() is None


def test_a_clock_that_is_too_coarse_tells_nothing(machine: Machine) -> None:
    machine(2, lambda *_: (0.0, 0.0))
    assert core_to_core() is None


@pytest.mark.parametrize(("takes_s", "rest_s"), [(0.0, REST_S), (1.0, RESTS)])
def test_a_look_is_due_after_a_rest(takes_s: float, rest_s: float, clock: FakeClock) -> None:
    """A longer one after a longer look."""

    def measure() -> float:
        clock.advance(takes_s)
        return 2.0

    looks = CoreLooks(measure, clock)
    assert [looks.look(), looks.look()] == [2.0, None]
    clock.advance(0.99 * rest_s)
    assert looks.look() is None
    clock.advance(0.01 * rest_s + 1e-9)
    assert looks.look() == 2.0


def test_a_look_that_tells_nothing_is_followed_by_a_rest_too(clock: FakeClock) -> None:
    found = [None, 2.0]
    looks = CoreLooks(lambda: found.pop(0), clock)
    assert [looks.look(), looks.look(), len(found)] == [None, None, 1]
