"""The group sequential test: when to analyze the differences of tests and groups, and what an analysis settles.

What an analysis settles keeps its verdict. Each analysis spends half of the error that the ones before it left. Any
number of analyses spends at most the whole, so by the union bound at least one group or test of equal versions is
called worse in at most FAMILY_ERROR / 2 of runs. With shrunk variances this holds approximately.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.paired.differences import Finding, Measurand
from llm_bench_fixtures.paired.judgement import DIFFERENT, by_measurand, judge_pairs
from llm_bench_fixtures.paired.tree import Hypothesis
from llm_bench_fixtures.statistics.spending import share_of_look

# Errors over all analyses, and in both directions.
ALPHA = 0.02  # for one interval
FAMILY_ERROR = 0.04  # for all groups and tests together: 2 % of runs with a false regression
GROWTH = 1.5  # pairs at an analysis over pairs at the one before


def alpha_of_analysis(number: int) -> float:
    """The two-sided error of each interval at the analysis."""
    return ALPHA * share_of_look(number)


class SequentialTests:
    """Collects the differences of each pair, and analyzes them when there are enough."""

    def __init__(self, threshold: float, pairs: int) -> None:
        """threshold: the share by which something may get worse. pairs: before the first analysis."""
        self.threshold = threshold
        self.next_analysis = pairs
        self.analyses = 0
        self.analyzed_pairs = 0
        """Pairs at the last analysis."""
        self._pairs: list[dict[Measurand, float]] = []
        self._variants: dict[str, str] = {}
        self._settled: dict[Hypothesis, Finding] = {}

    @property
    def pairs(self) -> int:
        """Pairs so far."""
        return len(self._pairs)

    @property
    def differences(self) -> dict[Measurand, tuple[float, ...]]:
        """Differences of each test and metric, from all pairs that measured it while it wasn't settled."""
        return {measurand: tuple(values) for measurand, values in by_measurand(self._pairs).items()}

    def add(self, pair: Mapping[Measurand, float], variants: Mapping[str, str]) -> None:
        """The differences of one more pair; settled ones are left out. variants: by test, its variant's id."""
        self._variants |= variants
        self._pairs.append({key: value for key, value in pair.items() if key not in self._settled})

    @property
    def is_due(self) -> bool:
        """Whether there are enough pairs for the next analysis."""
        return self.pairs >= self.next_analysis

    def analyze(self) -> None:
        """Settle each test and group whose verdict isn't inconclusive."""
        found = self.findings()
        self._settled = {one: own for one, own in found.items() if own.verdict is not Verdict.INCONCLUSIVE}
        self.analyses += 1
        self.analyzed_pairs = self.pairs
        self.next_analysis = max(math.ceil(self.next_analysis * GROWTH), self.pairs + 1)

    def findings(self) -> dict[Hypothesis, Finding]:
        """The settled findings, and for all else those of the last analysis.

        With pairs since the last analysis, what isn't settled is judged as the next analysis would judge it now. This
        settles nothing.
        """
        number = self.analyses + (self.pairs > self.analyzed_pairs or not self.analyses)
        alpha, error = alpha_of_analysis(number), FAMILY_ERROR * share_of_look(number)
        # Settled ones whose own differences are significant, not their group's alone.
        found_before = {one for one, own in self._settled.items() if own.verdict in DIFFERENT and not own.is_of_group}
        now = judge_pairs(self._pairs, self._variants, self.threshold, alpha, error, found_before)
        return {**now, **self._settled}

    def forget(self, test: str) -> None:
        """Remove a test that turned out not to be comparable; it has no finding."""
        self._pairs = [{one: value for one, value in pair.items() if one.test != test} for pair in self._pairs]
        self._settled = {
            one: own for one, own in self._settled.items() if not (isinstance(one, Measurand) and one.test == test)
        }

    @property
    def open_tests(self) -> tuple[str, ...]:
        """The tests with a metric that isn't settled."""
        known = dict.fromkeys(measurand for pair in self._pairs for measurand in pair)
        return tuple(dict.fromkeys(key.test for key in known if key not in self._settled))
