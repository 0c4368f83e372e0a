"""Binding a thread to cores."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from llm_bench_fixtures.processes.affinity import can_pin, choose_cores, choose_lanes, pin_thread, usable_cores


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


@pytest.mark.parametrize(
    ("limit", "cores"),
    [("max 100000", 4), ("200000 100000", 2), ("50000 100000", 1), ("900000 100000", 4), ("nonsense", 4), ("", 4)],
)
def test_a_container_may_have_fewer_cores_than_it_sees(
    limit: str, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2, 3, 5}, raising=False)
    (tmp_path / "cpu.max").write_text(limit)
    assert usable_cores(tmp_path / "cpu.max") == cores
    assert usable_cores(tmp_path / "nowhere") == 4
