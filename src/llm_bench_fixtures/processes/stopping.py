"""A process that a signal has stopped (Ctrl-Z, SIGSTOP): it answers nobody, and may stay so for ever."""

from __future__ import annotations

import time

LOOK_EVERY_S = 5.0  # while a process is awaited, whether a signal has stopped it
LONGEST_STOP_S = 30.0  # longer than a user stops a program to look at something


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped the process, and none has let it go on."""
    import psutil

    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False


class StopWatch:
    """How long a process has been stopped, as far as it was looked at."""

    def __init__(self) -> None:
        self._stopped_at: float | None = None

    def is_over(self, *, is_stopped: bool) -> bool:
        """Whether it has been stopped for LONGEST_STOP_S at every look. is_stopped: what this look has found."""
        if not is_stopped:
            self._stopped_at = None
            return False
        now = time.monotonic()
        self._stopped_at = now if self._stopped_at is None else self._stopped_at
        return now - self._stopped_at >= LONGEST_STOP_S
