"""The time of a case: what its rounds take, and what it waits for other programs, and for servers of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from llm_bench_fixtures.processes.calm import LONGEST_SERVER_FALL_S, free_cores
from llm_bench_fixtures.session.case import Entry, Pace

LOOK_EVERY_S = 0.001
LOOKS = 3  # before a turn: the process whose turn is over may need a moment to stop
SHOWN_WAIT_S = 1.0  # shorter waits come before many turns, and would be all that is ever shown
MOST_REST_S = 20.0  # seconds that a case waits for its servers: what still runs then may be other work


@dataclass
class CaseTime:
    """The time of a case, and its waits for free cores."""

    pace: Pace
    clock: Callable[[], float]
    show: Callable[[str], None]
    """Shows what is waited for."""
    waited_s: float = 0.0
    waited_before_s: float = 0.0
    """Seconds waited before the first block."""
    rested_s: float = 0.0
    """Seconds rested since the first block began, for servers after their turns: neither of the share nor of the
    patience."""
    began_s: float | None = None
    """The first block; none before it."""

    def begin(self) -> None:
        """Count the case's time from here on, where its first block begins."""
        self.began_s, self.waited_before_s, self.rested_s = self.clock(), self.waited_s, 0.0

    @property
    def elapsed_s(self) -> float:
        """Since the first block began, waits for other work included, without the rest of servers."""
        return 0.0 if self.began_s is None else self.clock() - self.began_s - self.rested_s

    @property
    def rounds_s(self) -> float:
        """Since the first block began, without any waits."""
        return self.elapsed_s - (self.waited_s - self.waited_before_s) if self.began_s is not None else 0.0

    @property
    def is_patient(self) -> bool:
        """Whether another block is run in a crowded one's place."""
        return self.elapsed_s + self.waited_before_s < self.pace.share_s + self.pace.patience_s

    def await_calm(self, entry: Entry) -> bool:
        """Wait while other work leaves too few cores free for the variant, as long as there is patience for it; whether
        it ended."""
        cores = self.pace.cores if entry.cores is None else entry.cores
        for _ in range(LOOKS):
            if _are_free(cores):
                return True
            time.sleep(LOOK_EVERY_S / 4)
        left_s = self.pace.patience_s - self.waited_s
        began_s = self.clock()
        try:
            return self._await_cores(cores, left_s, "waiting for other programs")
        finally:
            self.waited_s += self.clock() - began_s

    @contextmanager
    def resting(self, entry: Entry, *, has_others: bool) -> Iterator[None]:
        """Wait, after what is done within, until a server on this machine has left the cores to the next variant: as
        many as a round keeps busy, or as were free before. has_others: whether there is a next one."""
        before = free_cores() if has_others and entry.model.facts.is_beside else None
        yield
        if before is not None:
            cores, longest_s = min(before, self.pace.cores), min(LONGEST_SERVER_FALL_S, MOST_REST_S - self.rested_s)
            began_s = self.clock()
            try:
                self._await_cores(cores, longest_s, "waiting for the server to rest")
            finally:
                self.rested_s += self.clock() - began_s

    def _await_cores(self, cores: int, longest_s: float, why: str) -> bool:
        """Wait until so many are free, at most so long; whether they are."""
        began_s = self.clock()
        while not (are_free := _are_free(cores)) and self.clock() - began_s < longest_s:
            if self.clock() - began_s >= SHOWN_WAIT_S:
                self.show(why)
            time.sleep(LOOK_EVERY_S)
        return are_free


def _are_free(cores: int) -> bool:
    """Whether so many are; also where none is needed, or the system doesn't tell."""
    free = free_cores()
    return not cores or free is None or free >= cores
