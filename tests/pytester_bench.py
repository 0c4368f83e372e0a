"""Runs of the plugin as its users run it: inside this process where that does, which spares importing torch anew.

A plain module with fixtures, which the conftest.py of a folder imports.
"""

from __future__ import annotations

import html
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import unhurried
from _pytest.pytester import SysModulesSnapshot, SysPathsSnapshot

from llm_bench_fixtures.processes.channels import Channel
from llm_bench_fixtures.processes.launch import start_function
from llm_bench_fixtures.processes.worker import WorkerProcess
from llm_bench_fixtures.report.charts import pictures as drawing

OWN_SUITE = """
def test_mine(llm_benchmark):
    llm_benchmark("Hello")
"""
CORPUS = "The keeper climbed the stairs at dusk. She lit the lamp, and the ships came home one after another.\n"


@pytest.fixture(scope="session")
def imported_libraries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let what a run imports stay imported: a process that imports torch twice crashes.

    After each of its runs pytester forgets what the run imported. Here it forgets only what lies in the tests' folders.
    """
    folder = f"{tmp_path_factory.getbasetemp().resolve()}{os.sep}"

    def lies_elsewhere(name: str) -> bool:
        spec = getattr(sys.modules.get(name), "__spec__", None)
        places = [spec.origin, *(spec.submodule_search_locations or ())] if spec else []
        return not any(str(place).startswith(folder) for place in places)

    def take(self: SysModulesSnapshot, preserve: object = None) -> None:
        take_whole(self, preserve=lies_elsewhere)

    def restore(self: SysPathsSnapshot) -> None:
        finders = list(sys.meta_path)  # a library may have put its own in the place of Python's
        restore_whole(self)
        sys.meta_path[:] = finders

    take_whole, restore_whole = SysModulesSnapshot.__init__, SysPathsSnapshot.restore
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SysModulesSnapshot, "__init__", take)
        patch.setattr(SysPathsSnapshot, "restore", restore)
        yield


def _run_forked(channel: Channel[int, None], folder: Path, arguments: tuple[str, ...]) -> None:
    """The process."""
    drawing.pictures = lambda _: ()
    os.chdir(folder)
    for name, stream in (("out", sys.stdout), ("err", sys.stderr)):
        with (folder / name).open("wb") as file:
            os.dup2(file.fileno(), stream.fileno())
    status = int(pytest.main(list(arguments)))
    sys.stdout.flush()
    sys.stderr.flush()
    channel.send(status)


@dataclass
class Bench:
    """Writes files, runs pytest on them, and reads the report."""

    pytester: pytest.Pytester
    cache: Path
    corpus: Path

    @property
    def few(self) -> tuple[str, ...]:
        """Options for a short run. Those that a test gives come after them, and win."""
        return (*self.isolated, *self.short)

    @property
    def short(self) -> tuple[str, ...]:
        return (
            "--llm-rounds=2",
            "--llm-max-noise=0",
            "--llm-new-tokens=2",
            "--llm-variants=fp32",
            f"--llm-corpus={self.corpus}",
            "--llm-choices=none",
        )

    @property
    def isolated(self) -> tuple[str, ...]:
        """Paths are joined to their option by "=": pytest looks for its ini file beside those that stand alone."""
        return (*self.in_turns, "--llm-in-process")

    @property
    def in_turns(self) -> tuple[str, ...]:
        """The same for a run whose variants take turns in processes of their own."""
        return ("-p", "no:cacheprovider", f"--llm-cache-dir={self.cache}", "--llm-limits-time=0")

    def write(self, **files: str) -> None:
        self.pytester.makepyfile(**files)

    def run(self, *args: str, **how: Any) -> pytest.RunResult:
        """A short run in this process."""
        return self.run_with(*self.few, *args, **how)

    def run_in_turns(self, *args: str, **how: Any) -> pytest.RunResult:
        """The same, but its variants are in processes of their own."""
        return self.run_with(*self.in_turns, *self.short, *args, **how)

    def run_with(self, *args: str, **how: Any) -> pytest.RunResult:
        """A run in this process with just these arguments."""
        return self.pytester.runpytest_inprocess(*args, **how)

    def run_apart(self, *args: str) -> pytest.RunResult:
        """A short run in a process of its own."""
        return self.pytester.runpytest_subprocess(*self.few, *unhurried.OPTIONS, *args)

    def run_forked(self, *args: str) -> pytest.RunResult:
        """The same, in a process that finds the libraries imported, and draws no pictures."""
        began_s = time.monotonic()
        process: WorkerProcess[None, int] = start_function(
            "the run", _run_forked, (self.pytester.path, (*self.few, *unhurried.OPTIONS, *args)), on_cpu=True
        )
        status = process.receive()
        process.close()
        lines = [(self.pytester.path / name).read_text(encoding="utf-8").splitlines() for name in ("out", "err")]
        return pytest.RunResult(status, *lines, time.monotonic() - began_s)

    @property
    def report(self) -> Path:
        return self.pytester.path / "llm-bench-report"

    def markdown(self) -> str:
        return (self.report / "report.md").read_text(encoding="utf-8")

    def page(self) -> str:
        """With its entities replaced."""
        return html.unescape((self.report / "report.html").read_text(encoding="utf-8"))

    def results(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads((self.report / "results.json").read_text(encoding="utf-8"))
        return data

    def records(self) -> list[dict[str, Any]]:
        return list(self.results()["records"])

    def variants(self) -> dict[str, dict[str, Any]]:
        return {variant["id"]: variant for variant in self.results()["variants"]}


@pytest.fixture(scope="session")
def bench_cache(shared_folder: Path) -> Path:
    return shared_folder / "llm-cache"


@pytest.fixture(scope="session")
def short_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "short.txt"
    path.write_text(CORPUS, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def plot_settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where matplotlib keeps its list of fonts; pytester gives each test another home, and the list takes seconds."""
    return tmp_path_factory.mktemp("matplotlib")


@pytest.fixture
def pictures() -> None:
    """For tests that look at a report's pictures. Without it none are drawn, which takes a third of a run."""


@pytest.fixture
def bench(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    bench_cache: Path,
    short_corpus: Path,
    plot_settings: Path,
    imported_libraries: None,
    preloaded: None,
    request: pytest.FixtureRequest,
) -> Bench:
    if "pictures" not in request.fixturenames:
        request.getfixturevalue("without_pictures")
    monkeypatch.setattr("llm_bench_fixtures.session.setup.Setup.busy_cores", 0)  # as `unhurried` does
    monkeypatch.setenv("PYTHONPATH", unhurried.environment()["PYTHONPATH"])
    monkeypatch.setenv("MPLCONFIGDIR", str(plot_settings))
    return Bench(pytester, bench_cache, short_corpus)


@pytest.fixture
def own_suite(bench: Bench) -> Bench:
    """A suite of one benchmark."""
    bench.write(test_own=OWN_SUITE)
    return bench
