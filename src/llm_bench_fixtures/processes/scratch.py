"""Temporary folders that don't outlast their process for long: the next one removes what killed processes have left.

Their owner holds a lock in them, which the kernel lets go when it ends, however it does. The number of its process
would not tell: it may be another's by now, or one in another container that shares the folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from filelock import BaseFileLock

PREFIX = "llm-bench-"
OWNER = "owner.lock"
YOUNG_S = 10.0  # in which a folder's owner may not have come to lock it


class ScratchFolder:
    """A temporary folder. It is removed when it is closed, when its process ends, or after that."""

    def __init__(self, purpose: str, *, ends_with_process: bool = True) -> None:
        """purpose: a word in its name. Folders of processes that are gone are removed first. ends_with_process: False
        where the caller closes it at the end of the process."""
        from filelock import FileLock

        remove_abandoned()
        self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{purpose}-"))
        lock = FileLock(self.path / OWNER)
        lock.acquire()
        self._remove = weakref.finalize(self, _release_and_remove, lock, self.path)
        self._remove.atexit = ends_with_process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder; nothing where that has been done."""
        if found := self._remove.detach():  # calling it does nothing once the process is ending
            _, remove_it, arguments, _ = found
            remove_it(*arguments)


def remove_abandoned(young_s: float = YOUNG_S) -> None:
    """Remove this user's folders whose owner is gone. young_s: seconds for which a folder is left alone."""
    for owner in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{OWNER}"):
        with suppress(OSError):  # the owner has removed it meanwhile
            if _is_mine(owner.parent) and time.time() - owner.lstat().st_mtime >= young_s:
                remove_unless_locked(owner, owner.parent)


def remove_unless_locked(lock: Path, *paths: Path) -> bool:
    """Remove folders, files or links; False where a process holds their lock, which may be this one. Raises OSError."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(lock, timeout=0):
            for path in paths:
                remove(path)
    except (Timeout, RuntimeError):  # the second where this process holds it
        return False
    return True


def remove(path: Path) -> None:
    """Remove a folder, a file or a link; nothing where there is none. Raises OSError."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def _is_mine(folder: Path) -> bool:
    """Whether nobody else may have put something there: a link in place of the lock, say."""
    if folder.is_symlink():
        return False
    found = folder.lstat()  # Windows knows no owner or mode here: each user's temporary folder is in their own profile
    return not hasattr(os, "getuid") or (found.st_uid == os.getuid() and found.st_mode & 0o077 == 0)


def _release_and_remove(lock: BaseFileLock, folder: Path) -> None:
    lock.release()
    shutil.rmtree(folder, ignore_errors=True)
