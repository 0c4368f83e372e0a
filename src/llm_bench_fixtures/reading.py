"""What may be read of files that come from elsewhere: links are followed, but not to what has no end or never comes."""

from __future__ import annotations

import os
import stat
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

KERNELS = ("/proc", "/sys", "/dev")  # files there may block, or have no end, and look like any other
IN_MEMORY = "/dev/shm"  # noqa: S108  # a disk in memory, with files like any other's
LARGE_BYTES = 10**10  # that takes some seconds to read
LEAST_SHARE = 0.01  # of a large file that the disk holds; no file system compresses weights to that
WAIT_BUDGET_S = 30.0  # for a first byte: a network's disk that is gone gives none, and no error
DISK_BLOCK_BYTES = 512  # of what a file's status counts, whatever the disk's own are


def refusal(path: Path) -> str:
    """Why a file isn't read, in words that follow its name. Empty where it may be, or isn't there."""
    return next(refusals([path]), (path, ""))[1]


def refusals(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Those of the files that aren't read, each with the reason.

    A file's first byte is read, which fetches one that a file system keeps elsewhere. A thread does it, because a disk
    that is gone can't be asked in any other way without waiting for it; it is left behind where it waits.
    """
    todo = deque(paths)
    found: deque[tuple[Path, str]] = deque()
    failed: list[BaseException] = []

    def look() -> None:
        try:
            while todo:
                found.append((todo[0], _refusal(todo[0])))
                todo.popleft()
        except BaseException as error:
            failed.append(error)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    while looking.is_alive():
        left = len(todo)
        looking.join(WAIT_BUDGET_S)
        if looking.is_alive() and len(todo) == left:
            found.append((todo[0], f"gives nothing in {WAIT_BUDGET_S:.3g} s: the disk that it is on doesn't answer"))
            break
    if failed:
        raise failed[0]
    yield from ((path, why) for path, why in found if why)


def _refusal(path: Path) -> str:
    try:
        status = path.stat()
    except (OSError, ValueError):  # who opens it says why
        return ""
    if not stat.S_ISREG(status.st_mode):
        return "" if stat.S_ISDIR(status.st_mode) else "is a pipe, a device or a socket"
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
