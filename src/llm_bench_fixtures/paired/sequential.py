"""A group sequential test of each measurand: when to analyze the differences, and what an interim analysis settles.

A measurand that an analysis settles keeps its verdict. Each analysis spends half of the error that the ones before it
left. Any number of analyses spends at most the whole, so by the union bound a comparison of equal versions is called
regressed with a probability of at most ALPHA / 2, and at least one of a run's comparisons with a probability of at most
FALSE_DISCOVERIES. With shrunk variances (shrinkage.py) both hold approximately.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.paired.statistics import Finding, Measurand, judge_differences

# Over all analyses, and in both directions.
ALPHA = 0.02  # of one comparison: 1 % of false regressions
FALSE_DISCOVERIES = 0.05  # the share of all that is found, on average
GROWTH = 1.5  # pairs at an analysis over pairs at the one before


def share_of_analysis(number: int) -> float:
    """The share of the error that the analysis spends; number: from 1. The sum over all numbers is 1."""
    return 0.5**number


def alpha_of_analysis(number: int) -> float:
    """The two-sided error that the analysis spends on one comparison."""
    return ALPHA * share_of_analysis(number)


class SequentialTests:
    """Collects the differences of each pair, and analyzes them when there are enough."""

    def __init__(self, threshold: float, pairs: int) -> None:
        """threshold: the share by which something may get worse. pairs: before the first analysis."""
        self.threshold = threshold
        self.next_analysis = pairs
        """Pairs at which the next analysis is due."""
        self.analyses = 0
        """Analyses so far."""
        self.pairs = 0
        """Pairs so far."""
        self.analyzed_pairs = 0
        """Pairs at the last analysis."""
        self.differences: dict[Measurand, list[float]] = defaultdict(list)
        self._settled: dict[Measurand, Finding] = {}

    def add(self, pair: Mapping[Measurand, float]) -> None:
        """The differences of one more pair. Those of settled measurands are left out."""
        self.pairs += 1
        for measurand, difference in pair.items():
            if measurand not in self._settled:
                self.differences[measurand].append(difference)

    @property
    def is_due(self) -> bool:
        """Whether there are enough pairs for the next analysis."""
        return self.pairs >= self.next_analysis

    def analyze(self) -> None:
        """Settle each measurand whose verdict isn't inconclusive."""
        findings = self.findings()
        self._settled = {
            measurand: finding for measurand, finding in findings.items() if finding.verdict is not Verdict.INCONCLUSIVE
        }
        self.analyses += 1
        self.analyzed_pairs = self.pairs
        self.next_analysis = max(math.ceil(self.next_analysis * GROWTH), self.pairs + 1)

    def findings(self) -> dict[Measurand, Finding]:
        """The finding on each measurand: the settled one, or else that of the last analysis.

        With pairs since the last analysis, what isn't settled is judged as the next analysis would judge it now. This
        settles nothing.
        """
        number = self.analyses + (self.pairs > self.analyzed_pairs or not self.analyses)
        false_discoveries = FALSE_DISCOVERIES * share_of_analysis(number)
        now = judge_differences(self.differences, self.threshold, alpha_of_analysis(number), false_discoveries)
        return now | self._settled

    def forget(self, test: str) -> None:
        """Remove a test that turned out not to be comparable; it has no finding."""
        for measurand in [measurand for measurand in self.differences if measurand.test == test]:
            del self.differences[measurand]
            self._settled.pop(measurand, None)

    @property
    def open_tests(self) -> tuple[str, ...]:
        """The tests with a measurand that isn't settled."""
        return tuple(dict.fromkeys(key.test for key in self.differences if key not in self._settled))
