"""Calls and their answers. The other process is a thread, at the other end of a pipe."""

from __future__ import annotations

import importlib
import math
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from waiting import BACKSTOP_S

from llm_bench_fixtures import errors
from llm_bench_fixtures.errors import (
    IncompleteWeights,
    LlmBenchError,
    MalformedMessage,
    WorkerDied,
    WorkerFailed,
    named,
)
from llm_bench_fixtures.processes import worker
from llm_bench_fixtures.processes.calls import LONGEST_TRACEBACK, NEVER, Caller, GoOn, Preemptions, Raised, answer_calls
from llm_bench_fixtures.processes.channels import Pickled, PipeChannel
from llm_bench_fixtures.processes.worker import WorkerProcess
from llm_bench_fixtures.progress import Phase, Progress, ProgressDisplay, tell_share

Hold = Callable[[Progress], tuple[object, object]]


@dataclass
class Thread:
    """As much of a process as a thread is."""

    thread: threading.Thread
    pid: int = 0
    exit_code: int | None = None
    signals: list[int] = field(default_factory=list)

    def wait(self, seconds: float | None = None) -> int | None:
        if self.exit_code is None:
            self.thread.join(BACKSTOP_S if seconds is None else seconds)
        return self.exit_code or (None if self.thread.is_alive() else 0)

    def kill(self) -> None:
        self.exit_code = -9

    def signal(self, number: int) -> None:
        self.signals.append(number)


class Shown(ProgressDisplay):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def finished(self, text: str) -> None:
        self.texts.append(text)


@dataclass
class Scene:
    caller: Caller
    progress: Progress
    display: Shown
    thread: Thread
    tracebacks: list[str]


Open = Callable[..., Scene]


@pytest.fixture
def hold_there() -> Iterator[Open]:
    """Have a thing held by another end; the first answer is not read."""
    scenes = []

    def hold(hold: Hold, **options: object) -> Scene:
        ours, theirs = map(PipeChannel, multiprocessing.Pipe())
        thread = Thread(threading.Thread(target=answer_calls, args=(theirs, hold), kwargs=options))
        display = Shown()
        progress = Progress(display, show_after_s=0.0)
        tracebacks: list[str] = []

        def keep(traceback: str) -> str:
            tracebacks.append(traceback)
            return " (kept)"

        caller = Caller(WorkerProcess("it", thread, ours), progress, keep)
        scene = Scene(caller, progress, display, thread, tracebacks)
        scenes.append(scene)
        thread.thread.start()
        return scene

    yield hold
    for scene in scenes:
        scene.caller.close()
        scene.thread.thread.join(BACKSTOP_S)
        assert not scene.thread.thread.is_alive()


def hold_a_list(_: Progress) -> tuple[object, object]:
    return [1, 2, 3], "three numbers"


@pytest.fixture
def holding(hold_there: Open) -> Scene:
    """It holds a list, and has said so."""
    scene = hold_there(hold_a_list)
    assert scene.caller.result() == "three numbers"
    return scene


def times(numbers: list[int], factor: int, plus: int = 0) -> list[int]:
    return [number * factor + plus for number in numbers]


def fail(_: object, message: str) -> None:
    raise ZeroDivisionError(message)


def fail_in_our_words(_: object) -> None:
    raise IncompleteWeights(["one", "two"])


def test_a_function_gets_what_is_held_there_and_its_arguments(holding: Scene) -> None:
    assert holding.caller.call(times, 10) == [10, 20, 30]
    assert holding.caller.call(times, 2, plus=1) == [3, 5, 7]


def test_what_is_held_stays_from_call_to_call(holding: Scene) -> None:
    holding.caller.call(list.append, 4)
    assert holding.caller.call(len) == 4


def test_an_error_of_ours_comes_back_as_itself(holding: Scene) -> None:
    with pytest.raises(IncompleteWeights, match=r"^the model's files lack one, two: download or save it again$"):
        holding.caller.call(fail_in_our_words)


