"""Flips and their interval, by numbers that can be checked by hand."""

from __future__ import annotations

import pytest

from llm_bench_fixtures.measure.choices import AnswerIndex, ChoiceItem, accuracy_metrics, flip_metrics
from llm_bench_fixtures.statistics.spread import exact_interval

ITEMS = [ChoiceItem("Which", ("first", "second", "third"), 1)] * 10  # the right answer is always 1
WAS: list[AnswerIndex] = [1, 1, 1, 1, 1, 1, 0, 0, 2, 2]  # six right


def test_accuracy_is_the_share_of_right_answers() -> None:
    assert accuracy_metrics(ITEMS, WAS) == {"choice_items": 10, "choice_accuracy": 0.6}


def test_no_answer_is_a_wrong_one() -> None:
    assert accuracy_metrics(ITEMS[:2], [None, 1])["choice_accuracy"] == 0.5


def test_flips_of_both_directions_are_counted_and_other_wrong_answers_are_not() -> None:
    """Two right ones lost, to 0 and to nothing; one gained; one wrong one is another wrong one now."""
    answers: list[AnswerIndex] = [0, None, 1, 1, 1, 1, 1, 2, 2, 2]
    found = flip_metrics(ITEMS, answers, WAS)
    low, high = exact_interval(3, 10)
    assert found == {
        "flips": 0.3,
        "flips_low": low,
        "flips_high": high,
        "flips_lost": 2,
        "flips_gained": 1,
        "answers_changed": 0.4,
    }


def test_flips_that_cancel_out_are_hidden_by_the_accuracy() -> None:
    answers: list[AnswerIndex] = [0, 0, 1, 1, 1, 1, 1, 1, 2, 2]
    assert accuracy_metrics(ITEMS, answers) == accuracy_metrics(ITEMS, WAS)
    found = flip_metrics(ITEMS, answers, WAS)
    assert (found["flips"], found["flips_lost"], found["flips_gained"]) == (0.4, 2, 2)


def test_the_same_answers_have_no_flip() -> None:
    found = flip_metrics(ITEMS, WAS, WAS)
    assert (found["flips"], found["flips_low"], found["answers_changed"]) == (0.0, 0.0, 0.0)
    assert found["flips_high"] == pytest.approx(1 - 0.025 ** (1 / 10))
