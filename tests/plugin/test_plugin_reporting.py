"""What was measured is saved and shown, whatever becomes of the report; and its folder is looked at before."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.plugin.terminal_progress import tell

if TYPE_CHECKING:
    from pytester_bench import Bench

LOSES_ITS_FOLDER = """
    import pathlib, shutil

    def test_mine(llm_benchmark):
        llm_benchmark("Hello")
        shutil.rmtree("llm-bench-report")
        pathlib.Path("llm-bench-report").write_text("somebody else's")
"""
RAISES = """
    def pytest_llm_bench_finish(run, report):
        assert (report / "report.html").is_file()
        raise SystemExit("of our own")
"""
INTERRUPTS = """
    def {}():
        raise KeyboardInterrupt
"""
HOSTILE = r"no \x1b]52;c;aGk=\x07 ##[error]word\n::error::line"
FAILS = """
    from llm_bench_fixtures import Variant

    def pytest_llm_bench_variants():
        return [Variant(name, f"{name}_backend", name) for name in ("hostile", "skipping")]
"""


def test_a_run_without_a_folder_and_with_a_failing_hook_is_saved_and_shown(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write(test_own=LOSES_ITS_FOLDER, conftest=RAISES)
    monkeypatch.setattr("tempfile.tempdir", str(bench.pytester.mkdir("temporary")))
    result = bench.run("--benchmark-autosave")
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR  # the hook failed, the test did not
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "fp32 *",
            "Report: *temporary/llm-bench-*/report.html",
            "llm-bench: llm-bench-report/results.json can't be written: *",
            "llm-bench: The report is in * instead of llm-bench-report.",
            "llm-bench: pytest_llm_bench_finish failed: SystemExit: of our own",
        ]
    )
    (saved,) = bench.pytester.path.rglob(".benchmarks/*/*.json")
    assert json.loads(saved.read_text(encoding="utf-8"))["benchmarks"][0]["extra_info"]["llm_bench"]["rounds_s"]


def test_a_gate_that_fails_costs_its_verdict_alone(own_suite: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def decide_run(*_: object) -> None:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr("llm_bench_fixtures.plugin.gating.decide_run", decide_run)
    result = own_suite.run("--llm-gate", "--benchmark-autosave")
    assert result.ret == ExitStatus.NOT_MEASURED
    result.stdout.fnmatch_lines(["fp32 *", "The gate failed: RuntimeError: a bug of ours."])
    (saved,) = own_suite.pytester.path.rglob(".benchmarks/*/*.json")
    kept = json.loads(saved.read_text(encoding="utf-8"))
    assert kept["llm_bench"]["refused"]
    assert kept["benchmarks"][0]["extra_info"]["llm_bench"]["rounds_s"]
    assert (own_suite.report / "report.html").exists()


def test_a_folder_or_a_summary_that_cannot_be_written_ends_the_run_before_it_measures(own_suite: Bench) -> None:
    own_suite.pytester.path.joinpath("file").write_text("somebody else's", encoding="utf-8")
    for prefix, *options in (
        ("--llm-report", "--llm-report=file"),
        ("--llm-report", "--llm-report=."),
        ("--llm-gate-summary", "--llm-gate", "--llm-gate-summary=file/below"),
        ("the run can't be saved", "--benchmark-autosave", "--benchmark-storage=file"),
        ("the run can't be saved", "--benchmark-json=file/x.json"),
    ):
        result = own_suite.run(*options)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        (line,) = [line for line in result.stderr.lines if line.startswith("ERROR: ")]
        assert line.startswith(f"ERROR: {prefix}: ")
        assert "can't be written" in line
        assert not own_suite.report.exists()


@pytest.mark.parametrize("hook", ["pytest_runtest_setup", "pytest_runtest_call"])
def test_a_run_that_ends_before_its_first_test_does_leaves_the_report_before_where_it_was(
    own_suite: Bench, hook: str
) -> None:
    """Bug: where a variant was loaded already, there was an empty report, and the one before was gone."""
    own_suite.write(conftest=INTERRUPTS.format(hook))
    own_suite.report.mkdir()
    (own_suite.report / ".llm-bench-report").touch()
    (own_suite.report / "report.html").write_text("of the run before", encoding="utf-8")
    result = own_suite.run(no_reraise_ctrlc=True)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["llm-bench: This run wrote no report; the one in * is of an earlier run."])
    assert (own_suite.report / "report.html").read_text(encoding="utf-8") == "of the run before"
    assert not (own_suite.report / "earlier").exists()


def test_a_first_run_that_ends_before_its_first_test_does_says_that_there_is_no_report(own_suite: Bench) -> None:
    own_suite.write(conftest=INTERRUPTS.format("pytest_runtest_call"))
    result = own_suite.run(no_reraise_ctrlc=True)
    result.stdout.fnmatch_lines(["llm-bench: This run wrote no report: it was stopped before a benchmark finished."])
    assert not own_suite.report.exists()


def test_what_a_failure_or_a_skip_quotes_steers_nothing(own_suite: Bench) -> None:
    """In pytest's own lines, too: its traceback, its short summary and what the test wrote."""
    head = "from llm_bench_fixtures import Backend, BackendUnavailable\n"
    body = f'    print("{HOSTILE}")\n    raise {{}}("{HOSTILE}")\n\nBACKEND = Backend(load)\n'
    own_suite.write(
        conftest=FAILS,
        hostile_backend=f"{head}\ndef load(request):\n{body.format('ValueError')}",
        skipping_backend=f"{head}\ndef load(request):\n{body.format('BackendUnavailable')}",
    )
    result = own_suite.run("-rs", "--llm-variants", "hostile,skipping", "--llm-reference", "hostile")
    text = result.stdout.str()
    assert text.count("word") > 4
    assert not set(text) & {"\x1b", "\x07"}
    assert "##[" not in text
    assert not [line for line in text.splitlines() if line.lstrip().startswith("::")]


class Gone:
    """A terminal that is closed."""

    encoding = "ascii"

    def write(self, _: object) -> None:
        raise OSError(5, "Input/output error")


@pytest.mark.parametrize("stream", [io.TextIOWrapper(io.BytesIO(), "ascii"), Gone()], ids=["ASCII only", "gone"])
def test_a_terminal_shows_what_it_can(stream: Any) -> None:
    reporter: Any = SimpleNamespace(_tw=SimpleNamespace(_file=stream), write_line=lambda line: stream.write(line))
    tell(reporter, ["1 → 2 ± 3 × 4"])
    if isinstance(stream, io.TextIOWrapper):
        stream.flush()
        assert stream.buffer.getvalue() == b"1 -> 2 +/- 3 x 4"  # type: ignore[attr-defined]
