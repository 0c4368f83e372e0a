"""Cores and the environment of the workers."""

from __future__ import annotations

import os

import pytest

from llm_bench_fixtures.paired.affinity import can_pin, choose_cores, pin_thread, steady_environment


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


def test_no_cores_pin_nothing() -> None:
    assert pin_thread(None, ()) == ()


def test_where_threads_cannot_be_pinned_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    assert choose_cores(2) == ()
    assert pin_thread(None, (0,)) == ()


def test_waiting_threads_are_passive_and_several_are_bound() -> None:
    one, two = steady_environment(1, (1,)), steady_environment(2, (0, 1))
    assert one["OMP_NUM_THREADS"] == "1"
    assert one["OMP_WAIT_POLICY"] == two["OMP_WAIT_POLICY"] == "passive"
    assert "OMP_PLACES" not in one
    assert two["OMP_PLACES"] == "{0},{1}"
