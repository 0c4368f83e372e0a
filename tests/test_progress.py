from __future__ import annotations

import threading
from typing import Protocol

import pytest
from waiting import BACKSTOP_S

from llm_bench_fixtures.progress import (
    TICK_S,
    Left,
    Milestone,
    Ongoing,
    Phase,
    Progress,
    ProgressDisplay,
    tell_share,
)

NEVER_S = 3600.0


class Clock(Protocol):
    def __call__(self) -> float: ...

    def advance(self, seconds: float) -> None: ...


class RecordingDisplay(ProgressDisplay):
    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.statuses: list[Ongoing] = []
        self.was_running = threading.Event()
        self.was_told = threading.Event()

    def running(self, status: Ongoing) -> None:
        self.calls.append(("running", status.text))
        self.statuses.append(status)
        self.was_running.set()
        if status.step:
            self.was_told.set()

    def finished(self, text: str) -> None:
        self.calls.append(("finished", text))


@pytest.fixture
def progress(clock: Clock) -> Progress:
    return Progress(show_after_s=NEVER_S, clock=clock)


def test_an_activity_counts_for_its_phase(progress: Progress, clock: Clock) -> None:
    with progress.activity(Phase.LOADING, "loading"):
        clock.advance(3)
    assert progress.phase_s == {Phase.LOADING: 3}


def test_time_between_activities_counts_for_none(progress: Progress, clock: Clock) -> None:
    with progress.activity(Phase.LOADING, "one"):
        clock.advance(3)
    clock.advance(100)
    with progress.activity(Phase.LOADING, "two"):
        clock.advance(4)
    assert progress.phase_s == {Phase.LOADING: 7}


def test_a_phase_inside_another_counts_for_the_inner_one_only(progress: Progress, clock: Clock) -> None:
    with progress.activity(Phase.LOADING, "outer"):
        clock.advance(2)
        with progress.activity(Phase.EXPORTING, "inner"):
            clock.advance(5)
        clock.advance(1)
    assert progress.phase_s == {Phase.LOADING: 3, Phase.EXPORTING: 5}


def test_two_phases_inside_one_are_both_taken_off_it(progress: Progress, clock: Clock) -> None:
    with progress.activity(Phase.LOADING, "outer"):
        with progress.activity(Phase.EXPORTING, "first"):
            clock.advance(5)
        with progress.activity(Phase.QUANTIZING, "second"):
            clock.advance(7)
    assert progress.phase_s == {Phase.LOADING: 0, Phase.EXPORTING: 5, Phase.QUANTIZING: 7}


def test_three_levels_count_each_second_once(progress: Progress, clock: Clock) -> None:
    with progress.activity(Phase.LOADING, "outer"):
        clock.advance(1)
        with progress.activity(Phase.CALIBRATING, "middle"):
            clock.advance(10)
            with progress.activity(Phase.QUANTIZING, "inner"):
                clock.advance(100)
    assert progress.phase_s == {Phase.LOADING: 1, Phase.CALIBRATING: 10, Phase.QUANTIZING: 100}


def test_a_phase_inside_itself_counts_each_second_once(progress: Progress, clock: Clock) -> None:
    with progress.activity(Phase.LOADING, "outer"):
        clock.advance(1)
        with progress.activity(Phase.LOADING, "inner"):
            clock.advance(2)
    assert progress.phase_s == {Phase.LOADING: 3}


def test_an_activity_that_fails_counts_up_to_its_failure(progress: Progress, clock: Clock) -> None:
    def work() -> None:
        with progress.activity(Phase.LOADING, "outer"):
            clock.advance(1)
            with progress.activity(Phase.EXPORTING, "inner"):
                clock.advance(2)
                raise RuntimeError("export failed")

    with pytest.raises(RuntimeError, match="export failed"):
        work()
    assert progress.phase_s == {Phase.LOADING: 1, Phase.EXPORTING: 2}


def test_a_counted_block_counts_for_its_phase(progress: Progress, clock: Clock) -> None:
    with progress.counted(Phase.GENERATING):
        clock.advance(4)
    assert progress.phase_s == {Phase.GENERATING: 4}


def test_a_counted_block_inside_an_activity_counts_for_the_inner_one_only(progress: Progress, clock: Clock) -> None:
    with progress.activity(Phase.SCORING, "outer"):
        clock.advance(1)
        with progress.counted(Phase.GENERATING):
            clock.advance(4)
    assert progress.phase_s == {Phase.SCORING: 1, Phase.GENERATING: 4}


def test_a_counted_block_starts_no_thread(progress: Progress) -> None:
    before = threading.active_count()
    with progress.counted(Phase.GENERATING):
        assert threading.active_count() == before


def test_a_long_activity_is_shown_while_it_runs_and_when_it_ends() -> None:
    display = RecordingDisplay()
    with Progress(display, show_after_s=0).activity(Phase.EXPORTING, "exporting tiny"):
        assert display.was_running.wait(BACKSTOP_S)
    assert display.calls[0] == ("running", "exporting tiny")
    assert display.calls[-1] == ("finished", "exporting tiny")


