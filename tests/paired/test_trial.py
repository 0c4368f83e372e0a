"""How many rounds, and how long a turn."""

from __future__ import annotations

import pytest

from llm_bench_fixtures.paired.protocol import Times
from llm_bench_fixtures.paired.trial import TrialPace


@pytest.mark.parametrize(
    ("row_s", "rounds", "prefills"),
    [(0.1, 20, 10), (0.5, 6, 3), (9.0, 1, 3), (0.21, 14, 4)],
)
def test_long_rounds_are_fewer_but_never_too_few(row_s: float, rounds: int, prefills: int) -> None:
    """Three seconds are for whole rounds, one for prefills, of which one value each is told."""
    pace = TrialPace(rounds=20, time_s=4.0)
    assert pace.rounds_of(row_s) == rounds
    assert pace.rounds_of(row_s, is_prefill=True) == prefills


def test_the_most_wins_over_the_least() -> None:
    assert TrialPace(rounds=2).rounds_of(9.0, is_prefill=True) == 2


@pytest.mark.parametrize(("tpot_s", "tokens"), [(0.002, 5), (0.008, 1), (0.5, 1)])
def test_a_turn_is_as_many_tokens_as_take_its_time(tpot_s: float, tokens: int) -> None:
    row = (Times(1.0, 0.5, tpot_s, 1.0), Times(1.0, 0.5, tpot_s * 0.9, 1.0))
    assert TrialPace(turn_s=0.01).tokens_per_turn(row) == tokens


def test_without_a_decode_or_without_turns_a_round_runs_in_one_go() -> None:
    assert TrialPace().tokens_per_turn((Times(1.0, 1.0, None, None),)) == 0
    assert TrialPace(turn_s=0).tokens_per_turn((Times(1.0, 0.5, 0.1, 1.0),)) == 0
