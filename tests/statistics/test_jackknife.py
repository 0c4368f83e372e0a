"""The standard error from leaving items out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

import pytest

from llm_bench_fixtures.statistics.spread import MOST_GROUPS, jackknife_error


def mean_of(items: Sequence[float]) -> float | None:
    return jackknife_error(len(items), lambda kept: fmean(items[item] for item in kept))


def test_of_a_mean_it_is_the_usual_one() -> None:
    """Deviations of -1.5, 0.5 and 1: a variance of 1.75 of three items."""
    assert mean_of([1.0, 3.0, 3.5]) == pytest.approx(math.sqrt(1.75 / 3))


def test_many_items_are_left_out_in_groups() -> None:
    """Three items a group, all alike within it: as if each group were one item."""
    groups = [float(number**2 % 17) for number in range(MOST_GROUPS)]
    items = [value for value in groups for _ in range(3)]
    assert mean_of(items) == pytest.approx(stdev(groups) / math.sqrt(MOST_GROUPS))


def test_one_item_tells_nothing_of_its_error() -> None:
    assert jackknife_error(1, lambda _: 1.0) is None


def test_what_does_not_depend_on_the_items_has_no_error() -> None:
    assert jackknife_error(7, lambda _: 2.0) == 0.0
