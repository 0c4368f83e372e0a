"""Runs that go on with one that was interrupted, and what keeps them from it."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import unhurried
from run_factory import make_record, make_run
from toy_engine import FILES

from llm_bench_fixtures.models.lineup import Lineup
from llm_bench_fixtures.results.builder import RunBuilder
from llm_bench_fixtures.results.folder import MARKER, held
from llm_bench_fixtures.results.storage import RESULTS_FILE, read_run, write_run

if TYPE_CHECKING:
    from pytester_bench import Bench

    from llm_bench_fixtures.models.needs import MemoryNeed
    from llm_bench_fixtures.models.variants import Variant

SUITE = """
import os
import signal
import pytest
from llm_bench_fixtures import ExecutionMode

def note(what):
    with open("notes.txt", "a") as file:
        file.write(what + "\\n")
    if os.environ.get("CUT") == what:
        raise KeyboardInterrupt
    if os.environ.get("KILLED") == what:
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.environ.get("FAILS") != what

@pytest.mark.parametrize("size", [4, 8, 12])
def test_size(llm_benchmark, llm_prompts, llm_model, size):
    note(f"{llm_model.variant.id}-{size}")
    llm_benchmark(llm_prompts.exact(size))
    if size == 8 and llm_model.variant.id == "half":
        pytest.skip("not today")

def test_equivalence(llm_equivalence, llm_prompts, llm_model):
    note(f"{llm_model.variant.id} in a batch")
    llm_equivalence([llm_prompts.plain(4), llm_prompts.plain(6)], ExecutionMode.BATCH)  # which the toys can't tell

def test_loaded(llm_model):
    note(f"{llm_model.variant.id} is loaded")

@pytest.mark.llm_scenario("threads")
def test_threads(llm_benchmark, llm_prompts, llm_model, llm_threads):
    note(f"{llm_model.variant.id} has {llm_threads}")
    llm_benchmark(llm_prompts.exact(4))
"""
NOTES = """
def pytest_llm_bench_score(model):
    from test_own import note
    note(f"{model.variant.id} is scored")
    return {"mine": 1.0}
"""
LOADS = """
        with open(__file__ + ".loads", "a") as file:
            file.write(request.variant.id + chr(10))
"""
OPTIONS = ("--llm-rounds=3", "--llm-max-noise=0", "--llm-new-tokens=2", "--llm-reference=toy", "--llm-choices=none")
SIZES = ("toy-4", "half-4", "third-4", "toy-8", "half-8", "third-8", "toy-12", "half-12", "third-12")
SCORES = tuple(f"{variant} is scored" for variant in ("toy", "half", "third"))
CHECKS = tuple(f"{variant} {what}" for what in ("in a batch", "is loaded") for variant in ("toy", "half", "third"))


class Toys:
    """A suite of three cases, each on three variants, and of checks."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        head, body = FILES["engine"].split('        if self.variant.quantization == "breaks"')
        engine = f'{head}{LOADS.lstrip(chr(10))}        if self.variant.quantization == "breaks"{body}'
        bench.write(**{**FILES, "engine": engine, "conftest": FILES["conftest"] + NOTES}, test_own=SUITE)
        self.folder: Path = bench.pytester.path

    def run(self, *options: str, cut: str = "", fails: str = "", killed: str = "") -> pytest.RunResult:
        """cut: what happens when the run is interrupted. fails: what fails. killed: what happens when its process
        is."""
        for name in ("notes.txt", "engine.py.loads"):
            (self.folder / name).unlink(missing_ok=True)
        given = (*OPTIONS, f"--llm-corpus={self.bench.corpus}", "--llm-variants=toy,half,third")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CUT", cut)
            patch.setenv("FAILS", fails)
            patch.setenv("KILLED", killed)
            patch.setattr(RunBuilder, "usual_s", lambda *_: 0.0)  # the toys are as fast: scored in their own order
            options = (*self.bench.in_turns, *given, "--import-mode=prepend", *options)
            if killed:
                return self.bench.pytester.runpytest_subprocess(*unhurried.OPTIONS, *options)
            return self.bench.run_with(*options, no_reraise_ctrlc=True)

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    @property
    def happened(self) -> list[str]:
        """In the last run: which tests ran, and what was scored."""
        return self.lines("notes.txt")

    @property
    def loaded(self) -> list[str]:
        return self.lines("engine.py.loads")

    @property
    def rounds(self) -> dict[str, tuple[Any, Any]]:
        """By test, its rounds and the reference's next to them."""
        records = (one for one in self.bench.records() if short(one["test"]))
        return {short(one["test"]): (one["rounds_s"], one["reference_s"]) for one in records}


