"""Who runs when, and for how long: handles that only advance a clock, so that every figure can be told beforehand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from case_table import FAST, LARGE, NOISY, SHORT_OF_TIME, WORKLOAD, FakeModel, Table, counts, spent_until

from llm_bench_fixtures.errors import WorkerDied
from llm_bench_fixtures.measure.turns import turns_of
from llm_bench_fixtures.processes.calls import Preemptions
from llm_bench_fixtures.progress import Left
from llm_bench_fixtures.session import rounds
from llm_bench_fixtures.session.blocks import (
    OBSERVED_LONGER,
    PREEMPTED_SLICE_S,
    PREEMPTED_STEP_S,
    SLICE_S,
    WARM_STEPS,
)
from llm_bench_fixtures.session.case import Pace, Spent
from llm_bench_fixtures.workloads import CacheKind, Workload


def test_each_block_holds_one_round_of_each_variant(table: Table) -> None:
    for name in ("fp32", "bf16", "int8"):
        table.add(name)
    table.run(replace(FAST, rounds=5))
    assert len(table.turns) == 15
    for start in range(0, 15, 3):
        assert sorted(table.turns[start : start + 3]) == ["bf16", "fp32", "int8"]


def test_the_order_is_drawn_anew_for_each_block(table: Table) -> None:
    """Each of the six orders of three comes up among 60 blocks, but for one chance in 10,000."""
    for name in ("fp32", "bf16", "int8"):
        table.add(name)
    table.run(replace(FAST, rounds=60))
    orders = {tuple(table.turns[start : start + 3]) for start in range(0, 180, 3)}
    assert len(orders) == 6


def test_nobody_begins_the_next_block_before_all_have_ended_this_one(table: Table) -> None:
    table.add("fp32", slices=4)
    table.add("bf16", slices=2)
    table.run(replace(FAST, rounds=40))
    assert counts(table) == {"fp32": 40, "bf16": 40}
    blocks_of_six = [tuple(sorted(table.slices[start : start + 6])) for start in range(0, 6 * 40, 6)]
    assert set(blocks_of_six) == {("bf16",) * 2 + ("fp32",) * 4}


def test_slices_are_spread_so_that_all_rounds_of_a_block_span_the_same_time(table: Table) -> None:
    """Rounds of 20 tokens in slices of 5, 5 and 10. Each round's slices begin somewhere in the middle half of its part
    of the block, so that one of two slices comes after one or two of four, and the other after three or four."""
    table.workload = Workload(((1, 2, 3),), new_tokens=20, batch_size=1)
    table.add("fp32", step_s=SLICE_S / 5, slices=0)
    table.add("bf16", step_s=SLICE_S / 5, slices=0)
    table.add("int8", step_s=SLICE_S / 10, slices=0)
    table.run(replace(FAST, rounds=41))
    first = 3 * 10  # the first block has no times yet: slices of two tokens
    orders = [table.slices[start : start + 10] for start in range(first, first + 40 * 10, 10)]
    assert {order.count("int8") for order in orders} == {2}
    before = {
        tuple(order[:place].count("fp32") for place, one in enumerate(order) if one == "int8") for order in orders
    }
    assert before <= {(0, 3), (1, 3), (1, 2), (0, 2)}
    assert len(before) > 1
    assert {order[0] for order in orders} == {"fp32", "bf16"}


def test_slices_of_several_rounds_in_a_row_are_spread_alike(table: Table) -> None:
    """Three rounds of 20 tokens are one slice of one variant, which comes in the middle of the other's."""
    table.workload = Workload(((1, 2, 3),), new_tokens=20, batch_size=1)
    table.add("fp32", 0.1, step_s=SLICE_S / 10, slices=0)
    table.add("bf16", 0.1, step_s=SLICE_S / 60, slices=0)
    table.run(replace(FAST, rounds=9, warmup_rounds=2))
    assert table.model("bf16").in_a_row[-1] == 3
    last = table.slices[-(turns_of((20,), 3, 10) + 1) :]
    assert last.count("bf16") == 1
    assert last.index("bf16") in (1, 2, 3)


