"""How much time each case of a run gets for its rounds."""

from __future__ import annotations

from collections.abc import Sequence

PATIENCE = 1.0  # seconds that may be lost to other work for each second that benchmarks are given
MOST_PATIENCE = 2.0  # times its share of what is left, that a case may lose
KEPT_IN_VAIN = 0.5  # of the patience that is left, where a case found no calm at all: other work may never end


class TimeBudget:
    """The time of all benchmarks together, by their weights. What one leaves goes to all that come after it."""

    def __init__(self, per_benchmark_s: float) -> None:
        self._per_benchmark_s = per_benchmark_s
        self._left_s = 0.0
        self._left = 0.0  # weights
        self._patience_s = 0.0

    def expect(self, weights: Sequence[float]) -> None:
        """Add the time of benchmarks of these weights."""
        self._left += sum(weights)
        self._left_s += len(weights) * self._per_benchmark_s
        self._patience_s += len(weights) * self._per_benchmark_s * PATIENCE

    def share_s(self, benchmarks: int, weight: float = 1.0) -> float:
        """Seconds for so many of one weight, measured together now; never less than half of what all get on average."""
        each_s = weight * self._left_s / self._left if self._left else self._per_benchmark_s
        return benchmarks * max(each_s, self._per_benchmark_s / 2)

    def patience_s(self, benchmarks: int, weight: float = 1.0) -> float:
        """Seconds that so many of one weight, measured together now, may lose to other work besides their share."""
        share = MOST_PATIENCE * benchmarks * weight / self._left if self._left else 1.0
        return self._patience_s * min(share, 1.0)

    def wait(self, seconds: float, *, found_calm: bool) -> None:
        """Note that a case has lost so much, and whether other work left any of its turns alone."""
        self._patience_s = max(self._patience_s - seconds, 0.0) * (1.0 if found_calm else KEPT_IN_VAIN)

    def spend(self, benchmarks: int, seconds: float, weight: float = 1.0) -> None:
        """Note that so many benchmarks of one weight have been measured, in so many seconds without waiting."""
        self._left = max(self._left - benchmarks * weight, 0.0)
        self._left_s = max(self._left_s - seconds, 0.0)
