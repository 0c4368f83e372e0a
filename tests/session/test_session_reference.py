"""What is kept of the reference's answers."""

from __future__ import annotations

from llm_bench_fixtures.measure.choices import ChoiceItem
from llm_bench_fixtures.models.backends import CATALOGUE
from llm_bench_fixtures.models.variants import select_variants
from llm_bench_fixtures.session.reference import KeptReference

ITEMS = [ChoiceItem(prompt, ("first", "second"), 0) for prompt in ("Which", "And which")]
FP32, BF16 = select_variants("fp32,bf16", CATALOGUE, "fp32")


def test_answers_are_compared_with_the_references_which_came_before() -> None:
    kept = KeptReference("fp32")
    assert kept.compare_answers(FP32.id, ITEMS, (0, 1)) == {}
    assert kept.compare_answers(BF16.id, ITEMS, (1, 1))["flips_lost"] == 1
    assert kept.compare_answers(BF16.id, ITEMS, (0, 0))["flips_gained"] == 1


def test_without_the_references_answers_there_is_nothing_to_compare_with() -> None:
    assert KeptReference("fp32").compare_answers(BF16.id, ITEMS, (0, 0)) == {}
