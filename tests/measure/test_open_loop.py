"""Requests at planned times: the plan, and what is counted from it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from llm_bench_fixtures.errors import InvalidSetting, WorkloadUnsupported
from llm_bench_fixtures.measure.open_loop import Request, poisson_times, run_open_loop
from llm_bench_fixtures.models.model import Reply


class Served:
    """Answers each request by itself."""

    def __init__(self, send: Callable[[tuple[int, ...], int], Coroutine[Any, Any, Reply]]) -> None:
        self._send = send

    def run_requests(self, work: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        return asyncio.run(work(self._send))


def test_the_times_are_those_of_a_poisson_process() -> None:
    times = poisson_times(50.0, 40.0, seed=1)
    gaps = [later - earlier for earlier, later in pairwise((0.0, *times))]
    assert len(times) == pytest.approx(2000, abs=4 * 2000**0.5)  # a Poisson number's deviation is its root
    assert list(times) == sorted(times)
    assert times[-1] < 40.0
    assert sum(gap > 0.02 for gap in gaps) / len(gaps) == pytest.approx(
        0.368, abs=0.05
    )  # e^-1 are longer than the mean
    assert times == poisson_times(50.0, 40.0, seed=1) != poisson_times(50.0, 40.0, seed=2)


def test_a_load_that_no_memory_could_hold_is_refused_before_it_is_planned() -> None:
    with pytest.raises(InvalidSetting, match="36,000,000 requests; the most of one load are 100,000"):
        poisson_times(10_000.0, 3600.0, seed=1)


def test_a_request_is_sent_though_none_is_answered() -> None:
    waiting: list[int] = []

    async def send(prompt: tuple[int, ...], new_tokens: int) -> Reply:
        sent_s = time.perf_counter()
        waiting.append(len(waiting))
        while len(waiting) < 3:
            await asyncio.sleep(0.001)
        return Reply(sent_s, sent_s + 1, sent_s + 3, new_tokens)

    found = run_open_loop(Served(send), (0.0, 0.01, 0.02), ((1,), (2,), (3,)), 5)
    assert len(found) == 3
    assert [one.planned_s for one in found] == [0.0, 0.01, 0.02]
    assert [one.tpot_s for one in found] == pytest.approx([0.5] * 3)
    assert all(one.lag_s >= 0 for one in found)


def test_what_the_client_is_late_is_in_the_latency() -> None:
    """The first request keeps the client from sending the second one in time."""

    async def send(prompt: tuple[int, ...], new_tokens: int) -> Reply:
        sent_s = time.perf_counter()
        if prompt == (1,):
            time.sleep(0.1)
        return Reply(sent_s, sent_s, sent_s, new_tokens)

    _, second = run_open_loop(Served(send), (0.0, 0.01), ((1,), (2,)), 1)
    assert second.lag_s >= 0.08
    assert second.ttft_s == second.lag_s  # the server took no time
    assert second.tpot_s is None


def test_a_model_that_takes_one_request_at_a_time_is_refused() -> None:
    with pytest.raises(WorkloadUnsupported, match="fp32 is no server"):
        run_open_loop(SimpleNamespace(variant=SimpleNamespace(id="fp32")), (), (), 1)


def test_a_failed_request_has_no_times() -> None:
    one = Request(1.0, 1.0, failure="gone")
    assert (one.ttft_s, one.tpot_s, one.latency_s) == (None, None, None)