OURS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, LlmBenchError)]


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_each_error_of_ours_can_be_rebuilt(kind: type[LlmBenchError]) -> None:
    """Bug: a TypeError came in the place of OutOfMemory, which can't be made as other errors are."""
    error = Raised(kind, "what was wanted").rebuilt()
    assert type(error) is kind
    assert str(error) == "what was wanted"


def test_another_error_comes_back_as_its_last_line_and_ends_nothing(holding: Scene) -> None:
    """Bug: tables showed "WorkerFailed: Traceback (most recent call last):"."""
    with pytest.raises(WorkerFailed, match=r"^ZeroDivisionError: on� purpose \(kept\)$") as failed:
        holding.caller.call(fail, "\non\x1b purpose\nand more")
    assert named(failed.value) == str(failed.value)
    (whole,) = holding.tracebacks
    assert whole == failed.value.traceback
    assert "in fail\n" in whole
    assert whole.endswith("and more")
    assert holding.caller.call(len) == 3


def test_an_endless_message_is_bounded(holding: Scene) -> None:
    with pytest.raises(WorkerFailed) as failed:
        holding.caller.call(fail, "x" * 10**6)
    assert len(str(failed.value)) < 500
    assert len(failed.value.traceback) <= LONGEST_TRACEBACK


class ComesApart:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return importlib.import_module, ("no_such_module",)


def test_a_call_that_cannot_be_read_is_an_error_and_ends_nothing(holding: Scene) -> None:
    with pytest.raises(WorkerFailed, match="No module named 'no_such_module'"):
        holding.caller.call(times, ComesApart())
    assert holding.caller.call(len) == 3


def give_a_lock(_: object) -> object:
    return threading.Lock()


def test_a_result_that_cannot_be_sent_is_an_error_and_ends_nothing(holding: Scene) -> None:
    with pytest.raises(WorkerFailed, match="cannot pickle"):
        holding.caller.call(give_a_lock)
    assert holding.caller.call(len) == 3


def comes_apart(_: object) -> object:
    return ComesApart()


def test_a_result_that_cannot_be_read_ends_the_process(holding: Scene) -> None:
    """As Ctrl-C does while the answer is awaited: which answer is the next call's would be unknown."""
    with pytest.raises(ModuleNotFoundError):
        holding.caller.call(comes_apart)
    with pytest.raises(WorkerDied, match=r"^it was stopped when a call .* cut short \(ModuleNotFoundError: No module"):
        holding.caller.call(len)


class TimeLimit(BaseException):
    """As a plugin's: no Exception, so that no test catches it."""


def reach_the_limit(_: object) -> None:
    """As an alarm does in the middle of a call."""
    signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)  # type: ignore[arg-type]


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="this system has no alarm")
@pytest.mark.parametrize("kind", [TimeLimit, TimeoutError, RuntimeError])
def test_after_a_time_limit_it_is_said_that_the_process_was_stopped(holding: Scene, kind: type[BaseException]) -> None:
    """Bug: every later test of the variant said "ended with status 0". A TimeoutError was taken for its death."""

    def raise_it(*_: object) -> None:
        raise kind("after 0.1 s")

    before = signal.signal(signal.SIGALRM, raise_it)
    try:
        with pytest.raises(kind, match=r"after 0\.1 s"):
            holding.caller.call(reach_the_limit)
    finally:
        signal.signal(signal.SIGALRM, before)
    for _ in range(2):
        with pytest.raises(WorkerDied, match=rf"^it was stopped when .* cut short \({kind.__name__}: after 0.1 s\)$"):
            holding.caller.call(len)


