"""glibc's allocator, made to behave the same in every process; other C libraries are left as they are.

glibc gives freed memory back to the system or keeps it, depending on how the heap happens to be laid out. A
process that gave it back faults thousands of pages in again in each round (the prefill of 256 tokens took 31 ms instead
of 27.5 in a third of the processes). So processes keep memory while they are timed. But where the heap has grown for
something large, what comes later lies scattered in it, and takes up to a third more. So loads and peaks, in which
nothing is timed, give it back at once. Scores do so once they end: meanwhile it took a second of the kernel's time for
1,024 tokens of a model of 0.5B parameters.

A load leaves holes in the heap, as many as chance wills. Small blocks are spread over them, each on pages of its own,
so that a peak came out up to 11 MB higher. So they are filled while a peak is taken, unless that round is timed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CDLL, c_size_t, c_void_p

# Parameters of mallopt(3).
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3

KEEPING = (32 * 2**20, 2**30)  # bytes from which it maps, and trims; it accepts no more than 32 MiB for the first
GIVING_BACK = (128 * 2**10, 128 * 2**10)  # where it begins by default

FILLING = tuple(2**power for power in range(22, 9, -1))  # sizes of the blocks that fill holes: 4 MiB to 1 KiB
MOST_FILLING = 10_000  # blocks

KEEPING_VARIABLES = {"MALLOC_MMAP_THRESHOLD_": str(KEEPING[0]), "MALLOC_TRIM_THRESHOLD_": str(KEEPING[1])}
"""The environment of a process that keeps freed memory from its start."""


@contextmanager
def giving_freed_memory_back() -> Iterator[None]:
    """Give back what is freed within; after it, keep what is freed."""
    _set(GIVING_BACK)
    try:
        yield
    finally:
        _set(KEEPING)


@contextmanager
def filling_holes() -> Iterator[None]:
    """Hold the heap's free blocks within, with hardly a page of them resident, so that what is allocated lies together.

    Begin it while freed memory is kept: else large blocks come from elsewhere, and small ones have to do.
    """
    libc = _libc()
    if libc is None:
        yield
        return
    libc.malloc.restype = libc.sbrk.restype = c_void_p
    libc.malloc_trim(0)
    held: list[int] = []
    try:
        held.extend(_filling(libc))
        libc.malloc_trim(0)
        yield
    finally:
        for block in held:
            libc.free(c_void_p(block))


def _filling(libc: CDLL) -> Iterator[int]:
    """Blocks that were free in the heap, the largest first."""
    end, number = libc.sbrk(0), 0
    for size in FILLING:
        while number < MOST_FILLING and (block := libc.malloc(c_size_t(size))):
            if block >= end:  # the heap has grown for it, or it lies elsewhere
                libc.free(c_void_p(block))
                break
            number += 1
            yield block


def trim_heap() -> None:
    """Give freed pages back to the system, else the next model's memory is counted on top of the last one's."""
    libc = _libc()
    if libc is not None:
        libc.malloc_trim(0)


def _set(thresholds: tuple[int, int]) -> None:
    libc = _libc()
    if libc is not None:
        for parameter, value in zip((M_MMAP_THRESHOLD, M_TRIM_THRESHOLD), thresholds, strict=True):
            libc.mallopt(parameter, value)


def _libc() -> CDLL | None:
    """glibc, or None where the process uses another C library."""
    if sys.platform != "linux":
        return None
    libc = CDLL(None)
    return libc if hasattr(libc, "malloc_trim") and hasattr(libc, "mallopt") else None  # musl has neither