def test_what_is_left_shrinks_within_a_block_of_slices(table: Table) -> None:
    """Two variants of one block of 2 s each: told are two blocks more after the first, and less after each slice."""
    table.workload = Workload(((1, 2, 3),), new_tokens=20, batch_size=1)
    table.add("fp32", step_s=SLICE_S / 5, slices=0)
    table.add("bf16", step_s=SLICE_S / 5, slices=0)
    told = [left.seconds for _, left in left_in(table, FAST) if left is not None]
    assert told == sorted(told, reverse=True)
    assert told[0] == pytest.approx(4.0, abs=0.01)


def test_a_round_that_fails_in_a_slice_counts_for_nothing_and_the_others_go_on(table: Table) -> None:
    table.add("fp32", slices=4)
    table.add("bf16", slices=4)
    table.add("int8", slices=4, fails_at=1, fails_in=2)
    outcome = table.run()
    assert isinstance(outcome.found["int8"], WorkerDied)
    assert len(outcome["bf16"].rounds) == len(outcome["bf16"].reference_s) == 3
    assert table.slices.count("int8") == 6


@pytest.mark.parametrize(
    ("step_s", "tokens"),
    [(0.003, 7), (0.011, 3), (0.02, 3), (0.14, 3), (0.15, 1), (2.0, 1)],
    ids=["short steps", "a cold one and two", "the least", "still the least", "long", "very long"],
)
def test_a_slice_is_so_many_tokens(step_s: float, tokens: int, table: Table) -> None:
    """Each variant's follow from the steps of its round before: 20 ms, at least two steps besides the cold ones."""
    table.add("fp32", step_s=SLICE_S / 8)
    table.add("bf16", step_s=step_s)
    table.run()
    assert table.model("fp32").slice_tokens == [WARM_STEPS, 8, 8]
    assert table.model("bf16").slice_tokens == [WARM_STEPS, tokens, tokens]


@pytest.mark.parametrize(("rounds", "round_s", "in_a_row"), [(3, 0.1, 3), (4, 0.1, 2), (5, 0.1, 1), (3, 0.2, 1)])
def test_short_rounds_are_run_several_in_a_row(rounds: int, round_s: float, in_a_row: int, table: Table) -> None:
    """As many as divide the number of rounds that are asked for, at most three."""
    table.add("fp32", 0.1)
    table.add("bf16", round_s)
    table.run(replace(FAST, rounds=rounds, warmup_rounds=2))
    assert table.turns.count("bf16") == 1 + rounds / in_a_row
    assert counts(table) == {"fp32": rounds, "bf16": rounds}


def test_no_more_are_in_a_row_than_can_be_enough(table: Table) -> None:
    """Two, where the answer doesn't go by the case and its time is over by then."""
    table.add("fp32", 0.1)
    table.add("bf16", 0.1, 0.1 * math.exp(0.01))
    table.run(replace(SHORT_OF_TIME, warmup_rounds=2))
    assert table.model("bf16").in_a_row[1:] == [2]
    assert counts(table) == {"fp32": 2, "bf16": 2}


def test_in_the_warm_up_a_round_is_whole(table: Table) -> None:
    table.add("fp32")
    table.add("bf16")
    table.run(replace(FAST, warmup_rounds=3, may_preempt=False))
    assert table.model("bf16").slice_tokens[:2] == [0, 0]
    assert table.model("bf16").draws[:2] == [None, None]
    assert 0 not in table.model("bf16").slice_tokens[2:]


@pytest.mark.parametrize(
    ("others", "pace"),
    [((), FAST), (("endpoint",), FAST), (("bf16",), replace(FAST, probes=True))],
    ids=["alone", "next to one that can't pause", "with probes"],
)
def test_a_turn_is_a_whole_round(others: tuple[str, ...], pace: Pace, table: Table) -> None:
    table.add("fp32")
    for name in others:
        table.add(name, is_beside=name == "endpoint")
    table.run(pace)
    assert {tokens for name in table.entries for tokens in table.model(name).slice_tokens} == {0}


