"""The verdicts of an analysis, by hand and by their symmetries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.paired.differences import JUDGED, Finding, Measurand, estimate
from llm_bench_fixtures.paired.sequential import judge_pairs
from llm_bench_fixtures.paired.tree import Hypothesis, HypothesisGroup

THRESHOLD, ALPHA, ERROR = 0.03, 0.01, 0.02
MIRROR = {
    Verdict.REGRESSED: Verdict.IMPROVED,
    Verdict.IMPROVED: Verdict.REGRESSED,
    Verdict.SLIGHTLY_WORSE: Verdict.SLIGHTLY_BETTER,
    Verdict.SLIGHTLY_BETTER: Verdict.SLIGHTLY_WORSE,
    Verdict.UNCHANGED: Verdict.UNCHANGED,
    Verdict.INCONCLUSIVE: Verdict.INCONCLUSIVE,
}
A = Measurand("a", "latency_s")
GROUP = HypothesisGroup("fp32", "latency_s")

measurands = st.builds(Measurand, st.sampled_from("abc"), st.sampled_from([metric.name for metric in JUDGED]))
pairs_of = st.lists(st.dictionaries(measurands, st.floats(-1, 1)), max_size=10)


def judged(pairs: list[dict[Measurand, float]], **variants: str) -> dict[Hypothesis, Finding]:
    return judge_pairs(pairs, variants, THRESHOLD, ALPHA, ERROR)


def columns(**values: list[float]) -> list[dict[Measurand, float]]:
    """Pairs, from the differences of each test."""
    return [
        {Measurand(test, "latency_s"): value for test, value in zip(values, row, strict=True)}
        for row in zip(*values.values(), strict=True)
    ]


def only(values: list[float]) -> Verdict:
    return judged(columns(a=values))[A].verdict


def test_fewer_than_three_pairs_say_nothing() -> None:
    assert only([0.5, 0.5]) is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([0.10, 0.11, 0.12, 0.11], Verdict.REGRESSED),
        ([-0.10, -0.11, -0.12, -0.11], Verdict.IMPROVED),
        ([0.001, -0.001, 0.0, 0.001], Verdict.UNCHANGED),
        ([0.010, 0.011, 0.012, 0.011], Verdict.UNCHANGED),  # surely slower, and surely by less than 3 %
        ([0.018, 0.025, 0.020, 0.027], Verdict.SLIGHTLY_WORSE),  # 2.3 %, and not surely below 3 %
        ([-0.018, -0.025, -0.020, -0.027], Verdict.SLIGHTLY_BETTER),
        ([0.028, 0.035, 0.030, 0.037], Verdict.REGRESSED),  # 3.3 %, and not surely above 3 %
        ([0.3, -0.3, 0.2, -0.1], Verdict.INCONCLUSIVE),
        ([0.05, 0.05, 0.05, 0.05], Verdict.REGRESSED),  # no spread at all
        ([0.0, 0.0, 0.0, 0.0], Verdict.UNCHANGED),
    ],
)
def test_each_verdict(values: list[float], verdict: Verdict) -> None:
    assert only(values) is verdict


def test_one_of_many_comparisons_has_to_be_surer_than_one_alone() -> None:
    """Its p of 0.007 is below 0.02 alone, and above 0.02 / 40 among forty."""
    values = [0.03, 0.05, 0.07, 0.045]
    found = estimate(values, ALPHA)
    assert found is not None
    assert ERROR / 40 < found.p < ERROR
    assert only(values) is Verdict.REGRESSED
    chance = {f"b{number}": [0.3, -0.3, 0.2, -0.2] for number in range(39)}
    assert judged(columns(a=values, **chance))[A].verdict is Verdict.INCONCLUSIVE


def test_a_slowdown_of_all_tests_of_a_variant_is_found_in_their_group() -> None:
    """Each test scatters by 4 % around its 4 %, so that it says nothing by itself; together they scatter by 0.1 %."""
    noise = [0.04, -0.04, 0.04, -0.04, 0.04, -0.04]
    pairs = columns(
        a=[0.04 + value for value in noise],
        b=[0.041 - value for value in noise],
        c=[0.04, 0.042, 0.04, 0.041, 0.04, 0.042],
    )
    found = judged(pairs, a="fp32", b="fp32", c="fp32")
    assert found[GROUP].verdict is Verdict.REGRESSED
    assert found[A].verdict is Verdict.REGRESSED
    assert found[A].is_of_group
    assert judged(columns(a=[0.04 + value for value in noise]))[A].verdict is Verdict.INCONCLUSIVE


def test_the_only_test_of_a_variant_is_judged_without_a_group() -> None:
    found = judged(columns(a=[0.01] * 3, b=[0.02] * 3, c=[0.03] * 3), a="fp32", b="fp32", c="int8")
    groups = {one.variant for one in found if isinstance(one, HypothesisGroup)}
    assert groups == {"", "fp32"}
    assert not found[Measurand("c", "latency_s")].is_of_group


def test_a_test_whose_group_is_unchanged_is_unchanged_if_something_is_known_of_it() -> None:
    """Its interval reaches 3 %. The interval of the one that scatters ten times as much reaches 8 x 3 %."""
    near, far = ([factor * value for value in (0.02, -0.02, 0.02, -0.02, 0.0)] for factor in (1, 10))
    calm = [0.001, -0.001, 0.001, -0.001, 0.0]
    variants = dict.fromkeys("abcde", "fp32")
    found = judged(columns(a=near, b=far, c=calm, d=calm, e=calm), **variants)
    assert found[GROUP].verdict is Verdict.UNCHANGED
    assert (found[A].verdict, found[A].is_of_group) == (Verdict.UNCHANGED, True)
    assert found[Measurand("b", "latency_s")].verdict is Verdict.INCONCLUSIVE
    assert only(near) is Verdict.INCONCLUSIVE


def test_a_test_that_stands_out_from_its_unchanged_group_stays_open() -> None:
    """It is 6 % slower with a p of 0.0009 of being as the others, which doesn't do to be found among many."""
    calm = [0.001, -0.001, 0.0, 0.001, -0.001]
    apart = [0.06 + value for value in (0.01, -0.01, 0.015, -0.015, 0.0)]
    names = [f"t{number}" for number in range(80)]
    found = judged(columns(a=apart, **dict.fromkeys(names, calm)), **dict.fromkeys(["a", *names], "fp32"))
    assert found[GROUP].verdict is Verdict.UNCHANGED
    assert found[A].estimate is not None
    assert 0.4 * ERROR / 81 < found[A].estimate.p < 0.001
    assert found[A].verdict is Verdict.INCONCLUSIVE


def test_a_slow_test_of_an_unchanged_group_is_found_by_itself() -> None:
    calm = [0.001, -0.001, 0.0, 0.001, -0.001]
    slow = [0.1 + value for value in calm]
    found = judged(columns(a=slow, b=calm, c=calm, d=calm), **dict.fromkeys("abcd", "fp32"))
    assert found[GROUP].verdict is Verdict.UNCHANGED
    assert (found[A].verdict, found[A].is_of_group) == (Verdict.REGRESSED, False)


@given(pairs_of)
def test_swapping_the_sides_mirrors_every_verdict(pairs: list[dict[Measurand, float]]) -> None:
    swapped = [{one: -value for one, value in pair.items()} for pair in pairs]
    variants = {"a": "fp32", "b": "fp32", "c": "bf16"}
    there, back = (judge_pairs(side, variants, THRESHOLD, ALPHA, ERROR) for side in (pairs, swapped))
    assert {key: MIRROR[found.verdict] for key, found in there.items()} == {
        key: found.verdict for key, found in back.items()
    }


def test_nothing_is_judged_of_nothing() -> None:
    assert judged([]) == {}
