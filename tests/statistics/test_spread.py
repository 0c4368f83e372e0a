from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from llm_bench_fixtures.statistics.spread import (
    coefficient_of_variation,
    interval,
    minimum_detectable_effect,
    percentile,
    pooled_deviation,
    stability,
    student_half_width,
    variance,
)

POSITIVE = st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=30)


def test_the_interval_of_three_values_by_hand() -> None:
    """Logarithms -1, 0, 1: mean 0, deviation 1; Student's t at 2 degrees of freedom and 97.5 % is 4.3027."""
    found = interval([math.exp(-1), 1.0, math.e])
    assert found is not None
    margin = 4.302653 / math.sqrt(3)
    assert (found.low, found.high) == pytest.approx((math.exp(-margin), math.exp(margin)))


@pytest.mark.parametrize(
    ("freedom", "confidence", "quantile"),
    [(1, 0.95, 12.706), (2, 0.95, 4.303), (10, 0.90, 1.812), (10, 0.99, 3.169), (120, 0.95, 1.980)],
)
def test_students_quantiles_are_those_of_printed_tables(freedom: int, confidence: float, quantile: float) -> None:
    assert student_half_width(1.0, freedom, confidence) == pytest.approx(quantile, abs=5e-4)
    assert student_half_width(0.5, freedom, confidence) == pytest.approx(quantile / 2, abs=5e-4)


@given(st.floats(0.5, 500), st.floats(0.01, 0.9999), st.floats(0.0, 10))
def test_students_half_width_is_that_of_scipys_interval(freedom: float, confidence: float, error: float) -> None:
    low, high = stats.t(freedom, scale=1).interval(confidence)
    assert student_half_width(error, freedom, confidence) == pytest.approx((high - low) / 2 * error)


def test_equal_values_have_an_interval_of_no_width() -> None:
    found = interval([2.0] * 5)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((2.0, 2.0))
    assert found.relative_half_width == pytest.approx(0)


def test_two_values_have_no_interval() -> None:
    assert interval([1.0, 2.0]) is None


@given(POSITIVE, st.floats(0.01, 100))
def test_the_relative_width_does_not_depend_on_the_unit(values: list[float], factor: float) -> None:
    own, scaled = interval(values), interval([value * factor for value in values])
    assert own is not None
    assert scaled is not None
    assert scaled.relative_half_width == pytest.approx(own.relative_half_width, rel=1e-6, abs=1e-9)


def test_the_coefficient_of_variation_by_hand() -> None:
    assert coefficient_of_variation([1.0, 2.0, 3.0]) == pytest.approx(0.5)
    assert coefficient_of_variation([1.0]) is None


@pytest.mark.parametrize(
    ("variation", "word"),
    [(0.0, "excellent"), (0.049, "excellent"), (0.05, "good"), (0.1, "fair"), (0.2, "unstable"), (3.0, "unstable")],
)
def test_the_word_for_a_variation(variation: float, word: str) -> None:
    assert stability(variation) == word


@pytest.mark.parametrize(("count", "share", "shown"), [(99, 0.99, False), (100, 0.99, True), (9, 0.9, False)])
def test_a_percentile_needs_values_that_can_lie_beyond_it(count: int, share: float, shown: bool) -> None:
    assert (percentile([1.0] * count, share) is not None) is shown


def test_percentiles_by_hand() -> None:
    """Of 0 ... 100 each percentile is its own number."""
    values = [float(value) for value in range(100, -1, -1)]
    assert [percentile(values, share) for share in (0.5, 0.9, 0.99)] == pytest.approx([50, 90, 99])
    assert percentile([1.0, 2.0], 0.5) == pytest.approx(1.5)


@given(POSITIVE)
def test_the_variance_is_that_of_exact_fractions(values: list[float]) -> None:
    assert variance(values) == pytest.approx(statistics.variance(values), rel=1e-9, abs=1e-12)


@given(st.floats(1e-3, 1e3), st.integers(2, 30))
def test_equal_values_have_no_variance(value: float, count: int) -> None:
    """Bug that this would be: what is left of rounding taken for noise."""
    assert variance([value] * count) == 0.0


def test_what_so_many_pairs_resolve_by_hand() -> None:
    """Student's quantiles with 7 degrees: 97.5 % is 2.3646, 95 % is 1.8946."""
    assert minimum_detectable_effect(0.01, 8, alpha=0.05) == pytest.approx(
        math.expm1((2.3646 + 1.8946) * 0.01 / math.sqrt(8)), rel=1e-4
    )
    assert minimum_detectable_effect(0.01, 2, alpha=0.05) == math.inf


def test_groups_are_pooled_around_their_own_means() -> None:
    """Variances 1 with one degree of freedom and 4 with two: (1 + 8) / 3."""
    groups = [[0.0, math.sqrt(2)], [8.0, 10.0, 12.0], [5.0]]
    assert pooled_deviation(groups) == pytest.approx(math.sqrt(3))
    assert pooled_deviation([[1.0]]) is None
