"""What runs on a node: a session of pytest's in a process of its own, whose files go back to whoever asked."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llm_bench_fixtures.errors import LlmBenchError, reason_of
from llm_bench_fixtures.processes.scratch import ScratchFolder
from llm_bench_fixtures.results.storage import RESULTS_FILE
from llm_bench_fixtures.suite import pytest_arguments
from llm_bench_fixtures.sweep.plan import SweepCell
from llm_bench_fixtures.version import __version__

LOCK = "llm-bench-sweep.lock"  # in the folder for temporary files
LAST_BYTES = 200_000  # bytes kept of what pytest writes
LAST_LINES = 3  # lines of pytest's output in the reason why there is no run
# Code that runs pytest and ends with the process that Ray runs, should that be killed.
PYTEST = (
    "from llm_bench_fixtures.processes.parent import kill_with_parent; kill_with_parent(); "
    "import runpy; runpy.run_module('pytest', run_name='__main__', alter_sys=True)"
)
THREADS = "OMP_NUM_THREADS"  # Ray sets it by the CPUs that a task asks for


@dataclass(frozen=True)
class CellOutcome:
    """Outcome of a cell."""

    cell: str
    reason: str = ""
    """Why there is no run; empty where there is one."""
    host: str = ""
    seconds: float = 0.0
    status: int | None = None
    """The exit status; None where pytest was not started."""
    output: str = ""
    """The end of what pytest wrote."""
    results: bytes = b""
    """The results.json."""
    saved: tuple[tuple[str, bytes], ...] = ()
    """Files that pytest-benchmark saved: paths within its storage, and their content."""


def measure(cell: SweepCell, folder: str | None, board: Any, version: str) -> CellOutcome:
    """Run the cell's session, once no other one runs on this host. folder: to run in; None: an empty one. board: a
    queue that is told where it runs. version: of this package, where the sweep was started."""
    host, started = socket.gethostname(), time.perf_counter()
    if version != __version__:  # the node came after all were asked
        return CellOutcome(
            cell.name, f"on {host}: it has llm-bench-fixtures {__version__}, and this is {version}", host
        )
    try:
        with alone(), ScratchFolder("sweep") as scratch:
            board.put((cell.name, host))
            return _run(cell, folder, scratch.path, host)
    except (OSError, LlmBenchError) as error:  # such as a full disk
        return CellOutcome(cell.name, f"on {host}: {reason_of(error)}", host, time.perf_counter() - started)


@contextmanager
def alone() -> Iterator[None]:
    """Wait until no other cell is measured on this host, of whichever sweep or node of Ray's; others wait meanwhile."""
    from filelock import FileLock

    lock = FileLock(Path(tempfile.gettempdir()) / LOCK, mode=0o666)  # other users' sweeps, too
    with suppress(OSError, NotImplementedError):  # a file system without locks
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _run(cell: SweepCell, folder: str | None, scratch: Path, host: str) -> CellOutcome:
    report, storage, log = scratch / "report", scratch / "storage", scratch / "output.txt"
    where = Path(folder) if folder is not None else scratch / "empty"
    where.mkdir(exist_ok=True)
    own = [
        f"--llm-report={report}",
        f"--benchmark-save={cell.name.replace('/', '-')}",
        f"--benchmark-storage={storage}",
    ]
    command = [sys.executable, "-c", PYTEST, *(cell.suite or pytest_arguments()), *cell.arguments, *own]
    started = time.perf_counter()
    with log.open("wb") as output:
        done = subprocess.run(  # noqa: S603  # this Python, with the user's arguments
            command,
            cwd=where,
            env={**_environment(), **cell.environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    seconds, text = time.perf_counter() - started, _end_of(log)
    results = report / RESULTS_FILE
    if not results.is_file():
        said = " | ".join([line.strip() for line in text.splitlines() if line.strip()][-LAST_LINES:])
        reason = f"on {host} pytest ended with status {done.returncode} and without a run: {said}"
        return CellOutcome(cell.name, reason, host, seconds, done.returncode, text)
    saved = tuple((path.relative_to(storage).as_posix(), path.read_bytes()) for path in storage.glob("*/*.json"))
    return CellOutcome(cell.name, "", host, seconds, done.returncode, text, results.read_bytes(), saved)


def _environment() -> dict[str, str]:
    """Environment of this process, with as many threads as a session has that Ray doesn't start."""
    import psutil

    environment = dict(os.environ)
    if environment.pop(THREADS, None) is not None:
        with suppress(psutil.Error):  # a process that has ended, or isn't the user's
            before = psutil.Process().parent()
            own = before.environ() if before else {}
            environment |= {THREADS: own[THREADS]} if THREADS in own else {}
    return environment


def _end_of(log: Path) -> str:
    text = log.read_bytes()[-LAST_BYTES:].decode(errors="replace")
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
