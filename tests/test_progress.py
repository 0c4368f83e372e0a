from __future__ import annotations

import threading
from typing import Protocol

import pytest

from llm_bench_fixtures.progress import Phase, Progress, ProgressDisplay

NEVER_S = 3600.0


class Clock(Protocol):
    def __call__(self) -> float: ...

    def advance(self, seconds: float) -> None: ...


class RecordingDisplay(ProgressDisplay):
    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.was_running = threading.Event()

    def running(self, text: str, elapsed_s: float) -> None:
        self.calls.append(("running", text))
        self.was_running.set()

    def finished(self, text: str, elapsed_s: float) -> None:
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
        assert display.was_running.wait(timeout=30)
    assert display.calls[0] == ("running", "exporting tiny")
    assert display.calls[-1] == ("finished", "exporting tiny")


def test_a_long_activity_that_fails_is_shown_as_ended() -> None:
    display = RecordingDisplay()

    def work() -> None:
        with Progress(display, show_after_s=0).activity(Phase.EXPORTING, "exporting"):
            assert display.was_running.wait(timeout=30)
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
