"""Looking often, and the false alarms of that."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from llm_bench_fixtures.paired.sequential import ALPHA, Looks, alpha_of_look
from llm_bench_fixtures.paired.statistics import Measurand, Verdict, estimate

A, B = Measurand("a", "latency_s"), Measurand("b", "latency_s")


def looked(values: list[float], pairs: int = 4) -> Looks:
    looks = Looks(0.03, pairs)
    for value in values:
        looks.add({A: value})
    looks.look()
    return looks


def test_all_looks_together_spend_alpha() -> None:
    assert sum(alpha_of_look(number) for number in range(1, 50)) == pytest.approx(ALPHA)


def test_a_look_is_due_at_so_many_pairs_then_at_half_as_many_again() -> None:
    looks = Looks(0.03, 4)
    due = []
    for _ in range(14):
        looks.add({A: 0.03 * (-1) ** looks.pairs})
        due.append(looks.is_due)
        if looks.is_due:
            looks.look()
    assert [number for number, is_due in enumerate(due, 1) if is_due] == [4, 6, 9, 14]


def test_what_is_settled_keeps_its_verdict_and_takes_no_more_pairs() -> None:
    looks = looked([0.1, 0.11, 0.1, 0.11])
    for _ in range(4):
        looks.add({A: -5.0})
    looks.look()
    assert looks.findings()[A].verdict is Verdict.REGRESSED
    assert len(looks.differences[A]) == 4
    assert looks.open_tests == ()


def test_what_is_open_is_looked_at_again() -> None:
    looks = looked([0.1, -0.1, 0.1, -0.1])
    assert looks.open_tests == ("a",)
    for value in [0.1, 0.11] * 20:
        looks.add({A: value})
    looks.look()
    assert looks.findings()[A].verdict is Verdict.REGRESSED


def test_looking_on_the_way_settles_nothing() -> None:
    looks = Looks(0.03, 4)
    for value in [0.0, 0.001, 0.0]:
        looks.add({A: value})
    assert looks.findings()[A].verdict is Verdict.UNCHANGED
    assert looks.open_tests == ("a",)


def test_what_stays_open_shows_the_interval_of_the_look_that_left_it_open() -> None:
    looks = Looks(0.03, 4)
    values = [0.1, -0.1, 0.1, -0.1]
    for value in values:
        looks.add({A: value})
    looks.look()
    assert looks.findings()[A].estimate == estimate(values, alpha_of_look(1))
    looks.add({A: 0.1})
    assert looks.findings()[A].estimate == estimate([*values, 0.1], alpha_of_look(2))


def test_a_forgotten_test_has_no_verdict() -> None:
    looks = Looks(0.03, 4)
    for _ in range(4):
        looks.add({A: 0.0, B: 0.0})
    looks.look()
    looks.forget("a")
    assert list(looks.findings()) == [B]


@pytest.mark.parametrize(
    ("scatter", "shared"),
    [([1.0], 0.0), ([1.0] * 10, 0.0), ([1.0] * 10, 0.5), ([2.0, *[1.0] * 9], 0.0), ([3.0, *[1.0] * 9], 0.0)],
)
def test_equal_versions_are_called_regressed_in_at_most_one_percent(scatter: list[float], shared: float) -> None:
    """Of each test, also of one that scatters more than those that it borrows from; three looks, tails like those of
    real noise, a part of which all tests of a pair share.

    With a threshold next to nothing, so that the threshold saves no false alarm. 99.9 % of such simulations with a
    rate of 1 % stay below the bound.
    """
    chance = np.random.default_rng(len(scatter))
    runs = 400
    alarms = np.zeros(len(scatter))
    for _ in range(runs):
        looks = Looks(1e-6, 8)
        for _ in range(3):
            while not looks.is_due:
                own = chance.standard_t(5, size=len(scatter))
                noise = math.sqrt(shared) * chance.standard_t(5) + math.sqrt(1 - shared) * own
                looks.add(
                    {
                        Measurand(str(test), "latency_s"): 0.02 * scatter[test] * noise[test]
                        for test in range(len(scatter))
                    }
                )
            looks.look()
        alarms += [found.verdict is Verdict.REGRESSED for found in looks.findings().values()]
    assert max(alarms) <= stats.binom.ppf(0.999, runs, ALPHA / 2)


def test_a_clear_slowdown_is_found_at_the_first_look() -> None:
    """Five percent, at a deviation of one between pairs, on one of ten tests: nearly always."""
    chance = np.random.default_rng(5)
    found = 0
    for _ in range(300):
        looks = Looks(0.03, 8)
        for _ in range(8):
            pair = {Measurand(str(test), "latency_s"): chance.normal(0.05 * (test == 0), 0.01) for test in range(10)}
            looks.add(pair)
        looks.look()
        found += looks.findings()[Measurand("0", "latency_s")].verdict is Verdict.REGRESSED
    assert found >= 0.95 * 300
