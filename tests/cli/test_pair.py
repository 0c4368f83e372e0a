"""`llm-bench pair` and `llm-bench aa` as they are typed; the last tests with real models and real slow work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from waiting import BACKSTOP_S, wait_until

from llm_bench_fixtures.cli.main import main
from llm_bench_fixtures.gate.exit_status import ExitStatus

SUITE = """
def test_speed(llm_benchmark):
    llm_benchmark("The keeper climbed the stairs", new_tokens=6)
"""
# Real work after each token: more than half as much again as a decode step of the embedded model takes.
SLOW = """
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef):
    model = yield
    if fixturedef.argname == "llm_model":
        generate = model.model.generate

        def slower(*args, on_token=None, **kwargs):
            def tick():
                sum(range(600_000))
                if on_token:
                    on_token()
            return generate(*args, on_token=tick, **kwargs)

        model.model.generate = slower
    return model
"""
SETTINGS = """
[pytest]
llm_variants = fp32
llm_corpus = corpus.txt
llm_choices = none
llm_limits_time = 0
"""
FEW = ("--rounds", "4", "--time", "5m")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a suite of one benchmark: the first commit, then one that is slower. The current folder."""
    folder = tmp_path / "project"
    (folder / "benchmarks").mkdir(parents=True)
    (folder / "corpus.txt").write_text("The keeper climbed the stairs at dusk. She lit the lamp.\n", encoding="utf-8")
    (folder / "pytest.ini").write_text(SETTINGS, encoding="utf-8")
    (folder / "benchmarks" / "test_mine.py").write_text(SUITE, encoding="utf-8")
    commit(folder, "first")
    (folder / "conftest.py").write_text(SLOW, encoding="utf-8")
    commit(folder, "slower")
    monkeypatch.chdir(folder)
    return folder


def commit(folder: Path, subject: str) -> None:
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", subject)):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
        subprocess.run(command, cwd=folder, check=True)


def worktrees(folder: Path) -> list[str]:
    command = ["git", "worktree", "list"]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.parametrize("command", ["pair", "aa"])
