"""The order of a run's cases."""

from __future__ import annotations

import pytest

from llm_bench_fixtures.session.plan import Case, Place, Plan, Stage, Trip, latency_cases

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
        Place(Trip.FIRST, 0, Stage.LATENCY),
        Place(Trip.FIRST, 0, Stage.THROUGHPUT),
        Place(Trip.FIRST, 0, Stage.OTHER),
    ]
    assert plan.loads("nf4") == 1


def in_order(plan: Plan, cases: list[Case], variants: str) -> list[tuple[str, str]]:
    places = {(case.name, variant): plan.place(case.name, variant) for case in cases for variant in variants}
    return sorted(places, key=lambda each: places[each])


def test_groups_take_turns_there_and_back_and_what_the_answer_goes_by_comes_first() -> None:
    """Bug: the second group measured all it had before the first got to its batches and quality, for which a run of ten
    minutes had no time left."""
    everyone = frozenset({"fp32", "a", "b"})
    short, batch, rest = (Case(name, name, everyone, 8) for name in ("prompt_length", "batch", "cache"))
    plan = Plan([short, batch, rest], [["fp32", "a"], ["fp32", "b"]])
    assert in_order(plan, [short, batch, rest], "ab") == [
        ("prompt_length", "a"),
        *(("prompt_length", "b"), ("batch", "b")),
        *(("batch", "a"), ("cache", "a")),
        ("cache", "b"),
    ]
    assert [plan.loads(variant) for variant in "ab"] == [2, 2]
    assert plan.place("cache", "fp32").group == 0  # with the first group that it is in


def test_without_other_cases_the_groups_go_there_and_back() -> None:
    groups = [["fp32", "a"], ["fp32", "b"], ["fp32", "c"]]
    cases = [Case(name, name, frozenset("abc"), 8) for name in ("prompt_length", "batch")]
    plan = Plan(cases, groups)
    assert [variant for _, variant in in_order(plan, cases, "abc")] == [*"abc", *"cba"]
    assert [plan.loads(variant) for variant in "abc"] == [2, 2, 1]


def test_what_is_left_begins_with_the_group_that_is_loaded() -> None:
    """Only the first of three groups has a test of one prompt."""
    cases = [Case("prompt_length", "prompt_length", frozenset("a")), Case("batch", "batch", frozenset("abc"), 8)]
    plan = Plan(cases, [["a"], ["b"], ["c"]])
    assert [variant for name, variant in in_order(plan, cases, "abc") if name == "batch"] == [*"acb"]
    assert [plan.loads(variant) for variant in "abc"] == [1, 1, 1]


def test_an_unknown_variant_has_no_place() -> None:
    with pytest.raises(KeyError):
        Plan([CACHE], [ALL]).place("cache[off]", "fp64")