def test_all_of_a_block_are_bound_alike_and_in_the_next_block_otherwise(table: Table) -> None:
    for name in ("fp32", "bf16", "int8"):
        table.add(name, fails_at=1 if name == "int8" else None)
    table.run()
    first = table.model("fp32").draws[0]
    assert first is not None
    assert [table.model(name).draws for name in table.entries] == [
        [first, first + 1, first + 2],
        [first, first + 1, first + 2],
        [first],
    ]


def test_whether_threads_may_be_bound_is_settled_once_and_before_any_round(table: Table) -> None:
    table.add("fp32")
    table.add("endpoint", is_beside=True)
    table.run(replace(FAST, warmup_rounds=2))
    assert table.log[:5] == ["observe fp32", "fp32", "bind fp32", "observe endpoint", "endpoint"]
    assert table.log.count("bind fp32") == 1
    assert set(table.model("endpoint").draws) == {None}


def test_alone_a_variants_threads_are_free(table: Table) -> None:
    table.add("fp32")
    table.run()
    assert table.log[0] == "observe fp32"
    assert "bind fp32" not in table.log
    assert table.model("fp32").draws == [None] * 3


def test_alone_there_is_nothing_to_compare_with(table: Table) -> None:
    table.add("fp32", 1.0, 2.0, 3.0)
    alone = table.run()["fp32"]
    assert (alone.reference_s, len(alone.rounds)) == ((), 3)


def test_without_the_reference_the_others_take_turns_all_the_same(table: Table) -> None:
    table.add("bf16")
    table.add("int8")
    outcome = table.run()
    assert outcome["bf16"].reference_s == ()
    assert counts(table) == {"bf16": 3, "int8": 3}


def test_what_nobody_asked_for_runs_and_is_not_told(table: Table) -> None:
    table.add("fp32", asked=False)
    table.add("bf16")
    outcome = table.run()
    assert set(outcome.found) == {"bf16"}
    assert outcome["bf16"].reference_s == (1.0, 1.0, 1.0)
    assert "observe fp32" not in table.log


@pytest.mark.parametrize("warmup_rounds", [1, 3])
def test_the_observed_round_is_one_of_those_that_warm_up(warmup_rounds: int, table: Table) -> None:
    """Each variant has run as often before its first timed round, observed or not. One that isn't has to be asked anew
    which of its threads compute."""
    table.add("fp32", asked=False)
    table.add("bf16")
    outcome = table.run(replace(FAST, warmup_rounds=warmup_rounds))
    assert table.log[: 2 * warmup_rounds + 2] == [
        *["fp32"] * warmup_rounds,
        "bind fp32 anew",
        "observe bf16",
        *["bf16"] * (warmup_rounds - 1),
        "bind bf16",
    ]
    assert outcome["bf16"].observation == "observation of bf16"
    assert len(outcome["bf16"].rounds) == 3


@pytest.mark.parametrize("probes", [False, True])
def test_probes_are_asked_for(probes: bool, table: Table) -> None:
    table.add("fp32")
    table.run(replace(FAST, probes=probes))
    assert table.model("fp32").probes == [probes] * 3


def test_a_variant_that_fails_ends_its_own_turns_only(table: Table) -> None:
    table.add("fp32")
    table.add("bf16", fails_at=1)
    table.add("int8")
    outcome = table.run()
    assert isinstance(outcome.found["bf16"], WorkerDied)
    assert table.turns.count("bf16") == 1
    assert outcome["int8"].reference_s == (1.0, 1.0, 1.0)
    assert len(outcome["fp32"].rounds) == 3


def test_a_variant_that_fails_while_it_warms_up_has_no_turn(table: Table) -> None:
    table.add("fp32")
    table.add("bf16", fails_at=0)
    outcome = table.run(replace(FAST, warmup_rounds=2))
    assert isinstance(outcome.found["bf16"], WorkerDied)
    assert len(outcome["fp32"].rounds) == 3


