"""Tests judged from the top down: all variants, each variant, each test, in each metric, with one error over all.

A slowdown seldom strikes one test alone. So the tests of a variant are also judged together, and so are all variants.
The difference of a group in a pair is the Hodges-Lehmann location of its members' differences in that pair: those of a
variant's tests, or those of all variants. It varies less than the difference of a test, and there are few groups.

Every group and every test is a hypothesis: that the sides don't differ in it. The probability that any true one is
rejected is held by a sequentially rejective procedure, in which a rejected hypothesis hands on its share of the error:
one of all variants to the variants, one of a variant to its tests, one of a test to the other tests of its variant
(Bretz and others 2009, "A graphical approach to sequentially rejective multiple test procedures"). Tests have a share
of their own from the start, so that a slowdown of a single one is found although its group hardly moves. The shares of
what isn't rejected never add up to more than the whole, and none shrinks when another hypothesis is rejected; from
these two conditions follows that the family-wise error is held, however the tests depend on each other (Goeman and
Solari 2010, "The sequential rejection principle of familywise error control").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from llm_bench_fixtures.grouping import grouped
from llm_bench_fixtures.paired.differences import Measurand
from llm_bench_fixtures.statistics.robust import hodges_lehmann

LEAST_MEMBERS = 2  # in a group; one of a single member would be that member again
LEAST_PRESENT = 0.5  # share of a group's members in a pair that counts for it
# How the error is divided at first between the groups of all variants, those of one variant, and the tests.
ALL_SHARE, VARIANT_SHARE, TEST_SHARE = 0.2, 0.4, 0.4


@dataclass(frozen=True)
class HypothesisGroup:
    """Several tests in one metric."""

    variant: str
    """Id of the variant whose tests they are; empty for the tests of all variants."""
    metric: str
    """Name of the metric."""


Hypothesis: TypeAlias = Measurand | HypothesisGroup


@dataclass(frozen=True)
class Tree:
    """Which tests belong to which groups."""

    variants: Mapping[HypothesisGroup, tuple[Measurand, ...]]
    """The tests of each variant in each metric; also of those that have a single one."""

    @staticmethod
    def of(measurands: Collection[Measurand], variants: Mapping[str, str]) -> Tree:
        """variants: by test, the id of its variant."""
        members = grouped(measurands, lambda one: HypothesisGroup(variants.get(one.test, ""), one.metric))
        return Tree({group: tuple(tests) for group, tests in members.items()})

    @property
    def of_all(self) -> Mapping[HypothesisGroup, tuple[HypothesisGroup, ...]]:
        """The groups of all variants, with the variants' groups; of metrics that several variants have."""
        members = grouped(self.variants, lambda group: HypothesisGroup("", group.metric))
        return {group: tuple(own) for group, own in members.items() if len(own) >= LEAST_MEMBERS}

    @property
    def of_variants(self) -> Mapping[HypothesisGroup, tuple[Measurand, ...]]:
        """The groups of one variant that are judged."""
        return {group: tests for group, tests in self.variants.items() if len(tests) >= LEAST_MEMBERS}

    def differences(self, pairs: Sequence[Mapping[Measurand, float]]) -> dict[HypothesisGroup, list[float]]:
        """Differences of each group that is judged, one for each pair that measured at least half of its members."""
        found: dict[HypothesisGroup, list[float]] = {group: [] for group in (*self.of_all, *self.of_variants)}
        for pair in pairs:
            located: dict[HypothesisGroup, float] = {}
            for group, tests in self.variants.items():
                present = [pair[test] for test in tests if test in pair]
                if len(present) >= LEAST_PRESENT * len(tests):
                    located[group] = hodges_lehmann(present)
            for group, own in self.of_all.items():
                if all(one in located for one in own):
                    found[group].append(hodges_lehmann([located[one] for one in own]))
            for group in self.of_variants:
                if group in located:
                    found[group].append(located[group])
        return found


def reject(
    tree: Tree, p_values: Mapping[Hypothesis, float], error: float, rejected: Collection[Hypothesis] = ()
) -> set[Hypothesis]:
    """The hypotheses that can be rejected with a family-wise error of at most `error`.

    p_values: of each hypothesis that there is a test of. rejected: those that are rejected already.
    """
    found = set(rejected)
    while True:
        levels = critical_levels(tree, error, found)
        new = {one for one, level in levels.items() if one not in found and p_values.get(one, 1.0) <= level}
        if not new:
            return found
        found |= new


def critical_levels(tree: Tree, error: float, rejected: Collection[Hypothesis]) -> dict[Hypothesis, float]:
    """The share of the error that each hypothesis has, once these are rejected. Those of the others add up to `error`
    at most."""
    counts = len(tree.of_all), len(tree.of_variants), sum(map(len, tree.variants.values()))
    shares = (ALL_SHARE, VARIANT_SHARE, TEST_SHARE)
    divided = sum(share for share, number in zip(shares, counts, strict=True) if number)
    own_all, own_variant, own_test = (  # before anything is rejected
        error * share / divided / number if number else 0.0 for share, number in zip(shares, counts, strict=True)
    )
    levels: dict[Hypothesis, float] = {}
    inherited: dict[HypothesisGroup, float] = defaultdict(float)
    for group, members in tree.of_all.items():
        levels[group] = own_all
        if group in rejected:
            inherited |= dict.fromkeys(members, own_all / len(members))
    for group, tests in tree.variants.items():
        share = inherited[group]
        if len(tests) >= LEAST_MEMBERS:
            share += own_variant
            levels[group] = share
        handed_on = share if group in rejected or len(tests) < LEAST_MEMBERS else 0.0
        left = [test for test in tests if test not in rejected]
        whole = own_test * len(tests) + handed_on
        levels |= dict.fromkeys(tests, whole / max(len(left), 1))
    return levels