def test_a_time_limit_while_a_call_is_sent_leaves_no_answer_for_the_next_call(
    holding: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the next call had the result of the one before."""
    send = PipeChannel.send

    def cut_short(channel: PipeChannel[object, object], message: object) -> None:
        send(channel, message)
        if isinstance(message, Pickled):
            raise RuntimeError("after 0.1 s")

    with monkeypatch.context() as patch:
        patch.setattr(PipeChannel, "send", cut_short)
        with pytest.raises(RuntimeError):
            holding.caller.call(times, 2)
    with pytest.raises(WorkerDied, match=r"^it was stopped when .* cut short \(RuntimeError: after 0.1 s\)$"):
        holding.caller.call(len)


def test_what_cannot_be_held_is_raised_and_the_process_ends(hold_there: Open) -> None:
    def hold(_: Progress) -> tuple[object, object]:
        raise IncompleteWeights(["one"])

    scene = hold_there(hold)
    with pytest.raises(IncompleteWeights, match="lack one"):
        scene.caller.result()
    with pytest.raises(WorkerDied, match=r"^it ended with status 0$"):
        scene.caller.result()


def test_activities_are_shown_and_counted_by_the_caller(hold_there: Open) -> None:
    """One within another counts for itself only."""
    go_on = threading.Event()

    def hold(progress: Progress) -> tuple[object, object]:
        with progress.activity(Phase.LOADING, "outer"), progress.activity(Phase.EXPORTING, "inner"):
            go_on.wait(0.2)
        return "thing", "facts"

    scene = hold_there(hold)
    assert scene.caller.result() == "facts"
    assert scene.progress.phase_s[Phase.EXPORTING] >= 0.1
    assert scene.progress.phase_s[Phase.LOADING] < scene.progress.phase_s[Phase.EXPORTING]
    assert "inner" in scene.display.texts


def tell(_: object, *shares: float) -> None:
    for share in shares:
        tell_share(share)


def test_what_a_call_tells_is_shown_by_the_caller(holding: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """As often as it can be shown: what is told at once after is left out."""
    told: list[float] = []
    monkeypatch.setattr(holding.progress, "tell", told.append)
    holding.caller.call(tell, 0.25, 0.5)
    assert told == [0.25]


def test_everything_runs_in_the_context_that_is_given(hold_there: Open) -> None:
    """Reading a call too, which may import modules that have something to say; waiting for one doesn't."""
    seen: list[str] = []

    @contextmanager
    def around() -> Iterator[None]:
        seen.append("in")
        yield
        seen.append("out")

    scene = hold_there(hold_a_list, around=around)
    scene.caller.result()
    assert seen == ["in", "out"]
    with pytest.raises(WorkerFailed):
        scene.caller.call(times, ComesApart())
    assert seen == ["in", "out", "in"]


def grow(numbers: list[int], pause: Callable[[], None], times: int, fails: bool = False) -> int:
    """Append a number before each pause, and one at the end."""
    for number in range(times):
        numbers.append(number)
        pause()
    if fails:
        raise ZeroDivisionError("in the end")
    numbers.append(-1)
    return len(numbers)


def see(numbers: list[int]) -> list[int]:
    return numbers


@pytest.fixture
def suspends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "can_suspend", lambda: True)


@pytest.mark.usefixtures("suspends")
def test_a_call_in_turns_waits_in_each_pause_and_is_suspended(holding: Scene) -> None:
    assert list(holding.caller.in_turns(NEVER, grow, 2)) == [None, None, 6]
    assert holding.thread.signals == [signal.SIGSTOP, signal.SIGCONT, signal.SIGSTOP, signal.SIGCONT, signal.SIGSTOP]
    assert holding.caller.call(see) == [1, 2, 3, 0, 1, -1]


@pytest.mark.usefixtures("suspends")
def test_what_a_call_in_turns_raises_comes_where_its_result_would(holding: Scene) -> None:
    turns = holding.caller.in_turns(NEVER, grow, 1, fails=True)
    assert next(turns) is None
    with pytest.raises(WorkerFailed, match="in the end"):
        next(turns)
    assert holding.caller.call(see) == [1, 2, 3, 0]


def test_a_call_that_is_left_in_a_pause_is_over_before_the_next(holding: Scene) -> None:
    left = holding.caller.in_turns(NEVER, grow, 3)
    assert next(left) is None
    assert holding.caller.call(see) == [1, 2, 3, 0, 1, 2, -1]
    assert list(left) == []
    assert list(holding.caller.in_turns(NEVER, grow, 0)) == [8]