def test_when_the_reference_fails_the_others_go_on_without_it(table: Table) -> None:
    table.add("fp32", fails_at=1)
    table.add("bf16", 1.0, 2.0, 3.0)
    table.add("int8")
    outcome = table.run()
    assert isinstance(outcome.found["fp32"], WorkerDied)
    assert [done.latency_s for done in outcome["bf16"].rounds] == [1.0, 2.0, 3.0]
    assert outcome["bf16"].reference_s == ()


def test_a_reference_that_nobody_asked_for_ends_with_the_last_that_it_was_for(table: Table) -> None:
    """It went on by itself until its own interval was narrow, for figures that nobody reads."""
    table.add("fp32", *NOISY, asked=False)
    table.add("bf16", fails_at=1)
    table.run(replace(FAST, warmup_rounds=1, max_noise=0.01))
    assert table.turns.count("fp32") <= 3  # one of them to warm up


def test_what_no_variant_has_is_not_caught(table: Table) -> None:
    """Ctrl-C ends the run, and so does another plugin's time limit."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    table.add("fp32")
    with pytest.raises(KeyboardInterrupt):
        table.run(step=interrupt)


@pytest.mark.parametrize(
    ("turns", "longest_s", "kept"),
    [
        (4, 4.0, {}),
        (8, 4.0, {"fp32": 4, "bf16": 4}),
        (2, 2.0, {}),
        (4, 2.0, {"fp32": 2, "bf16": 2}),
    ],
    ids=["too few", "enough", "too few long ones", "enough long ones"],
)
def test_what_has_its_least_rounds_is_kept_where_a_case_is_cut_short(
    turns: int, longest_s: float, kept: dict[str, int], table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a test's time limit, after one block, two or four. A long round takes longer than `longest_s`."""
    monkeypatch.setattr(rounds, "LONG_ROUND_S", longest_s)

    def cut(*_: object) -> None:
        if len(table.turns) == turns:
            raise KeyboardInterrupt

    table.add("fp32", *NOISY)
    table.add("bf16", *NOISY[1:])
    run = table.blocks(replace(FAST, max_noise=0.01, fewest_rounds=2), step=cut)
    with pytest.raises(KeyboardInterrupt):
        run.measure()
    found = run.rounds.complete()
    assert {name: len(measured.rounds) for name, measured in found.items()} == kept
    assert all(len(measured.reference_rounds) == len(measured.rounds) for measured in found.values())


@pytest.mark.parametrize(
    ("at", "turns", "spent_s"),
    [("warming up", 1, 0.0), ("round", 2, 0.0), ("round", 5, 3.0)],
    ids=["in the warm-up", "before the first block", "among the blocks"],
)
def test_the_time_of_a_case_that_is_cut_short_is_told(at: str, turns: int, spent_s: float, table: Table) -> None:
    """What warms up is nobody's share: here a second of each, after the observed one."""

    def cut(doing: str, *_: object) -> None:
        if doing.startswith(at) and len(table.turns) == turns:
            raise KeyboardInterrupt

    table.clock.advance(1000.0)
    table.add("fp32")
    table.add("bf16")
    pace = replace(FAST, warmup_rounds=2, may_preempt=False)
    assert spent_until(cut, pace, table) == Spent(spent_s, 0.0, True)


def test_where_nothing_ran_there_was_nothing_to_disturb(table: Table) -> None:
    """Bug: a variant that failed in each case halved the patience each time."""
    table.add("fp32", fails_at=0)
    table.add("bf16", fails_at=0)
    assert table.run().spent.found_calm


