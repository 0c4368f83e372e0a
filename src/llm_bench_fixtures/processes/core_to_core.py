"""How long data takes from one core to another. On a virtual machine it changes where the host moves virtual cores.

While two of them are in different parts of a processor, data that their threads share goes through its interconnect
and not through a cache that both have. Work that two threads share in many small steps takes longer then. Each core
computes as fast as before, and no counter of the kernel tells.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from llm_bench_fixtures.processes.affinity import can_pin
from llm_bench_fixtures.processes.calm import free_cores

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SENT_BYTES = 256 << 10
MOST_CORES = 8  # more take longer, and tell as much of whether some have been moved
ROUNDS = 4  # in which data is sent between all pairs of neighbours; the first warms up
REST_S = 0.1  # between two looks; one takes 0.8 ms for two cores of an AMD EPYC
RESTS = 100.0  # times as long as a look, that there is between two at least


def core_to_core() -> float | None:
    """Time in which a core reads data that another has just written, over the time in which it reads it again.

    Each of these is the median over the pairs of neighbours and over rounds. A core's own speed changes both alike. The
    calling thread writes and reads, and moves in between. None where it can't choose its core, or has but one, and
    where something else runs on this machine.
    """
    cores = sorted(os.sched_getaffinity(0)) if can_pin() else []
    if len(cores) < 2 or not _is_idle():
        return None
    import numpy as np

    chosen = cores[:: math.ceil(len(cores) / MOST_CORES)]
    data = np.zeros(SENT_BYTES // 8, np.int64)
    pairs = [*pairwise([*chosen, chosen[0]])]
    try:
        reads = [_reads_s(data, *pair) for _ in range(ROUNDS) for pair in pairs][len(pairs) :]
    except OSError:  # a container's cores have changed
        return None
    finally:
        with suppress(OSError):
            os.sched_setaffinity(0, cores)
    first_s, again_s = map(median, zip(*reads, strict=True))
    return first_s / again_s if again_s and _is_idle() else None


def _is_idle() -> bool:
    """Whether nothing but the caller runs, as far as the system tells."""
    return free_cores() in (None, os.cpu_count())


def _reads_s(data: NDArray[np.int64], writer: int, reader: int) -> tuple[float, float]:
    """Seconds in which one core reads what another has written, and in which it reads that again."""
    os.sched_setaffinity(0, {writer})
    for _ in range(2):  # the first time it comes from the other core
        data += 1
    os.sched_setaffinity(0, {reader})
    at_s = [time.perf_counter()]
    for _ in range(2):
        data.sum()
        at_s.append(time.perf_counter())
    return at_s[1] - at_s[0], at_s[2] - at_s[1]


class CoreLooks:
    """Looks at `core_to_core` in the course of a run."""

    def __init__(
        self, measure: Callable[[], float | None] = core_to_core, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._measure = measure
        self._clock = clock
        self._due_s = -math.inf

    def look(self) -> float | None:
        """What a look finds; None where none is due, or it tells nothing."""
        began_s = self._clock()
        if began_s < self._due_s:
            return None
        found = self._measure()
        ended_s = self._clock()
        self._due_s = ended_s + max(REST_S, RESTS * (ended_s - began_s))
        return found
