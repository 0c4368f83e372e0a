"""The processes that run the tests of a side: started, listened to, and ended whatever happens."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from llm_bench_fixtures.errors import ChannelClosed, MalformedMessage, NoAnswer, SideFailed
from llm_bench_fixtures.paired.protocol import DESCRIPTOR, PROTOCOL, Begin, Channel, Hello, Message
from llm_bench_fixtures.paired.sides import Side
from llm_bench_fixtures.version import __version__

T = TypeVar("T")

FAREWELL_S = 5.0  # for a process to end by itself before it is ended
LAST_LINES = 12  # of a worker's output, in the message of its failure


@dataclass(frozen=True)
class Command:
    """How each worker is started.

    arguments: pytest's, as they were given. variables: of its environment. timeout_s: the longest silence while an
    answer is waited for.
    """

    arguments: tuple[str, ...]
    variables: Mapping[str, str]
    cores: tuple[int, ...]
    timeout_s: float


class Worker:
    """The coordinator's end of one worker. Every failure is a SideFailed that names the side and the test in hand."""

    def __init__(self, label: str, side: Side, command: Command, folder: Path) -> None:
        """Start it; label: what its side is called in messages. Raises SideFailed where it can't be started."""
        self.label = label
        self.test = ""
        self._timeout_s = command.timeout_s
        self._last_said = time.monotonic()
        self._log = folder / "output.txt"
        ours, theirs = socket.socketpair()
        self._channel = Channel(ours)
        with theirs, self._log.open("wb") as log:
            self._process = self._start(side, command, folder, theirs, log.fileno())

    def _start(
        self, side: Side, command: Command, folder: Path, connection: socket.socket, log: int
    ) -> subprocess.Popen[bytes]:
        variables = {
            **command.variables,
            DESCRIPTOR: str(connection.fileno()),
            "TMPDIR": str(folder),
            "PYTHONUNBUFFERED": "1",  # the last words of one that is killed are wanted
        }
        try:
            return subprocess.Popen(  # noqa: S603  # the user's own interpreter and arguments
                pytest_command(side, command.arguments, folder),
                cwd=side.folder,
                env=side.environment(variables),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[connection.fileno()],
                start_new_session=True,  # so that Ctrl-C reaches the coordinator alone, and children end with it
            )
        except OSError as error:
            self._channel.close()
            raise SideFailed(self.label, f"{side.python} can't be started: {error}") from error

    def greet(self, *, observes: bool, cores: tuple[int, ...]) -> None:
        """Agree on the version of the messages. Raises SideFailed where its package can't be used here."""
        try:
            hello = self.expect(Hello)
        except SideFailed as error:
            raise SideFailed(
                self.label,
                f"{error.reason}, before it was ready. It needs an llm-bench-fixtures with `llm-bench pair` (this is "
                f"{__version__}) in its environment, and arguments that its pytest knows",
                last_words=self.last_words,
            ) from error
        if hello.protocol != PROTOCOL:
            raise SideFailed(
                self.label,
                f"its llm-bench-fixtures {hello.version} speaks version {hello.protocol} of the paired protocol, this "
                f"({__version__}) version {PROTOCOL}: compare versions that agree, or install one of both sides",
            )
        self.tell(Begin(observes, cores))

    def tell(self, message: Message) -> None:
        self._last_said = time.monotonic()
        try:
            self._channel.send(message)
        except ChannelClosed as error:
            raise self._failure(self._obituary()) from error

    def expect(self, *kinds: type[T]) -> T:
        """The next message, of one of the kinds; within the time limit since either side last said something."""
        try:
            message = self._channel.receive(self._last_said + self._timeout_s)
        except NoAnswer:
            raise self._failure(f"no answer for {self._timeout_s:.0f} s (--timeout)") from None
        except ChannelClosed:
            raise self._failure(self._obituary()) from None
        except MalformedMessage as error:
            raise self._failure(str(error)) from error
        self._last_said = time.monotonic()
        if not isinstance(message, kinds):
            raise self._failure(f"unexpected {message}")
        return message

    def kill(self) -> None:
        """End it and its children at once, if it hasn't ended."""
        self._channel.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def part(self) -> None:
        """Wait for it to end by itself for a while."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(FAREWELL_S)

    @property
    def last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(line for line in lines[-LAST_LINES:] if line.strip())

    def _failure(self, reason: str) -> SideFailed:
        return SideFailed(self.label, reason, self.test, self.last_words)

    def _obituary(self) -> str:
        self.part()
        code = self._process.poll()
        if code is None:
            return "closed its connection"
        if code < 0:
            name = signal.Signals(-code).name if -code in list(signal.Signals) else f"signal {-code}"
            return f"was killed by {name}{', perhaps for lack of memory' if name == 'SIGKILL' else ''}"
        return f"ended with status {code}"


def pytest_command(side: Side, arguments: Sequence[str], folder: Path) -> list[str]:
    """What a worker is: pytest on the side's tests, that leaves no report in the project and probes no limits."""
    return [
        side.python,
        *("-m", "pytest", "-p", "llm_bench_fixtures.plugin.pair_worker"),
        *arguments,
        *("-p", "no:cacheprovider"),
        "--llm-limits-time=0",
        f"--llm-report={folder / 'report'}",
    ]


@contextmanager
def started(sides: Mapping[str, Side], command: Command, folder: Path, coin: random.Random) -> Iterator[list[Worker]]:
    """A worker of each side, by label, in their order; killed at the end, however it comes.

    All are started at once, in an order that is drawn: which was first decides how their memory lies.
    """
    workers: dict[str, Worker] = {}
    try:
        for label in coin.sample(list(sides), len(sides)):
            (own := folder / label).mkdir(parents=True)
            workers[label] = Worker(label, sides[label], command, own)
        yield [workers[label] for label in sides]
    finally:
        for worker in workers.values():
            worker.kill()
