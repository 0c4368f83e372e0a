"""Writes to pytest's terminal: lines, and long activities around its capturing of output."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest
from wcwidth import clip
from wcwidth import width as width_of

from llm_bench_fixtures.plugin import internals
from llm_bench_fixtures.progress import Ongoing, ProgressDisplay, about
from llm_bench_fixtures.text import harmless, printable, without_commands

LONG_IN_LOG_S = 10.0  # what takes less has no line in a log
LONGEST_TEXT = 32  # character cells of what goes on, on a terminal
ERASE = "\r\x1b[2K"


def tell(reporter: pytest.TerminalReporter, lines: Iterable[str]) -> None:
    """Write the lines, which are harmless already, as far as the terminal can show them. One that is gone, or a full
    disk, is no failure of the run."""
    for line in lines:
        with suppress(OSError, ValueError):
            reporter.write_line(internals.as_shown(reporter, line))


def announce(config: pytest.Config, lines: Iterable[str], *, from_verbosity: int = 0) -> None:
    """Write lines of this plugin's on the run, made harmless, unless that is quieter or has no terminal."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and config.get_verbosity() >= from_verbosity:
        tell(reporter, harmless(f"llm-bench: {line}" for line in lines))


class TerminalProgress(ProgressDisplay):
    """Progress on a terminal: one line below pytest's, which each next one replaces, and of which nothing stays. In a
    log, which is no terminal or is CI's, one line for what has lasted ten seconds.

    Silent under -q, in the workers of pytest-xdist, and where there is no terminal reporter.
    """

    def __init__(self, config: pytest.Config, long_in_log_s: float | None = None) -> None:
        self._reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
        self._config = config
        self._long_in_log_s = LONG_IN_LOG_S if long_in_log_s is None else long_in_log_s
        self._logged: set[str] = set()
        self._column: int | None = None  # column of pytest's cursor, while a line is shown
        self._silent = self._reporter is None or config.get_verbosity() < 0
        self._is_terminal = not self._silent and is_terminal(self._reporter)

    def running(self, status: Ongoing) -> None:
        if self._silent:
            return
        if self._is_terminal:
            self._replace(line_of(status, internals.terminal_width(self._reporter) - 1))
        elif status.elapsed_s >= self._long_in_log_s and status.text not in self._logged:
            self._logged.add(status.text)
            with internals.uncaptured(self._config):
                self._reporter.ensure_newline()
                tell(self._reporter, [without_commands(line_of(status))])

    def finished(self, text: str) -> None:
        self._logged.discard(text)
        if self._column is not None:
            self._write(f"{ERASE}\x1b[1A\x1b[{self._column + 1}G" if self._column else ERASE)
            self._column = None

    def _replace(self, line: str) -> None:
        if self._column is None:
            self._column = internals.cursor_column(self._reporter)
            self._write(f"\n{line}" if self._column else line)
        else:
            self._write(f"{ERASE}{line}")

    def _write(self, text: str) -> None:
        """Past pytest's writer, for which the cursor stays where it was."""
        with suppress(OSError, ValueError), internals.uncaptured(self._config):
            file = internals.terminal_file(self._reporter)
            file.write(internals.as_shown(self._reporter, text))
            file.flush()


def is_terminal(reporter: Any) -> bool:
    """Whether lines can be replaced where pytest writes, and somebody watches."""
    is_log = os.environ.get("CI", "").lower() not in ("", "0", "false") or os.environ.get("TERM") == "dumb"
    return bool(reporter.isatty) and not is_log


def line_of(status: Ongoing, width: int = 0) -> str:
    """One line, of at most `width` character cells if that is given: then what is needed least is left out first."""
    what = [_shortened(status.text) if width else status.text, status.step]
    now, run = _times(status)
    whole = (status.place, *what, status.detail)
    shorter = ((whole, now + run), ((status.place, *what), now + run), (whole[1:], now + run), (what, now))
    lines = [f"  {', '.join(map(printable, filter(None, parts)))}: {times}" for parts, times in shorter]
    fitting = (line for line in lines if not width or width_of(line) <= width)
    return next(fitting, None) or clip(lines[-1], 0, width)


def _shortened(text: str) -> str:
    """A case may be named after a whole prompt."""
    shown = printable(text)
    return shown if width_of(shown) <= LONGEST_TEXT else f"{clip(shown, 0, LONGEST_TEXT - 2)}.."


def _times(status: Ongoing) -> tuple[str, str]:
    """Times of the activity, and of the whole run, as text. What isn't known is left out."""
    elapsed, left = duration(status.elapsed_s), status.left
    run = "" if status.run_left_s is None else f"; run: ~{about(status.run_left_s)}"
    if left is not None:
        rest = f"up to {about(left.seconds)} of rounds" if left.is_most else f"~{about(left.seconds)}"
        return f"{elapsed}, {rest} left", run
    return elapsed, run


def duration(seconds: float) -> str:
    """As `about`, but with seconds up to 100 minutes."""
    minutes, left_s = divmod(round(seconds), 60)
    return f"{minutes} min {left_s} s" if 100 <= seconds < 6000 else about(seconds)
