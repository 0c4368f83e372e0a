"""Groups of tests, and the family-wise error of what is found among them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from llm_bench_fixtures.paired.differences import Measurand
from llm_bench_fixtures.paired.tree import Hypothesis, HypothesisGroup, Tree, critical_levels, reject

VARIANTS = {"a1": "a", "a2": "a", "b1": "b", "b2": "b", "c1": "c"}
TESTS = {name: Measurand(name, "tpot_s") for name in VARIANTS}
TREE = Tree.of(TESTS.values(), VARIANTS)
ALL, OF_A, OF_B = HypothesisGroup("", "tpot_s"), HypothesisGroup("a", "tpot_s"), HypothesisGroup("b", "tpot_s")
HYPOTHESES: tuple[Hypothesis, ...] = (ALL, OF_A, OF_B, *TESTS.values())


def test_a_variant_of_one_test_is_no_group_of_its_own() -> None:
    """It is a member of the group of all variants all the same."""
    assert set(TREE.of_variants) == {OF_A, OF_B}
    assert {group.variant for group in TREE.of_all[ALL]} == {"a", "b", "c"}


def test_one_variant_has_no_group_of_all() -> None:
    tree = Tree.of([TESTS["a1"], TESTS["a2"]], VARIANTS)
    assert (dict(tree.of_all), set(tree.of_variants)) == ({}, {OF_A})


def test_the_differences_of_groups_by_hand() -> None:
    """The location of two values is their mean: a is 0.2, b is 0.4, c is 0.9; their three with each other give 0.45."""
    pair = dict(zip(TESTS.values(), (0.1, 0.3, 0.4, 0.4, 0.9), strict=True))
    found = TREE.differences([pair])
    assert found[OF_A] == pytest.approx([0.2])
    assert found[OF_B] == pytest.approx([0.4])
    assert found[ALL] == pytest.approx([(0.4 + 0.55) / 2])  # of .2, .3, .4, .55, .65 and .9


def test_a_pair_with_less_than_half_of_a_group_says_nothing_of_it() -> None:
    variants = dict.fromkeys("xyz", "a")
    tests = [Measurand(name, "tpot_s") for name in variants]
    tree = Tree.of(tests, variants)
    pairs = [dict.fromkeys(tests, 0.1), dict.fromkeys(tests[:2], 0.2), dict.fromkeys(tests[:1], 0.3)]
    assert tree.differences(pairs)[OF_A] == [0.1, 0.2]


def test_the_error_is_divided_between_the_levels_by_hand() -> None:
    """A fifth is for one group of all, two fifths for two groups of a variant, two fifths for five tests."""
    levels = critical_levels(TREE, 0.1, ())
    assert levels[ALL] == pytest.approx(0.02)
    assert levels[OF_A] == levels[OF_B] == pytest.approx(0.02)
    assert [levels[test] for test in TESTS.values()] == pytest.approx([0.008] * 5)


def test_what_is_rejected_hands_its_share_on_by_hand() -> None:
    """A third of the 0.02 of all goes to each variant; a's 0.02 + 0.02/3 and its tests' 0.016 are its second test's
    once the first is rejected."""
    levels = critical_levels(TREE, 0.1, {ALL, OF_A, TESTS["a1"]})
    third = 0.02 / 3
    assert levels[OF_B] == pytest.approx(0.02 + third)
    assert levels[TESTS["a2"]] == pytest.approx(0.016 + 0.02 + third)
    assert levels[TESTS["b1"]] == pytest.approx(0.008)
    assert levels[TESTS["c1"]] == pytest.approx(0.008 + third)


@given(st.sets(st.sampled_from(HYPOTHESES)), st.sets(st.sampled_from(HYPOTHESES)))
def test_the_two_conditions_of_a_sequentially_rejective_procedure(some: set[Hypothesis], more: set[Hypothesis]) -> None:
    """What isn't rejected has at most the whole error together, and none has less once more is rejected."""
    fewer, many = (critical_levels(TREE, 0.1, rejected) for rejected in (some, some | more))
    assert sum(level for one, level in fewer.items() if one not in some) <= 0.1 + 1e-12
    assert all(many[one] >= fewer[one] - 1e-12 for one in HYPOTHESES if one not in some | more)


def test_a_test_is_found_although_its_group_is_not() -> None:
    assert reject(TREE, {TESTS["a1"]: 0.007, OF_A: 0.5, ALL: 0.5}, 0.1) == {TESTS["a1"]}


def test_what_a_group_hands_on_helps_its_tests() -> None:
    """A p of 0.03 is above a test's own 0.008, and below the 0.018 that it has once its group is found: it isn't."""
    assert reject(TREE, {OF_A: 0.02, TESTS["a1"]: 0.018}, 0.1) == {OF_A, TESTS["a1"]}
    assert reject(TREE, {TESTS["a1"]: 0.018}, 0.1) == set()


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param(200, marks=pytest.mark.slow("hundreds of simulated runs")),
        pytest.param(2000, marks=pytest.mark.nightly("thousands of simulated runs")),
    ],
)
@pytest.mark.parametrize("shared", [0.0, 0.5, 0.95])
def test_no_more_than_the_error_of_runs_have_a_false_finding(shared: float, runs: int) -> None:
    """Eight tests of two variants in two metrics; tests of a variant share noise, metrics of a test are alike, and one
    test is really slow. 99.9 % of such simulations with an error of 5 % stay below the bound."""
    chance = np.random.default_rng(3)
    variants = {f"{variant}{number}": variant for variant in "ab" for number in range(4)}
    tree = Tree.of([Measurand(test, metric) for test in variants for metric in ("tpot_s", "latency_s")], variants)
    false = 0
    for _ in range(runs):
        common = {variant: chance.normal(size=(6, 1)) for variant in "ab"}
        values = {
            test: math.sqrt(shared) * common[variant] + math.sqrt(1 - shared) * chance.normal(size=(6, 1))
            for test, variant in variants.items()
        }
        values["a0"] = values["a0"] + 9.0
        pairs = [
            {Measurand(test, metric): float(value[pair, 0]) for test, value in values.items() for metric in METRICS}
            for pair in range(6)
        ]
        own = {one: [pair[one] for pair in pairs] for one in pairs[0]}
        samples: dict[Hypothesis, list[float]] = {**own, **tree.differences(pairs)}
        p_values = stats.ttest_1samp(list(samples.values()), 0, axis=1).pvalue
        found = reject(tree, dict(zip(samples, p_values.tolist(), strict=True)), 0.05)
        false += any(not is_slow(one) for one in found)
    assert false <= stats.binom.ppf(0.999, runs, 0.05)


METRICS = ("tpot_s", "latency_s")


def is_slow(one: Hypothesis) -> bool:
    return one.test == "a0" if isinstance(one, Measurand) else one.variant in ("", "a")
