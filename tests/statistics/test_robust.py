"""Robust location and scale, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_bench_fixtures.statistics.robust import (
    bounded,
    clip_outliers,
    common_scale,
    hodges_lehmann,
    robust_deviation,
)


def test_the_robust_deviation_by_hand() -> None:
    """About the median 2 the distances are 1, 0 and 98."""
    assert robust_deviation([1.0, 2.0, 100.0]) == pytest.approx(1.4826)
    assert robust_deviation([7.0]) == 0


def test_deviations_are_bounded_by_their_median() -> None:
    """It is 2; a normal distribution's standard deviation is 1.4826 times as much, of which three count."""
    assert bounded([-1.0, 2.0, 100.0]) == pytest.approx([1.0, 2.0, 3 * 1.4826 * 2])


def test_the_location_of_three_values_by_hand() -> None:
    """Means of pairs, each with itself: 0, 1, 2, 0.5, 5, 5.5 and 10 of (0, 1, 10) give 0, .5, 1, 5, 5.5, 10."""
    assert hodges_lehmann([0.0, 1.0, 10.0]) == 3.0


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=20))
def test_the_location_turns_with_its_values(values: list[float]) -> None:
    assert hodges_lehmann([-value for value in values]) == -hodges_lehmann(values)
    assert min(values) <= hodges_lehmann(values) <= max(values)


def test_what_lies_far_off_is_drawn_in() -> None:
    """Around the median 0 the absolute deviations' median is 1, so that 4 x 1.4826 is the farthest."""
    values, kept = clip_outliers([-2.0, -1.0, 0.0, 1.0, 100.0], scale=0.0)
    assert values == pytest.approx([-2.0, -1.0, 0.0, 1.0, 4 * 1.4826])
    assert kept == 0.8


def test_what_other_tests_vary_by_is_not_far_off() -> None:
    values = [-2.0, -1.0, 0.0, 1.0, 100.0]
    assert clip_outliers(values, scale=25.0) == (values, 1.0)
    assert clip_outliers([0.0, 0.0, 9.0], scale=0.0) == ([0.0, 0.0, 9.0], 1.0)  # of three none is known to be far


def test_the_scale_is_around_each_groups_own_median() -> None:
    assert common_scale([[0.0, 1.0, 2.0], [100.0, 101.0, 102.0]]) == pytest.approx(1.4826)
    assert common_scale([]) == 0.0
