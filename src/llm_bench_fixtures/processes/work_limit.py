"""When a process is given up: after a time limit that counts what it computes, as one that waits for a core on a busy
machine isn't slow itself; or once a signal (Ctrl-Z, SIGSTOP) has stopped it for long, as it may stay so for ever."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress

LOOK_EVERY_S = 5.0  # while a process is awaited, whether a signal has stopped it
LONGEST_STOP_S = 30.0  # longer than a user stops a program to look at something


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped the process, and none has let it go on."""
    import psutil

    with suppress(psutil.Error):
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    return False


class StopLimit:
    """The end of a process' time: once a signal has stopped it for LONGEST_STOP_S."""

    def __init__(self) -> None:
        self._stopped_at: float | None = None

    def is_over(self, *, is_stopped: bool) -> bool:
        """Whether it has been stopped for so long, at each look. is_stopped: what this look has found."""
        if not is_stopped:
            self._stopped_at = None
            return False
        now = time.monotonic()
        self._stopped_at = now if self._stopped_at is None else self._stopped_at
        return now - self._stopped_at >= LONGEST_STOP_S


IDLE_SHARE = 0.01  # share of a core; a process that is given less for its whole limit waits for something else
LOOKS = 10  # as many in a limit's time at most


def cpu_s_of(pid: int) -> float:
    """Processor seconds that a process and all its children have used, ended ones included; 0 if it has ended, or can't
    be asked.

    Less than before where a child has ended that nobody asks for its time.
    """
    import psutil

    used_s = 0.0
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        # Read first: a child that ends meanwhile is missed once, not counted twice.
        used_s = sum(process.cpu_times()[:4])
        for child in process.children(recursive=True):
            with suppress(psutil.Error):
                used_s += sum(child.cpu_times()[:4])
    return used_s


class WorkLimit:
    """The end of a process' time: once it has computed for `limit_s`, or has stood still for `limit_s`.

    It computes for at least `limit_s` by the clock too, so that many threads have as long as one. A process that reads
    what never comes stands still; one that waits for a child that computes doesn't.

    The first look is after a tenth of the limit: finding the children takes 10 ms, longer than most answers. Processor
    time used before the first look that tells of any is not counted.
    """

    def __init__(
        self, limit_s: float, used_s: Callable[[], float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """used_s: processor seconds that the process and its children have used so far."""
        self._limit_s = limit_s
        self._used_s = used_s
        self._clock = clock
        began = clock()
        self._earliest = began + limit_s
        self._moved_s, self._moved_at = 0.0, began
        self._most_s: float | None = None  # until the first look; infinite until one tells of processor time
        self.next_look = began + limit_s / LOOKS

    def is_over(self) -> bool:
        """Look at the process; where it may go on, `next_look` is the next time on the clock."""
        used_s, now = self._used_s(), self._clock()
        if self._most_s is None or (self._most_s == math.inf and used_s > 0):
            self._moved_s, self._moved_at = used_s, now
            self._most_s = used_s + self._limit_s if used_s > 0 else math.inf
            self.next_look = max(now, self._earliest)
            return False
        if used_s >= self._most_s:
            return True
        if abs(used_s - self._moved_s) >= IDLE_SHARE * self._limit_s:  # less where the system forgets a dead child's
            self._moved_s, self._moved_at = used_s, now
        idle_until = self._moved_at + self._limit_s
        self.next_look = min(now + max(self._most_s - used_s, self._limit_s / LOOKS), idle_until)
        return now >= idle_until
