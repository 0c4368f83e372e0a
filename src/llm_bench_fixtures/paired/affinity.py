"""What makes two processes of the same version alike: the same cores, as many threads, an allocator without luck.

The cores of a shared machine differ by tens of percent in what they give a process, and from hour to hour, so a side
that happened to run on the better one would seem faster. Both sides' rounds therefore run on the same cores.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

# glibc gives freed memory back to the system, or doesn't, as the layout of the heap happens to be. A process without
# luck faults thousands of pages in again in each round: the prefill of 256 tokens took 31 ms instead of 27.5 in a third
# of them. Told so, it keeps what it had; 32 MiB is the most that it can be told. Other C libraries ignore these.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(32 * 2**20), "MALLOC_TRIM_THRESHOLD_": str(2**30)}


def can_pin() -> bool:
    """Whether this system lets a thread choose its cores; macOS and Windows don't."""
    return hasattr(os, "sched_setaffinity")


def choose_cores(threads: int) -> tuple[int, ...]:
    """The last of the cores that this process may use, one a thread; the first ones serve more of the interrupts.

    Empty where threads can't be pinned. Fewer than `threads` where there are no more.
    """
    return tuple(sorted(os.sched_getaffinity(0))[-threads:]) if can_pin() else ()


def steady_environment(threads: int, cores: tuple[int, ...]) -> Mapping[str, str]:
    """Variables that give a worker its threads, keep them from spinning while it waits, and bind several to the cores.

    Of a single thread nothing is bound: it loads models on any core, and `pin_thread` moves it for the rounds.
    """
    count = str(threads)
    variables = {**ALLOCATOR, "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "OMP_WAIT_POLICY": "passive"}
    if threads > 1 and cores:
        variables |= {"OMP_PLACES": ",".join(f"{{{core}}}" for core in cores), "OMP_PROC_BIND": "true"}
    return variables


def pin_thread(_: object, cores: tuple[int, ...]) -> tuple[int, ...]:
    """Have the calling thread run on these cores only; those that it could run on before.

    It is the one that runs the rounds; those of OpenMP's pool are bound by the environment. The first argument is the
    model, so that this can be called in the model's own process. Does nothing where threads can't be pinned, or for
    no cores.
    """
    if not can_pin() or not cores:
        return ()
    before = tuple(sorted(os.sched_getaffinity(0)))
    os.sched_setaffinity(0, cores)
    return before
