"""The control groups that this process is in: a container's limits stand in them, of either version."""

from __future__ import annotations

from collections.abc import Iterator
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
