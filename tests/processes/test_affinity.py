"""Binding a thread to cores."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from llm_bench_fixtures.processes import affinity
from llm_bench_fixtures.processes.affinity import (
    are_alike,
    bind_threads,
    can_pin,
    choose_cores,
    choose_lanes,
    cores_to_bind,
    pin_thread,
    thread_seconds,
    usable_cores,
)


@pytest.mark.skipif(not can_pin(), reason="threads can't be pinned here")
def test_pinning_and_back() -> None:
    before = os.sched_getaffinity(0)
    cores = choose_cores(1)
    assert cores == (max(before),)
    previous = pin_thread(None, cores)
    try:
        assert os.sched_getaffinity(0) == set(cores)
    finally:
        pin_thread(None, previous)
    assert os.sched_getaffinity(0) == before


@pytest.mark.skipif(not can_pin() or len(os.sched_getaffinity(0)) < 2, reason="needs two cores to choose from")
def test_the_threads_that_an_engine_computes_in_follow() -> None:
    """CTranslate2 and OpenVINO compute in threads of their own, and the one that waits for them is pinned."""
    started, ended = threading.Event(), threading.Event()
    engine = threading.Thread(target=lambda: (started.set(), ended.wait()))
    engine.start()
    started.wait()
    before = os.sched_getaffinity(0)
    cores = choose_cores(1)
    try:
        pin_thread(None, cores)
        assert os.sched_getaffinity(engine.native_id or 0) == set(cores)
        pin_thread(None, tuple(before))
        assert os.sched_getaffinity(engine.native_id or 0) == before
    finally:
        pin_thread(None, tuple(before))
        ended.set()
        engine.join()


@pytest.mark.parametrize(
    ("threads", "most", "lanes"),
    [(1, 1, [(5,)]), (1, 2, [(5,), (3,)]), (2, 2, [(3, 5), (1, 2)]), (2, 9, [(3, 5), (1, 2)]), (9, 2, [(1, 2, 3, 5)])],
)
def test_each_lane_has_cores_of_its_own(
    monkeypatch: pytest.MonkeyPatch, threads: int, most: int, lanes: list[tuple[int, ...]]
) -> None:
    """Of four cores; the last ones first."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2, 3, 5}, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None, raising=False)
    assert list(choose_lanes(threads, most)) == lanes


def test_no_cores_pin_nothing() -> None:
    assert pin_thread(None, ()) == ()


def test_where_threads_cannot_be_pinned_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    assert choose_cores(2) == ()
    assert choose_lanes(1, 2) == ((),)
    assert pin_thread(None, (0,)) == ()


V1 = "4:cpu,cpuacct:/docker/a"


