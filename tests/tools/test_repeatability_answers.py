"""How far the answers of several runs agree, from runs written by hand."""

from __future__ import annotations

import math

import pytest
import repeatability_answers
from repeatability_answers import READERS, RunAnswer, answer_of
from run_factory import make_block_record, make_run, make_variant

from llm_bench_fixtures.answer.need import Reader

KEPT = frozenset({"bf16", "int8"})


def answer(bf16: float, int8: float, *winners: str, kept: frozenset[str] = KEPT) -> RunAnswer:
    """Of one reader; the speed-ups of both variants."""
    headlines = {(Reader.LATENCY, "bf16"): math.log(bf16), (Reader.LATENCY, "int8"): math.log(int8)}
    named = {Reader.LATENCY: frozenset(winners), Reader.THROUGHPUT: frozenset(("fp32",))}
    return RunAnswer("fp32", headlines, named, kept, {})


def test_an_answer_has_the_headlines_speedups_and_who_wins() -> None:
    """fp16 runs what fp32 runs, so it has no headline, but a claim that is known to be right or wrong."""
    records = [
        make_block_record(spread=0.0),
        make_block_record("fp16", 1.3),
        make_block_record("v0", 2.0),
        make_block_record("v1", 1.2),
    ]
    variants = [make_variant(), make_variant("fp16", configuration="configuration of fp32")]
    found = answer_of(make_run(records, [*variants, make_variant("v0"), make_variant("v1")]))
    assert found.headlines == {
        (Reader.LATENCY, "v0"): pytest.approx(math.log(2)),
        (Reader.LATENCY, "v1"): pytest.approx(math.log(1.2)),
    }
    assert found.winners[Reader.LATENCY] == {"v0"}
    assert found.identical == {Reader.LATENCY: (True,), Reader.THROUGHPUT: ()}
    assert found.kept >= {"fp32", "v0", "v1"}


def test_headlines_differ_by_the_logarithm_of_their_ratio() -> None:
    answers = [answer(2.0, 3.0), answer(2.2, 3.0)]
    assert sorted(repeatability_answers.headline_differences(answers)) == [0.0, pytest.approx(math.log(1.1))]


def test_two_runs_share_a_winner_where_one_of_those_tied_is_the_same() -> None:
    """The first two share bf16; the third has int8 alone. Of throughput all three name fp32."""
    answers = [answer(2.0, 2.0, "bf16", "int8"), answer(2.0, 1.9, "bf16"), answer(1.9, 2.0, "int8")]
    assert sorted(repeatability_answers.shared_winners(answers)) == [False, True, True, True, True, True]


def test_whom_no_run_serves_has_no_winner_to_share() -> None:
    """Bug: runs without a largest batch were said to disagree on the most throughput."""
    answers = [RunAnswer("fp32", {}, dict.fromkeys(READERS, frozenset()), KEPT, {})] * 2
    assert list(repeatability_answers.shared_winners(answers)) == []


@pytest.mark.parametrize(
    ("int8", "winners", "expected"),
    [(1.8, ("bf16",), True), (1.8, ("bf16", "int8"), False), (1.8, ("int8",), False), (1.9, ("int8",), None)],
)
def test_who_is_a_tenth_ahead_has_to_win_alone(int8: float, winners: tuple[str, ...], expected: bool | None) -> None:
    """By the other run's values bf16 is 2 and int8 1.8, so 11 % behind; 1.9 is 5 % behind, and asks for nothing."""
    judged, other = answer(9.0, 9.0, *winners), answer(2.0, int8, "bf16", kept=frozenset())
    found = list(repeatability_answers.lone_winners([judged, other]))
    assert found == ([] if expected is None else [expected])


def test_the_reference_is_ahead_of_variants_that_are_slower() -> None:
    judged, other = answer(1.0, 1.0, "fp32"), answer(0.5, 0.9, "fp32")
    assert list(repeatability_answers.lone_winners([judged, other])) == [True]