def test_further_blocks_of_a_large_model_run_all_variants_that_have_not_failed(table: Table) -> None:
    """The second ends at its sixth round, as it is steady; the third fails in its further one."""
    table.add("fp32", 1.0)
    table.add("bf16", 0.5)
    table.add("int8", *NOISY, fails_at=9)
    run = table.blocks(replace(FAST, max_noise=0.01, share_s=30.0, is_large=True))
    run.measure()
    assert counts(table) == {"fp32": 9, "bf16": 6, "int8": 9}
    told: list[tuple[str, str, Left | None]] = []
    before_s = table.clock()
    found = run.go_on(lambda *step: told.append(step))
    assert found.keys() == {"fp32", "bf16"}
    assert counts(table) == {"fp32": 10, "bf16": 7, "int8": 9}
    assert len(found["bf16"].rounds) == len(found["bf16"].reference_rounds) == 7
    assert run.block_s == pytest.approx(table.clock() - before_s)
    assert (run.can_go_on, [*run.rounds.alive]) == (True, ["fp32", "bf16"])
    assert [doing for doing, *_ in told[:4]] == ["warming up"] * 3 + ["round 10"]
    assert told[-1][2] is not None


def test_further_blocks_of_a_small_model_leave_out_those_whose_interval_is_narrow(table: Table) -> None:
    """The second ends at its sixth round, as it is steady; without the third no further block is of use."""
    table.add("fp32", 1.0)
    table.add("bf16", 0.5)
    table.add("int8", *NOISY, fails_at=11)
    run = table.blocks(replace(FAST, max_noise=0.01, share_s=30.0))
    run.measure()
    told: list[tuple[str, str, Left | None]] = []
    assert run.can_go_on
    found = run.go_on(lambda *step: told.append(step))
    assert {name: len(one.rounds) for name, one in found.items()} == {"fp32": 10, "int8": 10}
    assert counts(table) == {"fp32": 10, "bf16": 6, "int8": 10}
    assert {detail for _, detail, _ in told} == {"fp32", "int8"}
    assert run.go_on(lambda *_: None) == {}
    assert not run.can_go_on


def test_short_rounds_are_not_warmed_up_by_whole_ones_before_further_blocks(table: Table) -> None:
    """Some untimed tokens stand for these. Bug: as many more rounds were run as the block has."""
    table.add("fp32", 0.1)
    table.add("int8", *(seconds / 20 for seconds in NOISY))
    run = table.blocks(replace(FAST, max_noise=0.01, share_s=3.0))
    run.measure()
    before_s = table.clock()
    run.go_on(lambda *_: None)
    assert table.clock() - before_s == pytest.approx(run.block_s)


def test_without_the_reference_no_further_block_compares_anything(table: Table) -> None:
    table.add("fp32", 1.0, fails_at=3)
    table.add("bf16", *NOISY)
    run = table.blocks(replace(FAST, max_noise=0.01, share_s=0.0))
    run.measure()
    assert run.can_go_on
    assert run.go_on(lambda *_: None) == {}
    assert not run.can_go_on
    assert counts(table) == {"fp32": 3, "bf16": 3}


@pytest.mark.parametrize(
    ("pace", "observed_s", "preempted"),
    [
        pytest.param(FAST, (PREEMPTED_STEP_S, 2 * PREEMPTED_STEP_S), True, id="long steps"),
        pytest.param(FAST, (PREEMPTED_STEP_S / 2, 2 * PREEMPTED_STEP_S), False, id="short steps of one"),
        pytest.param(LARGE, (0.0, 0.0), True, id="a large model"),
        pytest.param(replace(LARGE, may_preempt=False), (0.0, 0.0), False, id="energy is counted"),
        pytest.param(replace(LARGE, probes=True), (0.0, 0.0), False, id="a probe before each round"),
    ],
)
def test_slices_end_within_long_steps(
    pace: Pace, observed_s: tuple[float, float], preempted: bool, table: Table
) -> None:
    """All blocks are alike, whatever later steps take. observed_s: for each token of the round that warms up."""
    table.workload = replace(WORKLOAD, new_tokens=20)
    for name, step_s in zip(("fp32", "bf16"), observed_s, strict=True):
        table.add(name, 2.0, observed_s=20 * step_s * OBSERVED_LONGER)
    table.run(replace(pace, rounds=3))
    for name in table.entries:
        assert table.model(name).preempted == [preempted] * 3


