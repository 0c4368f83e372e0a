"""The handle on a process that answers, whoever started it: talking to it, learning of its death, and ending it."""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Generic, Protocol, TypeVar

from llm_bench_fixtures.errors import ChannelClosed, NoAnswer, TimeUp, WorkerDied
from llm_bench_fixtures.processes import work_limit
from llm_bench_fixtures.processes.channels import Channel
from llm_bench_fixtures.processes.work_limit import StopLimit, WorkLimit, cpu_s_of, is_stopped

S = TypeVar("S")
R = TypeVar("R")

FAREWELL_S = 10.0  # for a process to end by itself before it is ended
KILLED_S = 2.0  # until it is known that one has ended that was killed; the one that tells it may be stopped


class Process(Protocol):
    """Interface that multiprocessing's and subprocess's processes share."""

    @property
    def pid(self) -> int: ...

    def wait(self, seconds: float | None = None) -> int | None:
        """Exit code, negative for a signal; None if the process still runs after so many seconds."""

    def kill(self) -> None:
        """Kill it, if it hasn't ended."""

    def signal(self, number: int) -> None:
        """Send it the signal, not its children, if it hasn't ended."""


def can_suspend() -> bool:
    """Whether this system ends a suspended process with the one that started it: no other thing may be left behind."""
    return sys.platform == "linux"


class WorkerProcess(Generic[S, R]):
    """A process, and the channel to it: S are sent, R come back."""

    def __init__(self, name: str, process: Process, channel: Channel[S, R]) -> None:
        """name: what the message of its death begins with."""
        self._name = name
        self._process = process
        self._channel = channel
        self._stopped = ""
        self._is_suspended = False

    def send(self, message: S) -> None:
        """Send to the process; a suspended one then goes on. Raises WorkerDied."""
        with self._alive():
            self.wake()
            self._channel.send(message)

    def suspend(self) -> None:
        """Have it take no processor time until something is sent or it is woken: a pool of threads spins after work, on
        the cores of whoever works next. Does nothing where it might stay suspended for good, as its children might."""
        if can_suspend():
            self._is_suspended = True
            self._process.signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Have it go on where it was suspended."""
        if self._is_suspended:
            self._process.signal(signal.SIGCONT)
            self._is_suspended = False

    def is_ready_within(self, seconds: float) -> bool:
        """Whether there is something to receive by then. For infinitely many it is left to `receive` to wait."""
        if seconds == math.inf:
            return True
        try:
            self._channel.wait(time.monotonic() + seconds)
        except NoAnswer:
            return False
        return True

    def receive(self, until: float | None = None, cut_at: float = math.inf) -> R:
        """The next message. Raises WorkerDied, NoAnswer when it is `until` on time.monotonic, and what reading it
        raises. Without `until` a process that a signal stops for LONGEST_STOP_S is killed, and TimeUp is raised when it
        is `cut_at`."""
        with self._alive():
            if until is None:
                self._wait_unless_stopped(cut_at)
            return self._channel.receive(until)

    def limit(self, seconds: float) -> WorkLimit:
        """A limit for the work that the process does from now on."""
        return WorkLimit(seconds, lambda: cpu_s_of(self._process.pid))

    def receive_within(self, limit: WorkLimit) -> R:
        """The next message. Raises WorkerDied, NoAnswer once the limit is over, and what reading it raises."""
        while True:
            try:
                return self.receive(limit.next_look)
            except NoAnswer:
                if limit.is_over():
                    raise

    def _wait_unless_stopped(self, cut_at: float) -> None:
        """Return once there is something to receive. Raises WorkerDied, TimeUp."""
        stop = StopLimit()
        while True:
            try:
                self._channel.wait(min(time.monotonic() + work_limit.LOOK_EVERY_S, cut_at))
                return
            except NoAnswer:
                if time.monotonic() >= cut_at:
                    raise TimeUp from None
                if stop.is_over(is_stopped=self.is_stopped):
                    self._stopped = f"was stopped by a signal for {work_limit.LONGEST_STOP_S:.0f} s, and then killed"
                    self.kill()
                    raise WorkerDied(self._name, self._stopped) from None

    def close(self) -> None:
        """End it: it may end by itself, for FAREWELL_S."""
        self.wake()
        self._channel.close()
        if self._process.wait(FAREWELL_S) is None:
            self._process.kill()
            self._process.wait(KILLED_S)

    def end(self, because: str) -> None:
        """Kill it, whatever it is doing. because: what later messages say of it, as in WorkerDied."""
        self._stopped = because
        self._process.kill()
        self._process.wait(KILLED_S)
        self._channel.close()

    def kill(self) -> None:
        """Kill it, from any thread; who waits for its answer gets WorkerDied."""
        self._process.kill()

    @property
    def resident_bytes(self) -> int:
        """Memory that it has in RAM; 0 if it has ended."""
        import psutil

        with suppress(psutil.Error):
            return int(psutil.Process(self._process.pid).memory_info().rss)
        return 0

    @property
    def is_stopped(self) -> bool:
        """Whether a signal has stopped it, and none has let it go on."""
        return is_stopped(self._process.pid)

    @contextmanager
    def _alive(self) -> Iterator[None]:
        """Raise WorkerDied, which says how it ended, where it has."""
        if self._stopped:
            raise WorkerDied(self._name, self._stopped)
        try:
            yield
        except ChannelClosed as closed:
            exit_code = self._process.wait(FAREWELL_S)
            how = f"failed: {closed.last_words}" if closed.last_words else how_it_ended(exit_code)
            raise WorkerDied(self._name, how) from None
        except NoAnswer:
            raise
        except (EOFError, OSError):  # a tensor in a message is fetched from its sender, which may have died since
            exit_code = self._process.wait(0)
            if exit_code is None:
                raise
            raise WorkerDied(self._name, how_it_ended(exit_code)) from None


def how_it_ended(exit_code: int | None) -> str:
    """The end of a sentence about a process that answers no more.

    exit_code: as subprocess and multiprocessing give it: negative for a signal, None while the process still runs.
    """
    if exit_code is None:
        return "closed its connection"
    if exit_code >= 0:
        return f"ended with status {exit_code}"
    number = -exit_code
    name = signal.Signals(number).name if number in list(signal.Signals) else f"signal {number}"
    return f"was killed by {name}{', perhaps for lack of memory' if name == 'SIGKILL' else ''}"
