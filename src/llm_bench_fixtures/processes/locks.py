"""Waiting for a lock that another process holds: it is said which one, and one that does nothing isn't waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from llm_bench_fixtures.errors import LockHeld
from llm_bench_fixtures.processes import work_limit
from llm_bench_fixtures.processes.work_limit import StopLimit, cpu_s_of, is_stopped
from llm_bench_fixtures.text import printable

if TYPE_CHECKING:
    import psutil
    from filelock import BaseFileLock

LOCKS = Path("/proc/locks")
SHORT_S = 1.0  # for which a lock is awaited without a word
LONGEST_IDLE_S = 120.0  # without any processor time, also where it waits for a disk now and then
LONGEST_COMMAND = 80  # characters of it that are shown


@contextmanager
def held(lock: BaseFileLock, waiting: Callable[[str], AbstractContextManager[None]]) -> Iterator[None]:
    """Hold the lock within. waiting: shows the text while it is awaited.

    Raises LockHeld where the process that holds it is stopped or does nothing, as far as that is known; OSError where
    the lock can't be made.
    """
    path = Path(lock.lock_file)
    if not _is_acquired(lock, SHORT_S):
        holder = _Holder(find_holder(path))
        with waiting(f"waiting for {holder.name}, which holds {path.name[:12]}…{path.suffix}"):
            while not _is_acquired(lock, work_limit.LOOK_EVERY_S):
                holder.check(path)
    try:
        yield
    finally:
        lock.release()


def _is_acquired(lock: BaseFileLock, seconds: float) -> bool:
    from filelock import Timeout

    with suppress(Timeout):
        lock.acquire(timeout=seconds)
        return True
    return False


def find_holder(path: Path) -> psutil.Process | None:
    """The process that holds the lock on the file, as far as the kernel tells; only Linux does."""
    import psutil

    with suppress(OSError, ValueError, psutil.Error):
        number = path.stat().st_ino
        for line in LOCKS.read_text(encoding="ascii").splitlines():
            words = line.split()
            if words[1] == "FLOCK" and words[5].endswith(f":{number}"):
                return psutil.Process(int(words[4]))
    return None


@dataclass
class _Holder:
    process: psutil.Process | None
    worked_s: float = -1.0
    """Processor time that it had when it last moved."""
    moved_at: float = field(default_factory=time.monotonic)
    stop: StopLimit = field(default_factory=StopLimit)

    @property
    def name(self) -> str:
        """Name of the process, for a sentence."""
        import psutil

        with suppress(psutil.Error):
            if self.process is not None:
                command = printable(" ".join(self.process.cmdline()))[:LONGEST_COMMAND]
                since = datetime.fromtimestamp(self.process.create_time()).astimezone()
                return f"process {self.process.pid} (since {since:%H:%M:%S}: {command})"
        return "another process"

    def check(self, path: Path) -> None:
        """Look what it does. Raises LockHeld."""
        import psutil

        if self.process is None or not self.process.is_running():
            self.process = find_holder(path)  # another one's turn
            self.worked_s, self.moved_at, self.stop = -1.0, time.monotonic(), StopLimit()
            return
        is_held_up = is_stopped(self.process.pid)
        if self.stop.is_over(is_stopped=is_held_up):
            what = f"a signal has stopped it: let it go on (kill -CONT {self.process.pid}), or end it"
            raise LockHeld(f"{self.name} holds {path}, and {what}")
        if is_held_up:
            return
        now = time.monotonic()
        with suppress(psutil.Error):
            worked_s = cpu_s_of(self.process.pid)
            if worked_s != self.worked_s or self.process.status() == psutil.STATUS_DISK_SLEEP:
                self.worked_s, self.moved_at = worked_s, now
        if now - self.moved_at >= LONGEST_IDLE_S:
            what = f"it has done nothing for {LONGEST_IDLE_S:.0f} s: end it"
            raise LockHeld(f"{self.name} holds {path}, and {what}")
