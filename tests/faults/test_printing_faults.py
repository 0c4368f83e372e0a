"""Whatever stdout is, the exit status is the verdict's."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fault_tools import command, keep_two_runs


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    return keep_two_runs(tmp_path)


class Full(io.RawIOBase):
    """As /dev/full, on every system, until it is emptied."""

    error: OSError | None = OSError(28, "No space left on device")

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self.error is not None:
            raise self.error
        return len(data)


class Left(Full):
    """A pipe whose reader has gone."""

    error = BrokenPipeError(32, "Broken pipe")


def closed() -> io.TextIOWrapper:
    stream = io.TextIOWrapper(io.BytesIO())
    stream.close()
    return stream


STREAMS: tuple[tuple[str, Callable[[], io.TextIOWrapper | None]], ...] = (
    ("ASCII only", lambda: io.TextIOWrapper(io.BytesIO(), "ascii")),
    ("an old code page", lambda: io.TextIOWrapper(io.BytesIO(), "cp1252")),
    ("a full disk", lambda: io.TextIOWrapper(io.BufferedWriter(Full()), "utf-8")),
    ("a reader that has gone", lambda: io.TextIOWrapper(io.BufferedWriter(Left()), "utf-8")),
    ("closed meanwhile", closed),
    ("closed from the start", lambda: None),
)
STATUSES = (
    (("gate",), 20),
    (("compare", "1", "2"), 0),
    (("history",), 0),
    (("trend", "-o", "trend.html"), 0),
    (("bless", "1", "--reason", "2 → 3 – 4 × 5"), 0),
)


@pytest.mark.parametrize(("arguments", "status"), STATUSES, ids=[row[0][0] for row in STATUSES])
@pytest.mark.parametrize("make", [row[1] for row in STREAMS], ids=[row[0] for row in STREAMS])
def test_printing_changes_no_status(
    make: Callable[[], Any], arguments: tuple[str, ...], status: int, storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(storage.parent)
    stream = make()
    with monkeypatch.context() as patch:
        patch.setenv("NO_COLOR", "1")  # else argparse of Python 3.14 asks stdout whether it is a terminal
        patch.setattr(sys, "stdout", stream)
        assert command(storage, *arguments) == status
    silence(stream)


def silence(stream: Any) -> None:
    """Python would complain where it can't flush a stream that it forgets."""
    if stream is not None and not stream.closed and isinstance(stream.buffer, io.BufferedWriter):
        stream.buffer.raw.error = None
        stream.close()


DATA = (("a full disk", Full, 4), ("a reader that has gone", Left, 141))


@pytest.mark.parametrize("arguments", [("export",), ("history", "--json")], ids=" ".join)
@pytest.mark.parametrize(("kind", "status"), [row[1:] for row in DATA], ids=[row[0] for row in DATA])
def test_data_that_is_not_whole_is_an_error(
    kind: type[Full], status: int, arguments: tuple[str, ...], storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.TextIOWrapper(io.BufferedWriter(kind()), "utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        assert command(storage, *arguments) == status
    silence(stream)


@pytest.mark.parametrize("command_line", ["gate", "history", "export"])
def test_a_real_device_that_is_full_and_a_locale_without_our_signs(command_line: str, storage: Path) -> None:
    """At the end of the process, too, where Python flushes what is left and has a status of its own for it."""
    program = f"import sys; from llm_bench_fixtures.cli.main import main; sys.exit(main(['{command_line}']))"
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=storage.parent,
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == {"gate": 20, "history": 0, "export": 4}[command_line]
    assert done.stderr.count("can't be written: No space left on device") == 1
    assert "Traceback" not in done.stderr