def test_what_others_take_meanwhile_is_not_in_a_round_that_is_preempted(table: Table) -> None:
    table.add("fp32", 2.0)
    table.add("bf16", 1.0)
    outcome = table.run(LARGE)
    assert outcome["fp32"].rounds_s == pytest.approx((2.0,) * 3)
    assert outcome["bf16"].rounds_s == pytest.approx((1.0,) * 3)


def test_slices_by_the_clock_are_spread_by_how_long_rounds_take(table: Table) -> None:
    """fp32 has 40 slices, bf16 20, which lie between two each of the others; but for the first block, in which both are
    expected to take as long."""
    for name, round_s in (("fp32", 40 * PREEMPTED_SLICE_S), ("bf16", 20 * PREEMPTED_SLICE_S)):
        table.add(name, round_s)
        table.entries[name].expected_s = 2.0
    table.run(replace(LARGE, rounds=2))
    first, second = table.slices[:60], table.slices[60:]
    assert first[:40].count("bf16") == 20
    places = [place for place, name in enumerate(second) if name == "bf16"]
    assert len(places) == 20
    assert {later - earlier for earlier, later in pairwise(places)} == {3}


def test_a_round_of_which_nothing_is_known_is_taken_for_the_longest(table: Table) -> None:
    """Bug: one of which nothing was expected had its slices within the others' first second."""
    for name in ("fp32", "bf16", "int8"):
        table.add(name, 40 * PREEMPTED_SLICE_S)
    table.entries["bf16"].expected_s = 40 * PREEMPTED_SLICE_S
    table.run(replace(LARGE, rounds=1))
    for start in range(0, 117, 3):
        assert sorted(table.slices[start : start + 3]) == ["bf16", "fp32", "int8"]


def test_one_alone_is_not_preempted(table: Table) -> None:
    table.add("bf16", 3.0)
    table.run(LARGE)
    assert not any(table.model("bf16").preempted)


def test_one_that_is_left_alone_before_its_first_slice_is_measured_as_in_other_blocks(table: Table) -> None:
    """Bug: it was warmed up, and waited for its threads, where its partner had ended first, by chance."""
    table.add("fp32", PREEMPTED_SLICE_S / 2)
    table.add("bf16", 2.0)
    table.run(replace(LARGE, rounds=20))
    assert table.model("bf16").preempted == [True] * 20
    assert not any(table.model("bf16").warms)


def test_the_last_one_in_a_block_is_not_preempted_any_more(table: Table) -> None:
    limits: list[float] = []
    table.add("fp32", 2.0)
    table.add("bf16", 1.0)
    in_turns = FakeModel.in_turns

    def noting(model: FakeModel, preemptions: Preemptions, *args: Any, **how: Any) -> Iterator[Any]:
        for done in in_turns(model, preemptions, *args, **how):
            if done is not None:
                limits.append(preemptions.every_s)
            yield done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeModel, "in_turns", noting)
        table.run(replace(LARGE, rounds=1))
    assert limits == [PREEMPTED_SLICE_S, math.inf]


def test_no_round_of_a_large_model_is_spent_to_warm_up_and_the_first_timed_one_is_observed(table: Table) -> None:
    table.add("fp32", 3.0, asked=False)
    table.add("bf16", 3.0)
    outcome = table.run(LARGE)
    assert table.log[:2] == ["bind fp32 briefly", "begin bf16"]
    assert table.log[2:5].count("end bf16") == 1
    assert table.log.count("end bf16") == 1
    assert counts(table) == {"fp32": 3, "bf16": 3}
    assert len(table.turns) == 6
    assert outcome["bf16"].observation == "observation of round 1 of bf16"


