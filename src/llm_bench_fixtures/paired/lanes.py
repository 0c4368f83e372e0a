"""Pairs that run at the same time: each in a lane of its own, which has its own cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from llm_bench_fixtures.paired.workers import Roster
from llm_bench_fixtures.processes.memory import free_memory_bytes

L = TypeVar("L")
T = TypeVar("T")

POLL_S = 0.5  # between two looks at whether another lane can be opened
ROOM = 2.0  # a lane is opened if so many times the memory of all workers is free


@dataclass
class Lanes(Generic[L, T]):
    """Runs jobs in threads, one in each lane at a time."""

    lanes: Sequence[L]
    """Lanes, each with what a job needs of it."""
    roster: Roster
    """Roster of the workers that the jobs start."""
    most_at_once: int = field(default=0, init=False)
    """Jobs that ran at the same time."""

    def run(self, begin: Callable[[int], T | None], job: Callable[[L, T], None], end: Callable[[T], None]) -> None:
        """Run jobs until none is left.

        begin: called with the number of jobs that are running; returns the next job, or None if there is none at the
        moment. end: called with a job that is over. Both are called in this thread only. If anything raises, the
        workers are dismissed, and what was raised is raised here once the jobs are over.
        """
        running: dict[Future[None], tuple[L, T]] = {}
        free = list(self.lanes)
        with ThreadPoolExecutor(len(self.lanes)) as pool:
            try:
                while True:
                    while free and (next_job := begin(len(running))) is not None:
                        lane = free.pop(0)
                        running[pool.submit(job, lane, next_job)] = lane, next_job
                        self.most_at_once = max(self.most_at_once, len(running))
                    if not running:
                        return
                    done, _ = wait(running, POLL_S if free else None, FIRST_COMPLETED)
                    for future in done:
                        lane, over = running.pop(future)
                        free.insert(0, lane)
                        future.result()
                        end(over)
            except BaseException:
                self.roster.dismiss()
                raise


def has_room(roster: Roster) -> bool:
    """Whether the machine's memory has room for one more lane like those that run."""
    return free_memory_bytes() >= ROOM * roster.resident_bytes
