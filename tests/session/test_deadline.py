"""What fits in a run's time, by a simulated clock."""

from __future__ import annotations

import math
import time

import pytest

from llm_bench_fixtures.errors import NotReached, TimeUp
from llm_bench_fixtures.session.deadline import NO_LIMIT, Deadline


def after(seconds: float, limit_s: float = 100.0) -> Deadline:
    """A run of 100 s that began at 0 and has lasted so long; 4 s and 2 % of it are the report's."""
    return Deadline(limit_s, began_s=0.0, clock=lambda: seconds)


def test_the_reports_time_is_taken_off() -> None:
    assert after(0).left_s == 94
    assert after(0).fits(94)
    assert not after(0).fits(94.1)


def test_nothing_begins_when_it_is_over() -> None:
    assert after(93.9).fits()
    assert not after(94).fits()
    after(93.9).check()
    with pytest.raises(TimeUp):
        after(94).check()


def test_less_than_the_report_takes_is_no_time_at_all() -> None:
    assert after(0, limit_s=3.0).is_over


def test_without_a_limit_everything_fits() -> None:
    assert NO_LIMIT.fits(1e9)
    assert math.isinf(after(1e6, limit_s=math.inf).left_s)


def test_time_is_that_of_a_clock_that_nobody_sets() -> None:
    assert Deadline(100.0).clock is time.monotonic
    assert abs(Deadline(100.0).began_s - time.monotonic()) < 10


def test_a_leap_of_the_clock_is_time_that_is_over() -> None:
    """As where the process was stopped for an hour, or the machine suspended where its clock goes on."""
    now_s = [10.0]
    deadline = Deadline(100.0, began_s=0.0, clock=lambda: now_s[0])
    assert deadline.fits(80)
    now_s[0] += 3600
    assert not deadline.fits()
    with pytest.raises(NotReached, match=r"^not reached in 2 min"), deadline.reaching():
        deadline.check()


def test_what_was_cut_is_not_reached() -> None:
    with pytest.raises(NotReached, match=r"^not reached in 100 s|2 min$") as caught, after(0).reaching():
        raise TimeUp
    assert caught.value.why == "2 min were over"


def test_a_step_that_is_too_long_is_said_with_a_limit_that_has_room_for_it() -> None:
    """Begun after 50 s, it would have ended after 60, and the report after 64 s and 2 % of the whole."""
    error = after(50, limit_s=60.0).too_long("loading fp32", 10.0)
    assert str(error) == "not reached in 60 s: loading fp32 takes about 10 s; --llm-time 70s has room for it"
    assert "--llm-time 4m " in str(after(50, limit_s=60.0).too_long("loading fp32", 150.0))
    assert after(50, limit_s=70.0).fits(10.0)
