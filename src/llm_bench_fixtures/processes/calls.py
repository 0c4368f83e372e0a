"""Functions called in another process, with what that process holds.

this process     the process that holds something
             <-  ActivityBegan    each activity that takes long, which is shown and counted here
             <-  ActivityShare    how much of the last of them is done, now and then
             <-  ActivityEnded
             <-  Returned         what is to be known of the thing, once it is held; or Raised, and the process ends
Call         ->
             <-  activities, as above
             <-  Paused           where the function pauses, which then waits
GoOn         ->
             <-  Returned         the function's result; or Raised

A call can also be preempted: the process is suspended wherever it is, and woken, without a message.
"""

from __future__ import annotations

import contextlib
import math
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeAlias

from llm_bench_fixtures.errors import (
    ChannelClosed,
    LlmBenchError,
    MalformedMessage,
    WorkerFailed,
    first_line,
    last_line,
    reason_of,
)
from llm_bench_fixtures.processes.channels import Channel, Pickled
from llm_bench_fixtures.processes.worker import WorkerProcess
from llm_bench_fixtures.progress import TICK_S, Phase, Progress
from llm_bench_fixtures.text import without_middle

LONGEST_TRACEBACK = 200_000  # characters


@dataclass
class Preemptions:
    """How often a call is suspended in the middle of what it does, so that others have their turn."""

    every_s: float
    """The call is suspended each time that it has run for so many seconds."""

    intervals: list[tuple[float, float]] = field(default_factory=list)
    """Beginning and end of each suspension, on time.perf_counter, one clock for all processes that can be suspended."""


NEVER = Preemptions(math.inf)


@dataclass(frozen=True)
class Call:
    """A function and its arguments, before which it is given the thing that is held."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    pauses: bool = False
    """Whether the function is given, after the thing, a function that it calls to pause."""


@dataclass(frozen=True)
class GoOn:
    """The call that has paused may go on."""

    to_end: bool = False
    """Whether to go on without a further pause, as nobody waits for its result any more."""


@dataclass(frozen=True)
class ActivityBegan:
    """An activity has begun, perhaps within another."""

    phase: Phase
    text: str


@dataclass(frozen=True)
class ActivityShare:
    """How much is done of the innermost activity, which may be one of the caller's own."""

    share: float


@dataclass(frozen=True)
class ActivityEnded:
    """The last activity that began, and hadn't ended, is over."""


@dataclass(frozen=True)
class Paused:
    """The call waits until it may go on."""


@dataclass(frozen=True)
class Preempted:
    """No message, but the lack of one: the call has run for its time, and its process is to be suspended."""


@dataclass(frozen=True)
class Returned:
    result: Any


@dataclass(frozen=True)
class Raised:
    """An error that the other process can raise: of this package's own, since not every error can be pickled."""

    kind: type[LlmBenchError]
    message: str
    traceback: str = ""

    @classmethod
    def of(cls, error: BaseException, otherwise: type[LlmBenchError] | None = None) -> Self:
        """An error of this package as it is; another as an `otherwise` with its reason, or without one as a
        WorkerFailed with its traceback."""
        if isinstance(error, LlmBenchError):
            return cls(type(error), str(error))
        if otherwise is not None:
            return cls(otherwise, reason_of(error))
        whole = "".join(traceback.format_exception(error)).strip()
        return cls(WorkerFailed, last_line(error), without_middle(whole, LONGEST_TRACEBACK))

    def rebuilt(self) -> LlmBenchError:
        """The error with the message that it had; its constructor would compose another message."""
        error = self.kind.__new__(self.kind)
        error.args = (self.message,)
        if isinstance(error, WorkerFailed):
            error.traceback = self.traceback
        return error


def outcome_of(work: Callable[[], object], otherwise: type[LlmBenchError]) -> Returned | Raised:
    """What the work returns, or raises: libraries may raise anything, and a panic of Rust is no Exception."""
    try:
        return Returned(work())
    except BaseException as error:
        return Raised.of(error, otherwise)


Answer: TypeAlias = ActivityBegan | ActivityShare | ActivityEnded | Paused | Returned | Raised
Question: TypeAlias = Call | GoOn


