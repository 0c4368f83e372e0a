"""The gate as its users run it: each kind of regression turns exactly its own red, and nothing else does."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from llm_bench_fixtures.cli.main import main
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.models.source import TINY_FOLDER

if TYPE_CHECKING:
    from conftest import Bench

pytestmark = pytest.mark.slow("each test makes a run that is judged by a baseline")

APART = ("--benchmark-compare", "--llm-gate")
# Where several runs share this process, the memory of one is in the way of the next.
GATE = (*APART, "--llm-gate-rules=own_memory_bytes:off")
TWO_TESTS = """
def test_mine(llm_benchmark):
    llm_benchmark("Hello")

def test_other(llm_benchmark):
    llm_benchmark("Goodbye")
"""
PLANTED = """
import pytest

@pytest.fixture(autouse=True)
def planted(llm_model, monkeypatch):
    generate = llm_model.model.generate

    def worse(*args, **how):
        {work}
        return generate(*args, **how)

    monkeypatch.setattr(llm_model.model, "generate", worse)
"""
SLOWDOWN = PLANTED.format(
    work="import hashlib; hashlib.pbkdf2_hmac('sha256', b'real work', b'that needs no memory', 600_000)"
)
GROWTH = PLANTED.format(work="planted.ballast = bytearray(b'x' * 150_000_000)")


@pytest.fixture(scope="module")
def storages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of what the first test that needed it saved."""
    return tmp_path_factory.mktemp("storages")


@pytest.fixture
def saved(own_suite: Bench, storages: Path) -> Bench:
    """A suite of one benchmark with a run saved."""
    return with_saved(own_suite, storages / "in_this_process", own_suite.run)


@pytest.fixture
def saved_apart(own_suite: Bench, storages: Path) -> Bench:
    """The same, saved by a process of its own."""
    return with_saved(own_suite, storages / "apart", own_suite.run_forked)


def with_saved(bench: Bench, kept: Path, run: Callable[[str], pytest.RunResult]) -> Bench:
    own = bench.pytester.path / ".benchmarks"
    if kept.exists():
        shutil.copytree(kept, own)
    else:
        assert run("--benchmark-autosave").ret == 0
        shutil.copytree(own, kept)
    return bench


def storage(bench: Bench) -> list[Path]:
    return sorted((bench.pytester.path / ".benchmarks").glob("*/*.json"))


