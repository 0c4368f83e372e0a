"""What the exit of a process says, and a handle on a process that doesn't exist."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from waiting import wait_until

from llm_bench_fixtures.errors import NoAnswer, WorkerDied
from llm_bench_fixtures.processes import worker
from llm_bench_fixtures.processes.channels import PipeChannel
from llm_bench_fixtures.processes.work_limit import WorkLimit
from llm_bench_fixtures.processes.worker import FAREWELL_S, KILLED_S, WorkerProcess, how_it_ended

UNNAMED = next(number for number in range(1, 128) if number not in list(signal.Signals))
SIGKILL = 9  # which Windows has no name for


@pytest.mark.parametrize(
    ("exit_code", "how"),
    [
        (None, "closed its connection"),
        (0, "ended with status 0"),
        (3, "ended with status 3"),
        (-signal.SIGTERM, "was killed by SIGTERM"),
        (-signal.SIGKILL, "was killed by SIGKILL, perhaps for lack of memory"),
        (-UNNAMED, f"was killed by signal {UNNAMED}"),
    ],
)
def test_each_way_in_which_a_process_ends(exit_code: int | None, how: str) -> None:
    assert how_it_ended(exit_code) == how


@dataclass
class Told:
    """A process that does as it is told: it runs while `exit_code` is None."""

    exit_code: int | None = None
    pid: int = 0
    waits: list[float | None] = field(default_factory=list)
    signals: list[int] = field(default_factory=list)

    def signal(self, number: int) -> None:
        self.signals.append(number)

    def wait(self, seconds: float | None = None) -> int | None:
        self.waits.append(seconds)
        return self.exit_code

    def kill(self) -> None:
        self.exit_code = -SIGKILL


@dataclass
class Scene:
    process: Told
    worker: WorkerProcess[Any, Any]
    theirs: PipeChannel[Any, Any]


@pytest.fixture
def scene() -> Iterator[Scene]:
    process = Told()
    ours, theirs = map(PipeChannel, multiprocessing.Pipe())
    yield Scene(process, WorkerProcess("the worker", process, ours), theirs)
    ours.close()
    theirs.close()


class LooksLater(WorkLimit):
    """Over after so many looks, each of which does something."""

    def __init__(self, until_over: int, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__(0.0, lambda: 0.0)
        self.looks, self._until_over, self._meanwhile = 0, until_over, meanwhile

    def is_over(self) -> bool:
        self.looks += 1
        self._meanwhile()
        return self.looks == self._until_over


def test_messages_come_and_go(scene: Scene) -> None:
    scene.worker.send("a question")
    assert scene.theirs.receive() == "a question"
    scene.theirs.send("an answer")
    assert scene.worker.receive() == "an answer"


def test_a_process_that_a_signal_stops_is_not_waited_for_without_end(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: nothing ended that wait. Bug: later messages took memory for the cause."""
    monkeypatch.setattr("llm_bench_fixtures.processes.work_limit.LOOK_EVERY_S", 0.05)
    monkeypatch.setattr("llm_bench_fixtures.processes.work_limit.LONGEST_STOP_S", 0.2)
    monkeypatch.setattr(WorkerProcess, "is_stopped", True)
    for _ in range(2):
        with pytest.raises(WorkerDied, match=r"^the worker was stopped by a signal for 0 s, and then killed$"):
            scene.worker.receive()
    assert scene.process.exit_code == -SIGKILL


def test_a_process_that_goes_on_after_a_stop_is_waited_for(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llm_bench_fixtures.processes.work_limit.LOOK_EVERY_S", 0.05)
    monkeypatch.setattr("llm_bench_fixtures.processes.work_limit.LONGEST_STOP_S", 0.2)
    states = iter([True, True, False, True, True, False])

    def look(_: object) -> bool:
        state = next(states, None)
        if state is None:
            scene.theirs.send("an answer")
        return bool(state)

    monkeypatch.setattr(WorkerProcess, "is_stopped", property(look))
    assert scene.worker.receive() == "an answer"


def test_whether_a_signal_has_stopped_it() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        ours, theirs = map(PipeChannel, multiprocessing.Pipe())
        worker: WorkerProcess[Any, Any] = WorkerProcess("it", Told(pid=process.pid), ours)
        assert not worker.is_stopped
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: worker.is_stopped)
    finally:
        process.kill()
        process.wait()
        theirs.close()
        ours.close()