def test_a_round_that_is_observed_is_alone(table: Table) -> None:
    """Bug: tokens that warm up a short round, and rounds in a row with it, were taken for its own."""
    for name in ("fp32", "bf16"):
        table.add(name, 0.1)
    table.run(replace(LARGE, warmup_rounds=2, may_preempt=False))
    for model in (entry.model for entry in table.entries.values()):
        assert (model.warms[:2], model.in_a_row[:2]) == ([False, False], [1, 1])
        assert model.warms[2:] == [True, True]


def test_some_tokens_warm_up_long_rounds_once(table: Table) -> None:
    """Other variants were observed since its own warm-up. Short rounds are warmed up in each block."""
    for name in ("fp32", "bf16"):
        table.add(name, 3.0)
    table.run(FAST)
    for model in (entry.model for entry in table.entries.values()):
        assert model.warms == [True, False, False]


def test_further_warmup_rounds_are_run_where_they_are_asked_for(table: Table) -> None:
    table.add("fp32", 3.0)
    table.run(replace(LARGE, warmup_rounds=2))
    assert table.log[:3] == ["fp32", "begin fp32", "fp32"]


@pytest.mark.parametrize(
    ("pace", "more", "changed"),
    [
        pytest.param(FAST, {}, {}, id="a small model"),
        pytest.param(LARGE, {"compile_s": 9.0}, {}, id="it is compiled"),
        pytest.param(LARGE, {"is_beside": True}, {}, id="a server"),
        pytest.param(LARGE, {}, {"cache": CacheKind.STATIC}, id="a static cache"),
    ],
)
def test_else_a_round_of_its_own_warms_up_and_is_observed(
    pace: Pace, more: dict[str, Any], changed: dict[str, Any], table: Table
) -> None:
    table.workload = replace(WORKLOAD, **changed)
    table.add("bf16", 3.0, **more)
    assert table.run(pace)["bf16"].observation == "observation of bf16"
    assert table.log[:2] == ["observe bf16", "bf16"]


def test_where_watching_would_take_time_a_round_of_its_own_is_observed(table: Table) -> None:
    table.add("bf16", 3.0, can_be_watched=False)
    assert table.run(LARGE)["bf16"].observation == "observation of bf16"
    assert table.log[:4] == ["begin bf16", "observe bf16", "bind bf16 briefly", "bf16"]


def test_it_is_told_what_goes_on(table: Table) -> None:
    told: list[tuple[str, str]] = []
    table.add("fp32")
    table.add("bf16")
    table.run(replace(FAST, rounds=1), step=lambda step, name, _: told.append((step, name)))
    assert told[:2] == [("warming up", "fp32"), ("warming up", "bf16")]
    assert sorted(told[2:]) == [("round 1/1", "bf16"), ("round 1/1", "fp32")]


def left_in(table: Table, pace: Pace) -> list[tuple[str, Left | None]]:
    """What is told of the rounds of two variants, one second each."""
    told: list[tuple[str, Left | None]] = []
    table.add("fp32")
    table.add("bf16")
    table.run(pace, step=lambda step, _, left: told.append((step, left)))
    return told[2:]


def test_how_long_it_goes_on_is_told_from_the_blocks_that_are_done(table: Table) -> None:
    """Two seconds a block: nothing is known in the first, and of three there are 4 s left after it."""
    assert left_in(table, FAST) == [
        ("round 1/3", None),
        ("round 1/3", None),
        ("round 2/3", Left(4.0)),
        ("round 2/3", Left(3.0)),
        ("round 3/3", Left(2.0)),
        ("round 3/3", Left(1.0)),
    ]


def test_where_noise_decides_how_long_it_goes_on_it_may_end_before(table: Table) -> None:
    """Of 60 s two are spent after the first block, and one more before the second one's last turn."""
    told = left_in(table, replace(FAST, rounds=1, max_noise=0.01))
    assert told[1:4] == [
        ("round 1/1", None),
        ("round 2", Left(58.0, is_most=True)),
        ("round 2", Left(57.0, is_most=True)),
    ]
