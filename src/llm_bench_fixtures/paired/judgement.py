"""The verdicts of an analysis: on each group of tests, and on each test by itself or with its group."""

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
    estimate_variance,
)

# A test that is open by itself has the verdict of its group, unless its difference is another one than the group's with
# so small a p that of a thousand tests about one is mistaken for another; or unless its own interval is so wide that it
# says nothing: in a group that is unchanged it may reach so many times the threshold.
STANDS_OUT = 0.001
ALONE = 8.0
# Groups of variants may borrow more of their variance than tests, because a pair loads each variant anew.
GROUPS_BORROW = 2.0
DIFFERENT = (*WORSE, *BETTER)


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
    differences: dict[Hypothesis, list[float]] = {**tests, **tree.differences(pairs)}
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
    prior = estimate_prior([estimate_variance(values) for values in groups if len(values) >= LEAST_PAIRS])
    scale = common_scale(groups) if len(groups) >= LEAST_COMPARISONS else 0.0
    return prior, scale, GROUPS_BORROW if isinstance(alike[0], HypothesisGroup) else MOST_BORROWED
