"""The hooks that make a pytest run a worker of `llm-bench pair`: it runs a round when the coordinator asks for one.

bench_hooks.py registers this module where the command line gives the number of an inherited socket (PAIR_SOCKET), so
that no other program knows the module's path. The messages are those of paired/protocol.py. A worker ends when its
coordinator is gone, whatever it is doing then.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Generator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest

from llm_bench_fixtures.errors import ChannelClosed, MalformedMessage, first_line
from llm_bench_fixtures.measure.timing import Pauses, Round, run_round
from llm_bench_fixtures.models.device import DeviceKind
from llm_bench_fixtures.models.handle import LocalModel, ModelHandle
from llm_bench_fixtures.paired import protocol
from llm_bench_fixtures.plugin.internals import forget_whole_runs, paths_known_early
from llm_bench_fixtures.plugin.stash import SESSION, TURNS, is_timing
from llm_bench_fixtures.processes.affinity import pin_thread
from llm_bench_fixtures.processes.channels import Channel
from llm_bench_fixtures.processes.parent import end_with_starter
from llm_bench_fixtures.results import prefill_decode
from llm_bench_fixtures.results.record import Record, Status
from llm_bench_fixtures.results.storage import run_to_json
from llm_bench_fixtures.text import encodable
from llm_bench_fixtures.version import __version__
from llm_bench_fixtures.workloads import Workload

T = TypeVar("T")

BENCHMARKS = "benchmarks"
WARM_UP_TOKENS = 2  # tokens of the round before Ready: a prefill and a decode step, which touch all weights


class Turns:
    """The worker's end of the conversation with the coordinator."""

    def __init__(self, channel: Channel[protocol.Message, protocol.Message]) -> None:
        self._channel = channel
        self.is_over = threading.Event()
        self.send(protocol.Hello(protocol.PROTOCOL, __version__))
        begin = self._expect(protocol.Begin)
        self.observes = begin.observes
        self._cores = begin.cores
        self._ended: protocol.Ended | None = None

    def choose(self, tests: tuple[str, ...]) -> tuple[str, ...]:
        """Collected tests that are to run, in order."""
        by_name = {encodable(test): test for test in tests}
        self.send(protocol.Collected(tuple(by_name)))
        return tuple(by_name[name] for name in self._expect(protocol.Selected).tests)

    def take(self, test: str, model: ModelHandle, workload: Workload) -> list[Round]:
        """The rounds of the whole workload that the coordinator counts; one that nobody times if it counts none."""
        batch_rows = tuple(map(len, workload.groups))
        first = replace(workload, new_tokens=min(workload.new_tokens, WARM_UP_TOKENS), lengths=())
        prefill = replace(workload, new_tokens=1, lengths=())
        before = model.call(pin_thread, self._cores)
        try:
            warm = times_of(self._run(model, first), batch_rows)
            is_on_cpu = model.device.kind is DeviceKind.CPU
            self.send(protocol.Ready(encodable(test), workload.digest, model.variant.id, is_on_cpu, warm))
            counted = []
            while isinstance(order := self._receive(), protocol.Go):
                done = self._run(model, prefill if order.is_prefill else workload, order.tokens_per_turn)
                self.send(times_of(done, batch_rows))
                counted += [done] if order.is_counted and not order.is_prefill else []
            return counted or [self._run(model, workload)]
        finally:
            model.call(pin_thread, before)

    def _run(self, model: ModelHandle, workload: Workload, tokens_per_turn: int = 0) -> Round:
        """One round; without pauses if the model is in another process, which can't pause here."""
        if tokens_per_turn and isinstance(model, LocalModel):
            return model.call(run_round, workload, pauses=Pauses(self._pause, tokens_per_turn))
        return model.call(run_round, workload)

    def _pause(self) -> None:
        self.send(protocol.Pause())
        self._expect(protocol.Resume)

    def note(self, report: pytest.TestReport) -> None:
        """Send how the test ended after its last phase; the first phase that didn't pass decides."""
        if self._ended is None or self._ended.status is Status.MEASURED:
            self._ended = protocol.Ended(encodable(report.nodeid), _status(report), encodable(_reason(report)))
        if report.when == "teardown":
            self.send(self._ended)
            self._ended = None

    def send(self, message: protocol.Message) -> None:
        with contextlib.suppress(ChannelClosed):  # a closed channel ends the worker when it waits for the next message
            self._channel.send(message)

    def finish(self, finished: protocol.Finished) -> None:
        """Say the last word; the coordinator may go then."""
        self.send(finished)
        self.is_over.set()

    def close(self) -> None:
        self.is_over.set()
        self._channel.close()

    def _expect(self, kind: type[T]) -> T:
        message = self._receive()
        if not isinstance(message, kind):
            raise MalformedMessage(repr(message).encode())
        return message

    def _receive(self) -> protocol.Message:
        """The next message. Ends pytest if the coordinator is gone."""
        try:
            return self._channel.receive()
        except ChannelClosed:
            raise pytest.exit.Exception("the coordinator is gone", pytest.ExitCode.INTERRUPTED) from None


def times_of(done: Round, batch_rows: Sequence[int]) -> protocol.Times:
    """The round's metrics. batch_rows: the number of prompts of each of its batches."""
    tokens_s = [batch.tokens_s for batch in done.batches]
    record = Record("", "", "", "", Status.MEASURED, batch_rows=tuple(batch_rows))
    return protocol.Times(
        done.latency_s,
        prefill_decode.ttft_s(record, tokens_s),
        prefill_decode.tpot_s(record, tokens_s),
        prefill_decode.decode_tokens_per_s(record, tokens_s),
        tuple(tokens[0] for tokens in tokens_s),
        tuple(after - before for tokens in tokens_s for before, after in pairwise(tokens)),
    )


def _status(report: pytest.TestReport) -> Status:
    if report.skipped:
        return Status.SKIPPED
    return Status.MEASURED if report.passed else Status.ERROR


def _reason(report: pytest.TestReport) -> str:
    """Why it was skipped or failed; empty if it passed."""
    if report.passed:
        return ""
    if isinstance(report.longrepr, tuple):  # a skip: path, line, reason
        return report.longrepr[2].removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    return first_line(crash.message if crash else report.longreprtext)


def run_benchmarks_by_default(early_config: pytest.Config, args: list[str]) -> None:
    """Run `benchmarks/` if there is one and no path is given; pytest knows which arguments are an option's value."""
    paths = paths_known_early(early_config)
    if not paths and Path(BENCHMARKS).is_dir():
        paths.append(BENCHMARKS)
        args.append(BENCHMARKS)


def pytest_configure(config: pytest.Config) -> None:
    """Runs before pytest-benchmark reads its options, which it does last."""
    if not is_timing(config):
        raise pytest.UsageError("rounds can't be timed in turn under xdist, --benchmark-disable or --benchmark-skip")
    forget_whole_runs(config)
    connection = socket.socket(fileno=config.getoption("llm_pair_socket"))
    turns = config.stash[TURNS] = Turns(protocol.open_channel(connection))
    end_with_starter(connection, turns.is_over)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Keep the tests that the coordinator selects, in its order, after all other plugins have deselected and sorted."""
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
    """Say the last word: with everything that this worker measured, if it is one that observes."""
    stash = session.config.stash
    has_run = stash[TURNS].observes and SESSION in stash and stash[SESSION].results.has_variants
    run = run_to_json(stash[SESSION].run()) if has_run else None
    stash[TURNS].finish(protocol.Finished(int(exitstatus), run))


def pytest_unconfigure(config: pytest.Config) -> None:
    if TURNS in config.stash:
        config.stash[TURNS].close()