def short(test: str) -> str:
    return test.partition("::test_size[")[2].removesuffix("]")


@pytest.fixture
def toys(bench: Bench) -> Toys:
    return Toys(bench)


@pytest.mark.slow("each starts processes that hold models")
def test_cases_that_are_whole_are_kept_and_the_rest_is_measured_in_blocks_of_its_own(toys: Toys) -> None:
    """The run is interrupted in the middle of the third case, of which the reference has its record already."""
    first = toys.run(cut="half-12")
    assert first.ret == pytest.ExitCode.INTERRUPTED
    assert toys.happened == [*SIZES[:3], *SCORES, *SIZES[3:8]]
    before, began = toys.rounds, toys.bench.results()["provenance"]["started"]
    assert list(before) == [*SIZES[:7]]
    result = toys.run("--llm-resume", "--llm-time=2h", "--benchmark-json=out.json", "-rs")
    assert result.ret == 0
    result.assert_outcomes(passed=11, skipped=4)
    result.stdout.fnmatch_lines([f"llm-bench: 6 of 9 benchmarks kept of the run that began {began}"])
    result.stdout.fnmatch_lines(["SKIPPED * not today"])
    assert toys.happened == [*SIZES[6:], *CHECKS]
    after = toys.rounds
    assert {name: after[name] for name in SIZES[:6]} == {name: before[name] for name in SIZES[:6]}
    assert after["toy-12"] != before["toy-12"]
    assert after["half-12"][1] == after["third-12"][1] == after["toy-12"][0]
    results = toys.bench.results()
    assert results["interrupted"] is False
    (session,) = results["earlier"]
    assert (session["started"], sorted(map(short, session["tests"]))) == (began, sorted({*SIZES[:6]} - {"half-8"}))
    assert {name: one["quality"]["mine"] for name, one in toys.bench.variants().items()} == {
        "toy": 1.0,
        "half": 1.0,
        "third": 1.0,
    }
    assert "ppl_ratio" in toys.bench.variants()["third"]["quality"]
    assert f"{began}: 5 benchmarks of 2 cases; 20" in toys.bench.page()
    assert ": 3 benchmarks of 1 case; the machine, model and libraries are the same" in toys.bench.page()
    saved = json.loads((toys.folder / "out.json").read_text(encoding="utf-8"))["benchmarks"]
    shown = {short(one["fullname"]): one["stats"]["data"] for one in saved}
    assert shown == {name: list(rounds) for name, (rounds, _) in after.items() if name != "half-8"}


@pytest.mark.slow("each starts processes that hold models")
def test_a_run_whose_process_was_killed_goes_on(toys: Toys) -> None:
    """What was saved when the first case and its qualities were there."""
    assert toys.run("-k", "size", killed="toy-8").ret == -signal.SIGKILL
    assert sorted(toys.happened) == sorted([*SIZES[:3], *SCORES, "toy-8"])
    before = toys.rounds
    result = toys.run("--llm-resume", "-k", "size")
    result.stdout.fnmatch_lines(["llm-bench: 3 of 9 benchmarks kept *"])
    assert toys.happened == [*SIZES[3:]]
    assert {name: toys.rounds[name] for name in SIZES[:3]} == before
    assert "ppl_ratio" in toys.bench.variants()["third"]["quality"]


@pytest.mark.slow("each starts processes that hold models")
def test_a_run_that_lacks_nothing_passes_at_once_and_loads_nothing(toys: Toys) -> None:
    toys.run().assert_outcomes(passed=11, skipped=4)
    before = toys.bench.results()
    result = toys.run("--llm-resume")
    result.assert_outcomes(passed=11, skipped=4)
    assert (toys.happened, toys.loaded) == ([], [])
    after = toys.bench.results()
    assert (after["records"], after["variants"]) == (before["records"], before["variants"])
    assert after["session_s"] > before["session_s"]
    assert result.stdout.str().count("loaded together") == 0


