"""Writes to the terminal: the answer of a command to stdout, everything else to stderr.

Printing changes no exit status. What a stream's encoding lacks is written plainly; what a stream can't take at all (it
is closed, or on a full disk) is lost, and stderr says so. Only where the output is data (`data_output`) is that an
error.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO, TypeVar

from llm_bench_fixtures.errors import LlmBenchError, UnwritableFile
from llm_bench_fixtures.history.headings import Unreadable
from llm_bench_fixtures.paired.display import Display
from llm_bench_fixtures.progress import Ongoing, ProgressDisplay
from llm_bench_fixtures.report.judged.causes import JudgedReport
from llm_bench_fixtures.report.renderers.markdown import judged_markdown
from llm_bench_fixtures.report.renderers.terminal import judged_lines
from llm_bench_fixtures.text import harmless, plainly, well_formed, without_passwords
from llm_bench_fixtures.writing import append_text, write_or_keep

SHOW_AFTER_S = 2.0
T = TypeVar("T")


@contextmanager
def printing() -> Iterator[None]:
    """Have stdout and stderr take any text within, and flush them at the end."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.closed:
            stream.reconfigure(errors=plainly())
    try:
        yield
    finally:
        _write(sys.stdout, "")
        _write(sys.stderr, "")


def say(lines: Iterable[str]) -> None:
    """Write the lines to stdout, made harmless for a terminal and for a forge's log."""
    _write(sys.stdout, "".join(f"{line}\n" for line in harmless(lines)))


def warn(text: str) -> None:
    """Write the text to stderr, made harmless likewise, without a password that was typed at a wrong place."""
    _write(sys.stderr, "".join(f"{line}\n" for line in harmless(without_passwords(text).split("\n"))))


def _write(stream: TextIO | None, text: str) -> None:
    """stream: None where it was closed before this program began."""
    if stream is None:
        return
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError) as error:  # ValueError: it is closed
        _give_up(stream)
        if stream is sys.stdout and not isinstance(error, BrokenPipeError):  # who read it has enough, as `head` does
            warn(f"llm-bench: the output can't be written: {getattr(error, 'strerror', None) or error}")


def _give_up(stream: TextIO) -> None:
    """Let what is still in the stream, and what follows, go nowhere: Python would fail with it at its end."""
    with suppress(OSError, ValueError):
        number = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)


@contextmanager
def data_output() -> Iterator[TextIO]:
    """stdout, for data that is of use only if it is whole. Raises UnwritableFile, and BrokenPipeError where whoever
    read it has enough."""
    if sys.stdout is None or sys.stdout.closed:
        raise UnwritableFile("standard output can't be written: it is closed")
    try:
        yield sys.stdout
        sys.stdout.flush()
    except (LlmBenchError, BrokenPipeError):
        raise
    except OSError as error:
        _give_up(sys.stdout)
        raise UnwritableFile(f"standard output can't be written: {error.strerror or error}") from error


def is_terminal() -> bool:
    """Whether people read stdout as it is written."""
    return sys.stdout is not None and not sys.stdout.closed and sys.stdout.isatty()


def command(lines: Iterable[str]) -> None:
    """Write lines to stdout as they are: commands to a CI runner, which their maker escaped."""
    _write(sys.stdout, "".join(f"{line}\n" for line in lines))


def show_report(report: JudgedReport, as_json: Callable[[], object], asked: argparse.Namespace) -> None:
    """Write the report to stdout, under --verbose with every value, and to the files of --summary and --json. Where the
    Markdown can't be added to the first, stderr says so, and the exit status stays what it is."""
    say(judged_lines(report, shutil.get_terminal_size().columns, verbose=asked.verbose))
    if asked.summary:
        try:
            append_text(asked.summary, judged_markdown(report))
        except UnwritableFile as error:
            warn(str(error))
    if asked.json:
        write_json(as_json(), asked.json)


def write_json(data: Any, path: Path) -> Path:
    """Returns the file that was written: another one, of which stderr tells, where `path` can't be. Raises
    UnwritableFile."""
    written, reason = write_or_keep(path, json.dumps(well_formed(data), allow_nan=False) + "\n")
    if reason:
        warn(f"{reason}; its content is in {written}")
    return written


def tell_passed_over(unreadable: Unreadable) -> None:
    """Say on stderr that a file was not read, and why."""
    warn(f"passed over: {unreadable.reason}")


class ConsoleProgress(ProgressDisplay):
    """One line on stderr that counts the seconds, in a terminal; nothing elsewhere."""

    def __init__(self) -> None:
        self._display = Display(sys.stderr)

    def running(self, status: Ongoing) -> None:
        self._display.now(lambda: f"{status.text} ... {status.elapsed_s:.0f} s")

    def finished(self, text: str) -> None:  # noqa: ARG002  # it says nothing of what is over
        self._display.clear()


def counted(places: Sequence[T], doing: str) -> Iterator[T]:
    """Whatever stands for a run, one by one. A terminal shows how many are done, once that takes over two seconds."""
    from tqdm import tqdm

    return iter(tqdm(places, doing, unit=" runs", delay=SHOW_AFTER_S, disable=None, leave=False))
