"""The order of a run's cases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llm_bench_fixtures.session.plan import Case, Place, Plan, Stage, latency_cases, loads_in

ALL = frozenset({"fp32", "bf16", "nf4"})
LENGTHS = [Case(f"prompt_length[{tokens}]", "prompt_length", ALL, tokens) for tokens in (16, 256, 64, 128)]
BATCHES = [Case(f"batch[{size}]", "batch", ALL, size) for size in (1, 8, 4)]
CACHE = Case("cache[off]", "cache", ALL)


def test_the_middle_prompt_length_comes_first_then_the_largest_batch() -> None:
    plan = Plan([CACHE, *BATCHES, *LENGTHS], [ALL])
    assert plan.stage("prompt_length[64]") is Stage.LATENCY
    assert plan.stage("batch[8]") is Stage.THROUGHPUT
    assert {plan.stage(name) for name in ("prompt_length[16]", "prompt_length[256]")} == {Stage.LENGTHS}
    others = ("batch[1]", "batch[4]", "cache[off]", "anything else")
    assert {plan.stage(name) for name in others} == {Stage.OTHER}


def test_the_users_own_prompts_come_first_then_their_batch() -> None:
    """In place of prompt lengths and batches; of several shapes the middle one, and the others where lengths were."""
    own = [Case(f"own[{name}]", "own", ALL, size) for name, size in (("16/4", 1), ("64/8", 1), ("all of 8", 8))]
    plan = Plan([CACHE, *BATCHES, *LENGTHS, *own], [ALL])
    stages = {"own[16/4]": Stage.LATENCY, "own[64/8]": Stage.LENGTHS, "own[all of 8]": Stage.THROUGHPUT}
    assert {name: plan.stage(name) for name in stages} == stages
    assert {plan.stage(case.name) for case in (CACHE, *BATCHES, *LENGTHS)} == {Stage.OTHER}


def test_a_file_that_is_called_own_has_no_such_prompts() -> None:
    plan = Plan([Case("mine", "own", ALL), *BATCHES, *LENGTHS], [ALL])
    assert [plan.stage(name) for name in ("mine", "prompt_length[64]")] == [Stage.OTHER, Stage.LATENCY]


def test_prompts_of_unknown_lengths_all_come_first() -> None:
    mine = [Case(f"mine[{name}]", "prompt_length", ALL) for name in ("short", "long")]
    assert latency_cases([CACHE, *mine]) == {"mine[short]", "mine[long]"}


def test_without_prompt_lengths_the_case_of_most_variants_comes_first() -> None:
    few = Case("precision", "precision", frozenset({"fp32", "bf16"}))
    padded = Case("padding[left]", "padding", ALL)  # a scenario that only supports the answer
    alone = Case("mine", "mine", frozenset({"fp32"}))
    assert latency_cases([alone, padded, few]) == {"precision"}
    assert latency_cases([alone, padded, few, CACHE]) == {"cache[off]"}
    assert latency_cases([alone, padded]) == {"padding[left]"}
    assert latency_cases([]) == frozenset()


def test_one_group_measures_its_stages_in_order() -> None:
    plan = Plan([*LENGTHS, *BATCHES, CACHE], [ALL])
    assert [plan.place(name, "nf4") for name in ("prompt_length[64]", "batch[8]", "cache[off]")] == [
        Place(0, Stage.LATENCY, group=0),
        Place(0, Stage.THROUGHPUT, group=0),
        Place(0, Stage.OTHER, group=0),
    ]


EVERYONE = frozenset({"fp32", "a", "b", "c"})
SHORT, BATCH, REST = (Case(name, name, EVERYONE, 8) for name in ("prompt_length", "batch", "cache"))


def in_order(cases: list[Case], *groups: str) -> tuple[list[str], list[int]]:
    """Case and variant, of all but the reference, which is in all groups; and how often each group is loaded."""
    plan = Plan(cases, [["fp32", *group] for group in groups])
    tests = [(case.name, variant) for case in cases for variant in "".join(groups) if variant in case.variants]
    places = {test: plan.place(*test) for test in tests}
    order = sorted(tests, key=lambda test: places[test])
    loads = loads_in(places[test] for test in order)
    return [" ".join(test) for test in order], [loads[number] for number in range(len(groups))]


def test_groups_take_turns_there_and_back_and_what_the_answer_goes_by_comes_first() -> None:
    """Bug: the second group measured all it had before the first got to its batches and quality, for which a run of ten
    minutes had no time left."""
    assert in_order([SHORT, BATCH, REST], "a", "b") == (
        ["prompt_length a", "prompt_length b", "batch b", "batch a", "cache a", "cache b"],
        [2, 2],
    )


def test_no_group_is_loaded_a_third_time() -> None:
    """The second of three would be, for what the answer doesn't go by."""
    lengths = [f"prompt_length {variant}" for variant in "abc"]
    assert in_order([SHORT, BATCH, REST], "a", "b", "c") == (
        [*lengths, "batch c", "batch b", "cache b", "batch a", "cache a", "cache c"],
        [2, 2, 2],
    )
    few = replace(BATCH, variants=frozenset("ac"))  # so that the second has nothing to measure on the way back
    assert in_order([SHORT, few, REST], "a", "b", "c") == (
        [*lengths, "batch c", "batch a", "cache a", "cache b", "cache c"],
        [2, 2, 2],
    )


def test_each_trip_begins_with_the_group_that_is_loaded() -> None:
    lengths, batches, caches = (
        [f"{name} {variant}" for variant in order]
        for name, order in (("prompt_length", "abc"), ("batch", "cba"), ("cache", "cab"))
    )
    assert in_order([SHORT, BATCH], "a", "b", "c") == ([*lengths, *batches], [2, 2, 1])
    assert in_order([SHORT, REST], "a", "b", "c") == ([*lengths, *caches], [2, 2, 1])
    alone = replace(BATCH, variants=frozenset("a"))  # after which b is next to a
    assert in_order([SHORT, alone, REST], "a", "b", "c")[0][3:] == ["batch a", "cache a", "cache b", "cache c"]
    first = replace(SHORT, variants=frozenset("a"))
    assert in_order([first, BATCH], "a", "b", "c")[0] == ["prompt_length a", "batch a", "batch c", "batch b"]


def test_without_cases_the_groups_come_once_in_their_order() -> None:
    """As where a plugin orders the tests."""
    plan = Plan((), [["fp32", *group] for group in "abc"])
    assert [plan.place("anything", variant) for variant in "cab"] == [
        Place(group, Stage.OTHER, group) for group in (2, 0, 1)
    ]
    assert plan.place("anything", "fp32").group == 0  # with the first group that it is in


def test_an_unknown_variant_has_no_place() -> None:
    with pytest.raises(KeyError):
        Plan([CACHE], [ALL]).place("cache[off]", "fp64")
