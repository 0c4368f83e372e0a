"""Variance shrinkage, by hand and with simulated tests."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from llm_bench_fixtures.statistics.shrinkage import (
    NO_PRIOR,
    VarianceEstimate,
    estimate_prior,
    inverse_trigamma,
    shrink,
    variance_of,
)


def test_the_variance_of_values_by_hand() -> None:
    assert variance_of([1.0, 2.0, 3.0]) == VarianceEstimate(1.0, 2)


def test_the_mean_of_both_goes_by_degrees_of_freedom() -> None:
    """One that is smaller than expected borrows as much as it has: (6 × 1 + 6 × 4) / 12 is 2.5."""
    assert shrink(VarianceEstimate(1.0, 6), VarianceEstimate(4.0, 100), most_borrowed=1.0) == VarianceEstimate(2.5, 12)
    assert shrink(VarianceEstimate(1.0, 6), VarianceEstimate(4.0, 2)) == VarianceEstimate(1.75, 8)
    assert shrink(VarianceEstimate(1.0, 3), NO_PRIOR) == VarianceEstimate(1.0, 3)


def test_what_is_unlikely_to_be_so_large_borrows_little() -> None:
    """With as many degrees of freedom on both sides, F = 1 is the median; 4 is exceeded once in 25 times."""
    assert shrink(VarianceEstimate(1.0, 7), VarianceEstimate(1.0, 7)).freedom == pytest.approx(14)
    likeness = 2 * stats.f.sf(4.0, 7, 7)
    assert shrink(VarianceEstimate(4.0, 7), VarianceEstimate(1.0, 7)).freedom == pytest.approx(7 + 7 * likeness)
    assert shrink(VarianceEstimate(100.0, 7), VarianceEstimate(1.0, 7)).freedom < 7.01


@pytest.mark.parametrize("variances", [[], [VarianceEstimate(1.0, 7)] * 2, [VarianceEstimate(0.0, 7)] * 10])
def test_too_few_tests_say_nothing_of_another(variances: list[VarianceEstimate]) -> None:
    assert estimate_prior(variances) == NO_PRIOR


def test_pairs_that_agree_but_for_rounding_say_nothing_of_others() -> None:
    """Their logarithms would be far below all others and make these look as if they differed."""
    usual = [VarianceEstimate(2.0, 7)] * 5
    assert estimate_prior([*usual, VarianceEstimate(1e-30, 7)]) == estimate_prior(usual)


def test_tests_that_scatter_alike_count_as_one_but_for_no_more_than_all_of_them() -> None:
    """log(2) - digamma(3.5) + log(3.5) is what each of the logarithms is expected to be short of the true one."""
    prior = estimate_prior([VarianceEstimate(2.0, 7)] * 5)
    assert prior.freedom == 35
    assert prior.variance == pytest.approx(2.0 * 3.5 / math.exp(special.psi(3.5)), rel=1e-4)


def test_tests_that_scatter_each_in_its_own_way_keep_that() -> None:
    wild = [VarianceEstimate(10.0**power, 7) for power in range(-8, 9, 2)]
    assert estimate_prior(wild).freedom < 0.2
    assert shrink(wild[0], estimate_prior(wild)).freedom == pytest.approx(7, abs=0.2)


@pytest.mark.parametrize("freedom", [4.0, 20.0])
def test_a_known_prior_is_found_again(freedom: float) -> None:
    """Ten thousand tests whose variances are drawn as the formula has it: 3 × freedom / chi²(freedom)."""
    chance = np.random.default_rng(0)
    true = 3.0 * freedom / chance.chisquare(freedom, 10_000)
    seen = true * chance.chisquare(7, 10_000) / 7
    prior = estimate_prior([VarianceEstimate(float(variance), 7) for variance in seen])
    assert prior.freedom == pytest.approx(freedom, rel=0.15)
    assert prior.variance == pytest.approx(3.0, rel=0.03)


@given(st.floats(1e-5, 1e5))
def test_the_inverse_of_trigamma(half: float) -> None:
    assert inverse_trigamma(float(special.polygamma(1, half))) == pytest.approx(half, rel=1e-6)


@pytest.mark.parametrize("value", [0.0, -1.0, 1e-9])
def test_nothing_left_to_explain_is_as_alike_as_can_be(value: float) -> None:
    assert inverse_trigamma(value) == 1e6
