"""Log ratios of several cases, and of several runs, as one: values derived by hand, and coverage with a fixed seed."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from llm_bench_fixtures.statistics.pooling import chance_of_distance, mean_over_cases, mean_over_runs
from llm_bench_fixtures.statistics.ratio import PROCESS_DEVIATION, LogRatio, trimmed_mean


def test_the_centre_is_the_mean_of_the_logarithms() -> None:
    """Twice and eight times as fast: four times, their geometric mean."""
    found = mean_over_cases([LogRatio(math.log(2), 0.1, 3), LogRatio(math.log(8), 0.1, 3)])
    assert math.exp(found.centre) == pytest.approx(4)


def test_the_variance_is_that_of_a_mean_of_independent_cases() -> None:
    """(0.03^2 + 0.04^2) / 2^2 is 0.025^2."""
    assert mean_over_cases([LogRatio(0.0, 0.03, 3), LogRatio(0.0, 0.04, 3)]).standard_error == pytest.approx(0.025)


def test_degrees_of_freedom_add_where_the_cases_are_as_sure_as_each_other() -> None:
    assert mean_over_cases([LogRatio(0.0, 0.1, 3), LogRatio(0.0, 0.1, 3)]).freedom == pytest.approx(6)
    assert mean_over_cases([LogRatio(0.0, 0.0, 3), LogRatio(0.0, 0.0, 4)]).freedom == 7


def test_what_processes_differ_by_counts_once() -> None:
    """The same processes ran all cases, so no number of cases makes it smaller."""
    assert mean_over_cases([LogRatio(0.0, 0.1, 3, 0.02)] * 4).process_variance == 0.02


def test_one_alone_stays_as_it_is() -> None:
    one = LogRatio(0.5, 0.1, 3, 0.02)
    found = mean_over_cases([one])
    assert (found.centre, found.freedom, found.process_variance) == (one.centre, pytest.approx(one.freedom), 0.02)
    assert found.standard_error == pytest.approx(one.standard_error)


def test_one_run_stays_as_it_is() -> None:
    one = LogRatio(0.5, 0.1, 3, 0.02)
    assert mean_over_runs([one]) == one


def test_a_run_counts_by_the_inverse_of_its_variance() -> None:
    """Variances of 1 and 3: weights of 3 to 1, so the mean of 0 and 0.04 is 0.01, and its variance 1 / (1 + 1/3)."""
    found = mean_over_runs([LogRatio(0.0, 0.6, 5, 0.64), LogRatio(0.04, math.sqrt(2.36), 5, 0.64)])
    assert found.centre == pytest.approx(0.01)
    assert found.standard_error == pytest.approx(math.sqrt(3 / 4))
    assert found.process_variance == 0.0


def test_runs_that_agree_give_a_narrower_interval_than_one() -> None:
    one = LogRatio(0.3, 0.01, 9, 2 * PROCESS_DEVIATION**2)
    widths = [mean_over_runs([one] * runs).margin(0.95) for runs in (1, 2, 3, 5)]
    assert widths == sorted(widths, reverse=True)
    assert widths[3] < 0.6 * widths[0]


def test_luck_makes_the_interval_no_narrower_than_the_runs_own_variances_do() -> None:
    """Two runs with a variance of 1e-4 each that came out the same: that of the mean is half of it, and no less."""
    found = mean_over_runs([LogRatio(0.3, 0.01, 9)] * 2)
    assert found.standard_error == pytest.approx(math.sqrt(1e-4 / 2))


def test_two_runs_that_are_far_apart_give_nearly_students_interval_of_one_degree_of_freedom() -> None:
    """0 and 1: their standard error is 1/2, and at 95 % Student's t with one degree of freedom 12.7."""
    found = mean_over_runs([LogRatio(0.0, 0.001, 9), LogRatio(1.0, 0.001, 9)])
    assert found.freedom == pytest.approx(1, rel=0.01)
    assert found.margin(0.95) == pytest.approx(12.706 / 2, rel=0.02)


def test_the_further_apart_the_runs_are_the_wider_is_the_interval() -> None:
    pairs = [[LogRatio(0.0, 0.01, 9), LogRatio(apart, 0.01, 9)] for apart in (0.0, 0.02, 0.04, 0.08)]
    widths = [mean_over_runs(pair).margin(0.95) for pair in pairs]
    assert widths == sorted(widths)


def test_the_reference_over_itself_is_known_exactly() -> None:
    found = mean_over_runs([LogRatio(0.0, 0.0, 4), LogRatio(0.0, 0.0, 4)])
    assert (found.centre, found.margin(0.95)) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("runs", "differ", "least"), [(2, 1, 0.95), (3, 1, 0.95), (5, 1, 0.95), (2, 2, 0.84), (3, 2, 0.87), (5, 2, 0.89)]
)
def test_the_interval_holds_the_truth(runs: int, differ: float, least: float) -> None:
    """Ten pairs a run that scatter by 3 %, and processes that differ as much as expected, or twice as much.

    One run's own interval holds the truth in 95 % of cases, and in 73 % where processes differ twice as much.
    """
    generator = random.Random(1)  # noqa: S311  # no secret
    held, trials = 0, 600
    for _ in range(trials):
        ratios = []
        for _ in range(runs):
            shift = generator.gauss(0, differ * math.sqrt(2) * PROCESS_DEVIATION)
            pairs = [generator.gauss(shift, 0.03) for _ in range(10)]
            ratios.append(replace(trimmed_mean(pairs, share=0.0), process_variance=2 * PROCESS_DEVIATION**2))
        found = mean_over_runs(ratios)
        held += abs(found.centre) <= found.margin(0.95)
    assert held / trials >= least - 0.02


def test_runs_as_far_apart_as_expected_are_likely_and_others_are_not() -> None:
    """Two that differ by a standard error of their difference: |z| > 1, of which about a third are."""
    apart = [[LogRatio(0.0, 0.01, 1e6), LogRatio(sigmas * 0.01 * math.sqrt(2), 0.01, 1e6)] for sigmas in (0, 1, 3)]
    assert [chance_of_distance(pair) for pair in apart] == [pytest.approx(p, abs=1e-3) for p in (1, 0.317, 0.003)]
    assert chance_of_distance(apart[2][:1]) == 1
