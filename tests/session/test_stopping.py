"""When a case has enough rounds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from case_table import EXPECTED, FAST, LARGE, NOISY, SHORT_OF_TIME, Table, counts, crowd

from llm_bench_fixtures.answer.allocation import Allocation
from llm_bench_fixtures.progress import Left
from llm_bench_fixtures.session import stopping
from llm_bench_fixtures.session.case import Spent
from llm_bench_fixtures.session.stopping import ENOUGH_ROUNDS
from llm_bench_fixtures.statistics.shrinkage import NO_PRIOR, VarianceEstimate


def test_long_rounds_are_believed_after_fewer_blocks(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "ENOUGH_S", 2.5)
    table.add("fp32", 1.0)
    table.add("bf16", 1.0)
    table.run(replace(FAST, max_noise=0.01, share_s=1000.0))
    assert counts(table) == {"fp32": 3, "bf16": 3}


def test_without_a_limit_of_noise_there_are_just_the_least_rounds(table: Table) -> None:
    table.add("fp32", *NOISY)
    table.add("bf16")
    table.run(replace(FAST, rounds=4))
    assert counts(table) == {"fp32": 4, "bf16": 4}


def test_the_least_rounds_are_run_whatever_the_time(table: Table) -> None:
    table.add("fp32", 10.0)
    table.add("bf16", 10.0)
    table.run(replace(FAST, rounds=4, max_noise=0.01, share_s=0.0))
    assert counts(table) == {"fp32": 4, "bf16": 4}


def test_equal_rounds_are_believed_once_there_are_enough(table: Table) -> None:
    """The interval of equal ratios is a point from the third block on."""
    table.add("fp32", 2.0)
    table.add("bf16", 1.0)
    table.run(replace(FAST, max_noise=0.01, share_s=1000.0))
    assert counts(table) == {"fp32": ENOUGH_ROUNDS, "bf16": ENOUGH_ROUNDS}


def test_a_settled_variant_drops_out_and_the_reference_stays_for_the_others(table: Table) -> None:
    """One ratio is 2 in each block; the other is as wide after 100 s as it was."""
    table.add("fp32", 1.0)
    table.add("bf16", 0.5)
    table.add("int8", *NOISY)
    outcome = table.run(replace(FAST, max_noise=0.01, share_s=100.0))
    assert len(outcome["bf16"].rounds) == ENOUGH_ROUNDS
    assert len(outcome["int8"].rounds) > 2 * ENOUGH_ROUNDS
    assert len(outcome["int8"].reference_s) == len(outcome["int8"].rounds) == len(outcome["fp32"].rounds)
    assert len(outcome["bf16"].reference_s) == ENOUGH_ROUNDS
    tail = table.turns[-10:]
    assert tail.count("fp32") == tail.count("int8") == 5


def test_no_block_begins_once_the_time_is_spent(table: Table) -> None:
    """A block takes 1 s and that of the noisy one: after 8 of them 26.5 s are over, after 9 of them 31.5."""
    table.add("fp32", 1.0)
    table.add("bf16", *NOISY)
    outcome = table.run(replace(FAST, max_noise=0.01, share_s=31.0))
    assert counts(table) == {"fp32": 9, "bf16": 9}
    assert outcome.spent == Spent(31.5, 0.0, True)


def test_alone_a_variant_goes_on_until_its_own_interval_is_narrow(table: Table) -> None:
    table.add("fp32", 1.0)
    table.run(replace(FAST, max_noise=0.01, share_s=1000.0))
    assert counts(table) == {"fp32": ENOUGH_ROUNDS}
    table.add("fp32", *NOISY)
    table.run(replace(FAST, max_noise=0.01, share_s=20.0))
    assert counts(table) == {"fp32": 9}  # 18.5 s for the first eight


def test_what_other_cases_lead_to_expect_makes_an_interval_narrow_sooner(table: Table) -> None:
    """Logarithms of 0 and 0.05 in turn: of six, trimmed at either end, the standard error is 1.77 % and Student's t of
    three degrees of freedom 3.18, so that it takes two more. Where 1.66 % are expected, t is 1.96: 3.3 % to a side."""
    for prior, rounds in ((NO_PRIOR, 8), (VarianceEstimate(0.00166, 1000.0), ENOUGH_ROUNDS)):
        table.add("fp32", 1.0)
        table.add("bf16", 1.0, math.exp(0.05))
        table.run(replace(FAST, max_noise=0.034, share_s=1000.0, expected_variance=prior))
        assert counts(table)["bf16"] == rounds


def test_long_rounds_are_two_where_the_interval_is_narrow_by_then(table: Table) -> None:
    """Of two pairs that differ by 1 % as expected, the standard error is 1 % / sqrt(2): 1.39 % to either side."""
    table.add("fp32", 3.0)
    table.add("bf16", 1.0, math.exp(0.01))
    table.run(replace(FAST, max_noise=0.03, fewest_rounds=2, expected_variance=EXPECTED))
    assert counts(table) == {"fp32": 2, "bf16": 2}


@pytest.mark.parametrize(
    ("round_s", "changed"),
    [
        pytest.param(1.9, {}, id="short rounds"),
        pytest.param(3.0, {"fewest_rounds": None}, id="so many are asked for"),
        pytest.param(3.0, {"max_noise": 0.0}, id="no interval is asked for"),
        pytest.param(3.0, {"max_noise": 0.013}, id="the interval is too wide"),
        pytest.param(3.0, {"expected_variance": NO_PRIOR}, id="nothing is known of the scatter"),
        pytest.param(3.0, {"expected_variance": replace(EXPECTED, freedom=0.1)}, id="too little is known of it"),
    ],
)
def test_else_they_are_as_many_as_others(round_s: float, changed: dict[str, Any], table: Table) -> None:
    table.add("fp32", round_s)
    table.add("bf16", round_s, round_s * math.exp(0.01))
    pace = replace(LARGE, max_noise=0.03, fewest_rounds=2, expected_variance=EXPECTED, share_s=0.0)
    table.run(replace(pace, **changed))
    assert counts(table) == {"fp32": 3, "bf16": 3}


@pytest.mark.parametrize(
    ("share_s", "changed", "rounds"),
    [
        pytest.param(1.5, {}, 2, id="by then"),
        pytest.param(2.1, {}, 3, id="later"),
        pytest.param(1.5, {"is_large": True}, 3, id="of a large model"),
        pytest.param(1.5, {"fewest_rounds": None}, 3, id="so many are asked for"),
        pytest.param(1.5, {"max_noise": 0.0}, 3, id="no interval is asked for"),
        pytest.param(1.5, {"expected_variance": replace(EXPECTED, freedom=0.9)}, 3, id="little is known"),
        pytest.param(1.5, {"allocation": Allocation(decides=True)}, 3, id="the answer goes by it"),
    ],
)
def test_rounds_are_two_where_the_time_of_a_case_is_over(
    share_s: float, changed: dict[str, Any], rounds: int, table: Table
) -> None:
    """Two of both take 2 s; the interval is too wide."""
    table.add("fp32", 0.5)
    table.add("bf16", 0.5, 0.5 * math.exp(0.01))
    pace = replace(FAST, max_noise=0.001, fewest_rounds=2, expected_variance=EXPECTED, share_s=share_s)
    table.run(replace(pace, **changed))
    assert counts(table) == {"fp32": rounds, "bf16": rounds}


@pytest.mark.parametrize(("apart", "rounds"), [(3.9, 2), (4.1, 3)])
def test_two_pairs_that_lie_too_far_apart_have_a_third(apart: float, rounds: int, table: Table) -> None:
    """Four times as far as one is expected to scatter. It tells which of them is odd, so that no fourth is needed."""
    table.add("fp32", 0.5)
    table.add("bf16", 0.5, 0.5 * math.exp(0.01 * apart), 0.5)
    table.add("int8", 0.5)
    table.run(SHORT_OF_TIME)
    assert counts(table) == {"fp32": rounds, "bf16": rounds, "int8": 2}


def test_two_pairs_that_lie_too_far_apart_have_no_more_than_a_third(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: where all blocks after them were crowded, so that none counted, others were run without end."""
    crowd(table, monkeypatch, *range(2, 50))
    table.add("fp32", 0.5)
    table.add("bf16", 0.5, 0.5 * math.exp(0.041), 0.5)
    table.run(SHORT_OF_TIME)
    assert counts(table) == {"fp32": 3, "bf16": 3}