def test_a_death_is_told_whenever_it_is_met(scene: Scene) -> None:
    """Its exit code is known a little after its end of the channel has closed."""
    scene.theirs.close()
    scene.process.exit_code = 3
    for ask in (scene.worker.receive, lambda: scene.worker.send("?"), scene.worker.receive):
        with pytest.raises(WorkerDied, match=r"^the worker ended with status 3$") as died:
            ask()
        assert died.value.how == "ended with status 3"
    assert scene.process.waits == [FAREWELL_S] * 3


def test_one_that_runs_on_without_its_channel_is_told_too(scene: Scene) -> None:
    scene.theirs.close()
    with pytest.raises(WorkerDied, match=r"^the worker closed its connection$"):
        scene.worker.receive()


def test_silence_is_no_death(scene: Scene) -> None:
    scene.process.exit_code = 3
    with pytest.raises(NoAnswer):
        scene.worker.receive(time.monotonic() + 0.01)


def test_an_answer_is_awaited_until_the_work_that_a_process_may_do_is_done(scene: Scene) -> None:
    limit = LooksLater(until_over=2)
    with pytest.raises(NoAnswer):
        scene.worker.receive_within(limit)
    limit = LooksLater(until_over=3, meanwhile=lambda: scene.theirs.send("an answer"))
    assert scene.worker.receive_within(limit) == "an answer"
    assert limit.looks == 1


def refuse_connection() -> None:
    raise ConnectionRefusedError("nobody listens")


class Fetched:
    """Travels as a call to its sender, as a tensor in shared memory does."""

    def __reduce__(self) -> tuple[object, tuple[()]]:
        return refuse_connection, ()


@pytest.mark.parametrize(("exit_code", "error"), [(1, WorkerDied), (None, ConnectionRefusedError)])
def test_a_message_whose_sender_died_before_it_was_read_is_a_death(
    scene: Scene, exit_code: int | None, error: type[Exception]
) -> None:
    scene.process.exit_code = exit_code
    scene.theirs.send(Fetched())
    with pytest.raises(error):
        scene.worker.receive()


def test_one_that_ends_by_itself_is_not_killed(scene: Scene) -> None:
    scene.process.exit_code = 0
    scene.worker.close()
    assert (scene.process.exit_code, scene.process.waits) == (0, [FAREWELL_S])


def test_one_that_is_ended_is_not_waited_for(scene: Scene) -> None:
    """Bug: after Ctrl-C each process that was loading had ten seconds to end by itself."""
    scene.worker.end("was killed")
    assert (scene.process.exit_code, scene.process.waits) == (-SIGKILL, [KILLED_S])
    with pytest.raises(WorkerDied, match=r"^the worker was killed$"):
        scene.worker.receive()


def test_one_that_does_not_end_is_killed_and_awaited(scene: Scene) -> None:
    scene.worker.close()
    assert (scene.process.exit_code, scene.process.waits) == (-SIGKILL, [FAREWELL_S, KILLED_S])


def test_the_memory_of_one_that_has_ended_is_none(scene: Scene) -> None:
    scene.process.pid = os.getpid()
    assert scene.worker.resident_bytes > 1 << 20
    scene.process.pid = 2**22 + 1  # more than Linux gives by default
    assert scene.worker.resident_bytes == 0


@pytest.mark.parametrize("how", ["send", "close"])
def test_a_suspended_process_goes_on_once_something_is_sent(
    how: str, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "can_suspend", lambda: True)
    scene.worker.suspend()
    assert scene.process.signals == [signal.SIGSTOP]
    scene.worker.close() if how == "close" else scene.worker.send("anything")
    assert scene.process.signals == [signal.SIGSTOP, signal.SIGCONT]
    if how == "send":
        scene.worker.send("more")
        assert scene.process.signals[2:] == []


def test_where_a_process_might_stay_suspended_it_runs_on(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "can_suspend", lambda: False)
    scene.worker.suspend()
    scene.worker.send("anything")
    assert scene.process.signals == []
