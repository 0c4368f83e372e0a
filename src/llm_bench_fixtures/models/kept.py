"""What an artifact store keeps: its parts with size and age, and how they are removed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from llm_bench_fixtures.models.artifacts import MANIFEST, SCRATCH, is_ours, lock_of
from llm_bench_fixtures.processes.scratch import remove_unless_locked

KEY = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True)
class Kept:
    """An artifact, or what a build that was killed has left of one."""

    kind: str
    """What it is: an export, say."""
    folder: Path
    size_bytes: int
    used: float
    """When it was last used or made: seconds since 1970."""
    is_whole: bool
    """Whether it can be used; else a build was killed, or goes on."""

    @property
    def name(self) -> str:
        """Tells it from others of its kind."""
        return self.folder.name[:8]


def kept_in(root: Path) -> list[Kept]:
    """What the store keeps, the least recently used first. What it didn't make is not among it."""
    return sorted(_kept_in(root), key=lambda one: one.used)


def _kept_in(root: Path) -> Iterator[Kept]:
    for folder in root.glob("*/*"):
        is_whole = bool(KEY.fullmatch(folder.name))
        with suppress(OSError):  # which a build that goes on may have removed
            if (is_whole or SCRATCH.fullmatch(folder.name)) and is_ours(folder):  # other programs name folders so, too
                used = max(path.lstat().st_mtime for path in (folder, folder / MANIFEST))
                yield Kept(folder.parent.name, folder, _size(folder), used, is_whole)


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # which a build that goes on may have removed
            total += path.lstat().st_size if path.is_file() else 0
    return total


def discard(kept: Kept) -> bool:
    """Remove it, and its lock file; False where a build holds the lock. Raises OSError."""
    lock = lock_of(kept.folder)
    return remove_unless_locked(lock, kept.folder, *([lock] if kept.is_whole else []))
