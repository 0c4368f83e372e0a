"""What a workload takes where nothing disturbs it, found from the times of its steps in several rounds.

A round is the same steps each time: each batch's prefill, then a decode step for each later token. What disturbs them
only ever adds time, and seldom strikes the same step in every round. So of each step the fastest third of the rounds
counts, and the workload takes the sum of the steps. This is the reasoning for the minimum of repeated timings
("timeit", The Python Standard Library), for parts so short that some of them are left alone on a machine that never is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from statistics import fmean

FASTEST = 3  # one of so many rounds counts, for each step; one at least, and of a round that counts in part its part

Steps = Sequence[float]
"""(S,): seconds of each step of a round, in order."""


def undisturbed_s(rounds: Sequence[Steps]) -> tuple[float, ...]:
    """Seconds that the workload takes undisturbed, as each of the rounds sees it.

    rounds: (R, S). Returns (R,), whose geometric mean is the estimate, and whose logarithms scatter about it as
    jackknife pseudo-values do (Tukey, Ann. Math. Statist. 29, 1958): their standard deviation over sqrt(R) is its
    standard error. Of one round it is the round's latency. Raises ValueError where the rounds differ in their steps.
    """
    steps = [_Step(times) for times in zip(*rounds, strict=True)]
    whole = math.log(math.fsum(step.fastest_s() for step in steps))
    if len(rounds) == 1:
        return (math.exp(whole),)
    without = [math.log(math.fsum(step.fastest_s(number) for step in steps)) for number in range(len(rounds))]
    middle = fmean(without)
    return tuple(math.exp(whole + (len(rounds) - 1) * (middle - one)) for one in without)


class _Step:
    """The times of one step in R rounds."""

    def __init__(self, times_s: Steps) -> None:
        order = sorted(range(len(times_s)), key=times_s.__getitem__)
        self._ordered_s = [times_s[number] for number in order]
        self._sums_s = [0.0, *accumulate(self._ordered_s)]
        self._ranks = {number: rank for rank, number in enumerate(order)}

    def fastest_s(self, without: int | None = None) -> float:
        """The mean of the fastest third of the rounds, or of the rounds but one; from sums, not to sort R times."""
        rounds = len(self._ordered_s) - (without is not None)
        left_out = self._ranks[without] if without is not None else rounds
        kept = max(rounds / FASTEST, 1.0)
        whole = int(kept)
        total_s = self._sums_s[whole]
        if left_out < whole:
            total_s += self._ordered_s[whole] - self._ordered_s[left_out]
        if whole < kept:
            total_s += (kept - whole) * self._ordered_s[whole + (left_out <= whole)]
        return total_s / kept
