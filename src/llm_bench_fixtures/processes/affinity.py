"""CPU affinity: what is compared runs on the same cores.

The cores of a shared machine differ in what they give a process, by tens of percent where others use them, and that
changes from hour to hour. A side that happened to run on the better core would seem faster. So the sides of a pair are
bound to cores. So are the threads in which a variant computes, one to a core: two of them wake on one core as often as
on two.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from llm_bench_fixtures.processes.memory import GROUPS, MEMBERSHIP, own_groups

CORES = Path("/sys/devices/system/cpu")
TASKS = Path("/proc/self/task")
NANOSECONDS = 1e-9
_MOVED: set[int] = set()  # threads that `pin_thread` has moved: not those that the environment has bound


def can_pin() -> bool:
    """Whether this system lets a thread choose its cores; macOS and Windows don't."""
    return hasattr(os, "sched_setaffinity")


def usable_cores(membership: Path = MEMBERSHIP, groups: Path = GROUPS) -> int:
    """Cores that this process may keep busy: those it may run on, or what a container's limit comes to, at least 1."""
    cores = len(os.sched_getaffinity(0)) if can_pin() else os.cpu_count() or 1
    limits = (_quota(folder, is_unified=is_unified) for is_unified, folder in own_groups("cpu", membership, groups))
    return max(min([cores, *(round(limit) for limit in limits if limit is not None)]), 1)


def _quota(folder: Path, *, is_unified: bool) -> float | None:
    """Cores that a control group may keep busy: microseconds of processor time in so many of time. None: no limit."""
    try:
        if is_unified:
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        cores = int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # there is no such group, or it says "max"
        return None
    return cores if cores > 0 else None  # version 1 says -1


def choose_cores(threads: int) -> tuple[int, ...]:
    """Cores for so many threads, one each: the last ones that this process may use, because the first ones serve more
    interrupts.

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


def cores_to_bind(threads: Collection[int]) -> tuple[int, ...]:
    """The cores among which each of the threads can have its own; none if there are fewer, where they aren't alike, or
    where somebody else has bound a thread to some of them."""
    cores = tuple(sorted(os.sched_getaffinity(0))) if can_pin() else ()
    if not 0 < len(threads) <= len(cores) or not are_alike(cores):
        return ()
    with suppress(OSError):  # one has ended
        return cores if all(os.sched_getaffinity(thread) == set(cores) for thread in threads) else ()
    return ()


def bind_threads(cores: Mapping[int, Iterable[int]]) -> None:
    """cores: by the id of a thread, those that it may run on from now on."""
    for thread, own in cores.items():
        with suppress(OSError):  # the thread has ended, or a container's cores have changed
            os.sched_setaffinity(thread, own)


def thread_seconds(tasks: Path = TASKS) -> dict[int, float]:
    """Processor seconds that each of this process' threads has had, by the thread's id; empty where nothing tells
    it."""
    found = {}
    for thread in _threads(tasks):
        with suppress(OSError, IndexError, ValueError):  # the thread has ended
            found[thread] = int((tasks / str(thread) / "schedstat").read_text().split()[0]) * NANOSECONDS
    return found


@cache
def are_alike(cores: tuple[int, ...], root: Path = CORES) -> bool:
    """Whether a thread may as well run on any of them, as far as Linux tells.

    They share a node of memory (NUMA) and a last cache, have the same size and highest clock, and none has two threads
    (SMT): beside another of its process a thread would share a core that has been free.
    """
    try:
        return len({_kind(root / f"cpu{core}") for core in cores}) == 1
    except OSError:  # one that can't be read
        return False


def _kind(core: Path) -> tuple[str, ...]:
    """Description of a core: equal for cores that are alike."""
    told = [core / "cpu_capacity", core / "cpufreq" / "cpuinfo_max_freq"]
    last_cache = sorted(core.glob("cache/index*/shared_cpu_list"))[-1:]
    texts = [file.read_text() for file in (*told, *last_cache) if file.exists()]
    siblings = core / "topology" / "thread_siblings_list"
    alone = not siblings.exists() or siblings.read_text().strip().isdecimal()
    return (*sorted(node.name for node in core.glob("node*")), *texts, "" if alone else core.name)


def _threads(tasks: Path = TASKS) -> list[int]:
    """Ids of this process' threads."""
    with suppress(OSError):
        return [int(task.name) for task in tasks.iterdir()]
    return []
