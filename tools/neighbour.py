"""A busy neighbour: bursts of work on one core or on two, and pauses between them, the same for the same seed.

    python tools/neighbour.py SEED SECONDS
Works beside whatever else runs for so many seconds, and prints how much processor time it took. That is less than its
schedule asks for where others want the cores, too.

Bursts and pauses take 0.5 to 12 s each. A burst keeps one core busy or two, and on each it does one kind of work: a
loop in Python, products of matrices, or copies in memory, each in one thread that is not bound to a core.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from pathlib import Path

import psutil

CORES = 2
LEAST_S, MOST_S = 0.5, 12.0  # seconds of a burst, and of a pause
LOOPS = 20_000  # turns of a Python loop between two looks at the clock: a millisecond or so
SIDE = 384  # rows of the matrices: a product takes some milliseconds
COPIED_BYTES = 32 * 2**20  # more than most caches hold
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
READY_S = 1.0  # from a process's start to the schedule's: it imports numpy meanwhile
END_TIMEOUT_S = 10.0


class Work(StrEnum):
    """Kind of work of a burst on one core."""

    LOOP = "loop"
    PRODUCT = "product"
    COPY = "copy"


WEIGHTS = {Work.LOOP: 2, Work.PRODUCT: 1, Work.COPY: 1}  # pure Python in half of the bursts, numpy in the others


@dataclass(frozen=True)
class Burst:
    """Work on one core or more. Its times are in seconds from the neighbour's start."""

    start_s: float
    end_s: float
    works: tuple[Work, ...]
    """One for each core that it keeps busy."""


def bursts(seed: str) -> Iterator[Burst]:
    """The schedule of a seed, which has no end."""
    chance = random.Random(seed)  # noqa: S311  # a schedule, not a secret
    end_s = 0.0
    while True:
        start_s = end_s + chance.uniform(LEAST_S, MOST_S)
        end_s = start_s + chance.uniform(LEAST_S, MOST_S)
        cores = chance.randint(1, CORES)
        yield Burst(start_s, end_s, tuple(chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=cores)))


def scheduled_s(seed: str, until_s: float) -> float:
    """Seconds of work in the seed's schedule, summed over the cores, from its start until then."""
    begun = takewhile(lambda burst: burst.start_s < until_s, bursts(seed))
    return sum((min(burst.end_s, until_s) - burst.start_s) * len(burst.works) for burst in begun)


@dataclass(frozen=True)
class Neighbour:
    """The processes of a neighbour that is at work, one for each core."""

    processes: tuple[psutil.Popen, ...]

    def cpu_s(self) -> float:
        """Processor seconds that it took so far. Raises RuntimeError where one of its processes died."""
        if any(process.poll() is not None for process in self.processes):
            raise RuntimeError("a process of the neighbour died")
        times = [process.cpu_times() for process in self.processes]
        return float(sum(one.user + one.system for one in times))


@contextmanager
def neighbour(seed: str) -> Iterator[Neighbour]:
    """Work by the seed's schedule beside the block. The processes end with the block, or with this process."""
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", seed, str(time.monotonic() + READY_S)]
    environment = {**os.environ, **ONE_THREAD}
    processes: list[psutil.Popen] = []
    try:
        for core in range(CORES):
            processes.append(psutil.Popen([*command, str(core)], env=environment, stdin=subprocess.PIPE))  # noqa: PERF401
        yield Neighbour(tuple(processes))
    finally:
        for process in processes:
            process.stdin.close()
        for process in processes:
            _end(process)


def _end(process: psutil.Popen) -> None:
    try:
        process.wait(END_TIMEOUT_S)
    except psutil.TimeoutExpired:
        process.kill()
        process.wait()


def work(seed: str, started_s: float, core: int) -> None:
    """Do one core's share of the schedule until standard input ends, which it does with the process that started this.

    started_s: the schedule's start by the monotonic clock, which all processes share.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C ends the process that started this, and so this one
    threading.Thread(target=_end_with_input, daemon=True).start()
    kinds = _kinds_of_work()
    for burst in bursts(seed):
        if core < len(burst.works):
            time.sleep(max(started_s + burst.start_s - time.monotonic(), 0.0))
            do = kinds[burst.works[core]]
            while time.monotonic() < started_s + burst.end_s:
                do()


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(0)  # at once, whatever the main thread computes


def _kinds_of_work() -> Mapping[Work, Callable[[], object]]:
    """Functions that do some milliseconds of work, by its kind."""
    import numpy as np

    matrix = np.random.default_rng(0).random((SIDE, SIDE), dtype=np.float32)
    product = np.empty_like(matrix)
    source, target = np.ones((2, COPIED_BYTES), dtype=np.uint8)
    return {
        Work.LOOP: lambda: sum(index * index for index in range(LOOPS)),
        Work.PRODUCT: lambda: np.matmul(matrix, matrix, out=product),
        Work.COPY: lambda: np.copyto(target, source),
    }


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        seed, started_s, core = sys.argv[2:]
        work(seed, float(started_s), int(core))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed")
    parser.add_argument("seconds", type=float)
    given = parser.parse_args()
    with neighbour(given.seed) as beside:
        time.sleep(given.seconds)
        asked_s = scheduled_s(given.seed, given.seconds - READY_S)
        print(f"{beside.cpu_s():.1f} s of processor time of the {asked_s:.1f} s in its schedule")


if __name__ == "__main__":
    main()
