"""A neighbour that slows one core at a time down by a fifth, as another guest on that core does.

    python tools/slow_core.py SEED SECONDS
In regimes of 0.5 to 4 s, which take a third of the time and are the same for the same seed, it takes a core, drawn anew
for each, for a millisecond of every five. It needs the right to a real-time priority: root, or a limit above 0 (`ulimit
-r`). Prints how much processor time it took.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from hidden_neighbour import regimes

TAKEN_S, EVERY_S = 0.001, 0.005


def slow_down(seed: str, cores: tuple[int, ...], parent: int) -> None:
    """Slow cores down by the seed's schedule, as long as the parent lives."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    chance = random.Random(seed)  # noqa: S311  # a schedule, not a secret
    began_s = time.monotonic()
    for regime in regimes(seed):
        if os.getppid() != parent:
            return
        os.sched_setaffinity(0, {chance.choice(cores)})
        time.sleep(max(began_s + regime.start_s - time.monotonic(), 0.0))
        while (now_s := time.monotonic()) < began_s + regime.end_s and os.getppid() == parent:
            while time.monotonic() < now_s + TAKEN_S:
                pass
            time.sleep(max(now_s + EVERY_S - time.monotonic(), 0.0))


@contextmanager
def slow_core(seed: str) -> Iterator[None]:
    """Slow cores down beside the block. Raises SystemExit where this user may not."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    except PermissionError:
        sys.exit("slowing a core down takes a real-time priority: run as root, or raise the limit (ulimit -r)")
    process = multiprocessing.Process(
        target=slow_down, args=(seed, tuple(os.sched_getaffinity(0)), os.getpid()), daemon=True
    )
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with slow_core(sys.argv[1]):
        time.sleep(float(sys.argv[2]))
    print(f"{sum(os.times()[2:4]):.1f} s of processor time")