@pytest.mark.slow("each starts processes that hold models")
def test_quality_that_is_there_is_kept_and_the_reference_is_scored_again_for_the_others(toys: Toys) -> None:
    toys.run(cut="third is scored")
    qualities = {name: one["quality"] for name, one in toys.bench.variants().items()}
    assert (set(qualities["half"]) > {"mine", "ppl_ratio"}, qualities["third"]) == (True, {})
    toys.run("--llm-resume", "-k", "size")
    assert toys.happened == ["toy is scored", *SIZES[3:], "third is scored"]
    variants = toys.bench.variants()
    assert {name: variants[name]["quality"] for name in ("toy", "half")} == {
        name: qualities[name] for name in ("toy", "half")
    }
    assert variants["third"]["quality"]["ppl_ratio"] == qualities["half"]["ppl_ratio"]  # both compute the same


@pytest.mark.slow("each starts processes that hold models")
def test_what_failed_is_run_again_and_what_is_not_collected_stays(toys: Toys) -> None:
    """Only the variant that has a test left is loaded, and the reference, with which it takes turns."""
    toys.run("-k", "size", fails="third-8").assert_outcomes(passed=7, failed=1, skipped=1)
    before = toys.rounds
    assert before["third-8"] == ([], [])
    toys.run("--llm-resume", "-k", "size and not 12").assert_outcomes(passed=5, skipped=1)
    assert (toys.happened, sorted(toys.loaded)) == (["third-8"], ["third", "toy"])
    rounds, reference = toys.rounds.pop("third-8")
    assert len(rounds) == len(reference) == 3
    assert reference != before["toy-8"][0]
    assert {**toys.rounds, "third-8": ([], [])} == before


