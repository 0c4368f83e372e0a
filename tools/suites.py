"""Suites that the scripts beside this file run: the ready one in a process of its own, and files made for a purpose."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from llm_bench_fixtures.results.folder import claim

if TYPE_CHECKING:
    import pytest

TOOLS = Path(__file__).resolve().parent
ROOT = TOOLS.parent
OUTPUT_FILE = "output.txt"
LOOK_EVERY_S = 0.2  # reading what processes share takes milliseconds for each
NOTHING: Mapping[str, str] = {}


def run_ready(
    report: Path,
    options: Sequence[str],
    *,
    before: Sequence[str] = (),
    variables: Mapping[str, str] = NOTHING,
    look: Callable[[psutil.Process], None] | None = None,
) -> float:
    """Wall seconds of `pytest benchmarks/`. The output goes to a file beside the report.

    before: the command that runs pytest. variables: further ones of its environment. look: is called meanwhile. If the
    run fails, this program ends with it.
    """
    claim(report)
    suite = [sys.executable, "-m", "pytest", str(ROOT / "benchmarks"), f"--llm-report={report.resolve()}"]
    started = time.perf_counter()
    with (report / OUTPUT_FILE).open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            [*before, *suite, *options],
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **variables},
        )
        try:
            while look and process.poll() is None:
                look(psutil.Process(process.pid))
                time.sleep(LOOK_EVERY_S)
            process.wait()
        finally:
            process.terminate()
    if process.returncode:
        tail = (report / OUTPUT_FILE).read_text(encoding="utf-8", errors="replace")[-3000:]
        sys.exit(f"{tail}\npytest ended with {process.returncode}; its output is in {report / OUTPUT_FILE}")
    return time.perf_counter() - started


def with_tools() -> str:
    """A PYTHONPATH by which pytest finds plugins and modules beside this file."""
    return os.pathsep.join(filter(None, (str(TOOLS), os.environ.get("PYTHONPATH", ""))))


class Found:
    """Takes FOUND out of a test module when the run is over, and the reasons of skips."""

    def __init__(self) -> None:
        self.by_variant: dict[str, Any] = {}
        self.skips: list[str] = []
        self.status = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            self.skips.append(f"{report.nodeid}: {report.longrepr[2]}")  # type: ignore[index]  # of a skip

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.items:
            self.by_variant = session.items[0].module.FOUND  # type: ignore[attr-defined]

    def check(self) -> None:
        """End this program where the run failed."""
        if self.status:
            sys.exit(f"pytest ended with {self.status}")


def run_written(name: str, text: str, *options: str) -> Found:
    """Run a file of tests, in this process, and take what it found. name: of the file."""
    import pytest

    found = Found()
    with tempfile.TemporaryDirectory() as folder:
        suite = Path(folder) / name
        suite.write_text(text)
        own = ["--llm-limits-time=0", "--rootdir", folder, f"--llm-report={folder}/report", "-p", "no:terminal"]
        found.status = pytest.main([str(suite), *own, *options], plugins=[found])
    return found


def mean_ratio(ratios: Sequence[float]) -> str:
    """Geometric mean of some ratios, and its interval."""
    import statistics

    from llm_bench_fixtures.statistics.spread import interval

    found = interval(ratios)
    bounds = f"{found.low:.4f} to {found.high:.4f}" if found else "unknown"
    return f"{statistics.geometric_mean(ratios):.4f} (95 % interval {bounds})"


def leading_number(arguments: list[str], otherwise: int) -> int:
    """The number that the arguments begin with, which is taken off them."""
    return int(arguments.pop(0)) if arguments and arguments[0].isdecimal() else otherwise


def parsed(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, list[str]]:
    """What this program was given, and what comes after `--`, for pytest."""
    separator = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    return parser.parse_args(sys.argv[1:separator]), sys.argv[separator + 1 :]
