"""How the time for rounds is shared among the cases of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

BENCHMARK_S = 0.35  # seconds that a benchmark gets for its rounds on average, at the usual --llm-max-noise
USUAL_NOISE = 0.03
LEAST_PART = 0.25  # of that, where others have taken more than theirs
MOST_FINER = 100.0  # times as long for narrower intervals, which need the square of what they are narrower by
ROUNDS_PART = 0.5  # share of the run's time left, for rounds; the rest is for loads, quality and the least rounds
PATIENCE = 1.0  # seconds that may be lost to other work for each second that benchmarks are given
MOST_PATIENCE = 2.0  # times its share of what is left, that a case may lose
KEPT_IN_VAIN = 0.5  # share of the patience kept where a case found no calm at all: other work may never end
MOST_TIMES = 5.0  # times the time of its first rounds that a case of a large model gets, where a given time has room
USUAL_TIMES = 1.6  # times that a small model's case gets that the answer goes by
HALVINGS = 40  # of the range in which times_of_cases looks


def benchmark_s(max_noise: float) -> float:
    """Seconds that a benchmark gets for its rounds on average, for intervals of half that width."""
    finer = (USUAL_NOISE / max_noise) ** 2 if max_noise else 1.0
    return BENCHMARK_S * min(max(finer, 1.0), MOST_FINER)


class TimeBudget:
    """The time of all benchmarks together, by their weights. What one leaves goes to all that come after it.

    run_left_s: tells how much is left of the run's time, of which all get less where it is short.
    """

    def __init__(self, per_benchmark_s: float, run_left_s: Callable[[], float] = lambda: math.inf) -> None:
        self._per_benchmark_s = per_benchmark_s
        self._run_left_s = run_left_s
        self._left_s = 0.0
        self._left = 0.0  # weights
        self._patience_s = 0.0

    def expect(self, weights: Sequence[float]) -> None:
        """Add the time of benchmarks of these weights."""
        self._left += sum(weights)
        self._left_s += len(weights) * self._per_benchmark_s
        self._patience_s += len(weights) * self._per_benchmark_s * PATIENCE

    def forgo(self, weights: Sequence[float]) -> None:
        """Take the time of benchmarks of these weights away again."""
        self._left -= sum(weights)
        self._left_s -= len(weights) * self._per_benchmark_s
        self._patience_s -= len(weights) * self._per_benchmark_s * PATIENCE

    def share_s(self, benchmarks: int, weight: float = 1.0) -> float:
        """Seconds for so many of one weight, measured together now; never less than LEAST_PART of what all get
        on average, but for what the run has time for."""
        each_s = weight * self._left_s / self._left if self._left else self._per_benchmark_s
        return min(benchmarks * max(each_s, LEAST_PART * self._per_benchmark_s), self.run_share_s(benchmarks, weight))

    def patience_s(self, benchmarks: int, weight: float = 1.0) -> float:
        """Seconds that so many of one weight, measured together now, may lose to other work besides their share."""
        share = MOST_PATIENCE * benchmarks * weight / self._left if self._left else 1.0
        return min(self._patience_s * min(share, 1.0), self.run_share_s(benchmarks, weight))

    def run_share_s(self, benchmarks: int, weight: float) -> float:
        """Seconds of what is left of the run's time that so many benchmarks of one weight get for rounds beyond the
        least."""
        share = benchmarks * weight / self._left if self._left else 1.0
        return ROUNDS_PART * self._run_left_s() * min(share, 1.0)

    def wait(self, seconds: float, *, found_calm: bool) -> None:
        """Note that a case has lost so much, and whether other work left any of its turns alone."""
        self._patience_s = max(self._patience_s - seconds, 0.0) * (1.0 if found_calm else KEPT_IN_VAIN)

    def spend(self, benchmarks: int, seconds: float, weight: float = 1.0) -> None:
        """Note that so many benchmarks of one weight have been measured, in so many seconds without waiting."""
        self._left = max(self._left - benchmarks * weight, 0.0)
        self._left_s = max(self._left_s - seconds, 0.0)


def times_of_cases(first: Sequence[tuple[float, int]], spare_s: float, most: float) -> list[float]:
    """How many times the time of its first rounds each case gets, where so much is left besides: 1 to `most`.

    A speed-up's interval is as wide as the inverse square root of its rounds. So the mean width of all is least where a
    case of m variants whose round takes c seconds in all has rounds in proportion to (m / c)^(2/3) (by Lagrange
    multipliers), and time in proportion to (m² c)^(1/3).

    first: seconds of each case's first rounds, of all its variants together, and how many variants these are.
    """
    weights = [(variants**2 * seconds) ** (1 / 3) / seconds for seconds, variants in first]
    all_s = sum(seconds for seconds, _ in first) + spare_s

    def times(level: float) -> list[float]:
        return [min(max(level * weight, 1.0), most) for weight in weights]

    low, high = 0.0, max((most / weight for weight in weights), default=0.0)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        needed_s = sum(seconds * one for (seconds, _), one in zip(first, times(middle), strict=True))
        low, high = (middle, high) if needed_s <= all_s else (low, middle)
    return times(low)
