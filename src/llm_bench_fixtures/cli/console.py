"""Writes to the terminal: the answer of a command to stdout, everything else to stderr."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from llm_bench_fixtures.history.headings import Unreadable
from llm_bench_fixtures.paired.display import Display
from llm_bench_fixtures.progress import ProgressDisplay
from llm_bench_fixtures.report.comparison import GateReport, gate_lines, gate_markdown
from llm_bench_fixtures.results.storage import append_text
from llm_bench_fixtures.text import harmless

SHOW_AFTER_S = 2.0


def say(lines: Iterable[str]) -> None:
    """Write the lines to stdout, made harmless for a terminal and for a forge's log."""
    for line in harmless(lines):
        sys.stdout.write(line + "\n")


def warn(text: str) -> None:
    """Write the text to stderr, made harmless likewise."""
    for line in harmless([text]):
        sys.stderr.write(line + "\n")


def show_report(report: GateReport, summary: Path | None) -> None:
    """Write the report to stdout, and add it to the Markdown file `summary`. Raises UnwritableFile."""
    say(gate_lines(report, shutil.get_terminal_size().columns))
    if summary is not None:
        append_text(summary, gate_markdown(report))


def tell_passed_over(unreadable: Unreadable) -> None:
    """Say on stderr that a file was not read, and why."""
    warn(f"passed over: {unreadable.reason}")


class ConsoleProgress(ProgressDisplay):
    """One line on stderr that counts the seconds, in a terminal; nothing elsewhere."""

    def __init__(self) -> None:
        self._display = Display(sys.stderr)

    def running(self, text: str, elapsed_s: float) -> None:
        self._display.now(lambda: f"{text} ... {elapsed_s:.0f} s")

    def finished(self, text: str, elapsed_s: float) -> None:  # noqa: ARG002  # it says nothing of what is over
        self._display.clear()


def counted(paths: list[Path], doing: str) -> Iterator[Path]:
    """The paths one by one. A terminal shows how many are done, once that takes longer than two seconds."""
    from tqdm import tqdm

    return iter(tqdm(paths, doing, unit=" runs", delay=SHOW_AFTER_S, disable=None, leave=False))
