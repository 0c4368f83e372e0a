"""Signals that end a run, sent to a real one while something goes on that doesn't end by itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from toy_engine import ENGINE, SIZES
from waiting import BACKSTOP_S, wait_until

pytestmark = [
    pytest.mark.slow("each starts a run in a process of its own"),
    pytest.mark.skipif(os.name != "posix", reason="the signals are POSIX's"),
]

STAYING = (
    ENGINE
    + """
class Staying(Toy):
    def __init__(self, request):
        if request.variant.quantization == "loads":
            open("it-stays", "w").close()
            time.sleep(600)
        super().__init__(request)

BACKEND = Backend(Staying)
"""
)
CONFTEST = """
import time
from llm_bench_fixtures import Variant

def pytest_collection_finish():
    from llm_bench_fixtures.session import budget
    budget.BENCHMARK_S = 0.001  # no long wait for other tests to end

def pytest_unconfigure():
    from llm_bench_fixtures.session import budget
    budget.BENCHMARK_S = 0.35  # where it runs in the process of the test that tests it

def pytest_llm_bench_variants():
    return [
        Variant("toy", "engine", "the reference"),
        Variant("loads", "engine", "never loaded", quantization="loads"),
        Variant("scores", "engine", "never scored"),
    ]

def pytest_llm_bench_score(model):
    while model.variant.id == "scores":
        try:
            open("it-stays", "w").close()
            time.sleep(600)
        except BaseException:  # as some libraries do while they are imported
            pass
    return {}
"""


@dataclass(frozen=True)
class Suite:
    folder: Path
    corpus: Path

    def command(self, variant: str) -> list[str]:
        """Of a run that stays where it loads the variant, once toy's first test is done, or scores it."""
        options = (
            *("-p", "no:cacheprovider", "--benchmark-autosave", "--llm-rounds=2", "--llm-max-noise=0"),
            *("--llm-new-tokens=2", "--llm-limits-time=0", "--llm-memory-share=0", "--llm-reference=toy"),
            f"--llm-corpus={self.corpus}",
            f"--llm-variants=toy,{variant}",
        )
        return [sys.executable, "-m", "pytest", *options]

    def wait_until_it_stays(self) -> None:
        wait_until((self.folder / "it-stays").exists)

    @property
    def measured(self) -> list[str]:
        run = json.loads((self.folder / "llm-bench-report" / "results.json").read_text(encoding="utf-8"))
        assert run["interrupted"]
        return [record["test"].partition("::")[2] for record in run["records"] if record["status"] == "measured"]

    @property
    def is_reported_and_saved(self) -> bool:
        page = self.folder / "llm-bench-report" / "report.html"
        return page.exists() and len(list(self.folder.glob(".benchmarks/*/*.json"))) == 1


@pytest.fixture
def suite(tmp_path: Path, short_corpus: Path) -> Suite:
    for name, text in {"engine": STAYING, "conftest": CONFTEST, "test_own": SIZES}.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    return Suite(tmp_path, short_corpus)


TOYS = ["test_size[toy-4]"]  # what the answer goes by first


@pytest.mark.parametrize(
    ("sent", "variant", "status", "measured"),
    [
        pytest.param(signal.SIGINT, "loads", 2, TOYS, id="Ctrl-C while a process loads"),
        pytest.param(
            *(signal.SIGTERM, "scores", 143, [*TOYS, "test_size[scores-4]"]),
            id="SIGTERM that a library swallows",
            marks=pytest.mark.nightly("waits until the signal is sent again, and again"),
        ),
    ],
)
def test_a_signal_ends_the_run_and_what_was_measured_is_kept(
    suite: Suite, sent: signal.Signals, variant: str, status: int, measured: list[str]
) -> None:
    """Bug: Ctrl-C ended nothing for over a minute; SIGTERM ended the run without page and saved run."""
    with subprocess.Popen(
        suite.command(variant), cwd=suite.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        suite.wait_until_it_stays()
        run.send_signal(sent)
        output, _ = run.communicate(timeout=BACKSTOP_S)
    assert run.returncode == status, output
    assert suite.measured == measured
    assert ("a library didn't return for" in output) is (variant == "scores")
    assert ("`llm-bench report llm-bench-report` reports what was measured" in output) is (variant == "scores")
    assert suite.is_reported_and_saved is (variant == "loads")
    assert ("no pictures were drawn" in output) is (variant == "loads")
    assert not list(suite.folder.rglob("plots/*"))


@pytest.mark.nightly("starts a run of its own, as the test of Ctrl-C does at each push")
def test_a_terminal_that_is_closed_ends_the_run_and_what_was_measured_is_kept(suite: Suite) -> None:
    """Bug: neither page nor saved run. Nobody reads what is written from then on."""
    import pty

    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(suite.folder)
        os.execv(sys.executable, suite.command("loads"))  # noqa: S606  # as a terminal starts it
    suite.wait_until_it_stays()
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP
    assert suite.measured == TOYS
    assert suite.is_reported_and_saved