def test_a_variant_without_a_pair_has_all_rounds(table: Table) -> None:
    """Two latencies have no interval."""
    table.add("bf16", 0.5)
    table.run(SHORT_OF_TIME)
    assert counts(table) == {"bf16": 3}


def test_after_two_rounds_of_a_reference_that_dies_the_others_have_all(table: Table) -> None:
    table.add("fp32", 0.5, fails_at=1)
    table.add("bf16", 0.5)
    outcome = table.run(SHORT_OF_TIME)
    assert len(outcome["bf16"].rounds) == 3
    assert outcome["bf16"].reference_rounds == ()


def test_two_rounds_are_of_blocks_that_are_not_crowded(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd(table, monkeypatch, 0)
    table.add("fp32", 0.5)
    table.add("bf16", 0.5, 0.5 * math.exp(0.01))
    outcome = table.run(SHORT_OF_TIME)
    assert (len(outcome["bf16"].rounds), outcome["bf16"].crowded_rounds) == (2, 1)


def test_of_long_rounds_those_of_crowded_blocks_are_not_enough(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two others are, and the crowded one is left out."""
    crowd(table, monkeypatch, 0)
    table.add("fp32", 4.0, 3.0, 3.0)
    table.add("bf16", 1.0)
    outcome = table.run(replace(FAST, max_noise=0.03, fewest_rounds=2, expected_variance=EXPECTED))
    assert outcome["bf16"].reference_s == (3.0, 3.0)
    assert outcome["bf16"].crowded_rounds == 1


def test_a_variant_whose_interval_is_wide_has_a_third_long_round_with_the_reference(table: Table) -> None:
    table.add("fp32", 3.0)
    table.add("bf16", 1.0)
    table.add("int8", 1.0, 1.2)
    table.run(replace(FAST, max_noise=0.03, fewest_rounds=2, expected_variance=EXPECTED))
    assert counts(table)["bf16"] == 2
    assert counts(table)["int8"] == counts(table)["fp32"] > 2


def test_what_can_not_win_is_settled_by_an_interval_of_twice_the_width(table: Table) -> None:
    """The logarithms of bf16 alternate as above, around half the reference's speed."""
    table.add("fp32", 1.0)
    table.add("bf16", 2.0, 2 * math.exp(0.05))
    table.add("int8", 0.5)
    table.run(replace(FAST, max_noise=0.017, share_s=1000.0))
    assert counts(table) == {"fp32": 8, "bf16": 8, "int8": ENOUGH_ROUNDS}


@pytest.mark.parametrize(("decides", "rounds"), [(False, ENOUGH_ROUNDS), (True, 8)])
def test_where_the_answer_is_decided_rivals_need_intervals_of_half_the_width(
    table: Table, decides: bool, rounds: int
) -> None:
    table.add("fp32", 1.0)
    for name in ("bf16", "int8"):
        table.add(name, 0.5, 0.5 * math.exp(0.05))
    table.run(replace(FAST, max_noise=0.068, share_s=1000.0, allocation=Allocation(decides=decides)))
    assert counts(table) == {"fp32": rounds, "bf16": rounds, "int8": rounds}


@pytest.mark.parametrize("unit_s", [1.0, 4.0])  # 2 rounds of 4 s may be enough
@pytest.mark.parametrize(("allowed", "rounds"), [({}, 4), ({"longer_s": 1.0}, 3), ({"allocation": Allocation()}, 3)])
def test_an_open_contest_goes_on_for_half_as_long_again(
    table: Table, allowed: dict[str, Any], rounds: int, unit_s: float
) -> None:
    """Three blocks take 2, 2.5 and 2 units. 9.75 are 1.5 times as long: the fourth block ends at 9, the fifth would end
    after it."""
    table.add("fp32", unit_s)
    for name in ("bf16", "int8"):
        table.add(name, 0.5 * unit_s, 0.75 * unit_s)
    pace = replace(FAST, max_noise=0.03, share_s=0.0, fewest_rounds=2, allocation=Allocation(decides=True))
    table.run(replace(pace, **{key: value * unit_s if key == "longer_s" else value for key, value in allowed.items()}))
    assert counts(table) == {"fp32": rounds, "bf16": rounds, "int8": rounds}


def test_how_long_an_open_contest_goes_on_is_told(table: Table) -> None:
    """After three blocks 9.75 s are the most, of which 6.5 s are over."""
    told: list[Left | None] = []
    table.add("fp32", 1.0)
    for name in ("bf16", "int8"):
        table.add(name, 0.5, 0.75)
    pace = replace(FAST, max_noise=0.03, share_s=0.0, allocation=Allocation(decides=True))
    table.run(pace, step=lambda step, _, left: told.append(left) if step == "round 4" else None)
    assert told[0] == Left(pytest.approx(3.25), is_most=True)


def test_common_weather_widens_no_speed_up(table: Table) -> None:
    """Both take four times as long in every second block, and the ratio is 2 in each."""
    table.add("fp32", 2.0, 8.0)
    table.add("bf16", 1.0, 4.0)
    table.run(replace(FAST, max_noise=0.01, share_s=1000.0))
    assert counts(table) == {"fp32": ENOUGH_ROUNDS, "bf16": ENOUGH_ROUNDS}
