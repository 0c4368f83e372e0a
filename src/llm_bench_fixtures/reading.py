"""What may be read of files that come from elsewhere: links are followed, but not to what has no end or never comes.

The types say what a field of such a file may hold, which msgspec checks.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, TypeVar

from msgspec import Meta

from llm_bench_fixtures.text import LONGEST

T = TypeVar("T")

# The limits are far from real runs.
LARGEST = 1e30  # for any figure: more than all FLOPs of a year, and far from where floats overflow
LONGEST_S = 1e9  # thirty years
LONGEST_TEXT = 1_000_000  # characters of a reason, or a command line
Name = Annotated[str, Meta(max_length=LONGEST)]  # a test, parametrized by a prompt of 25,000 tokens; a metric
Text = Annotated[str, Meta(max_length=LONGEST_TEXT)]
Figure = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Count = Annotated[int, Meta(ge=0, le=2**62)]
Ratio = Annotated[float, Meta(ge=1e-3, le=1e6)]
Duration = Annotated[float, Meta(ge=1e-9, le=LONGEST_S)]  # seconds, from a tick of the clock on
Offset = Annotated[float, Meta(ge=-LONGEST_S, le=LONGEST_S)]

KERNELS = ("/proc", "/sys", "/dev")  # files there may block, or have no end, and look like any other
IN_MEMORY = "/dev/shm"  # noqa: S108  # a disk in memory, with files like any other's
LARGE_BYTES = 10**10  # a file so large takes some seconds to read
LEAST_SHARE = 0.01  # share of a large file that the disk holds; no file system compresses weights to that
WAIT_BUDGET_S = 30.0  # for a first byte: a network's disk that is gone gives none, and no error
DISK_BLOCK_BYTES = 512  # unit of a file's status, whatever the disk's own are


def refusal(path: Path) -> str:
    """Why a file or folder isn't read, in words that follow its name. Empty where it may be, or isn't there."""
    return next(refusals([path]), (path, ""))[1]


def refusals(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Files that aren't read, each with the reason.

    A file's first byte is read, and a folder's first name, which fetches one that a file system keeps elsewhere.
    """
    todo = list(paths)
    found, is_whole = _collected((path, _refusal(path)) for path in todo)
    if not is_whole and len(found) < len(todo):  # the last may have come since
        found.append((todo[len(found)], _no_answer()))
    yield from ((path, why) for path, why in found if why)


def listed(paths: Iterable[Path]) -> list[Path]:
    """The paths, of what lists folders as it goes. Raises TimeoutError where that waits for a disk that is gone."""
    found, is_whole = _collected(paths)
    if not is_whole:
        raise TimeoutError(f"its listing {_no_answer()}")
    return found


def _no_answer() -> str:
    return f"gives nothing in {WAIT_BUDGET_S:.3g} s: the disk that it is on doesn't answer"


def _collected(work: Iterable[T]) -> tuple[list[T], bool]:
    """Results of the work, and whether these are all: not where it has given nothing for WAIT_BUDGET_S.

    A thread does it, because a disk that is gone can't be asked in any other way without waiting for it; it is left
    behind where it waits.
    """
    found: list[T] = []
    failed: list[BaseException] = []

    def collect() -> None:
        try:
            for one in work:
                found.append(one)  # noqa: PERF402  # as it comes, since its number is watched
        except BaseException as error:
            failed.append(error)

    collecting = threading.Thread(target=collect, daemon=True)
    collecting.start()
    while collecting.is_alive():
        before = len(found)
        collecting.join(WAIT_BUDGET_S)
        if collecting.is_alive() and len(found) == before:
            return list(found), False
    if failed:
        raise failed[0]
    return found, True


def _refusal(path: Path) -> str:
    try:
        status = path.stat()
    except (OSError, ValueError):  # who opens it says why
        return ""
    if not stat.S_ISREG(status.st_mode):
        if not stat.S_ISDIR(status.st_mode):
            return "is a pipe, a device or a socket"
        with suppress(OSError), os.scandir(path) as names:
            next(names, None)  # or waits for ever
        return ""
    place = os.path.realpath(path)
    tree = next((tree for tree in KERNELS if place.startswith(f"{tree}/")), "")
    if tree and not place.startswith(f"{IN_MEMORY}/"):
        return f"is a link into {tree}"
    stored = getattr(status, "st_blocks", status.st_size) * DISK_BLOCK_BYTES
    if status.st_size > LARGE_BYTES and stored < status.st_size * LEAST_SHARE:
        return f"has {status.st_size / 1e9:,.0f} GB, of which {stored / 1e9:.1f} GB are on the disk"
    with suppress(OSError), path.open("rb", buffering=0) as file:
        file.read(1)  # or waits for ever
    return ""