@pytest.mark.slow("each starts processes that hold models")
def test_where_not_all_fit_in_memory_a_group_that_is_whole_is_kept(toys: Toys, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first case is whole; of the second, the group that is loaded then has been measured, but for the reference's
    own test, which comes next."""

    def in_twos(variants: Sequence[Variant], reference: str, needs: Mapping[str, MemoryNeed], budget: int) -> Lineup:
        first, *others = variants
        return Lineup(tuple((first, one) for one in others), needs, budget)

    monkeypatch.setattr("llm_bench_fixtures.session.loader.plan_lineup", in_twos)
    toys.run("-k", "size and not 12", cut="toy-8")
    assert [name for name in toys.happened if "scored" not in name] == [*SIZES[:3], "third-8", "toy-8"]
    before = toys.rounds
    toys.run("--llm-resume", "-k", "size and not 12")
    assert [name for name in toys.happened if "scored" not in name] == ["toy-8", "half-8"]
    assert toys.rounds["third-8"] == before["third-8"]
    assert toys.rounds["half-8"][1] == toys.rounds["toy-8"][0]


@pytest.mark.slow("each starts processes that hold models")
def test_a_sweep_over_threads_is_added_to_a_whole_run_and_then_kept(
    toys: Toys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is scored: each has the quality of the variant in the default number of threads."""
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    for module in ("models.variants", "processes.affinity"):
        monkeypatch.setattr(f"llm_bench_fixtures.{module}.usable_cores", lambda: 2)
    toys.run("-k", "size").assert_outcomes(passed=8, skipped=1)
    before = toys.rounds
    options = ("--llm-resume", "--llm-threads=1", "-k", "size or threads")
    toys.run(*options, cut="half-1t has 1")
    assert toys.happened == ["toy has 2", "half has 2", "third has 2", "toy-1t has 1", "half-1t has 1"]
    toys.run(*options).assert_outcomes(passed=14, skipped=1)
    swept = [f"{name} has 2" for name in ("toy", "half", "third")]
    swept += [f"{name}-1t has 1" for name in ("toy", "half", "third")]
    assert toys.happened == swept
    assert toys.rounds == before
    variants = toys.bench.variants()
    assert all(variants[f"{name}-1t"]["quality"] == variants[name]["quality"] != {} for name in ("toy", "half"))
    toys.run(*options).assert_outcomes(passed=14, skipped=1)
    assert (toys.happened, toys.loaded) == ([], [])


@pytest.mark.slow("each starts processes that hold models")
def test_a_run_goes_on_into_a_report_of_its_own(toys: Toys) -> None:
    toys.run("-k", "size", cut="toy-8")
    before = (toys.bench.report / RESULTS_FILE).read_bytes()
    options = ("--llm-report=second", "--llm-resume=llm-bench-report", "-k", "size")
    toys.run(*options).assert_outcomes(passed=8, skipped=1)
    assert (toys.bench.report / RESULTS_FILE).read_bytes() == before
    assert len(read_run(toys.folder / "second" / RESULTS_FILE).records) == 9
    with held(toys.bench.report):
        result = toys.run("--llm-report=third", "--llm-resume=llm-bench-report")
    result.stderr.fnmatch_lines(["ERROR: --llm-resume: *another run is making its report there*"])
    assert not (toys.folder / "third").exists()


def test_in_one_process_variants_that_are_scored_are_kept(bench: Bench) -> None:
    """The reference is measured again for what is missing."""
    bench.write(test_own=SUITE)
    options = ("--llm-variants=fp32,bf16,fp16", "-k", "size and not 8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUT", "fp16-12")
        bench.run(*options, no_reraise_ctrlc=True)
    before = {one["test"]: one["rounds_s"] for one in bench.records()}
    (bench.pytester.path / "notes.txt").unlink()
    bench.run(*options, "--llm-resume").assert_outcomes(passed=6)
    names = (bench.pytester.path / "notes.txt").read_text(encoding="utf-8").splitlines()
    assert names == ["fp32-4", "fp32-12", "fp16-4", "fp16-12"]
    after = {one["test"]: one["rounds_s"] for one in bench.records()}
    kept = [test for test in after if "bf16" in test]
    assert {test: after[test] for test in kept} == {test: before[test] for test in kept}


DUMMY = ("--llm-model=gpt2", "--llm-load-format=dummy")
OTHER = {
    "another model": ({}, DUMMY, "another model: gpt2, random weights, not tiny"),
    "other tokens": ({}, ("--llm-new-tokens=3",), "another --llm-new-tokens: 3, not 2"),
    "a default": ({}, ("--llm-seed=0", "--llm-warmup-rounds=2"), "another --llm-warmup-rounds: 2, not its default"),
    "another reference": ({}, ("--llm-reference=bf16",), "another reference: bf16, not fp32"),
    "another commit": ({"commit": "f" * 40}, (), "another commit: unknown, not ffffffffffff"),
    "another library": ({"libraries": {"torch": "1.0"}}, (), "another set of libraries: * torch 1.0*"),
    "other weights": ({"model_digests": {"weights": "0"}}, (), "other files of the model: weights"),
    "another machine": ({"hardware": "a laptop"}, (), "another machine: *, not a laptop, *"),
}  # fmt: skip


@pytest.fixture
def whole_run(own_suite: Bench) -> Bench:
    """A run of one benchmark, which lacks nothing."""
    own_suite.run().assert_outcomes(passed=1)
    return own_suite


@pytest.mark.parametrize(("changes", "options", "reason"), OTHER.values(), ids=OTHER)
def test_a_run_of_something_else_is_named_and_nothing_is_run(
    changes: dict[str, Any], options: tuple[str, ...], reason: str, whole_run: Bench
) -> None:
    path = whole_run.report / RESULTS_FILE
    run = read_run(path)
    write_run(replace(run, provenance=replace(run.provenance, **changes)), path)
    before = {file: file.read_bytes() for file in whole_run.report.rglob("*") if file.is_file()}
    result = whole_run.run("--llm-resume", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "ERROR: --llm-resume: this run can't go on with the one in llm-bench-report/results.json:",
            f"  {reason}",
            "Nothing was run. Without --llm-resume, all is measured anew.",
        ]
    )
    assert {file: file.read_bytes() for file in whole_run.report.rglob("*") if file.is_file()} == before


