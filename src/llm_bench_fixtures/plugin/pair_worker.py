"""A pytest plugin that makes a pytest run the worker of one side: it runs a round when it is told to, and waits else.

`python -m pytest -p llm_bench_fixtures.plugin.pair_worker`, with the number of an inherited socket in the environment.
The messages are those of protocol.py. A worker whose coordinator is gone ends.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from llm_bench_fixtures import __version__
from llm_bench_fixtures.errors import ChannelClosed, MalformedMessage, first_line
from llm_bench_fixtures.paired.protocol import (
    DESCRIPTOR,
    PROTOCOL,
    Begin,
    Channel,
    Chosen,
    Collected,
    Finished,
    Go,
    Hello,
    Message,
    Outcome,
    Pause,
    Ready,
    Resume,
    Times,
)
from llm_bench_fixtures.plugin.stash import SESSION, TURNS, is_timing
from llm_bench_fixtures.results.record import Record, Status
from llm_bench_fixtures.results.storage import run_to_json

if TYPE_CHECKING:
    from llm_bench_fixtures.measure.timing import Round
    from llm_bench_fixtures.models.handle import ModelHandle
    from llm_bench_fixtures.workloads import Workload

T = TypeVar("T")

BENCHMARKS = "benchmarks"

# What a project's own options ask of pytest-benchmark and a worker must not do, by their names in its config.
UNWANTED = ("autosave", "save", "json", "compare", "compare_fail", "histogram", "cprofile")


class PausingClock:
    """Seconds that stand still while it's the other side's turn: every so many readings it pauses, and waits.

    A round reads its clock at each token, so the sides alternate within it, and what the machine does for some tenths
    of a second strikes both of them.
    """

    def __init__(
        self, pause: Callable[[], None], readings_per_turn: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._pause = pause
        self._readings_per_turn = readings_per_turn
        self._clock = clock
        self._readings = 0
        self._paused_s = 0.0

    def __call__(self) -> float:
        read_at = self._clock()
        now_s = read_at - self._paused_s
        self._readings += 1
        if self._readings % self._readings_per_turn == 0:
            self._pause()
            self._paused_s += self._clock() - read_at
        return now_s


class Turns:
    """The worker's end of the conversation: takes its turn when it is told to."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.tell(Hello(PROTOCOL, __version__))
        begin = self._hear(Begin)
        self.observes = begin.observes
        self._cores = begin.cores
        self._outcome: Outcome | None = None

    def choose(self, tests: tuple[str, ...]) -> tuple[str, ...]:
        """Of the tests that were collected those to run, in order."""
        self.tell(Collected(tests))
        return self._hear(Chosen).tests

    def take(self, test: str, model: ModelHandle, workload: Workload) -> list[Round]:
        """The rounds that the coordinator counts; the last warmup round where it counts none, so never nothing."""
        from llm_bench_fixtures.paired.affinity import pin_thread

        batch_rows = tuple(map(len, workload.groups))
        last = self._run(model, workload)
        before = model.call(pin_thread, self._cores)
        try:
            self.tell(Ready(test, workload.digest, times_of(last, batch_rows)))
            counted = []
            while isinstance(order := self._listen(), Go):
                last = self._run(model, workload, order.tokens_per_turn)
                self.tell(times_of(last, batch_rows))
                counted += [last] if order.is_counted else []
            return counted or [last]
        finally:
            model.call(pin_thread, before)

    def _run(self, model: ModelHandle, workload: Workload, tokens_per_turn: int = 0) -> Round:
        """One round; in one go where the model is in another process, which has no way to pause here."""
        from llm_bench_fixtures.measure.timing import run_round
        from llm_bench_fixtures.models.handle import LocalModel

        if tokens_per_turn and isinstance(model, LocalModel):
            return model.call(run_round, workload, PausingClock(self._pause, tokens_per_turn))
        return model.call(run_round, workload)

    def _pause(self) -> None:
        self.tell(Pause())
        self._hear(Resume)

    def note(self, report: pytest.TestReport) -> None:
        """Tell of the test's outcome when its last phase is over: the first phase that didn't pass decides."""
        if self._outcome is None or self._outcome.status is Status.MEASURED:
            self._outcome = Outcome(report.nodeid, _status(report), _reason(report))
        if report.when == "teardown":
            self.tell(self._outcome)
            self._outcome = None

    def tell(self, message: Message) -> None:
        with contextlib.suppress(ChannelClosed):  # the next message that is waited for shows it
            self._channel.send(message)

    def _hear(self, kind: type[T]) -> T:
        message = self._listen()
        if not isinstance(message, kind):
            raise MalformedMessage(repr(message).encode())
        return message

    def _listen(self) -> Message:
        """A worker without a coordinator has nothing to do: it ends."""
        try:
            return self._channel.receive()
        except ChannelClosed:
            raise pytest.exit.Exception("the coordinator is gone", pytest.ExitCode.INTERRUPTED) from None


def times_of(done: Round, batch_rows: Sequence[int]) -> Times:
    """The round's metrics. batch_rows: the prompts of each of its batches."""
    from llm_bench_fixtures.results import phases

    tokens_s = [batch.tokens_s for batch in done.batches]
    record = Record("", "", "", "", Status.MEASURED, batch_rows=tuple(batch_rows))
    return Times(
        done.latency_s,
        phases.ttft_s(record, tokens_s),
        phases.tpot_s(record, tokens_s),
        phases.decode_tokens_per_s(record, tokens_s),
    )


def _status(report: pytest.TestReport) -> Status:
    if report.skipped:
        return Status.SKIPPED
    return Status.MEASURED if report.passed else Status.ERROR


def _reason(report: pytest.TestReport) -> str:
    """One line of why it was skipped or failed."""
    if report.passed:
        return ""
    if isinstance(report.longrepr, tuple):  # a skip: path, line, reason
        return report.longrepr[2].removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    return first_line(crash.message if crash else report.longreprtext)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Run `benchmarks/` where there is one and nobody says what to run; pytest knows which argument is an option's."""
    paths = early_config.known_args_namespace.file_or_dir
    if not paths and Path(BENCHMARKS).is_dir():
        paths.append(BENCHMARKS)
        args.append(BENCHMARKS)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Before pytest-benchmark reads its options."""
    if not is_timing(config):
        raise pytest.UsageError("rounds can't be timed in turn under xdist, --benchmark-disable or --benchmark-skip")
    for name in UNWANTED:
        setattr(config.option, f"benchmark_{name}", None)
    config.stash[TURNS] = Turns(Channel(socket.socket(fileno=int(os.environ[DESCRIPTOR]))))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """After all others have deselected and sorted: keep what the coordinator chooses, in its order."""
    yield
    comparable = {item.nodeid: item for item in items if "llm_benchmark" in getattr(item, "fixturenames", ())}
    chosen = [comparable[test] for test in config.stash[TURNS].choose(tuple(comparable))]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.config.stash[TURNS].note(report)
    return report


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.stash[TURNS].tell(Finished(int(exitstatus), _observed_run(session.config)))


def _observed_run(config: pytest.Config) -> Mapping[str, Any] | None:
    """Everything that this worker measured, where it was to look at more than times."""
    if (
        not config.stash[TURNS].observes
        or SESSION not in config.stash
        or not config.stash[SESSION].results.has_variants
    ):
        return None
    return run_to_json(config.stash[SESSION].run())
