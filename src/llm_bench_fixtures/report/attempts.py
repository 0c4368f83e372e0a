"""Writes the files of a report one after the other: each fails alone, and what failed is told."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TypeVar

from llm_bench_fixtures.errors import UnwritableFile, reason_of
from llm_bench_fixtures.results.folder import EARLIER, claim, forget_earlier, held, set_aside, tracebacks_in
from llm_bench_fixtures.results.storage import RESULTS_FILE
from llm_bench_fixtures.writing import unwritable

T = TypeVar("T")


@dataclass
class Attempts:
    """What became of the files that were tried so far."""

    folder: Path
    problems: list[str] = field(default_factory=list)
    is_folder_unwritable: bool = False
    was_interrupted: bool = False

    def attempt(self, name: str, write: Callable[[], T]) -> T | None:
        """What `write` returns; where it fails, None, and what failed is told. After Ctrl-C nothing more is tried."""
        path = self.folder / name
        try:
            if not self.was_interrupted:
                with _hearing_ctrl_c():
                    return write()
            self.problems.append(f"{path} was not written: interrupted")
        except KeyboardInterrupt:
            self.was_interrupted = True
            self.problems.append(f"{path} was not written: interrupted")
        except OSError as error:
            self.is_folder_unwritable = True
            self.problems.append(str(error if isinstance(error, UnwritableFile) else unwritable(path, error)))
        except Exception as error:  # whatever a library that draws or renders raises
            self.problems.append(f"{path} was not written: {reason_of(error)}")
        return None

    def end(self) -> None:
        """Remove the report that was set aside, unless there are results of another run in it. Raises UnwritableFile
        for what could not be written, and KeyboardInterrupt."""
        if self.was_interrupted:
            raise KeyboardInterrupt
        if self.problems:
            raise UnwritableFile("\n".join(self.problems))
        if not (self.folder / EARLIER / RESULTS_FILE).exists():
            forget_earlier(self.folder)


@contextmanager
def _hearing_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt after Ctrl-C, of which a library in C++ may have made an error of its own."""
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        before(number, frame)

    signal.signal(signal.SIGINT, hear)
    try:
        yield
    except Exception as error:
        if heard:
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def begun(folder: Path, *, has_results: bool) -> Iterator[None]:
    """Claim the folder, set the report aside that is in it, and keep others out of it within. has_results: its
    results.json is one that was read, and stays. Raises UnwritableFile."""
    claim(folder)
    with held(folder):
        set_aside(folder, but=(RESULTS_FILE, *tracebacks_in(folder)) if has_results else ())
        yield
