"""The time that a run may take: what is left of it, what still fits, and what to say of what doesn't."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from llm_bench_fixtures.errors import NotReached, TimeUp
from llm_bench_fixtures.progress import about

# Kept for the report: drawing and writing it, saving the run and ending the processes. On a core of an AMD EPYC the
# report on 40 benchmarks took 3.5 s, that on 277 took 7.5 s.
RESERVE_S = 4.0
RESERVE_SHARE = 0.02


@dataclass(frozen=True)
class Deadline:
    """When a run has to stop measuring, so that its report is written within --llm-time.

    Time is that of a monotonic clock: setting the system's clock changes nothing, and on Linux and macOS the time for
    which the machine is suspended doesn't count. A process that is stopped (Ctrl-Z) uses up its time.
    """

    limit_s: float = math.inf
    """Seconds for the whole run, report included; infinite: no limit."""
    began_s: float = field(default_factory=time.monotonic)
    """The run's begin, by the clock."""
    clock: Callable[[], float] = time.monotonic

    @property
    def is_limited(self) -> bool:
        return not math.isinf(self.limit_s)

    @property
    def at_s(self) -> float:
        """When measuring has to end, by the clock."""
        reserve_s = RESERVE_S + RESERVE_SHARE * self.limit_s if self.is_limited else 0.0
        return self.began_s + self.limit_s - reserve_s

    @property
    def left_s(self) -> float:
        """Seconds until measuring has to end, the report's time taken off; 0 at the least."""
        return max(self.at_s - self.clock(), 0.0)

    @property
    def is_over(self) -> bool:
        return not self.left_s

    def fits(self, expected_s: float = 0.0) -> bool:
        """Whether a step of so many seconds can begin now."""
        return not self.is_over and expected_s <= self.left_s

    def check(self) -> None:
        """Raise TimeUp if measuring has to end now."""
        if self.is_over:
            raise TimeUp

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Raise NotReached where the block is cut."""
        try:
            yield
        except TimeUp as cut:
            raise self.not_reached(str(cut)) from None

    def not_reached(self, why: str = "") -> NotReached:
        """Error for a step that there was no time for. why: a clause, as in NotReached."""
        return NotReached(about(self.limit_s), why)

    def too_long(self, step: str, expected_s: float) -> NotReached:
        """Error for a step that didn't begin, with a limit that has room for it. step: as "loading fp32"."""
        needed_s = (self.clock() - self.began_s + expected_s + RESERVE_S) / (1 - RESERVE_SHARE)
        enough = f"{math.ceil(needed_s / 10) * 10}s" if needed_s < 90 else f"{math.ceil(needed_s / 60)}m"
        takes = about(max(expected_s, 1.0))
        return self.not_reached(f"{step} takes about {takes}; --llm-time {enough} has room for it")


NO_LIMIT = Deadline()
