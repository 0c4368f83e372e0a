"""Speed-ups of several workloads as one: values derived by hand."""

from __future__ import annotations

import math

import pytest

from llm_bench_fixtures.answer.pooling import pooled
from llm_bench_fixtures.statistics.ratio import LogRatio


def test_the_centre_is_the_mean_of_the_logarithms() -> None:
    """Twice and eight times as fast: four times, their geometric mean."""
    found = pooled([LogRatio(math.log(2), 0.1, 3), LogRatio(math.log(8), 0.1, 3)])
    assert math.exp(found.centre) == pytest.approx(4)


def test_the_variance_is_that_of_a_mean_of_independent_cases() -> None:
    """(0.03^2 + 0.04^2) / 2^2 is 0.025^2."""
    assert pooled([LogRatio(0.0, 0.03, 3), LogRatio(0.0, 0.04, 3)]).standard_error == pytest.approx(0.025)


def test_degrees_of_freedom_add_where_the_cases_are_as_sure_as_each_other() -> None:
    assert pooled([LogRatio(0.0, 0.1, 3), LogRatio(0.0, 0.1, 3)]).freedom == pytest.approx(6)
    assert pooled([LogRatio(0.0, 0.0, 3), LogRatio(0.0, 0.0, 4)]).freedom == 7


def test_what_processes_differ_by_counts_once() -> None:
    """The same processes ran all cases, so no number of cases makes it smaller."""
    assert pooled([LogRatio(0.0, 0.1, 3, 0.02)] * 4).process_variance == 0.02


def test_one_alone_stays_as_it_is() -> None:
    one = LogRatio(0.5, 0.1, 3, 0.02)
    found = pooled([one])
    assert (found.centre, found.freedom, found.process_variance) == (one.centre, pytest.approx(one.freedom), 0.02)
    assert found.standard_error == pytest.approx(one.standard_error)
