"""Signals that end a run: Ctrl-C, SIGTERM, with which CI systems end a job, and SIGHUP of a terminal that is closed.

Each ends the run as Ctrl-C does: what was measured is saved and reported. Python turns a signal into an exception that
any library may swallow, as many do while they are imported, and that no call into a library hears. So it is raised
again until pytest has it, and a run that doesn't end by itself is ended.
"""

from __future__ import annotations

import os
import shlex
import signal
import threading
import time
from collections.abc import Collection, Generator
from contextlib import suppress
from types import CodeType, FrameType, TracebackType
from typing import Any

import pytest

from llm_bench_fixtures.plugin.internals import terminal_file, uncaptured
from llm_bench_fixtures.plugin.items import variant_of
from llm_bench_fixtures.plugin.stash import SESSION, is_worker
from llm_bench_fixtures.plugin.terminal_progress import tell

AGAIN_S = 1.0
LONGEST_S = 4.0  # until pytest has heard it
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
FILES = range(64)  # numbers of files that may be the terminal


def end_at_signals(session: pytest.Session) -> None:
    """End the run at signals from now on; not in processes that others end: a worker of pytest-xdist's or of `llm-bench
    pair`."""
    if is_worker(session.config):
        return
    others = {item.nodeid for item in session.items if not variant_of(item)}
    session.config.pluginmanager.register(EndingSignals(session.config, others))


class EndedBySignal(KeyboardInterrupt):
    """The run was ended by another signal than Ctrl-C."""

    def __init__(self, heard: signal.Signals) -> None:
        super().__init__(f"ended by {heard.name}")
        self.heard = heard


class EndingSignals:
    """Hears the signals from the first test on, until the report is written. A plugin of pytest's.

    Signals that are ignored (nohup) stay so, and so does what another program or plugin does with them.
    """

    def __init__(self, config: pytest.Config, others: Collection[str]) -> None:
        """others: ids of tests that are no benchmarks, and may take a Ctrl-C of their own."""
        self._config = config
        self._others = others
        self._heard: signal.Signals | None = None  # the first that no test took for itself
        self._is_deaf = False  # where pytest would show one signal more as a traceback
        self._has_ended = threading.Event()
        self._is_debugged = bool(config.getoption("usepdb", False) or config.getoption("trace", False))
        self._terminals = [number for number in FILES if os.isatty(number)]
        self._before: dict[signal.Signals, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for name in filter(signal.Signals.__members__.__contains__, SIGNALS):
                number = signal.Signals[name]
                if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                    self._before[number] = signal.signal(number, self._hear)

    def _hear(self, number: int, _: FrameType | None) -> None:
        heard = signal.Signals(number)
        if heard.name == "SIGHUP":
            self._leave_terminal()
        if self._is_deaf:
            return
        if self._heard is None and self._ends_the_run(heard):
            self._heard = heard
            threading.Thread(target=self._insist, daemon=True).start()
        raise KeyboardInterrupt if heard is signal.SIGINT else EndedBySignal(heard)

    def _ends_the_run(self, heard: signal.Signals) -> bool:
        """Whether the signal ends the run: not where a test that is no benchmark may take it, nor a debugger, which
        goes on after Ctrl-C."""
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        return test not in self._others and not (self._is_debugged and heard is signal.SIGINT)

    def pytest_enter_pdb(self) -> None:
        """Note a debugger that a test enters by `breakpoint()`, without an option."""
        self._is_debugged = True

    def _leave_terminal(self) -> None:
        """Write to nowhere in place of a terminal that is gone, which fails."""
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in self._terminals:
            os.dup2(nowhere, number)

    def _insist(self) -> None:
        """Repeat the signal until pytest has heard of it."""
        until = time.monotonic() + LONGEST_S
        while not self._has_ended.wait(AGAIN_S):
            if time.monotonic() >= until:
                self._give_up()
            heard = self._heard or signal.SIGINT
            if hasattr(signal, "pthread_kill"):
                signal.pthread_kill(threading.main_thread().ident or 0, heard)
            else:
                signal.raise_signal(heard)

    def _give_up(self) -> None:
        """Save what was measured, and end this process, of which a library doesn't let go."""
        saved = ""
        if session := self._config.stash.get(SESSION, None):
            with suppress(Exception):
                session.save()
                saved = f"; `llm-bench report {shlex.quote(str(session.settings.report))}` reports what was measured"
        with suppress(Exception), uncaptured(self._config):
            reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
            reporter.ensure_newline()
            tell(reporter, [f"llm-bench: a library didn't return for {LONGEST_S:.0f} s, so the run was ended{saved}"])
            terminal_file(reporter).flush()
        os._exit(self._status)

    @property
    def _status(self) -> int:
        """Exit status of a process that the signal ended, as in a shell; pytest's own after Ctrl-C."""
        is_ctrl_c = self._heard in (None, signal.SIGINT)
        return int(pytest.ExitCode.INTERRUPTED) if is_ctrl_c else 128 + int(self._heard or 0)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Generator[None]:
        """End what the models' processes are doing: the machine is needed for the report, and nobody for them."""
        self._is_deaf = True
        self._has_ended.set()
        if isinstance(excinfo.value, EndedBySignal):  # perhaps within a test that is no benchmark
            self._heard = self._heard or excinfo.value.heard
        _forget_frame(excinfo.tb, EndingSignals._hear.__code__)  # pytest names the line that was interrupted
        if SESSION in self._config.stash:
            self._config.stash[SESSION].loader.kill()
        try:
            return (yield)
        finally:
            self._is_deaf = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        self._has_ended.set()
        yield
        if self._heard is not None and self._heard is not signal.SIGINT:
            session.exitstatus = self._status

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_unconfigure(self) -> Generator[None]:
        self._is_deaf = True
        try:
            return (yield)
        finally:
            for number, before in self._before.items():
                signal.signal(number, before)


def _forget_frame(trace: TracebackType, code: CodeType) -> None:
    """End the traceback before the frame that runs the code."""
    while trace.tb_next is not None and trace.tb_next.tb_frame.f_code is not code:
        trace = trace.tb_next
    trace.tb_next = None
