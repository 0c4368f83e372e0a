"""Jobs in lanes, with workers that don't exist."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psutil
import pytest
from waiting import BACKSTOP_S

from llm_bench_fixtures.errors import SideFailed
from llm_bench_fixtures.paired.lanes import Lanes, has_room
from llm_bench_fixtures.paired.workers import Roster


def counted(jobs: int) -> Callable[[int], int | None]:
    """Gives the numbers from 1 to `jobs`."""
    numbers = iter(range(1, jobs + 1))
    return lambda running: next(numbers, None)


def test_as_many_jobs_run_at_once_as_there_are_lanes() -> None:
    """Both wait for each other, which they couldn't one after the other."""
    lanes: Lanes[str, int] = Lanes(("x", "y"), Roster())
    meeting = threading.Barrier(2, timeout=BACKSTOP_S)
    ended: list[int] = []
    used: list[str] = []

    def job(lane: str, _: int) -> None:
        used.append(lane)
        meeting.wait()

    lanes.run(counted(2), job, ended.append)
    assert (sorted(used), sorted(ended), lanes.most_at_once) == (["x", "y"], [1, 2], 2)


def test_one_lane_runs_one_job_after_the_other() -> None:
    lanes: Lanes[str, int] = Lanes(("x",), Roster())
    seen: list[tuple[str, int]] = []
    lanes.run(counted(3), lambda lane, job: seen.append((lane, job)), lambda job: seen.append(("ended", job)))
    assert seen == [("x", 1), ("ended", 1), ("x", 2), ("ended", 2), ("x", 3), ("ended", 3)]
    assert lanes.most_at_once == 1


def test_what_a_job_raises_dismisses_the_workers_and_is_raised() -> None:
    roster = Roster()
    lanes: Lanes[str, int] = Lanes(("x", "y"), roster)

    def job(lane: str, number: int) -> None:
        raise SideFailed("HEAD", "died")

    with pytest.raises(SideFailed, match="died"):
        lanes.run(counted(2), job, lambda _: None)
    with pytest.raises(SideFailed, match="the run is ending"):
        roster._start("BASE", None, None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("used", "room"), [(100, True), (500, True), (501, False)])
def test_a_lane_needs_twice_the_memory_of_the_others(monkeypatch: pytest.MonkeyPatch, used: int, *, room: bool) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 1000}))
    monkeypatch.setattr(Roster, "resident_bytes", used)
    assert has_room(Roster()) is room