def test_a_process_that_dies_in_a_pause_is_a_death_of_that_turn(holding: Scene) -> None:
    turns = holding.caller.in_turns(NEVER, grow, 3)
    assert next(turns) is None
    holding.caller.kill()
    with pytest.raises(WorkerDied, match="killed when the run was interrupted"):
        next(turns)


def test_a_pause_is_ended_by_nothing_else_than_being_told_to_go_on(holding: Scene) -> None:
    """Bug: another call was taken for it and never answered."""
    turns = holding.caller.in_turns(NEVER, grow, 3)
    assert next(turns) is None
    holding.caller._unfinished = None
    with pytest.raises(MalformedMessage):
        holding.caller.call(see)
    assert holding.caller.call(see) == [1, 2, 3, 0]
    assert list(turns) == []


def take(numbers: list[int], pause: Callable[[], None], seconds: float, fails: bool = False) -> int:
    time.sleep(seconds)
    if fails:
        raise ZeroDivisionError("in the end")
    pause()
    return len(numbers)


@pytest.mark.usefixtures("suspends")
def test_a_call_is_preempted_wherever_it_is_and_the_times_are_known(holding: Scene) -> None:
    preemptions = Preemptions(0.1)
    turns = holding.caller.in_turns(preemptions, take, 0.25)
    began_s = time.perf_counter()
    assert next(turns) is None
    assert time.perf_counter() - began_s >= 0.1
    *pauses, result = turns
    assert (set(pauses), result) == ({None}, 3)
    intervals = preemptions.intervals
    assert len(intervals) in (len(pauses), len(pauses) + 1)  # one of which was the pause
    assert intervals
    assert all(began_s < from_s <= to_s for from_s, to_s in intervals)
    assert holding.thread.signals == [signal.SIGSTOP, signal.SIGCONT] * (len(pauses) + 1) + [signal.SIGSTOP]


def test_what_a_preempted_call_raises_comes_where_its_result_would(holding: Scene) -> None:
    turns = holding.caller.in_turns(Preemptions(0.05), take, 0.2, fails=True)
    assert next(turns) is None
    with pytest.raises(WorkerFailed, match="in the end"):
        list(turns)
    assert holding.caller.call(see) == [1, 2, 3]


def test_a_preempted_call_that_is_left_is_over_before_the_next(holding: Scene) -> None:
    """Also where it pauses later on."""
    left = holding.caller.in_turns(Preemptions(0.05), take, 0.2)
    assert next(left) is None
    assert holding.caller.call(see) == [1, 2, 3]
    assert list(left) == []


def test_an_answer_that_comes_as_a_call_is_preempted_is_the_next(holding: Scene) -> None:
    turns = holding.caller.in_turns(Preemptions(0.05), grow, 0)
    holding.caller._process.is_ready_within = lambda seconds: seconds == math.inf  # type: ignore[method-assign]
    assert next(turns) is None
    holding.caller._process.is_ready_within = lambda _: True  # type: ignore[method-assign]
    assert list(turns) == [4]


def test_a_process_that_dies_while_it_is_preempted_is_a_death_of_that_turn(holding: Scene) -> None:
    turns = holding.caller.in_turns(Preemptions(0.05), take, 0.2)
    assert next(turns) is None
    holding.caller.kill()
    with pytest.raises(WorkerDied, match="killed when the run was interrupted"):
        next(turns)


def test_a_process_that_is_closed_while_it_is_preempted_is_not_waited_for(holding: Scene) -> None:
    """Bug: it went on to the end of what it did, for ten seconds."""
    turns = holding.caller.in_turns(Preemptions(0.05), take, 0.2)
    assert next(turns) is None
    holding.caller.close()
    assert holding.thread.exit_code == -9


def test_nothing_goes_on_that_has_not_paused(holding: Scene) -> None:
    """A message of another version's, say, is an error and ends nothing."""
    holding.caller._process.send(Pickled.of(GoOn()))
    with pytest.raises(MalformedMessage):
        holding.caller.result()
    assert holding.caller.call(see) == [1, 2, 3]