def test_another_model_is_told_before_it_is_looked_for(whole_run: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: one that was mistyped was downloaded first."""
    monkeypatch.setattr("llm_bench_fixtures.session.setup.find_source", None)
    result = whole_run.run("--llm-resume", "--llm-model=nobody/mistyped", "--llm-seed=3")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    found = ["  another model: nobody/mistyped, not tiny", "  another --llm-seed: 3, not its default"]
    result.stderr.fnmatch_lines([*found, "Nothing was run. *"])


def test_how_much_is_kept_is_said_in_quiet_runs_too(whole_run: Bench) -> None:
    """Bug: a quiet run that kept nothing looked like one that did."""
    whole_run.run("--llm-resume", "-q").stdout.fnmatch_lines(["llm-bench: 1 of 1 benchmark kept *"])


def test_a_run_that_was_set_aside_is_named_and_can_be_gone_on_with(whole_run: Bench) -> None:
    """As by one that was begun without --llm-resume, and killed before it had anything."""
    earlier = whole_run.report / "earlier"
    earlier.mkdir()
    (whole_run.report / RESULTS_FILE).rename(earlier / RESULTS_FILE)
    result = whole_run.run("--llm-resume")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    option = "--llm-resume=llm-bench-report/earlier"
    result.stderr.fnmatch_lines([f"ERROR: * no run to go on with. {option} goes on with the one before"])
    whole_run.run(option).stdout.fnmatch_lines(["llm-bench: 1 of 1 benchmark kept *"])


def test_the_unfinished_run_that_measured_more_is_gone_on_with(whole_run: Bench) -> None:
    """Bug: after a run that was begun anew and killed early, the longer one before it was lost."""
    path, earlier = whole_run.report / RESULTS_FILE, whole_run.report / "earlier" / RESULTS_FILE
    run = read_run(path)

    def resumed(commit: str) -> str:
        earlier.parent.mkdir(exist_ok=True)
        write_run(replace(run, records=(), interrupted=True), path)
        before = replace(run.provenance, started="1999-09-09T09:09:09", commit=commit)
        write_run(replace(run, provenance=before, interrupted=True), earlier)
        return whole_run.run("--llm-resume").stdout.str()

    assert "1 of 1 benchmark kept of the run that began 1999" in resumed(run.provenance.commit)
    assert "0 of 1 benchmark kept of the run that began 20" in resumed("another")


def test_what_changes_no_figure_may_differ(whole_run: Bench) -> None:
    options = ("--llm-time=2h", "--llm-need=ppl_ratio<=1.02", "--llm-memory-share=10%", "--llm-rounds=4")
    whole_run.run("--llm-resume=true", *options).assert_outcomes(passed=1)
    assert len(whole_run.records()[0]["rounds_s"]) == 2


DAMAGED = {
    "cut off": ('{"schema": "llm-bench-fixtures/run", "vers', "llm-bench-report/results.json can't be read as JSON: *"),
    "another's": ("{}", "llm-bench-report/results.json is not a results file of llm-bench-fixtures"),
    "another version": ('{"schema": "llm-bench-fixtures/run", "version": 3}', "* is of schema version 3; this reads 4"),
}


@pytest.mark.parametrize(("text", "message"), DAMAGED.values(), ids=DAMAGED)
def test_a_file_that_can_not_be_read_is_named_and_stays(text: str, message: str, own_suite: Bench) -> None:
    own_suite.report.mkdir()
    (own_suite.report / MARKER).touch()
    (own_suite.report / RESULTS_FILE).write_text(text, encoding="utf-8")
    result = own_suite.run("--llm-resume")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --llm-resume: {message}"])
    assert (own_suite.report / RESULTS_FILE).read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("given", "file"), [((), "llm-bench-report/results.json"), (("tests",), "tests/results.json"), (("no",), "no")]
)
def test_without_a_run_there_is_nothing_to_go_on_with(given: tuple[str, ...], file: str, own_suite: Bench) -> None:
    """A path of tests that stands behind the option is taken for its value, as with any option of pytest."""
    own_suite.pytester.mkdir("tests")
    result = own_suite.run("--llm-resume", *given)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"ERROR: --llm-resume: there is no {file}, so there is no run to go on with. Put paths of tests before *"]
    )
    assert not own_suite.report.exists()


def test_a_run_that_goes_on_is_not_gone_on_with(whole_run: Bench) -> None:
    """Bug: the second run, which was refused, put back the report that the first had set aside."""
    earlier = whole_run.report / "earlier"
    earlier.mkdir()
    shutil.copy(whole_run.report / RESULTS_FILE, earlier)
    write_run(make_run([make_record()], interrupted=True), whole_run.report / RESULTS_FILE)
    before = (whole_run.report / RESULTS_FILE).read_bytes()
    with held(whole_run.report):
        result = whole_run.run("--llm-resume")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --llm-report: llm-bench-report can't be written to: another run is making*"])
    assert (whole_run.report / RESULTS_FILE).read_bytes() == before


@pytest.mark.parametrize("option", ["--benchmark-disable", "--benchmark-skip"])
def test_a_run_that_times_nothing_goes_on_with_none(option: str, own_suite: Bench) -> None:
    result = own_suite.run("--llm-resume", option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --llm-resume: nothing is timed in this run: leave out -n, *"])
