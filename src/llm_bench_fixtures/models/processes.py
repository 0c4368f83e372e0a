"""What the exit of a process says."""

from __future__ import annotations

import signal


def how_it_ended(exit_code: int | None) -> str:
    """The end of a sentence about a process that answers no more.

    exit_code: as subprocess and multiprocessing give it: negative for a signal, None while the process still runs.
    """
    if exit_code is None:
        return "closed its connection"
    if exit_code >= 0:
        return f"ended with status {exit_code}"
    number = -exit_code
    name = signal.Signals(number).name if number in list(signal.Signals) else f"signal {number}"
    return f"was killed by {name}{', perhaps for lack of memory' if name == 'SIGKILL' else ''}"
