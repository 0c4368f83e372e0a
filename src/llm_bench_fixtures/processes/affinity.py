"""CPU affinity: what is compared runs on the same cores.

The cores of a shared machine differ by tens of percent in the time that they give a process, and that changes from hour
to hour. A side that happened to run on the better core would seem faster.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

TASKS = Path("/proc/self/task")
_MOVED: set[int] = set()  # threads that `pin_thread` has moved: not those that the environment has bound


def can_pin() -> bool:
    """Whether this system lets a thread choose its cores; macOS and Windows don't."""
    return hasattr(os, "sched_setaffinity")


def usable_cores(limit: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Cores that this process may keep busy: those it may run on, or what its container's limit comes to, at least 1.

    limit: the container's (control groups, version 2): microseconds of processor time, or "max", in so many of time.
    """
    cores = len(os.sched_getaffinity(0)) if can_pin() else os.cpu_count() or 1
    try:
        quota, period = limit.read_text().split()
        return max(min(cores, round(int(quota) / int(period))), 1)
    except (OSError, ValueError, ZeroDivisionError):  # no such limit
        return cores


def choose_cores(threads: int) -> tuple[int, ...]:
    """As many cores as threads: the last ones that this process may use, because the first ones serve more interrupts.

    Fewer if there are fewer; none if threads can't be pinned.
    """
    return tuple(sorted(os.sched_getaffinity(0))[-threads:]) if can_pin() else ()


def choose_lanes(threads: int, most: int) -> tuple[tuple[int, ...], ...]:
    """The cores of each of at most `most` pairs that run at once, with so many threads each; at least one lane.

    One lane if threads can't be pinned, because two pairs would then disturb each other.
    """
    cores = choose_cores(threads * most)
    lanes = max(min(len(cores) // threads, most), 1)
    return tuple(cores[threads * lane : threads * (lane + 1)] for lane in reversed(range(lanes)))


def pin_thread(_: object, cores: tuple[int, ...]) -> tuple[int, ...]:
    """Let the calling thread run on these cores only; returns the cores that it could run on before.

    It is the thread that runs the rounds. The process' other threads, in which some engines compute, follow it, save
    those that the environment has bound to some of the cores: OpenMP's pool. The first argument is the model, so that
    this can be called in the model's own process. Does nothing and returns () if threads can't be pinned, or if there
    are no cores.
    """
    if not can_pin() or not cores:
        return ()
    before = tuple(sorted(os.sched_getaffinity(0)))
    for thread in _threads():
        with suppress(OSError):  # one that has ended meanwhile
            if thread in _MOVED or not os.sched_getaffinity(thread) <= set(cores):
                os.sched_setaffinity(thread, cores)
                _MOVED.add(thread)
    os.sched_setaffinity(0, cores)
    return before


def _threads() -> list[int]:
    """Ids of this process' threads."""
    try:
        return [int(task.name) for task in TASKS.iterdir()]
    except OSError:
        return []
