"""The processes that run the tests of the sides: what is said to them, and that all are ended whatever happens."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from llm_bench_fixtures.errors import MalformedMessage, NoAnswer, SideFailed, WorkerDied
from llm_bench_fixtures.options.table import PAIR_SOCKET
from llm_bench_fixtures.paired.protocol import BROKEN_OFF, PROTOCOL, Begin, Finished, Hello, Message, open_channel
from llm_bench_fixtures.paired.sides import PairSide
from llm_bench_fixtures.processes.launch import start_program
from llm_bench_fixtures.version import __version__

T = TypeVar("T")

LAST_LINES = 12  # lines of a worker's output in the message of its failure


@dataclass(frozen=True)
class Command:
    """How each worker is started and led."""

    arguments: tuple[str, ...]
    """Arguments for pytest, as they were given."""
    variables: Mapping[str, str]
    """Variables of the worker's environment."""
    cores: tuple[int, ...]
    """Cores for the rounds; empty if any will do."""
    timeout_s: float
    """The longest silence before the worker is taken to hang."""


class Worker:
    """The coordinator's handle on one worker. Every failure is a SideFailed with the side and the current test."""

    def __init__(self, label: str, side: PairSide, command: Command, folder: Path) -> None:
        """Start the process. label: its side's name in messages. Raises SideFailed if it can't be started."""
        self.label = label
        self.test = ""
        self._timeout_s = command.timeout_s
        self._log = folder / "output.txt"
        variables = {
            **command.variables,
            "TMPDIR": str(folder),
            "PYTHONUNBUFFERED": "1",  # the last words of one that is killed are wanted
        }
        run = partial(pytest_command, side, command.arguments, folder)
        with self._log.open("wb") as log:
            try:
                self.process = start_program(label, run, side.folder, side.environment(variables), log, open_channel)
            except OSError as error:
                raise SideFailed(label, f"{side.python} can't be started: {error}") from error
        self._limit = self.process.limit(self._timeout_s)

    def greet(self, *, observes: bool, cores: tuple[int, ...]) -> None:
        """Check that the worker speaks this version of the protocol, and let it begin. Raises SideFailed otherwise."""
        try:
            hello = self.expect(Hello)
        except SideFailed as error:
            raise self.failure(
                f"{error.reason}, before it was ready. It needs an llm-bench-fixtures with `llm-bench pair` (this is "
                f"{__version__}) in its environment, and arguments that its pytest knows"
            ) from error
        if hello.protocol != PROTOCOL:
            raise SideFailed(
                self.label,
                f"its llm-bench-fixtures {hello.version} speaks version {hello.protocol} of the paired protocol, this "
                f"({__version__}) version {PROTOCOL}: compare versions that agree, or install one of both sides",
            )
        self.send(Begin(observes, cores))

    def send(self, message: Message) -> None:
        self._limit = self.process.limit(self._timeout_s)
        try:
            self.process.send(message)
        except WorkerDied as died:
            raise self.failure(died.how) from None

    def expect(self, *kinds: type[T]) -> T:
        """The next message, which has to be of one of the kinds.

        Raises SideFailed, also if it doesn't come within the time limit after the last message of either side, and if
        the worker's session is over instead.
        """
        try:
            message = self.process.receive_within(self._limit)
        except NoAnswer:
            raise self.failure(f"no answer for {self._timeout_s:.0f} s (--timeout)") from None
        except WorkerDied as died:
            raise self.failure(died.how) from None
        except MalformedMessage as error:
            raise self.failure(str(error)) from error
        self._limit = self.process.limit(self._timeout_s)
        if isinstance(message, kinds):
            return message
        if isinstance(message, Finished):
            raise self._broken_off(message)
        raise self.failure(f"unexpected {message}")

    def finish(self, *, has_tests: bool) -> Mapping[str, Any] | None:
        """The run that it has measured, if it observes. has_tests: whether any ran. Raises SideFailed where none did
        because something else ended its session, as an import that fails."""
        finished = self.expect(Finished)
        if finished.exit_status in BROKEN_OFF and not has_tests:
            raise self._broken_off(finished)
        return finished.run

    def _broken_off(self, finished: Finished) -> SideFailed:
        self.process.close()  # what pytest says of an error comes after its session
        return self.failure(f"pytest ended with status {finished.exit_status}")

    @property
    def last_words(self) -> str:
        """The last lines of its output."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(line for line in lines[-LAST_LINES:] if line.strip())

    def failure(self, reason: str) -> SideFailed:
        """The failure, with the side, the test and the last words."""
        return SideFailed(self.label, reason, self.test, self.last_words)


def pytest_command(side: PairSide, arguments: Sequence[str], folder: Path, connection: int) -> list[str]:
    """Runs pytest on the side's tests as a worker, which leaves no report in the project and probes no limits.

    connection: number of the worker's socket. An option tells it, so that a package without `llm-bench pair` refuses to
    start instead of running all its tests.
    """
    return [
        side.python,
        *("-m", "pytest", f"{PAIR_SOCKET}={connection}"),
        *arguments,
        *("-p", "no:cacheprovider"),
        "--llm-limits-time=0",
        f"--llm-report={folder / 'report'}",
    ]


class Roster:
    """The workers that are alive, whichever thread leads them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers: list[Worker] = []
        self._is_closed = False

    def dismiss(self) -> None:
        """End all workers; those that lead them get SideFailed, and nobody can start one any more."""
        with self._lock:
            self._is_closed = True
            for worker in self._workers:
                worker.process.kill()

    @property
    def resident_bytes(self) -> int:
        """Memory that all of them have in RAM."""
        return sum(worker.process.resident_bytes for worker in list(self._workers))

    @contextmanager
    def started(
        self, sides: Mapping[str, PairSide], command: Command, folder: Path, coin: random.Random
    ) -> Iterator[list[Worker]]:
        """A worker of each side, in the order of the sides; all are killed at the end, also after an error.

        They start in random order, because the first one's memory is laid out differently.
        """
        workers: dict[str, Worker] = {}
        try:
            for label in coin.sample(list(sides), len(sides)):
                (own := folder / label).mkdir(parents=True)
                with self._lock:
                    if self._is_closed:
                        raise SideFailed(label, "the run is ending")
                    workers[label] = Worker(label, sides[label], command, own)
                    self._workers.append(workers[label])
            yield [workers[label] for label in sides]
        finally:
            for worker in workers.values():
                with self._lock:
                    self._workers.remove(worker)
                worker.process.kill()
                worker.process.close()
