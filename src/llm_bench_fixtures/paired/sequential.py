"""The group sequential test: when to analyze the differences of tests and groups, the verdicts of an analysis on each
group of tests and on each test, by itself or with its group, and what an analysis settles.

What an analysis settles keeps its verdict. Each analysis spends half of the error that the ones before it left. Any
number of analyses spends at most the whole, so by the union bound at least one group or test of equal versions is
called worse in at most FAMILY_ERROR / 2 of runs. With shrunk variances this holds approximately.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from llm_bench_fixtures.gate.verdicts import BETTER, WORSE, Verdict
from llm_bench_fixtures.grouping import grouped
from llm_bench_fixtures.paired.differences import MOST_BORROWED, Finding, Measurand, estimate, verdict_of
from llm_bench_fixtures.paired.tree import Hypothesis, HypothesisGroup, Tree, reject
from llm_bench_fixtures.statistics.ratio import LEAST_PAIRS
from llm_bench_fixtures.statistics.robust import common_scale
from llm_bench_fixtures.statistics.shrinkage import (
    LEAST_COMPARISONS,
    VarianceEstimate,
    estimate_prior,
    variance_of,
)
from llm_bench_fixtures.statistics.spread import share_of_look

# Errors over all analyses, and in both directions.
ALPHA = 0.02  # for one interval
FAMILY_ERROR = 0.04  # for all groups and tests together: 2 % of runs with a false regression
GROWTH = 1.5  # pairs at an analysis over pairs at the one before
# A test that is open by itself has the verdict of its group, unless its difference is another one than the group's with
# so small a p that of a thousand tests about one is mistaken for another; or unless its own interval is so wide that it
# says nothing: in a group that is unchanged it may reach so many times the threshold.
STANDS_OUT = 0.001
ALONE = 8.0
# Groups of variants may borrow more of their variance than tests, because a pair loads each variant anew.
GROUPS_BORROW = 2.0
DIFFERENT = (*WORSE, *BETTER)


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
        for pair in self._pairs:
            for measurand in [measurand for measurand in pair if measurand.test == test]:
                del pair[measurand]
        self._settled = {
            one: own for one, own in self._settled.items() if not (isinstance(one, Measurand) and one.test == test)
        }

    @property
    def open_tests(self) -> tuple[str, ...]:
        """The tests with a metric that isn't settled."""
        known = dict.fromkeys(measurand for pair in self._pairs for measurand in pair)
        return tuple(dict.fromkeys(key.test for key in known if key not in self._settled))


def is_alike(one: Finding, other: Finding) -> bool:
    """Whether both are worse, or both better."""
    return any({one.verdict, other.verdict} <= set(direction) for direction in (WORSE, BETTER))


def judge_pairs(
    pairs: Sequence[Mapping[Measurand, float]],
    variants: Mapping[str, str],
    threshold: float,
    alpha: float,
    error: float,
    found_before: Collection[Hypothesis] = (),
) -> dict[Hypothesis, Finding]:
    """A verdict on each test, and then on each group.

    pairs: the differences of each. variants: by test, the id of its variant. threshold: the share by which something
    may get worse, such as 0.03. alpha: of each interval. error: the family-wise error of all that is found.
    found_before: what earlier analyses found.
    """
    tests = by_measurand(pairs)
    tree = Tree.of(tests, variants)
    differences = tests | tree.differences(pairs)
    expected = {level: _expected(alike, differences) for level, alike in grouped(differences, _level).items()}
    estimates = {one: estimate(values, alpha, *expected[_level(one)]) for one, values in differences.items()}
    found = reject(tree, {one: known.p for one, known in estimates.items() if known}, error, found_before)
    limit = math.log1p(threshold)
    judged = {one: Finding(verdict_of(known, limit, is_found=one in found), known) for one, known in estimates.items()}
    for group, members in tree.of_variants.items():
        judged |= {test: with_group(judged[test], judged[group], limit) for test in members}
    return judged


def by_measurand(pairs: Iterable[Mapping[Measurand, float]]) -> dict[Measurand, list[float]]:
    """The differences of all pairs that measured each."""
    found: dict[Measurand, list[float]] = defaultdict(list)
    for pair in pairs:
        for measurand, difference in pair.items():
            found[measurand].append(difference)
    return found


def with_group(own: Finding, group: Finding, limit: float) -> Finding:
    """The finding on a test, with the verdict of its group if its own differences don't stand out from the group's.

    In a group that is unchanged its interval has to lie within ALONE times the limit, too. In a group that differs its
    estimate has to have the sign of the group's. limit: the logarithm of 1 + the threshold.
    """
    known, of_group = own.estimate, group.estimate
    if own.verdict is not Verdict.INCONCLUSIVE or known is None or of_group is None:
        return own
    if group.verdict is Verdict.UNCHANGED:
        agrees = max(-known.low, known.high) < ALONE * limit
    else:
        agrees = group.verdict in DIFFERENT and known.mean * of_group.mean > 0
    if not agrees or known.p_of(of_group.mean) < STANDS_OUT:
        return own
    return replace(own, verdict=group.verdict, is_of_group=True)


def _level(one: Hypothesis) -> tuple[type[Hypothesis], str, bool]:
    """Tests, groups of a variant or those of all variants, in one metric."""
    return type(one), one.metric, isinstance(one, HypothesisGroup) and not one.variant


def _expected(
    alike: Sequence[Hypothesis], differences: Mapping[Hypothesis, Sequence[float]]
) -> tuple[VarianceEstimate, float, float]:
    """What is known of all hypotheses of one level helps with each: the variance between pairs that is expected of any
    of them, the standard deviation at least, and how much may be borrowed, as for `shrink`."""
    groups = [differences[one] for one in alike]
    prior = estimate_prior([variance_of(values) for values in groups if len(values) >= LEAST_PAIRS])
    scale = common_scale(groups) if len(groups) >= LEAST_COMPARISONS else 0.0
    return prior, scale, GROUPS_BORROW if isinstance(alike[0], HypothesisGroup) else MOST_BORROWED
