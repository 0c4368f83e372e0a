"""The memory that this process has, and what it may still take of its machine or its container."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

MEMBERSHIP = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")


def own_groups(controller: str, membership: Path = MEMBERSHIP, groups: Path = GROUPS) -> Iterator[tuple[bool, Path]]:
    """The folders of this process' group and of those above it, each with whether it is of version 2.

    controller: `cpu` or `memory`. membership: the file that names this process' groups. groups: the folder that they
    are in. A container sees its own group as the root, also where `membership` names it as the machine does.
    """
    for is_unified, path in _memberships(controller, membership):
        root = groups if is_unified else groups / controller
        inner = root / path.lstrip("/")
        for folder in {inner, *inner.parents, root}:
            if folder.is_relative_to(root):
                yield is_unified, folder


def _memberships(controller: str, membership: Path) -> Iterator[tuple[bool, str]]:
    """cgroups(7): a line each, `number:controllers:path`; version 2 has no controllers there."""
    try:
        lines = membership.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            yield not controllers, path


STATUS = Path("/proc/self/status")
MAPPINGS = Path("/proc/self/smaps")
MAPPING = re.compile(r"[0-9a-f]+-[0-9a-f]+ (\S{4}) \S+ \S+ (\d+) *(.*)")  # how it may be used, its inode and file

# A control group's files with its limit and with what it uses, and how memory.stat's rows on the pages of files begin.
UNIFIED = "memory.max", "memory.current", ""  # version 2
OLD = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"  # version 1


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
    """Bytes that the limit of each group leaves, where it has one."""
    for is_unified, folder in own_groups("memory", membership, groups):
        *files, prefix = UNIFIED if is_unified else OLD
        try:
            limit, used = (int((folder / name).read_text()) for name in files)
        except (OSError, ValueError):  # there is no such group, or it says "max"
            continue
        yield max(limit - used + _reclaimable(folder, prefix), 0)


def _reclaimable(folder: Path, prefix: str) -> int:
    """Bytes of the pages of files, which the kernel drops before it kills anything."""
    try:
        rows = [line.split() for line in (folder / "memory.stat").read_text().splitlines()]
    except OSError:
        return 0
    return sum(int(row[1]) for row in rows if row[0] in (f"{prefix}inactive_file", f"{prefix}active_file"))


def status_bytes() -> Mapping[str, int]:
    """The sizes in proc(5)'s status by name ("RssAnon", "VmHWM"), in bytes. Empty elsewhere than on Linux."""
    try:
        lines = STATUS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    fields = (line.removesuffix(" kB").partition(":") for line in lines if line.endswith(" kB"))
    return {name: int(kibibytes) * 1024 for name, _, kibibytes in fields}


def library_bytes() -> int | None:
    """Resident bytes of this process that are pages of libraries' files: of those that it runs code from. Mappings of
    other files, such as a model's weights, don't count. None where the system doesn't report it."""
    file_bytes = status_bytes().get("RssFile")
    if file_bytes is None:
        _library_bytes.cache_clear()
    return _library_bytes(file_bytes, MAPPINGS)


@lru_cache(maxsize=1)
def _library_bytes(_file_bytes: int | None, mappings: Path) -> int | None:
    """Read the mappings, which takes 20 to 40 ms, unless the resident bytes of all files' pages are those of the last
    call. The kernel counts these to within some pages."""
    pages: Counter[str] = Counter()
    libraries: set[str] = set()
    file = ""
    try:
        with mappings.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if found := MAPPING.match(line):
                    file = found[3] if found[2] != "0" else ""  # 0 of what is of no file
                    libraries |= {file} if "x" in found[1] else set()
                elif line.startswith(("Rss:", "Anonymous:")):  # the latter is the process' own copy
                    sign = 1 if line.startswith("Rss:") else -1
                    pages[file] += sign * int(line.split()[1]) * 1024
    except OSError:
        return None
    return sum(pages[name] for name in libraries - {""}) if pages else None
