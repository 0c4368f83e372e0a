"""Which signals end the run, and which belong to a test that is no benchmark."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from llm_bench_fixtures.plugin.signals import EndedBySignal, EndingSignals

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the signals are POSIX's")


@pytest.fixture
def insisting(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Threads that insist on a signal: what each would run. None starts."""
    started: list[object] = []

    def thread(*, target: object, daemon: bool) -> SimpleNamespace:
        assert daemon
        return SimpleNamespace(start=lambda: started.append(target))

    fakes = {**vars(threading), "Thread": thread}
    monkeypatch.setattr("llm_bench_fixtures.plugin.signals.threading", SimpleNamespace(**fakes))
    return started


@pytest.fixture
def ending(request: pytest.FixtureRequest) -> Iterator[EndingSignals]:
    """Hears the signals; the running test is no benchmark."""
    config = SimpleNamespace(stash=pytest.Stash(), getoption=lambda _, default: default)
    ending = EndingSignals(cast("pytest.Config", config), {request.node.nodeid})
    yield ending
    called(ending.pytest_unconfigure())


def called(hook: Generator[None]) -> None:
    """A wrapper around nothing."""
    next(hook)
    with pytest.raises(StopIteration):
        next(hook)


class FakeClock:
    """Each wait takes as long as it may."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def wait(self, seconds: float) -> bool:
        self.now_s += seconds
        return False


def test_a_signal_that_is_swallowed_comes_again_until_the_run_is_ended_after_4_s(
    ending: EndingSignals, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, sent = FakeClock(), list[tuple[int, float]]()

    class GivenUp(Exception):
        pass

    def give_up() -> None:
        raise GivenUp

    monkeypatch.setattr(ending, "_heard", signal.SIGTERM)
    monkeypatch.setattr(ending, "_has_ended", clock)
    monkeypatch.setattr(ending, "_give_up", give_up)
    monkeypatch.setattr("llm_bench_fixtures.plugin.signals.time", clock)
    monkeypatch.setattr(signal, "pthread_kill", lambda _, number: sent.append((number, clock.now_s)))
    with pytest.raises(GivenUp):
        ending._insist()
    assert sent == [(signal.SIGTERM, at_s) for at_s in (101.0, 102.0, 103.0)]
    assert clock.now_s == 104.0


def status_of(ending: EndingSignals, end: BaseException | None = None) -> int:
    """The status of a run that pytest ends with 2 where it hears the exception, and with 0 otherwise."""
    session: Any = SimpleNamespace(exitstatus=pytest.ExitCode.OK)
    if end is not None:
        session.exitstatus = pytest.ExitCode.INTERRUPTED
        called(ending.pytest_keyboard_interrupt(pytest.ExceptionInfo.from_exception(end)))
    called(ending.pytest_sessionfinish(session))
    return int(session.exitstatus)


@pytest.mark.parametrize("own", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_a_test_takes_for_itself_ends_nothing(
    ending: EndingSignals, insisting: list[object], own: signal.Signals
) -> None:
    """Bug: a run whose tests passed ended with status 143."""
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(own)
    assert insisting == []
    assert status_of(ending) == 0


@pytest.mark.parametrize("own", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 2), (signal.SIGTERM, 143)])
def test_a_signal_after_one_that_a_test_took_is_insisted_on_once(
    ending: EndingSignals,
    insisting: list[object],
    own: signal.Signals,
    sent: signal.Signals,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bug: nothing insisted on it, so a library that swallowed it kept the run; the status was 2 after SIGTERM."""
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(own)
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "test_bench.py::test_decode (call)")
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt) as heard:
            signal.raise_signal(sent)
    assert len(insisting) == 1
    assert status_of(ending, heard.value) == status


def test_a_signal_that_a_test_lets_through_ends_the_run_with_its_status(
    ending: EndingSignals, insisting: list[object]
) -> None:
    with pytest.raises(EndedBySignal, match=r"^ended by SIGTERM$") as heard:
        signal.raise_signal(signal.SIGTERM)
    assert insisting == []
    assert status_of(ending, heard.value) == 143


def test_ctrl_c_at_a_debuggers_prompt_ends_nothing_and_sigterm_ends_the_run(
    ending: EndingSignals, insisting: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the run was ended after four seconds, as if a library had swallowed the Ctrl-C."""
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "test_bench.py::test_decode (call)")
    ending.pytest_enter_pdb()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert insisting == []
    with pytest.raises(EndedBySignal):
        signal.raise_signal(signal.SIGTERM)
    assert len(insisting) == 1


def test_a_second_signal_while_the_first_is_told_or_the_run_cleans_up_makes_no_traceback(ending: EndingSignals) -> None:
    """Bug: a second Ctrl-C gave 180 lines of one, and the status -2."""
    with pytest.raises(KeyboardInterrupt) as first:
        signal.raise_signal(signal.SIGINT)
    for hook in (ending.pytest_keyboard_interrupt(first), ending.pytest_unconfigure()):
        next(hook)
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(StopIteration):
            next(hook)
