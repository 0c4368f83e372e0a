"""Pauses of a round whose meters are set by hand."""

from __future__ import annotations

import pytest

from llm_bench_fixtures.measure.timing import Pauses


class Hand:
    """A meter that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_meter_stands_still_in_pauses() -> None:
    clock, counter = Hand(), Hand()
    pauses_at = []

    def others_turn() -> None:
        pauses_at.append(clock.now)
        clock.now += 100.0
        counter.now += 7.0

    pauses = Pauses(others_turn, tokens=2)
    held_clock, held_counter = pauses.hold(clock), pauses.hold(counter)
    readings = []
    for left in reversed(range(6)):
        clock.now += 1.0
        counter.now += 0.5
        readings.append((held_clock(), held_counter()))
        pauses.after_token(left)
    assert readings == [(1.0, 0.5), (2.0, 1.0), (3.0, 1.5), (4.0, 2.0), (5.0, 2.5), (6.0, 3.0)]
    assert pauses_at == [2.0, 104.0]


def test_what_stops_an_earlier_meter_is_on_no_clock() -> None:
    """Reading the first meter takes 5 s, each time it stops and goes on."""
    clock = Hand()

    def slow() -> float:
        clock.now += 5.0
        return 0.0

    pauses = Pauses(lambda: None, tokens=1)
    pauses.hold(slow)
    held = pauses.hold(clock)
    clock.now = 1.0
    pauses.after_token(left=1)
    assert held() == 1.0


@pytest.mark.parametrize(
    ("tokens", "of", "after"),
    [
        (1, 4, [1, 2, 3]),
        (2, 6, [2, 4]),
        (2, 7, [2, 4]),
        (3, 16, [3, 6, 9, 12]),
        (4, 7, []),
        (4, 8, [4]),
    ],
    ids=str,
)
def test_the_last_slice_is_no_shorter_than_the_others(tokens: int, of: int, after: list[int]) -> None:
    pauses = Pauses(lambda: None, tokens)
    assert [done for done in range(1, of + 1) if pauses.after_token(of - done)] == after