def state_of(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["llm_bench"]
    return data


def regressed_metrics(summary: Path) -> set[str]:
    """Those of the summary's causes of what regressed."""
    text = summary.read_text(encoding="utf-8")
    part = text.partition("### Regressed")[2].partition("###")[0]
    return set(re.findall(r"^- \S+: ([a-z ]+?)(?: and \d+ other timings?)? [+−\d]", part, re.MULTILINE))


def test_a_first_run_has_no_baseline_and_says_what_to_do(own_suite: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """On GitHub's runners in an annotation, too."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = own_suite.run(*GATE)
    assert result.ret == ExitStatus.NO_BASELINE
    result.stdout.fnmatch_lines(
        ["*= llm-gate: no baseline =*", "No run is saved.", "Save one with --benchmark-autosave*"]
    )
    result.stdout.fnmatch_lines(["::error title=llm-gate%3A no baseline::no run is saved.*"])
    assert own_suite.run(*GATE, "--llm-gate-missing=pass").ret == 0


def test_a_second_run_of_the_same_is_green(saved_apart: Bench) -> None:
    result = saved_apart.run_forked(*APART, "--benchmark-autosave")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "*= llm-gate: passed =*",
            "Baseline: 0001_*",
            "Judged 1 of 1 tests. Values that can fail the gate: * unchanged.",
            "*Times are*",
        ]
    )
    # pytest-benchmark's table compares with the same run
    result.stdout.fnmatch_lines_random(["*test_mine[[]fp32[]] (0001_*", "*test_mine[[]fp32[]] (NOW)*"])
    assert [state_of(path)["regressed"] for path in storage(saved_apart)] == [False, False]


def test_a_slowdown_turns_only_the_timing_gate_red(saved_apart: Bench) -> None:
    """By real work, in each generate."""
    saved_apart.write(conftest=SLOWDOWN)
    files = ("--llm-gate-summary=made/summary.md", "--junit-xml=junit.xml")
    result = saved_apart.run_forked(*APART, "--llm-gate-rules=latency_s:20%", *files)
    assert result.ret == ExitStatus.REGRESSED
    folder = saved_apart.pytester.path
    assert regressed_metrics(folder / "made/summary.md") == {"latency"}
    cases = ElementTree.parse(folder / "junit.xml").getroot().iter("testcase")  # noqa: S314  # our own
    failed = {case.get("name"): failure.text for case in cases for failure in case.iter("failure")}
    assert list(failed) == ["test_mine[fp32]"]
    assert "Latency: " in str(failed["test_mine[fp32]"])


def test_without_a_rule_a_slowdown_is_told_and_passes(own_suite: Bench) -> None:
    """By ten rounds: of two it can't be told."""
    rounds = ("--llm-rounds=10", "--llm-max-noise=0")
    assert own_suite.run("--benchmark-autosave", *rounds).ret == 0
    own_suite.write(conftest=SLOWDOWN)
    result = own_suite.run(*GATE, *rounds)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["Worse, advisory (*", "*fp32: latency and *"])


def test_damaged_weights_turn_only_the_quality_gate_red(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.torch import load_file, save_file

    folder = bench.pytester.path / "model"
    shutil.copytree(TINY_FOLDER, folder)
    bench.write(test_own='def test_mine(llm_benchmark):\n    llm_benchmark("Hello")\n')
    corpus = bench.pytester.path / "corpus.txt"
    corpus.write_text(" ".join(bench.corpus.read_text(encoding="utf-8").split() * 40), encoding="utf-8")
    how = ("--llm-model=model", f"--llm-corpus={corpus}")
    assert bench.run(*how, "--benchmark-autosave").ret == 0
    assert bench.run(*how, *GATE).ret == 0
    weights = next(folder.glob("*.safetensors"))
    tensors = load_file(weights)
    name = max(tensors, key=lambda each: tensors[each].numel())
    tensors[name] = tensors[name] * 1.3
    save_file(tensors, weights, metadata={"format": "pt"})
    result = bench.run(*how, *GATE, "--llm-gate-summary=summary.md")
    assert result.ret == ExitStatus.REGRESSED
    assert regressed_metrics(bench.pytester.path / "summary.md") == {"perplexity"}


def test_grown_memory_turns_only_the_memory_gate_red_and_is_no_baseline(
    saved_apart: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the run is blessed."""
    saved_apart.write(conftest=GROWTH)
    result = saved_apart.run_forked(*APART, "--llm-gate-summary=summary.md", "--benchmark-autosave")
    assert result.ret == ExitStatus.REGRESSED
    assert regressed_metrics(saved_apart.pytester.path / "summary.md") == {"peak memory"}
    assert [state_of(path)["regressed"] for path in storage(saved_apart)] == [False, True]
    monkeypatch.chdir(saved_apart.pytester.path)
    assert main(["gate", "2"]) == ExitStatus.REGRESSED
    assert main(["bless", "2", "--reason", "worth it"]) == 0
    blessed = saved_apart.run(*GATE)
    assert blessed.ret == 0
    blessed.stdout.fnmatch_lines(["Baseline: 0002_*", "*Accepted as a baseline: worth it.*"])


def test_a_failed_run_is_no_baseline(saved: Bench) -> None:
    saved.write(test_own='def test_mine(llm_benchmark):\n    llm_benchmark("Hello")\n    assert False\n')
    assert saved.run("--benchmark-autosave").ret == 1
    saved.write(test_own='def test_mine(llm_benchmark):\n    llm_benchmark("Hello")\n')
    result = saved.run(*GATE)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["Baseline: 0001_*", "Not a baseline: 0002_*: failed"])


def test_a_run_that_was_stopped_is_interrupted(bench: Bench) -> None:
    """Bug: one that -x ended early passed for a whole one."""
    bench.write(test_own=TWO_TESTS.replace('("Hello")', '("Hello")\n    assert False'))
    bench.run("-x", "--benchmark-autosave")
    assert bench.results()["interrupted"]


def test_tests_that_fail_keep_pytests_own_exit_status(saved: Bench) -> None:
    saved.write(test_bad="def test_bad():\n    assert False\n")
    result = saved.run(*GATE)
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["*= llm-gate: other tests than in its baseline =*", "This run is not complete: failed."]
    )


def test_a_new_and_a_vanished_test_are_not_green(saved: Bench) -> None:
    saved.write(test_own=TWO_TESTS)
    result = saved.run(*GATE, "--benchmark-autosave")
    assert result.ret == ExitStatus.COVERAGE
    result.stdout.fnmatch_lines(["Not the baseline's tests: 1 new.", "Judged 1 of 2 tests, 1 new.*"])
    assert saved.run(*GATE, "--llm-gate-missing=new", "--llm-baseline=0001").ret == 0
    saved.write(test_own='def test_other(llm_benchmark):\n    llm_benchmark("Goodbye")\n')
    gone = saved.run(*GATE, "--llm-baseline=0002")
    assert gone.ret == ExitStatus.COVERAGE
    gone.stdout.fnmatch_lines(["*: 1 vanished.", "*test_own.py::test_mine[[]fp32[]]: vanished"])
    fewer = saved.run(*GATE, "--llm-baseline=0002", "-k", "other")
    assert fewer.ret == 0
    fewer.stdout.fnmatch_lines(["Judged 1 of 1 tests (1 of the baseline not selected)*"])


def test_a_marker_allows_less_or_more(saved: Bench) -> None:
    marked = 'import pytest\n\n@pytest.mark.llm_gate({})\ndef test_mine(llm_benchmark):\n    llm_benchmark("Hello")\n'
    saved.write(conftest=SLOWDOWN, test_own=marked.format('latency_s="20%"'))
    assert saved.run(*GATE).ret == ExitStatus.REGRESSED
    saved.write(test_own=marked.format('latency_s="off"'))
    assert saved.run(*GATE, "--llm-gate-rules=own_memory_bytes:off,latency_s:20%").ret == 0
    saved.write(test_own=marked.format('speed="20%"'))
    unknown = saved.run(*GATE)
    assert unknown.ret == 1
    unknown.stdout.fnmatch_lines(["*llm_gate: unknown metric or kind of metrics 'speed'. Did you mean speedup?"])


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            "--llm-gate-rules=speed:5%",
            "*unknown metric or kind of metrics 'speed'. Did you mean speedup?",
        ),
        ("--llm-gate-rules=latency_s", "*--llm-gate-rules: expected METRIC:CHANGE*"),
        ("--llm-gate-missing=tests", "*--llm-gate-missing: unknown thing that may be missing 'tests'*"),
        ("--llm-baseline=0007", "*--llm-gate: no run '0007'*"),
        ("--llm-baseline=merge-base:nowhere", "*--llm-gate: git merge-base HEAD nowhere:*"),
    ],
)
def test_what_can_not_be_used_ends_the_run_before_it_begins(saved: Bench, option: str, message: str) -> None:
    result = saved.run("--llm-gate", option)
    assert result.ret == ExitStatus.USAGE
    result.stderr.fnmatch_lines([message])


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        (("--benchmark-disable",), "Nothing was timed in this run."),
        (("--benchmark-skip",), "Nothing is timed in pytest-xdist's workers, *"),
    ],
)
def test_what_measures_nothing_is_not_green(saved: Bench, how: tuple[str, ...], reason: str) -> None:
    result = saved.run(*GATE, *how)
    assert result.ret == ExitStatus.NOT_MEASURED
    result.stdout.fnmatch_lines(["*= llm-gate: not measured =*", reason])


def test_with_xdist_nothing_is_measured_which_one_line_says(own_suite: Bench) -> None:
    """pytest-benchmark disables itself there. Bug: the workers left a results.json that said "interrupted"."""
    pytest.importorskip("xdist")
    result = own_suite.run_apart("-n", "1", *GATE)
    result.assert_outcomes(passed=1, warnings=result.parseoutcomes().get("warnings", 0))
    assert [line for line in result.outlines if "llm-bench:" in line] == [
        "llm-bench: no times and no report, because pytest-xdist runs tests in parallel: run the benchmarks without -n"
    ]
    assert not own_suite.report.exists()
    assert result.ret == ExitStatus.NOT_MEASURED
    result.stdout.fnmatch_lines(["*= llm-gate: not measured =*", "Nothing is timed in pytest-xdist's workers, *"])


def test_what_measures_nothing_is_not_measured_without_a_baseline_too(own_suite: Bench) -> None:
    assert own_suite.run(*GATE, "--benchmark-disable", "--llm-gate-missing=pass").ret == ExitStatus.NOT_MEASURED


def test_an_ini_file_may_ask_for_the_gate_and_other_tests_go_on(saved: Bench) -> None:
    saved.pytester.makeini("[pytest]\nllm_gate = true\nllm_gate_missing = new\nllm_gate_rules = own_memory_bytes:off")
    saved.write(test_plain="def test_plain():\n    pass\n")
    assert saved.run("test_plain.py").ret == 0
    result = saved.run("test_own.py")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*= llm-gate: passed =*"])
    assert saved.run("test_plain.py", "--llm-gate").ret == ExitStatus.NOT_MEASURED
    assert saved.run("--collect-only", "--llm-gate").ret == 0