def test_a_long_activity_that_fails_is_shown_as_ended() -> None:
    display = RecordingDisplay()

    def work() -> None:
        with Progress(display, show_after_s=0).activity(Phase.EXPORTING, "exporting"):
            assert display.was_running.wait(BACKSTOP_S)
            raise RuntimeError("export failed")

    with pytest.raises(RuntimeError, match="export failed"):
        work()
    assert display.calls[-1] == ("finished", "exporting")


def test_an_activity_below_the_limit_is_not_shown() -> None:
    display = RecordingDisplay()
    with Progress(display, show_after_s=NEVER_S).activity(Phase.EXPORTING, "exporting"):
        pass
    assert display.calls == []


def test_no_thread_outlives_its_activity() -> None:
    with Progress(show_after_s=NEVER_S).activity(Phase.LOADING, "loading"):
        assert threads_named("llm-bench-progress") == 1
    assert threads_named("llm-bench-progress") == 0


def threads_named(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


def test_without_a_display_nothing_is_shown_and_nothing_fails() -> None:
    started = threading.Event()
    with Progress(show_after_s=0).activity(Phase.LOADING, "loading"):
        started.set()
    assert started.is_set()


def test_what_is_told_of_an_activity_is_shown_with_what_is_left() -> None:
    """A quarter of it is done, so that the rest takes three times as long."""
    display = RecordingDisplay()
    progress = Progress(display, show_after_s=0)
    with progress.activity(Phase.SCORING, "outer"), progress.activity(Phase.SCORING, "scoring"):
        tell_share(0.25)
        assert display.was_told.wait(BACKSTOP_S)
    status = next(status for status in display.statuses if status.step)
    assert (status.text, status.step) == ("scoring", "25 %")
    assert status.left == Left(pytest.approx(3 * status.elapsed_s))


def test_what_is_told_while_nothing_goes_on_is_lost() -> None:
    tell_share(0.5)
    Progress().tell(0.5)


def test_steps_are_shown_once_it_takes_long_and_not_too_often(clock: Clock) -> None:
    display = RecordingDisplay()
    with Progress(display, show_after_s=2, clock=clock).stepped(Phase.GENERATING, "batch[8]") as step:
        for number in range(6):
            clock.advance(TICK_S * 0.9)
            step(f"round {number}", "bf16", Left(9.0))
        assert [status.step for status in display.statuses] == ["round 4"]  # after 2.25 s; 0.45 s later is too early
        clock.advance(TICK_S)
        step("round 6")
    assert [status.step for status in display.statuses] == ["round 4", "round 6"]
    assert display.statuses[0] == Ongoing("batch[8]", pytest.approx(2.25), "", "round 4", "bf16", Left(9.0))
    assert display.calls[-1] == ("finished", "batch[8]")


def test_steps_of_what_is_known_to_take_long_are_shown_at_once(clock: Clock) -> None:
    display = RecordingDisplay()
    with Progress(display, show_after_s=2, clock=clock).stepped(Phase.GENERATING, "long", at_once=True) as step:
        step()
    assert display.calls == [("running", "long"), ("finished", "long")]


def counts(progress: Progress) -> tuple[int, int]:
    """How many cases are done, and of how many."""
    cases = progress.planned[Milestone.CASE]
    return cases.done, cases.total


def test_what_is_shown_says_how_long_the_run_still_takes(clock: Clock) -> None:
    display = RecordingDisplay()
    progress = Progress(display, clock=clock)
    progress.run_left_s = lambda: 38.0
    progress.expect(Milestone.CASE, 3)
    with progress.part(Milestone.CASE), progress.stepped(Phase.GENERATING, "batch[8]", at_once=True) as step:
        step("round 1")
    assert (display.statuses[0].place, display.statuses[0].run_left_s) == ("case 1/3", 38.0)
    assert counts(progress) == (1, 3)


def test_nothing_is_said_of_parts_that_nobody_counted(progress: Progress, clock: Clock) -> None:
    with progress.part(Milestone.CASE):
        clock.advance(1)
        assert (progress.place, progress.run_left_s()) == ("", None)


def test_more_parts_than_were_expected_are_not_numbered(progress: Progress) -> None:
    progress.expect(Milestone.CASE, 1)
    for place in ("case 1/1", ""):
        with progress.part(Milestone.CASE):
            assert progress.place == place


def test_a_part_that_comes_again_by_its_name_is_the_same(progress: Progress) -> None:
    progress.expect(Milestone.CASE, 3)
    for name, place in (("batch[8]", "case 1/3"), ("batch[8]", "case 1/3"), ("batch[4]", "case 2/3")):
        with progress.part(Milestone.CASE, name):
            assert progress.place == place
    assert counts(progress) == (2, 3)


def test_a_part_that_fails_is_done(progress: Progress) -> None:
    progress.expect(Milestone.VARIANT, 2)
    with pytest.raises(LookupError), progress.part(Milestone.VARIANT):
        raise LookupError
    with progress.part(Milestone.VARIANT):
        assert progress.place == "variant 2/2"
