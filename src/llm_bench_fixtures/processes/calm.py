"""Whether other work disturbs the measuring: what the kernel tells of cores that threads had to wait for.

A round whose threads waited for a core shows the scheduler, not the model: OpenMP's threads spin for a partner that
isn't running, and take many times as long. Such a round can be told by the kernel's own account ("time spent waiting on
a runqueue", Documentation/scheduler/sched-stats.rst). Linux alone gives it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection
from pathlib import Path

TASKS = Path("/proc/self/task")
STAT = Path("/proc/stat")
NANOSECONDS = 1e-9

LONGEST_FALL_S = 0.1  # ONNX Runtime's pool spins for some 26 ms after work, OpenMP's for 3 ms
BLIND_FALL_S = 0.02  # where no thread's state can be seen
LOOK_EVERY_S = 0.0005
LONGEST_SERVER_FALL_S = 1.2  # vLLM's worker spins for 1 s after a request


def waited_s(tasks: Path = TASKS) -> float | None:
    """As `threads_waited_s`, with what a hypervisor took of the machine."""
    threads_s = threads_waited_s(tasks=tasks)
    return None if threads_s is None else threads_s + stolen_s()


def threads_waited_s(threads: Collection[int] = (), tasks: Path = TASKS) -> float | None:
    """Seconds that these threads of the process have waited for a core so far, summed over those that live. None where
    the system doesn't report it.

    threads: their ids; none: all. Those that idle wait, too, where a signal stops the process and lets it go on.
    """
    if not tasks.is_dir():
        return None
    total_ns = 0
    for task in [tasks / str(thread) for thread in threads] or tasks.iterdir():
        try:
            total_ns += int((task / "schedstat").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            continue  # the thread has ended
    return total_ns * NANOSECONDS


def stolen_s(stat: Path = STAT) -> float:
    """Seconds that a hypervisor has kept this machine's cores from it so far; 0 where that isn't known."""
    try:
        fields = stat.read_text().partition("\n")[0].split()
        return int(fields[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def free_cores(stat: Path = STAT) -> int | None:
    """Cores with nothing to run at this moment but the caller; None where the system doesn't report it."""
    try:
        lines = stat.read_text().splitlines()
    except OSError:
        return None
    running = next((int(line.split()[1]) for line in lines if line.startswith("procs_running ")), None)
    return None if running is None else (os.cpu_count() or 1) - (running - 1)


def fall_asleep(tasks: Path = TASKS) -> None:
    """Return once no other thread of this process runs: pools spin for a while after work, on the next one's cores."""
    if not tasks.is_dir():
        time.sleep(BLIND_FALL_S)
        return
    own = str(threading.get_native_id())
    until = time.monotonic() + LONGEST_FALL_S
    while time.monotonic() < until and any(_is_running(task) for task in tasks.iterdir() if task.name != own):
        time.sleep(LOOK_EVERY_S)


def _is_running(task: Path) -> bool:
    """proc(5): the state follows the name, which is in parentheses and may hold any character."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0] == "R"
    except (OSError, IndexError):
        return False
