"""Items by what they have in common."""

from __future__ import annotations

from llm_bench_fixtures.grouping import grouped


def test_items_stand_with_those_of_their_key_in_the_order_in_which_they_come() -> None:
    found = grouped(["fp32", "bf16", "int8", "fp16"], lambda name: name[:-1])
    assert list(found.items()) == [("fp3", ["fp32"]), ("bf1", ["bf16"]), ("int", ["int8"]), ("fp1", ["fp16"])]
    assert grouped([3, 1, 2, 4], lambda number: number % 2) == {1: [3, 1], 0: [2, 4]}
