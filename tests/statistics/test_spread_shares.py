"""Intervals of shares, by hand and by their definition."""

from __future__ import annotations

import math

import pytest

from llm_bench_fixtures.statistics.spread import exact_interval, wilson


def test_wilsons_interval() -> None:
    """Of 50 % in 100 trials: z^2 / n is 0.038416, the centre 0.5, the half-width 1.96 sqrt(0.0025 + 0.009604 / 100) /
    1.038416 = 0.0962."""
    found = wilson(0.5, 100)
    assert (found.low, found.high) == (pytest.approx(0.4038, abs=1e-4), pytest.approx(0.5962, abs=1e-4))
    assert all(wilson(1.0, trials).high == 1.0 and wilson(0.0, trials).low == 0.0 for trials in range(1, 200))


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [
        (0, 1, 0.0, 0.975),  # none of one: 1 - p = 0.025
        (1, 1, 0.025, 1.0),
        (0, 190, 0.0, 1 - 0.025 ** (1 / 190)),
        (190, 190, 0.025 ** (1 / 190), 1.0),
        (1, 2, 1 - math.sqrt(0.975), math.sqrt(0.975)),  # at least one: 1 - (1 - p)^2 = 0.025; at most one: 1 - p^2
        (5, 10, 0.187086, 0.812914),  # of the tables of Clopper and Pearson
    ],
)
def test_the_interval_by_hand(count: int, of: int, low: float, high: float) -> None:
    assert exact_interval(count, of) == pytest.approx((low, high), abs=1e-6)


@pytest.mark.parametrize(("count", "of"), [(1, 20), (3, 20), (7, 190), (19, 20)])
def test_its_ends_leave_two_and_a_half_per_cent_to_either_side(count: int, of: int) -> None:
    low, high = exact_interval(count, of)
    assert 1 - at_most(count - 1, of, low) == pytest.approx(0.025)
    assert at_most(count, of, high) == pytest.approx(0.025)


def at_most(count: int, of: int, share: float) -> float:
    """The probability of at most `count` of `of` with a share."""
    return math.fsum(math.comb(of, one) * share**one * (1 - share) ** (of - one) for one in range(count + 1))
