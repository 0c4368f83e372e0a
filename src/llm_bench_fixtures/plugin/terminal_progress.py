"""Shows long activities in pytest's terminal, around its capturing of output."""

from __future__ import annotations

from typing import Any

import pytest

from llm_bench_fixtures.plugin.internals import uncaptured
from llm_bench_fixtures.progress import ProgressDisplay


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
        with uncaptured(self._config):
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
        with uncaptured(self._config):
            if self._reporter.isatty:
                self._reporter.rewrite(f"  {text}: {elapsed_s:.1f} s", erase=True)
                self._reporter.write_line("")
            else:
                self._reporter.write_line(f"  {text}: {elapsed_s:.1f} s")
        self._begun.discard(text)