class Caller:
    """Calls functions in another process, one at a time."""

    def __init__(
        self,
        process: WorkerProcess[Pickled, Answer],
        progress: Progress,
        keep_traceback: Callable[[str], str] = lambda _: "",
    ) -> None:
        """progress: shows and counts the process' activities. keep_traceback: keeps the traceback of what
        fails there, and returns the end of a sentence that says where."""
        self._process = process
        self._progress = progress
        self._keep_traceback = keep_traceback
        self.was_cut_short = False
        """Whether a test's time limit ended the process in a call: what is neither an error nor Ctrl-C."""
        self._unfinished: Paused | Preempted | None = None
        """How the last call stands still; None where it has come to its end."""

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call the function there. It, its arguments and its result have to be picklable. Raises as `result` does."""
        return self._returned(self._ask(Call(function, args, kwargs)))

    def in_turns(
        self, preemptions: Preemptions, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Iterator[Any]:
        """Call a function that takes `pause` after the thing. Gives None at each pause and each preemption, and the
        result last.

        The process is suspended there, and after the result until it is called again. A call that is left unfinished
        goes on to its end before the next one. preemptions: says how often it is suspended, and gets to know when.
        """
        answer = self._ask(Call(function, args, kwargs, pauses=True), preemptions)
        while isinstance(answer, (Paused, Preempted)):
            self._process.suspend()
            since_s = time.perf_counter()
            yield None
            if answer is not self._unfinished:  # another call has ended this one
                return
            if isinstance(answer, Preempted):
                preemptions.intervals.append((since_s, time.perf_counter()))
            answer = self._go_on(preemptions)
        self._process.suspend()
        yield self._returned(answer)

    def _ask(self, call: Call, preemptions: Preemptions = NEVER) -> Any:
        """The answer to the call, as `_next` gives it, once a call that was left unfinished is over."""
        pickled = Pickled.of(call)
        while self._unfinished:
            self._go_on(to_end=True)
        with self._ending_where_cut_short():
            self._process.send(pickled)
            return self._next(preemptions)

    def _go_on(self, preemptions: Preemptions = NEVER, *, to_end: bool = False) -> Any:
        """The next answer to the unfinished call. to_end: it doesn't pause any more."""
        with self._ending_where_cut_short():
            if isinstance(self._unfinished, Paused):
                self._process.send(Pickled.of(GoOn(to_end)))
            else:
                self._process.wake()
            return self._next(preemptions)

    def _next(self, preemptions: Preemptions) -> Any:
        """The next answer, which may be a pause; Preempted if the call is to be preempted first."""
        self._unfinished = None
        is_ready = self._process.is_ready_within(preemptions.every_s)
        answer = self._answer() if is_ready else Preempted()
        self._unfinished = answer if isinstance(answer, (Paused, Preempted)) else None
        return answer

    def result(self) -> Any:
        """The next result. Raises what was raised there, or WorkerDied."""
        with self._ending_where_cut_short():
            answer = self._answer()
        return self._returned(answer)

    @contextmanager
    def _ending_where_cut_short(self) -> Iterator[None]:
        """End the process where anything but its own death leaves the block."""
        try:
            yield
        except LlmBenchError:
            raise
        except BaseException as error:
            # After Ctrl-C or a test's time limit a late answer would be taken for the next call's.
            self.was_cut_short = not isinstance(error, (Exception, KeyboardInterrupt))
            what = ": ".join(filter(None, (type(error).__name__, first_line(error))))
            self._process.end(f"was stopped when a call to it was cut short ({what})")
            raise

    def _returned(self, answer: Any) -> Any:
        if isinstance(answer, Raised):
            if answer.traceback:
                answer = replace(answer, message=answer.message + self._keep_traceback(answer.traceback))
            raise answer.rebuilt()
        return answer.result

    def close(self) -> None:
        """End the process; one that is in the middle of a call at once."""
        self.was_cut_short = False
        if isinstance(self._unfinished, Preempted):
            self._process.end("was closed in the middle of a call")
        else:
            self._process.close()

    def kill(self) -> None:
        """End the process at once, as the run is over."""
        self._process.end("was killed when the run was interrupted")

    def _answer(self) -> Any:
        """The next message that neither begins an activity nor tells of one."""
        while isinstance(
            answer := self._process.receive(cut_at=self._progress.cut_at_s), (ActivityBegan, ActivityShare)
        ):
            if isinstance(answer, ActivityShare):
                self._progress.tell(answer.share)
                continue
            with self._progress.activity(answer.phase, answer.text):
                end = self._answer()
            if not isinstance(end, ActivityEnded):
                raise MalformedMessage(repr(end).encode())
        return answer


class RemoteProgress(Progress):
    """Tells the other side of each activity, where it is shown."""

    def __init__(self, channel: Channel[Answer, Question]) -> None:
        super().__init__()
        self._channel = channel
        self._next_s = 0.0

    def tell(self, share: float) -> None:
        """Tell the share done, as often as it is shown."""
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._channel.send(ActivityShare(share))
            self._next_s = now_s + TICK_S

    @contextmanager
    def activity(self, phase: Phase, text: str) -> Iterator[None]:
        self._channel.send(ActivityBegan(phase, text))
        try:
            with self.counted(phase):
                yield
        finally:
            self._channel.send(ActivityEnded())


def answer_calls(
    channel: Channel[Answer, Question],
    hold: Callable[[Progress], tuple[object, object]],
    around: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext,
) -> None:
    """Hold something in the process, and answer calls with it until the other side has said farewell or is gone.

    hold: gives the thing, and what the other side has to know of it; its progress is shown there. around: the context
    of all that is called, of reading the calls too, which may import modules.
    """
    held: list[object] = []
    progress = RemoteProgress(channel)

    def begin() -> object:
        thing, facts = hold(progress)
        held.append(thing)
        return facts

    def run() -> object:
        call = channel.receive()
        if isinstance(call, GoOn):
            raise MalformedMessage(repr(call).encode())
        pause = (_pausing(channel),) if call.pauses else ()
        with progress.told():
            return call.function(*held, *pause, *call.args, **(call.kwargs or {}))

    with contextlib.suppress(ChannelClosed):
        _answer(channel, begin, around)
        while held:
            channel.wait()
            _answer(channel, run, around)


def _pausing(channel: Channel[Answer, Question]) -> Callable[[], None]:
    """Function that a call pauses with."""
    is_to_end = False

    def pause() -> None:
        nonlocal is_to_end
        if not is_to_end:
            channel.send(Paused())
            answer = channel.receive()
            if not isinstance(answer, GoOn):
                raise MalformedMessage(repr(answer).encode())
            is_to_end = answer.to_end

    return pause


def _answer(
    channel: Channel[Answer, Question], work: Callable[[], object], around: Callable[[], AbstractContextManager[object]]
) -> None:
    """Send what the work returns or raises; also where its result can't be sent. Raises ChannelClosed."""
    try:
        with around():
            result = work()
        channel.send(Returned(result))
    except ChannelClosed:
        raise
    except Exception as error:
        channel.send(Raised.of(error))
