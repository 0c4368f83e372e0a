"""Writes to pytest's terminal: lines, and long activities around its capturing of output."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from llm_bench_fixtures.plugin.internals import terminal_encoding, uncaptured
from llm_bench_fixtures.progress import ProgressDisplay
from llm_bench_fixtures.text import harmless_text, in_encoding

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter


def tell(reporter: TerminalReporter, lines: Iterable[str]) -> None:
    """Write the lines, which are harmless already, as far as the terminal can show them. One that is gone, or a full
    disk, is no failure of the run."""
    encoding = terminal_encoding(reporter)
    for line in lines:
        with suppress(OSError, ValueError):
            reporter.write_line(in_encoding(line, encoding))


class TerminalProgress(ProgressDisplay):
    """On a terminal one line that counts the seconds; elsewhere a line when it begins to be long and one at the end.

    Silent under -q -q, in the workers of pytest-xdist, and where there is no terminal reporter.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
        self._config = config
        self._begun: set[str] = set()
        self._silent = self._reporter is None or config.get_verbosity() < -1

    def running(self, text: str, elapsed_s: float) -> None:
        if self._silent:
            return
        text = self._shown(text)
        with suppress(OSError, ValueError), uncaptured(self._config):
            if text not in self._begun:
                self._reporter.ensure_newline()
                self._begun.add(text)
                if not self._reporter.isatty:
                    self._reporter.write_line(f"  {text} ...")
            if self._reporter.isatty:
                self._reporter.rewrite(f"  {text} ... {elapsed_s:.0f} s", erase=True)

    def finished(self, text: str, elapsed_s: float) -> None:
        if self._silent:
            return
        text = self._shown(text)
        with suppress(OSError, ValueError), uncaptured(self._config):
            if self._reporter.isatty:
                self._reporter.rewrite(f"  {text}: {elapsed_s:.1f} s", erase=True)
                self._reporter.write_line("")
            else:
                self._reporter.write_line(f"  {text}: {elapsed_s:.1f} s")
        self._begun.discard(text)

    def _shown(self, text: str) -> str:
        return in_encoding(harmless_text(text), terminal_encoding(self._reporter))