@pytest.mark.parametrize(
    ("membership", "files", "cores"),
    [
        ("0::/", {"cpu.max": "max 100000"}, 4),
        ("0::/", {"cpu.max": "200000 100000"}, 2),
        ("0::/", {"cpu.max": "50000 100000"}, 1),
        ("0::/", {"cpu.max": "900000 100000"}, 4),
        ("0::/", {"cpu.max": "nonsense"}, 4),
        ("0::/user/job", {"user/job/cpu.max": "300000 100000", "user/cpu.max": "200000 100000"}, 2),
        ("0::/elsewhere", {"cpu.max": "200000 100000"}, 2),
        (V1, {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2),
        (V1, {"cpu/docker/a/cpu.cfs_quota_us": "100000", "cpu/docker/a/cpu.cfs_period_us": "100000"}, 1),
        (V1, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 4),
    ],
)
def test_a_container_may_have_fewer_cores_than_it_sees(
    membership: str, files: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a limit of version 1 of the control groups, or of a group within another, was not noticed."""
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2, 3, 5}, raising=False)
    for name, text in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "membership").write_text(membership)
    assert usable_cores(tmp_path / "membership", tmp_path / "groups") == cores
    assert usable_cores(tmp_path / "nowhere", tmp_path / "groups") == 4


@pytest.mark.parametrize(
    ("threads", "alike", "cores"),
    [(0, True, ()), (1, True, (1, 2, 5)), (3, True, (1, 2, 5)), (4, True, ()), (2, False, ())],
    ids=["none", "one", "as many", "too many", "cores that differ"],
)
def test_threads_are_bound_where_each_has_a_core(
    threads: int, alike: bool, cores: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2, 5}, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None, raising=False)
    monkeypatch.setattr(affinity, "are_alike", lambda _: alike)
    assert cores_to_bind(range(11, 11 + threads)) == cores


def test_a_thread_that_somebody_has_bound_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenMP, by the environment; thread 13 has ended."""

    def cores_of(thread: int) -> set[int]:
        if thread == 13:
            raise ProcessLookupError
        return {1} if thread == 12 else {1, 2, 5}

    monkeypatch.setattr(os, "sched_getaffinity", cores_of, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None, raising=False)
    monkeypatch.setattr(affinity, "are_alike", lambda _: True)
    assert cores_to_bind((11,)) == (1, 2, 5)
    assert cores_to_bind((11, 12)) == cores_to_bind((11, 13)) == ()


def test_where_threads_cannot_be_bound_there_are_no_cores_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    assert cores_to_bind((1,)) == ()


def test_a_thread_that_has_ended_leaves_the_others_to_be_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = {}

    def bind(thread: int, cores: tuple[int, ...]) -> None:
        if thread == 7:
            raise ProcessLookupError
        bound[thread] = cores

    monkeypatch.setattr(os, "sched_setaffinity", bind, raising=False)
    bind_threads({7: (0,), 8: (1,)})
    assert bound == {8: (1,)}


@pytest.mark.skipif(not can_pin(), reason="threads can't be pinned here")
def test_a_thread_is_really_bound() -> None:
    thread, before = threading.get_native_id(), os.sched_getaffinity(0)
    try:
        bind_threads({thread: (max(before),)})
        assert os.sched_getaffinity(0) == {max(before)}
    finally:
        bind_threads({thread: before})
    assert os.sched_getaffinity(0) == before


def test_the_processor_time_of_each_thread(tmp_path: Path) -> None:
    """The first number is nanoseconds; one thread has ended in between."""
    for name, text in {"12": "7500000000 1 2\n", "13": "", "14": None}.items():
        (tmp_path / name).mkdir()
        if text is not None:
            (tmp_path / name / "schedstat").write_text(text)
    assert thread_seconds(tmp_path) == pytest.approx({12: 7.5})
    assert thread_seconds(tmp_path / "nowhere") == {}


def machine(root: Path, *cores: dict[str, str]) -> Path:
    """As sysfs shows it: by core, the folders and files below it."""
    for number, told in enumerate(cores):
        for name, text in told.items():
            path = root / f"cpu{number}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ({}, {}, True),
        ({"node0/x": ""}, {"node0/x": ""}, True),
        ({"node0/x": ""}, {"node1/x": ""}, False),
        ({"cpu_capacity": "1024"}, {"cpu_capacity": "446"}, False),
        ({"cpufreq/cpuinfo_max_freq": "5000000"}, {"cpufreq/cpuinfo_max_freq": "3800000"}, False),
        ({"cpufreq/cpuinfo_max_freq": "5000000"}, {"cpufreq/cpuinfo_max_freq": "5000000"}, True),
        ({"cache/index3/shared_cpu_list": "0-1"}, {"cache/index3/shared_cpu_list": "0-1"}, True),
        ({"cache/index3/shared_cpu_list": "0"}, {"cache/index3/shared_cpu_list": "1"}, False),
        ({"cache/index2/shared_cpu_list": "0"}, {"cache/index2/shared_cpu_list": "1"}, False),
        (
            {"cache/index2/shared_cpu_list": "0", "cache/index3/shared_cpu_list": "0-1"},
            {"cache/index2/shared_cpu_list": "1", "cache/index3/shared_cpu_list": "0-1"},
            True,
        ),
        ({"topology/thread_siblings_list": "0\n"}, {"topology/thread_siblings_list": "1\n"}, True),
        ({"topology/thread_siblings_list": "0-1\n"}, {"topology/thread_siblings_list": "0-1\n"}, False),
        ({"topology/thread_siblings_list": "0,8\n"}, {"topology/thread_siblings_list": "1,9\n"}, False),
    ],
    ids=[
        "untold",
        "one node",
        "two nodes",
        "large and small",
        "fast and slow",
        "one clock",
        "one cache",
        "two caches",
        "two caches, of two levels",
        "one cache, of three levels",
        "one thread each",
        "two threads of one core",
        "two threads each",
    ],
)
def test_cores_are_alike_unless_linux_tells_a_difference(
    one: dict[str, str], other: dict[str, str], alike: bool, tmp_path: Path
) -> None:
    assert are_alike((0, 1), machine(tmp_path, one, other)) is alike


def test_cores_that_cannot_be_looked_at_are_not_alike(tmp_path: Path) -> None:
    for core in ("cpu0", "cpu1"):
        (tmp_path / core / "cpu_capacity").mkdir(parents=True)  # reading it raises
    assert not are_alike((0, 1), tmp_path)
