"""When to look at the differences, and what each look settles, so that looking often makes no more false alarms.

What is settled keeps its verdict. Each look spends half of the error that is left; over any number of looks that adds
up to the whole, so by the union bound a comparison of equal versions is called regressed with a probability of at most
ALPHA / 2, and any one of a run's with one of at most FALSE_DISCOVERIES; about so where tests lend each other variances.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.paired.statistics import Finding, Measurand, judge

# Over all looks, and in both directions.
ALPHA = 0.02  # of one comparison: 1 % of false regressions
FALSE_DISCOVERIES = 0.05  # the share of all that is found, on average
GROWTH = 1.5


def share_of_look(number: int) -> float:
    """Of the error. number: from 1. The sum over all of them is 1."""
    return 0.5**number


def alpha_of_look(number: int) -> float:
    """Of one comparison, on both sides."""
    return ALPHA * share_of_look(number)


class Looks:
    """Gathers the differences of each pair, and judges them when there are enough.

    pairs: after how many to look first; after that whenever there are half as many again. done: looks so far.
    """

    def __init__(self, threshold: float, pairs: int) -> None:
        self.threshold = threshold
        self.next_look = pairs
        self.done = 0
        self.pairs = 0
        self.looked_at = 0  # pairs
        self.differences: dict[Measurand, list[float]] = defaultdict(list)
        self._settled: dict[Measurand, Finding] = {}

    def add(self, pair: Mapping[Measurand, float]) -> None:
        """The differences of one more pair; settled ones that come again are left out."""
        self.pairs += 1
        for measurand, difference in pair.items():
            if measurand not in self._settled:
                self.differences[measurand].append(difference)

    @property
    def is_due(self) -> bool:
        return self.pairs >= self.next_look

    def look(self) -> None:
        """Settle what can be settled now."""
        findings = self.findings()
        self._settled = {
            measurand: finding for measurand, finding in findings.items() if finding.verdict is not Verdict.INCONCLUSIVE
        }
        self.done += 1
        self.looked_at = self.pairs
        self.next_look = max(math.ceil(self.next_look * GROWTH), self.pairs + 1)

    def findings(self) -> dict[Measurand, Finding]:
        """Of every measurand: as it was settled, or else as the last look judged it, or as one would now where there
        are more pairs since. Asking for them settles nothing."""
        number = self.done + (self.pairs > self.looked_at or not self.done)
        false_discoveries = FALSE_DISCOVERIES * share_of_look(number)
        now = judge(self.differences, self.threshold, alpha_of_look(number), false_discoveries)
        return now | self._settled

    def forget(self, test: str) -> None:
        """A test that turned out not to be comparable has no verdict."""
        for measurand in [measurand for measurand in self.differences if measurand.test == test]:
            del self.differences[measurand]
            self._settled.pop(measurand, None)

    @property
    def open_tests(self) -> tuple[str, ...]:
        """The tests with a measurand that isn't settled."""
        return tuple(dict.fromkeys(key.test for key in self.differences if key not in self._settled))
