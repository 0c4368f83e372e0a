"""Waiting for what happens in another process or thread, which takes ten times as long on a slow machine."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

BACKSTOP_S = 600.0  # for what never happens where there is a fault; what does is awaited no longer than it takes


def wait_until(is_so: Callable[[], object]) -> None:
    """Return once it is so; fail where it never is."""
    until = time.monotonic() + BACKSTOP_S
    while not is_so():
        assert time.monotonic() < until, "it never came to be"
        time.sleep(0.01)


def has_ended(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)  # until whoever inherited it takes notice
    except psutil.NoSuchProcess:
        return True
