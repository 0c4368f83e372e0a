"""The verdicts of an analysis: on each group of tests, and on each test by itself or with its group."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.grouping import grouped
from llm_bench_fixtures.paired.differences import (
    MOST_BORROWED,
    Finding,
    Measurand,
    PairedDifference,
    estimate,
    verdict_of,
)
from llm_bench_fixtures.paired.tree import Hypothesis, HypothesisGroup, Tree, reject
from llm_bench_fixtures.statistics.ratio import LEAST_PAIRS
from llm_bench_fixtures.statistics.robust import common_scale
from llm_bench_fixtures.statistics.shrinkage import (
    LEAST_COMPARISONS,
    VarianceEstimate,
    estimate_prior,
    estimate_variance,
)

# A test that is open by itself has the verdict of its group, unless its difference is another one than the group's with
# so small a p that of a thousand tests about one is mistaken for another; or unless its own interval is so wide that it
# says nothing: in a group that is unchanged it may reach so many times the threshold.
STANDS_OUT = 0.001
ALONE = 8.0
# Groups of variants may borrow more of their variance than tests, because a pair loads each variant anew.
GROUPS_BORROW = 2.0
WORSE = (Verdict.REGRESSED, Verdict.SLIGHTLY_WORSE)
BETTER = (Verdict.IMPROVED, Verdict.SLIGHTLY_BETTER)
DIFFERENT = (*WORSE, *BETTER)


def is_alike(one: Finding, other: Finding) -> bool:
    """Whether both are worse, or both better."""
    return any({one.verdict, other.verdict} <= set(direction) for direction in (WORSE, BETTER))


H = TypeVar("H", Measurand, HypothesisGroup)


@dataclass(frozen=True)
class PairFindings:
    """Findings of an analysis."""

    tests: Mapping[Measurand, Finding]
    groups: Mapping[HypothesisGroup, Finding]


def judge_pairs(
    pairs: Sequence[Mapping[Measurand, float]],
    variants: Mapping[str, str],
    threshold: float,
    alpha: float,
    error: float,
    found_before: Collection[Hypothesis] = (),
) -> PairFindings:
    """A verdict on each test and on each group.

    pairs: the differences of each. variants: by test, the id of its variant. threshold: the share by which something
    may get worse, such as 0.03. alpha: of each interval. error: the family-wise error of all that is found.
    found_before: what earlier analyses found.
    """
    tests = by_measurand(pairs)
    tree = Tree.of(tests, variants)
    of_tests = _estimates(tests, alpha)
    of_groups = _estimates(tree.differences(pairs), alpha)
    p_values: dict[Hypothesis, float] = {one: known.p for one, known in of_tests.items() if known}
    p_values |= {one: known.p for one, known in of_groups.items() if known}
    found = reject(tree, p_values, error, found_before)
    limit = math.log1p(threshold)
    groups = {
        group: Finding(verdict_of(known, limit, is_found=group in found), known) for group, known in of_groups.items()
    }
    judged = {}
    for measurand, known in of_tests.items():
        own = Finding(verdict_of(known, limit, is_found=measurand in found), known)
        group = tree.group_of(measurand, variants)
        judged[measurand] = with_group(own, groups[group], limit) if group else own
    return PairFindings(judged, groups)


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


def _estimates(differences: Mapping[H, Sequence[float]], alpha: float) -> dict[H, PairedDifference | None]:
    """Estimates of each hypothesis; what is known of all those of one metric and one level helps with each."""
    levels = grouped(differences, _level)
    expected = {level: _expected([differences[one] for one in alike]) for level, alike in levels.items()}
    found: dict[H, PairedDifference | None] = {}
    for one, values in differences.items():
        most_borrowed = GROUPS_BORROW if isinstance(one, HypothesisGroup) else MOST_BORROWED
        found[one] = estimate(values, alpha, *expected[_level(one)], most_borrowed)
    return found


def _level(one: Measurand | HypothesisGroup) -> tuple[str, bool]:
    """Metric of a hypothesis, and whether it is of all variants."""
    return one.metric, isinstance(one, HypothesisGroup) and not one.variant


def _expected(groups: Sequence[Sequence[float]]) -> tuple[VarianceEstimate, float]:
    """The variance between pairs that is expected of any of them, and the standard deviation at least."""
    prior = estimate_prior([estimate_variance(values) for values in groups if len(values) >= LEAST_PAIRS])
    return prior, common_scale(groups) if len(groups) >= LEAST_COMPARISONS else 0.0
