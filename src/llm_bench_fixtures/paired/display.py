"""What a paired run shows while it goes on: one line that is rewritten on a terminal, a line a pair elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import TextIO

from llm_bench_fixtures.text import printable

ERASE = "\r\x1b[K"


class Display:
    """Writes to a stream, usually stderr, and never while a round runs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._rewrites = stream.isatty()

    def now(self, text: Callable[[], str]) -> None:
        """What is going on; asked for only where the line can be rewritten."""
        if self._rewrites:
            width = shutil.get_terminal_size().columns - 1
            self._write(f"{ERASE}{printable(text())[:width]}")

    def done(self, text: str) -> None:
        """What is over: a line of its own where lines can't be rewritten."""
        if self._rewrites:
            self.now(lambda: text)
        else:
            self._write(f"{printable(text)}\n")

    def clear(self) -> None:
        if self._rewrites:
            self._write(ERASE)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
