"""The memory that this process may still take: what the machine has free, or what its container is left with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from llm_bench_fixtures.processes.control_groups import GROUPS, MEMBERSHIP, own_groups
from llm_bench_fixtures.processes.status import status_bytes


@dataclass(frozen=True)
class _Controller:
    """Where a version of Linux's control groups has the memory of a group."""

    limit: str
    used: str
    reclaimable: tuple[str, ...]
    """The rows of memory.stat with the pages of files, which the kernel drops before it kills anything."""


UNIFIED = _Controller("memory.max", "memory.current", ("inactive_file", "active_file"))  # version 2
OLD = _Controller(  # version 1
    "memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")
)


def free_memory_bytes(membership: Path = MEMBERSHIP, groups: Path = GROUPS) -> int:
    """Bytes that can be taken without swapping: the least of what the machine and each limit of a container leave."""
    import psutil

    return min([int(psutil.virtual_memory().available), *_left_of_limits(membership, groups)])


def limit_own_memory(more_bytes: int) -> None:
    """Have this process' allocations fail beyond so many bytes more than it has, and let it leave no core file.

    Does nothing where the system doesn't tell what it has, as elsewhere than on Linux.
    """
    has = status_bytes().get("VmData")
    if has is None:
        return
    import resource

    with suppress(ValueError, OSError):  # there is a lower limit already
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        resource.setrlimit(resource.RLIMIT_DATA, (has + more_bytes, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def _left_of_limits(membership: Path, groups: Path) -> Iterator[int]:
    for is_unified, folder in own_groups("memory", membership, groups):
        left = _left(folder, UNIFIED if is_unified else OLD)
        if left is not None:
            yield left


def _left(folder: Path, controller: _Controller) -> int | None:
    """Bytes that the limit of a group leaves; None where it has none."""
    try:
        limit = int((folder / controller.limit).read_text())
        used = int((folder / controller.used).read_text())
    except (OSError, ValueError):  # there is no such group, or it says "max"
        return None
    return max(limit - used + _reclaimable(folder, controller), 0)


def _reclaimable(folder: Path, controller: _Controller) -> int:
    try:
        rows = [line.split() for line in (folder / "memory.stat").read_text().splitlines()]
    except OSError:
        return 0
    return sum(int(row[1]) for row in rows if row[0] in controller.reclaimable)
