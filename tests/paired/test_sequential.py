"""The group sequential test, and its false alarms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from llm_bench_fixtures.gate.verdicts import WORSE, Verdict
from llm_bench_fixtures.paired.differences import Measurand, estimate
from llm_bench_fixtures.paired.sequential import ALPHA, FAMILY_ERROR, SequentialTests, alpha_of_analysis
from llm_bench_fixtures.paired.tree import HypothesisGroup

A, B = Measurand("a", "latency_s"), Measurand("b", "latency_s")


def analyzed(values: list[float], pairs: int = 4) -> SequentialTests:
    tests = SequentialTests(0.03, pairs)
    for value in values:
        tests.add({A: value}, {})
    tests.analyze()
    return tests


def test_all_analyses_together_spend_alpha() -> None:
    assert sum(alpha_of_analysis(number) for number in range(1, 50)) == pytest.approx(ALPHA)


def test_an_analysis_is_due_at_so_many_pairs_then_at_half_as_many_again() -> None:
    tests = SequentialTests(0.03, 4)
    due = []
    for _ in range(14):
        tests.add({A: 0.03 * (-1) ** tests.pairs}, {})
        due.append(tests.is_due)
        if tests.is_due:
            tests.analyze()
    assert [number for number, is_due in enumerate(due, 1) if is_due] == [4, 6, 9, 14]


def test_what_is_settled_keeps_its_verdict_and_takes_no_more_pairs() -> None:
    tests = analyzed([0.1, 0.11, 0.1, 0.11])
    for _ in range(4):
        tests.add({A: -5.0}, {})
    tests.analyze()
    assert tests.findings()[A].verdict is Verdict.REGRESSED
    assert len(tests.differences[A]) == 4
    assert tests.open_tests == ()


def test_what_is_open_is_analyzed_again() -> None:
    tests = analyzed([0.1, -0.1, 0.1, -0.1])
    assert tests.open_tests == ("a",)
    for value in [0.1, 0.11] * 20:
        tests.add({A: value}, {})
    tests.analyze()
    assert tests.findings()[A].verdict is Verdict.REGRESSED


def test_asking_for_findings_settles_nothing() -> None:
    tests = SequentialTests(0.03, 4)
    for value in [0.0, 0.001, 0.0]:
        tests.add({A: value}, {})
    assert tests.findings()[A].verdict is Verdict.UNCHANGED
    assert tests.open_tests == ("a",)


def test_what_stays_open_shows_the_interval_of_the_analysis_that_left_it_open() -> None:
    tests = SequentialTests(0.03, 4)
    values = [0.1, -0.1, 0.1, -0.1]
    for value in values:
        tests.add({A: value}, {})
    tests.analyze()
    assert tests.findings()[A].estimate == estimate(values, alpha_of_analysis(1))
    tests.add({A: 0.1}, {})
    assert tests.findings()[A].estimate == estimate([*values, 0.1], alpha_of_analysis(2))


def test_a_forgotten_test_has_no_verdict() -> None:
    tests = SequentialTests(0.03, 4)
    for _ in range(4):
        tests.add({A: 0.0, B: 0.0}, {})
    tests.analyze()
    tests.forget("a")
    assert A not in tests.findings()
    assert B in tests.findings()


def test_a_group_that_is_found_keeps_its_verdict() -> None:
    """The later pairs of its tests say the opposite."""
    tests = SequentialTests(0.03, 4)
    variants = {"a": "fp32", "b": "fp32"}
    for number in range(12):
        tests.add({A: 0.1 + number / 1e4, B: 0.1 - number / 1e4} if number < 4 else {A: -0.1, B: -0.1}, variants)
        if number in (3, 11):
            tests.analyze()
    assert tests.findings()[HypothesisGroup("fp32", "latency_s")].verdict is Verdict.REGRESSED


ALL_NIGHT = pytest.mark.nightly("hundreds of simulated runs")


@pytest.mark.parametrize(
    ("own", "shared", "scatter", "runs"),
    [
        pytest.param(0.7, 0.7, 3.0, 60, marks=pytest.mark.slow("sixty simulated runs")),
        *(pytest.param(*how, 400, marks=ALL_NIGHT) for how in ((1, 0, 1), (0.7, 0.7, 1), (0.7, 0.7, 3), (0.1, 1, 1))),
    ],
)
def test_equal_versions_are_called_worse_in_at_most_two_percent_of_runs(
    own: float, shared: float, scatter: float, runs: int
) -> None:
    """In any group or test, over all analyses, with a threshold next to nothing, which saves no false alarm.

    Forty tests of four variants. Noise has tails like those of real noise; a part is shared by a pair's tests of a
    variant, and one test scatters `scatter` times as much as the others. 99.9 % of such simulations with a rate of 2 %
    stay below the bound.
    """
    chance = np.random.default_rng(7)
    variants = {f"{variant}{number}": f"v{variant}" for variant in range(4) for number in range(10)}
    alarms = 0
    for _ in range(runs):
        tests = SequentialTests(1e-6, 8)
        for _ in range(2):
            while not tests.is_due:
                of_variant = {variant: chance.standard_t(5) for variant in set(variants.values())}
                tests.add(
                    {
                        Measurand(test, "tpot_s"): 0.02
                        * (scatter if test == "00" else 1.0)
                        * (shared * of_variant[variant] + own * chance.standard_t(5))
                        for test, variant in variants.items()
                    },
                    variants,
                )
            tests.analyze()
        found = tests.findings()
        alarms += any(one.verdict in WORSE for one in found.values())
    assert alarms <= stats.binom.ppf(0.999, runs, FAMILY_ERROR / 2)


@pytest.mark.parametrize(
    "runs", [pytest.param(20, marks=pytest.mark.slow("dozens of simulated runs")), pytest.param(60, marks=ALL_NIGHT)]
)
@pytest.mark.parametrize(
    ("slow", "percent", "least"), [(("v0",), 0.05, 0.95), (("v0",), 0.03, 0.80), (("00",), 0.10, 0.90)]
)
def test_slowdowns_of_one_variant_and_of_one_test_are_found(
    slow: tuple[str, ...], percent: float, least: float, runs: int
) -> None:
    """Among a hundred tests of four variants, after eight pairs: of a variant whose load scatters by 1 %, and of a test
    that scatters by 2 % besides."""
    chance = np.random.default_rng(5)
    variants = {f"{variant}{number}": f"v{variant}" for variant in range(4) for number in range(25)}
    found = 0
    for _ in range(runs):
        tests = SequentialTests(0.03, 8)
        for _ in range(8):
            of_variant = {variant: chance.normal(0, 0.01) for variant in set(variants.values())}
            tests.add(
                {
                    Measurand(test, "tpot_s"): of_variant[variant]
                    + chance.normal(percent * (test in slow or variant in slow), 0.02)
                    for test, variant in variants.items()
                },
                variants,
            )
        tests.analyze()
        findings = tests.findings()
        asked = findings[Measurand("00", "tpot_s")]
        found += (asked if slow == ("00",) else findings[HypothesisGroup("v0", "tpot_s")]).verdict in WORSE
    assert found >= least * runs
