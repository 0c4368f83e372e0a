"""What a paired run shows while it runs: one line that is rewritten on a terminal; elsewhere one line for each pair."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from llm_bench_fixtures.text import in_encoding, printable, without_commands

ERASE = "\r\x1b[K"


class Display:
    """Writes to a stream, usually stderr, and never while a round runs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._rewrites = stream.isatty()

    def now(self, text: Callable[[], str]) -> None:
        """Show what is going on, if the line can be rewritten; otherwise `text` isn't called."""
        if self._rewrites:
            width = shutil.get_terminal_size().columns - 1
            self._write(f"{ERASE}{printable(text())[:width]}")

    def done(self, text: str) -> None:
        """Show what is over; it gets a line of its own if lines can't be rewritten."""
        if self._rewrites:
            self.now(lambda: text)
        else:
            self._write(f"{printable(text)}\n")

    def clear(self) -> None:
        if self._rewrites:
            self._write(ERASE)

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # a terminal that is gone, or a full disk, ends no measurement
            self._stream.write(in_encoding(without_commands(text), self._stream.encoding))
            self._stream.flush()


def short_name(test: str) -> str:
    """The test without its folders."""
    return test.rpartition("/")[2]