def test_help_tells_what_can_be_compared_and_how(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main([command, "--help"])
    text = capsys.readouterr().out
    assert exit_info.value.code == 0
    for word in ("git ref", "folder", "interpreter", "--pairs", "--time", "--threads", "-- "):
        assert word.lower() in text.lower()


def test_the_help_tells_every_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["pair", "--help"])
    text = capsys.readouterr().out
    of_stored_gate = (ExitStatus.NO_BASELINE, ExitStatus.NOT_COMPARABLE, ExitStatus.COVERAGE)
    for status in ExitStatus:
        if status not in of_stored_gate:
            assert f" {int(status):2d}  {status.meaning.partition(';')[0]}" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pair"], "the following arguments are required: BASE"),
        (["pair", "main", "--threshold", "5"], "would be 500%"),
        (["pair", "main", "--pairs", "2"], "expected at least 3"),
        (["aa", "--threads", "none"], "expected a whole number"),
    ],
)
def test_what_cannot_be_used_has_pytests_status(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(arguments)
    assert exit_info.value.code == ExitStatus.USAGE
    assert message in capsys.readouterr().err


def test_a_side_that_is_nothing_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pair", str(tmp_path / "nothing")]) == ExitStatus.USAGE
    assert "can't be measured" in capsys.readouterr().err


def test_what_stands_behind_the_dashes_goes_to_pytest(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An option that pytest doesn't know shows that it got there, and how a side's own words are shown."""
    assert main(["pair", "HEAD", "--", "--no-such-option"]) == ExitStatus.WORKER_FAILED
    out = capsys.readouterr().out
    assert "BASE: ended with status 4, before it was ready" in out
    assert "unrecognized arguments: --no-such-option" in out
    assert len(worktrees(project)) == 1


def test_a_side_whose_pytest_knows_no_workers_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As with a package from before `llm-bench pair`: it doesn't run all its tests first."""
    assert main(["pair", "HEAD", "--", "-p", "no:llm_bench_fixtures"]) == ExitStatus.WORKER_FAILED
    out = " ".join(capsys.readouterr().out.split())
    assert "BASE: ended with status 4, before it was ready. It needs an llm-bench-fixtures with `llm-bench pair`" in out
    assert "--llm-pair-socket=" in out


def test_a_run_that_times_nothing_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pair", "HEAD", "--", "--benchmark-disable"]) == ExitStatus.WORKER_FAILED
    assert "rounds can't be timed in turn under" in capsys.readouterr().out


def test_a_suite_without_benchmarks_measures_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "benchmarks" / "test_mine.py").write_text("def test_plain(): pass\n", encoding="utf-8")
    assert main(["aa"]) == ExitStatus.NOT_MEASURED
    assert "0 tests" in capsys.readouterr().out


@pytest.mark.nightly("three real pairs of processes that import torch")
def test_real_slow_work_is_found_and_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(
        [
            "pair",
            "HEAD~1",
            *FEW,
            "--pairs",
            "3",
            "--threshold",
            "20%",
            "--json",
            "out/all.json",
            "--summary",
            "out/summary.md",
        ]
    )
    out = capsys.readouterr().out
    assert status == ExitStatus.REGRESSED, out
    assert "test_mine.py::test_speed[fp32]" in out
    assert "Exit status 20: something got worse" in out
    data = json.loads((project / "out" / "all.json").read_text(encoding="utf-8"))
    tpot = next(row for row in data["comparisons"] if row["metric"] == "tpot_s")
    assert tpot["verdict"] == "regressed"
    assert tpot["estimate"]["mean"] > 0.2
    assert [run["records"][0]["metrics"]["new_tokens"] for run in data["runs"]] == [6, 6]
    assert all("perplexity" in run["records"][0]["metrics"] for run in data["runs"])
    assert len(data["trials"][0]["rounds"]["benchmarks/test_mine.py::test_speed[fp32]"]) == 4
    assert "**Exit status 20" in (project / "out" / "summary.md").read_text(encoding="utf-8")
    assert len(worktrees(project)) == 1
    left = {path.name for path in project.iterdir()} - {"__pycache__", "out", ".benchmarks"}  # pytest-benchmark's own
    assert left == {".git", "benchmarks", "conftest.py", "corpus.txt", "pytest.ini"}  # no report, no cache


@pytest.fixture(params=[signal.SIGTERM, signal.SIGHUP])
def sent(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A signal that what is started here doesn't ignore, as it would below nohup."""
    before = signal.signal(request.param, signal.SIG_DFL)
    yield request.param
    signal.signal(request.param, before)


def test_a_terminated_run_leaves_no_worktree_and_no_worker(project: Path, sent: signal.Signals) -> None:
    """SIGTERM, with which a CI system ends a job; Ctrl-C takes the same way.

    Bug: SIGHUP, of a terminal that is closed, left the worktree registered.
    """
    command = [sys.executable, "-c", "import sys; from llm_bench_fixtures.cli.main import main; sys.exit(main())"]
    running = subprocess.Popen([*command, "pair", "HEAD~1"], stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    process = psutil.Process(running.pid)
    workers = wait_for_workers(process)
    running.send_signal(sent)
    out, _ = running.communicate(timeout=BACKSTOP_S)
    assert running.returncode == ExitStatus.INTERRUPTED
    assert "Interrupted: the verdicts are those of the 0 complete pairs." in out
    assert len(worktrees(project)) == 1
    # one that was just being started ends by itself, once it listens
    _, alive = psutil.wait_procs(workers, timeout=BACKSTOP_S)
    assert not alive


def is_worker(process: psutil.Process) -> bool:
    """A git that has just ended is none."""
    try:
        return "pytest" in process.cmdline()
    except psutil.Error:
        return False


def wait_for_workers(process: psutil.Process) -> list[psutil.Process]:
    workers: list[psutil.Process] = []

    def are_there() -> bool:
        workers[:] = [child for child in process.children() if is_worker(child)]
        return len(workers) == 2

    wait_until(are_there)
    return workers


def test_a_path_that_pytest_would_take_for_tests_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bug: it moved pytest's root folder, and every test was "new"."""
    assert main(["pair", "HEAD", ".", "--", "--llm-cache-dir", str(project)]) == ExitStatus.USAGE
    assert f"Write --llm-cache-dir={project}, with an equals sign" in capsys.readouterr().err
