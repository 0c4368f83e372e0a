"""Which speed-ups have to be surer than others, and which tests get more of the time."""

from __future__ import annotations

import pytest

from llm_bench_fixtures.answer.allocation import Allocation, contenders, weight_of
from llm_bench_fixtures.statistics.ratio import LogRatio


def ratio(centre: float, error: float = 0.01) -> LogRatio:
    """With so many degrees of freedom that an interval of 98.75 %, of one among four, is 2.5 errors to either side."""
    return LogRatio(centre, error, 1e6)


REFERENCE = LogRatio(0.0, 0.0, 9)
FOUR = {"fp32": REFERENCE, "v0": ratio(0.5), "v1": ratio(0.46), "v2": ratio(0.44)}


def test_the_users_own_prompts_get_it_in_their_place() -> None:
    weights = {name: weight_of(name, has_own=True) for name in ("own", "prompt_length", "batch", "cache")}
    assert weights == {"own": 4.0, "prompt_length": 1.0, "batch": 1.0, "cache": 1.0}


def test_who_is_shown_to_be_slower_than_another_is_no_contender() -> None:
    """The best is at least 0.475; the second reaches 0.485, the third 0.465."""
    assert contenders(FOUR) == {"v0", "v1"}


def test_the_reference_is_one_until_another_is_shown_to_be_faster() -> None:
    assert contenders({"fp32": REFERENCE, "v0": ratio(0.02)}) == {"fp32", "v0"}
    assert contenders({"fp32": REFERENCE, "v0": ratio(0.03)}) == {"v0"}
    assert contenders({"fp32": REFERENCE, "v0": ratio(-0.03)}) == {"fp32"}
    assert contenders({}) == frozenset()


def test_what_cannot_win_may_be_less_sure_and_what_decides_must_be_surer() -> None:
    assert Allocation(decides=True).half_widths(FOUR, 0.03) == {"fp32": 0.06, "v0": 0.015, "v1": 0.015, "v2": 0.06}
    assert Allocation().half_widths(FOUR, 0.03) == {"fp32": 0.06, "v0": 0.03, "v1": 0.03, "v2": 0.06}


def test_a_winner_that_is_alone_need_not_be_surer() -> None:
    alone = {"fp32": REFERENCE, "v0": ratio(0.5), "v1": ratio(0.2)}
    assert Allocation(decides=True).half_widths(alone, 0.03) == {"fp32": 0.06, "v0": 0.03, "v1": 0.06}


def test_the_best_of_those_within_the_limits_may_win_too() -> None:
    """v0 is faster than all, and not recommended."""
    kept = Allocation(decides=True, kept=frozenset({"fp32", "v2", "v3"}))
    found = kept.half_widths({**FOUR, "v3": ratio(0.3)}, 0.03)
    assert found == {"fp32": 0.06, "v0": 0.015, "v1": 0.015, "v2": 0.015, "v3": 0.06}


def test_a_contest_is_open_while_rivals_have_wide_intervals() -> None:
    """Of 10 claims each has an interval of 99.5 %, 2.81 errors to either side: 7.0 % here, and 6.7 % is even."""
    wide = {"fp32": REFERENCE, "v0": ratio(0.5, 0.025), "v1": ratio(0.46, 0.025), "v2": ratio(0.1, 0.025)}
    assert Allocation(decides=True).open_in(wide) == {"v0", "v1"}
    assert Allocation(decides=True, kept=frozenset({"v0", "v2"})).open_in(wide) == frozenset()  # v0 wins alone
    assert Allocation(decides=True, kept=frozenset({"v0", "v1"})).open_in(wide) == {"v0", "v1"}  # claimed of all four
    assert Allocation(decides=True).open_in({**wide, "v0": ratio(0.5, 0.023)}) == {"v1"}  # 6.5 %
    assert Allocation(decides=True).open_in(FOUR) == frozenset()
    assert Allocation().open_in(wide) == frozenset()
    assert Allocation(decides=True).open_in({}) == frozenset()


@pytest.mark.parametrize(("scenario", "weight"), [("prompt_length", 4.0), ("batch", 4.0), ("cache", 1.0), ("own", 1.0)])
def test_the_scenarios_that_decide_get_four_times_the_time(scenario: str, weight: float) -> None:
    assert weight_of(scenario) == weight
