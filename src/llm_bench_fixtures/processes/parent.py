"""How a process ends with the one that started it, whatever ended that.

The kernel of Linux kills it, in the middle of a call and stopped by a signal too. Elsewhere a thread of its own ends
it, which a stopped process can't.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import signal
import socket
import sys
import threading

LAST_WORDS_S = 1.0  # for a program whose starter is gone to end by itself
KILL_WITH_PARENT = 1  # PR_SET_PDEATHSIG, see prctl(2)
NO_STOPS = 1  # SA_NOCLDSTOP, see sigaction(2)
SIGNAL_SET_BYTES = 128  # size of sigset_t


def kill_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends; only Linux does."""
    if sys.platform != "linux":
        return
    import ctypes

    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(KILL_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent has ended in between
        os._exit(1)


def lead_group() -> None:
    """Have a process group of its own, where the system has such: what ends the group of the one that started this one,
    a terminal that is closed say, leaves it to that one to end this one too."""
    if hasattr(os, "setpgid"):
        with contextlib.suppress(PermissionError):  # the process leads a session already
            os.setpgid(0, 0)


def hear_of_ends_only() -> None:
    """Have SIGCHLD tell this process of children that end, and not of those that a signal stops or lets go on, where
    Linux allows that: each would be woken twice for a slice of a round, on the cores that the round computes on."""
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return
    import ctypes

    class Action(ctypes.Structure):  # struct sigaction of glibc and musl, see sigaction(2)
        _fields_ = (
            ("handler", ctypes.c_void_p),
            ("mask", ctypes.c_ubyte * SIGNAL_SET_BYTES),
            ("flags", ctypes.c_int),
            ("restorer", ctypes.c_void_p),
        )

    action = Action()
    with contextlib.suppress(OSError, AttributeError):
        system = ctypes.CDLL(None)
        if system.sigaction(signal.SIGCHLD, None, ctypes.byref(action)) == 0:
            action.flags |= NO_STOPS
            system.sigaction(signal.SIGCHLD, ctypes.byref(action), None)


def end_with_parent() -> None:
    """End this process of multiprocessing's once the one that asked for it is gone. A thread sleeps until then."""
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)


def end_with_starter(connection: socket.socket, is_over: threading.Event) -> None:
    """End this program, which `start_program` started, with its children, soon after the one that started it is gone,
    in the middle of a call too.

    connection: the inherited socket. A thread sleeps until its other end is closed. is_over: set once nobody waits for
    the program any more: it ends by itself.
    """
    threading.Thread(target=_end_with_starter, args=(connection.fileno(), is_over), daemon=True).start()


def _end_with_starter(number: int, is_over: threading.Event) -> None:
    closing = select.poll()
    closing.register(number, select.POLLHUP)
    closing.poll()
    if is_over.wait(LAST_WORDS_S):
        return
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
