"""What the kernel tells of waiting threads and busy cores, read from folders as the kernel writes them."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from llm_bench_fixtures.processes import calm
from llm_bench_fixtures.processes.calm import fall_asleep, free_cores, stolen_s, threads_waited_s, waited_s

TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def write_tasks(folder: Path, **tasks: str) -> Path:
    """A folder of tasks whose `schedstat` holds the given text."""
    for name, text in tasks.items():
        (folder / name).mkdir()
        (folder / name / "schedstat").write_text(text, encoding="ascii")
    return folder


def write_stat(folder: Path, steal: int = 0, running: int = 1) -> Path:
    """proc(5): user, nice, system, idle, iowait, irq, softirq, steal, guest and guest_nice in ticks."""
    path = folder / "stat"
    path.write_text(
        f"cpu  10 20 30 40 50 60 70 {steal} 0 0\ncpu0 1 2 3 4 5 6 7 99 0 0\nctxt 7\nprocs_running {running}\n"
        "procs_blocked 5\n",
        encoding="ascii",
    )
    return path


def write_states(folder: Path, **states: str) -> Path:
    for name, state in states.items():
        (folder / name).mkdir()
        (folder / name / "stat").write_text(f"{name} (a (R) name) {state} 1 2 3", encoding="ascii")
    return folder


@pytest.fixture
def nothing_stolen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calm, "stolen_s", lambda: 0.0)


@pytest.mark.usefixtures("nothing_stolen")
def test_the_threads_waiting_is_added_up(tmp_path: Path) -> None:
    """Each line holds nanoseconds on a core, nanoseconds of waiting for one, and how often it ran."""
    tasks = write_tasks(tmp_path, one="7000000000 1500000000 12\n", two="1 250000000 3\n")
    assert waited_s(tasks) == pytest.approx(1.75)


def test_what_a_hypervisor_took_is_not_the_threads_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calm, "stolen_s", lambda: 100.0)
    tasks = write_tasks(tmp_path, one="7000000000 1500000000 12\n")
    assert (threads_waited_s(tasks=tasks), waited_s(tasks)) == (1.5, 101.5)
    assert threads_waited_s(tasks=tasks / "nowhere") is None


def test_the_waiting_of_some_threads(tmp_path: Path) -> None:
    """The third has ended meanwhile."""
    tasks = write_tasks(tmp_path, **{"11": "0 1500000000 1", "12": "0 250000000 1"})
    assert threads_waited_s((12, 13), tasks) == 0.25


@pytest.mark.usefixtures("nothing_stolen")
def test_a_thread_that_has_ended_meanwhile_is_passed_over(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path, one="0 2000000000 1\n", empty="")
    (tasks / "gone").mkdir()
    assert waited_s(tasks) == pytest.approx(2.0)


def test_what_a_hypervisor_took_counts_as_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calm, "stolen_s", lambda: 0.5)
    assert waited_s(write_tasks(tmp_path, one="0 1000000000 1\n")) == pytest.approx(1.5)


def test_where_the_system_does_not_tell_nothing_is_known(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    assert waited_s(nowhere) is None
    assert free_cores(nowhere) is None
    assert stolen_s(nowhere) == 0


def test_stolen_time_is_the_eighth_field_of_all_cores(tmp_path: Path) -> None:
    assert stolen_s(write_stat(tmp_path, steal=3 * TICKS)) == pytest.approx(3.0)


def test_an_old_kernel_tells_of_no_stolen_time(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  10 20 30 40\n", encoding="ascii")
    assert stolen_s(tmp_path / "stat") == 0


@pytest.mark.parametrize(("running", "free"), [(1, 4), (2, 3), (5, 0), (7, -2)])
def test_the_caller_itself_does_not_count_as_other_work(
    running: int, free: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert free_cores(write_stat(tmp_path, running=running)) == free


def test_a_system_that_does_not_count_what_runs(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  10 20 30 40 50 60 70 80 0 0\n", encoding="ascii")
    assert free_cores(tmp_path / "stat") is None


def test_it_returns_at_once_where_every_other_thread_sleeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name may hold the letter of a state, and the thread that asks runs of course."""
    monkeypatch.setattr(calm.time, "sleep", lambda _: pytest.fail("it waited"))
    own = str(threading.get_native_id())
    fall_asleep(write_states(tmp_path, **{own: "R", "1": "S", "2": "D"}))


def test_it_waits_until_a_pool_has_stopped_to_spin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            (tmp_path / "pool" / "stat").write_text("1 (pool) S 1", encoding="ascii")

    monkeypatch.setattr(calm.time, "sleep", sleep)
    fall_asleep(write_states(tmp_path, pool="R"))
    assert len(looks) == 3


def test_it_waits_no_longer_than_a_pool_spins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that works on, of the model or of a plugin, must not hold up the round."""
    now_s = 100.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    monkeypatch.setattr(calm.time, "sleep", sleep)
    monkeypatch.setattr(calm.time, "monotonic", lambda: now_s)
    fall_asleep(write_states(tmp_path, busy="R"))
    assert now_s == pytest.approx(100.0 + calm.LONGEST_FALL_S, abs=2 * calm.LOOK_EVERY_S)


def test_where_no_state_can_be_seen_it_waits_a_fixed_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(calm.time, "sleep", waits.append)
    fall_asleep(tmp_path / "nowhere")
    assert waits == [calm.BLIND_FALL_S]


@pytest.mark.skipif(not calm.TASKS.is_dir(), reason="the system doesn't tell")
def test_here_the_kernel_tells_of_threads_that_share_one_core() -> None:
    """While another process holds the core, the thread waits for it; that is told once it runs again."""
    cores, longest_s, is_told = os.sched_getaffinity(0), 60.0, threading.Event()

    def work() -> None:
        os.sched_setaffinity(0, {min(cores)})
        until = time.monotonic() + longest_s
        while time.monotonic() < until and not is_told.is_set():
            sum(range(1000))

    other = threading.Thread(target=work)
    before = waited_s()
    child = os.fork()  # a second process on that core, since two threads of Python wait for each other instead
    if not child:
        work()
        os._exit(0)
    other.start()
    try:
        assert before is not None
        until = time.monotonic() + longest_s
        while (after := waited_s()) is not None and after - before <= 0.02 and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        is_told.set()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        other.join()
    assert after is not None
    assert after - before > 0.02
