"""Runs whose variants take turns, as their users run them: one large run seen from all sides, and small ones."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import unhurried
from toy_engine import FILES, SIZES, SUITE
from waiting import wait_until

from llm_bench_fixtures.session import budget, measuring
from llm_bench_fixtures.session.blocks import Blocks, Step
from llm_bench_fixtures.session.case import Measured

if TYPE_CHECKING:
    from conftest import Bench

pytestmark = pytest.mark.slow("each starts processes that hold models")

MARK = "LLM_BENCH_TESTED_RUN"
ROUNDS = 3
SHORT = (
    f"--llm-rounds={ROUNDS}",
    "--llm-max-noise=0",
    "--llm-new-tokens=2",
    "--llm-reference=toy",
)
KILLED = "dies: the process that it ran in was killed by SIGKILL, perhaps for lack of memory"


@dataclass(frozen=True)
class Done:
    """A run that is over."""

    folder: Path
    output: str
    status: int
    mark: str

    @property
    def results(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "llm-bench-report" / "results.json").read_text(encoding="utf-8")))

    @property
    def records(self) -> dict[str, dict[str, Any]]:
        """By the test's name."""
        return {record["test"].partition("::")[2]: record for record in self.results["records"]}

    @property
    def saved(self) -> dict[str, dict[str, Any]]:
        """pytest-benchmark's own, by the test's name."""
        data = json.loads((self.folder / "out.json").read_text(encoding="utf-8"))
        return {benchmark["name"]: benchmark for benchmark in data["benchmarks"]}

    @property
    def variants(self) -> dict[str, dict[str, Any]]:
        return {variant["id"]: variant for variant in self.results["variants"]}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, bench_cache: Path, short_corpus: Path) -> Done:
    """All that can go wrong, in one run: a variant that dies, one that can't be loaded, one that isn't installed."""
    folder, mark = tmp_path_factory.mktemp("in_turns"), uuid.uuid4().hex
    for name, text in {**FILES, "test_own": SUITE}.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    options = (
        *("-p", "no:cacheprovider", "-v", "--tb=short"),
        f"--llm-cache-dir={bench_cache}",
        f"--llm-corpus={short_corpus}",
        "--llm-limits-time=0",
        "--llm-variants=toy,half,third,dies,breaks,missing",
        "--benchmark-json=out.json",
    )
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *unhurried.OPTIONS, *SHORT, *options],
        cwd=folder,
        env={**unhurried.environment(), MARK: mark},
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    return Done(folder, run.stdout + run.stderr, run.returncode, mark)


def test_each_test_has_its_own_row_in_pytests_output(done: Done) -> None:
    for variant in ("toy", "half", "third"):
        for size in (4, 8):
            assert len(re.findall(rf"test_own\.py::test_size\[{variant}-{size}\] PASSED", done.output)) == 1


def test_what_is_loaded_together_is_told_before_the_first_test(done: Done) -> None:
    told = done.output.index("llm-bench: 6 variants are loaded together and take turns (about ")
    assert told < done.output.index("test_own.py::")


def test_the_tests_of_a_case_stand_together_and_the_references_first(done: Done) -> None:
    """A test's name is written again after lines that tell what takes long."""
    order = list(dict.fromkeys(re.findall(r"test_own\.py::test_size\[(\w+)-(\d)\]", done.output)))
    variants = ["toy", "half", "third", "dies", "breaks", "missing"]
    assert order[:12] == [(variant, size) for size in "48" for variant in variants]


def test_pytest_benchmarks_own_times_are_those_of_the_records(done: Done) -> None:
    saved, records = done.saved, done.records
    assert {"test_size[toy-4]", "test_size[half-4]", "test_size[third-8]", "test_hook[third]"} <= saved.keys()
    for name, benchmark in saved.items():
        if name in records and records[name]["rounds_s"] and "twice" not in name:
            assert benchmark["stats"]["data"] == records[name]["rounds_s"]
            assert benchmark["stats"]["rounds"] == ROUNDS
    assert re.search(r"^test_size\[half-4\] +\d", done.output, re.MULTILINE)  # in its table


def test_the_references_rounds_are_those_of_the_same_blocks(done: Done) -> None:
    records = done.records
    for size in (4, 8):
        base = records[f"test_size[toy-{size}]"]
        for variant in ("half", "third"):
            assert records[f"test_size[{variant}-{size}]"]["reference_s"] == base["rounds_s"]
        assert base["reference_s"] == base["rounds_s"]


def test_a_killed_process_costs_its_own_rows_only(done: Done) -> None:
    """It dies in the second case. What it measured before is kept."""
    records = done.records
    assert records["test_size[dies-4]"]["status"] == "measured"
    assert len(records["test_size[dies-4]"]["rounds_s"]) == ROUNDS
    for name, record in records.items():
        if "[dies" in name and name != "test_size[dies-4]":
            assert (record["status"], record["reason"].endswith(KILLED)) == ("error", True), name
    assert len(records["test_size[third-8]"]["rounds_s"]) == ROUNDS


def test_a_variant_that_cannot_be_loaded_is_an_error_in_each_of_its_tests(done: Done) -> None:
    torn = [record for name, record in done.records.items() if "[breaks" in name]
    assert len(torn) == 9
    assert {record["status"] for record in torn} == {"error"}
    assert all("LookupError: its file is torn" in record["reason"] for record in torn)
    assert done.variants["breaks"]["status"] == "error"


def test_the_traceback_of_a_process_is_in_a_file_that_its_reason_names(done: Done) -> None:
    """Bug: the reason was "WorkerFailed: Traceback (most recent call last):"."""
    reason = done.variants["breaks"]["reason"]
    assert reason.startswith("LookupError: its file is torn (traceback: ")
    file = done.folder / reason.partition("(traceback: ")[2].removesuffix(")")
    assert "    raise LookupError(" in file.read_text(encoding="utf-8")
    assert list(file.parent.iterdir()) == [file]


def test_a_variant_that_is_not_installed_is_a_skip(done: Done) -> None:
    missing = [record for name, record in done.records.items() if "[missing" in name]
    assert len(missing) == 9
    assert {record["status"] for record in missing} == {"skipped"}
    assert all("no_such_engine" in record["reason"] for record in missing)


def test_a_test_that_calls_twice_is_refused(done: Done) -> None:
    """One test has one row in its table. What the first call has measured is kept."""
    for variant in ("toy", "half", "third"):
        assert f"test_twice[{variant}] FAILED" in done.output
        assert len(done.records[f"test_twice[{variant}]"]["rounds_s"]) == ROUNDS
    assert "calls llm_benchmark again: a test is one benchmark" in done.output


def test_a_workload_of_its_own_is_measured_in_blocks_with_the_reference(done: Done) -> None:
    records = done.records
    digests = {records[f"test_its_own[{name}]"]["workload"]["digest"] for name in ("toy", "half", "third")}
    assert len(digests) == 3
    for name in ("half", "third"):
        record = records[f"test_its_own[{name}]"]
        assert len(record["reference_s"]) == len(record["rounds_s"]) == ROUNDS


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("test_marked[half]", "skipped", "marked"),
        ("test_skips[half]", "skipped", "not today"),
        ("test_before[toy]", "error", "AssertionError: fails before"),
    ],
)
def test_what_is_not_measured_costs_only_itself(name: str, status: str, reason: str, done: Done) -> None:
    records = done.records
    assert (records[name]["status"], records[name]["rounds_s"]) == (status, [])
    assert records[name]["reason"].startswith(reason)
    function = name.partition("[")[0]
    others = {f"{function}[{variant}]" for variant in ("toy", "half", "third")} - {name}
    for other in others:
        assert records[other]["status"] == "measured"
        assert len(records[other]["reference_s"]) == ROUNDS


def test_a_hook_that_raises_costs_its_own_values(done: Done) -> None:
    record = done.records["test_hook[half]"]
    assert (record["status"], len(record["rounds_s"])) == ("measured", ROUNDS)
    assert record["reason"].startswith("pytest_llm_bench_measure in conftest.py: a hook that raises")


def test_a_test_that_fails_after_its_rounds_fails_alone(done: Done) -> None:
    assert "test_after[half] FAILED" in done.output
    assert "test_after[third] PASSED" in done.output
    assert len(done.records["test_after[third]"]["reference_s"]) == ROUNDS


def test_no_process_is_left(done: Done) -> None:
    """The models' processes and the one they are forked from end with the run."""
    wait_until(lambda: not processes_of(done.mark))


def processes_of(mark: str) -> list[str]:
    """The command lines of processes that the run has started."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark:
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


@pytest.fixture
def toys(bench: Bench) -> Bench:
    """Two cases, run within this process."""
    bench.write(**FILES, test_own=SIZES)
    return bench


def run(toys: Bench, *args: str, variants: str = "toy,half,third", **how: Any) -> pytest.RunResult:
    options = (*toys.in_turns, *SHORT, f"--llm-corpus={toys.corpus}", f"--llm-variants={variants}")
    return toys.run_with(*options, "--import-mode=prepend", *args, **how)


def measured(toys: Bench) -> list[str]:
    """The names of the tests that have a record."""
    return [record["test"].partition("::")[2] for record in toys.records()]


def test_one_variant_alone_is_measured_beside_the_reference_which_has_no_row(toys: Bench) -> None:
    result = run(toys, "-k", "half", "-v")
    result.assert_outcomes(passed=2, deselected=4)
    assert measured(toys) == ["test_size[half-4]", "test_size[half-8]"]
    for record in toys.records():
        assert len(record["reference_s"]) == len(record["rounds_s"]) == ROUNDS
    assert "[toy" not in result.stdout.str()


def test_a_deselected_test_takes_no_turns(toys: Bench) -> None:
    result = run(toys, "--deselect=test_own.py::test_size[half-4]")
    result.assert_outcomes(passed=5, deselected=1)
    assert "test_size[half-4]" not in measured(toys)
    assert "2 variants" not in result.stdout.str()


FAILS_IN_HALF = """
def test_fails(llm_benchmark, llm_model):
    llm_benchmark("a")
    assert llm_model.variant.id != "half"
"""


def test_the_run_stops_at_the_first_failure_and_keeps_what_it_has(toys: Bench) -> None:
    toys.write(test_own=SIZES + FAILS_IN_HALF)
    result = run(toys, "-x")
    result.assert_outcomes(passed=7, failed=1)
    assert len(measured(toys)) == 8
    assert toys.results()["interrupted"] is True


FAILS_ONCE = """
import os
import pytest

@pytest.mark.parametrize("size", [4, 8])
def test_size(llm_benchmark, llm_prompts, llm_model, size):
    assert not (os.environ.get("FAILS") and size == 8 and llm_model.variant.id == "half")
    llm_benchmark(llm_prompts.exact(size))
"""


LIMITS = """
import signal

@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    def end_it(*_):
        pytest.fail("Timeout", pytrace=False)

    if item.name == "test_size[toy-4]":
        signal.signal(signal.SIGALRM, end_it)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no alarm")
def test_a_time_limit_costs_its_own_test_and_no_other(toys: Bench) -> None:
    """As pytest-timeout's. Bug: whose turn it was failed from then on, the reference among them."""
    toys.write(test_own=SIZES, conftest=FILES["conftest"] + LIMITS)
    run(toys).assert_outcomes(passed=5, failed=1)
    ended, *others = toys.records()
    assert (ended["test"], ended["status"]) == ("test_own.py::test_size[toy-4]", "error")
    assert all(len(record["reference_s"]) == ROUNDS for record in others)


COUNTS = """
def pytest_sessionfinish(session):
    from llm_bench_fixtures.plugin.stash import BENCHMARKS

    print("benchmarks that share the time:", len(session.config.stash[BENCHMARKS]))
"""


def test_the_last_failed_are_measured_beside_the_reference(toys: Bench) -> None:
    """Bug: five tests that were not to come had their share of the time."""
    toys.write(test_own=FAILS_ONCE, conftest=FILES["conftest"] + COUNTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAILS", "1")
        cache = ("-p", "cacheprovider")
        run(toys, *cache).assert_outcomes(passed=5, failed=1)
    result = run(toys, *cache, "--lf")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*benchmarks that share the time: 1"])
    (record,) = toys.records()
    assert (record["test"], len(record["reference_s"])) == ("test_own.py::test_size[half-8]", ROUNDS)


SHUFFLED = """
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    items.reverse()
"""


BATCHES = """
def test_batch(llm_benchmark, llm_prompts, llm_batch_size):
    llm_benchmark([llm_prompts.plain(4)] * llm_batch_size, batch_size=llm_batch_size)
"""
WEIGHTS = """
def pytest_sessionfinish(session):
    from llm_bench_fixtures.plugin.stash import SESSION

    weight_of = session.config.stash[SESSION].measuring.weight_of
    print("weights:", *(weight_of(f"test_batch.py::test_batch[{size}]", "batch") for size in (1, 2, 4)))
"""


@pytest.mark.parametrize(
    ("order", "weights"), [("", "4.0 1.0 4.0"), (SHUFFLED, "4.0 4.0 4.0")], ids=["by the plan", "by a plugin"]
)
def test_cases_that_the_answer_goes_by_get_more_time_where_the_plan_orders_them(
    toys: Bench, order: str, weights: str
) -> None:
    """The largest batch, and in the place of prompt lengths the first case."""
    (toys.pytester.path / "test_own.py").unlink()
    toys.write(test_batch=BATCHES, conftest=FILES["conftest"] + order + WEIGHTS)
    result = run(toys, "--llm-batch-sizes=1,2,4")
    result.assert_outcomes(passed=9)
    result.stdout.fnmatch_lines([f"*weights: {weights}"])


def test_another_order_of_the_tests_changes_nothing_of_what_stands_side_by_side(toys: Bench) -> None:
    """As plugins do that shuffle the tests."""
    toys.write(**{**FILES, "conftest": FILES["conftest"].split("def pytest_collection_modifyitems")[0] + SHUFFLED})
    run(toys).assert_outcomes(passed=6)
    records = {record["test"].partition("::")[2]: record for record in toys.records()}
    for size in (4, 8):
        for variant in ("half", "third"):
            record = records[f"test_size[{variant}-{size}]"]
            assert record["reference_s"] == records[f"test_size[toy-{size}]"]["rounds_s"]


def test_where_memory_is_for_two_each_group_holds_the_reference(toys: Bench) -> None:
    """Each holds 120 MB, six bytes for each of 4.3 million weights and 12 MB of a round; while one is scored, it takes
    256 MB more. Two and a half fit."""
    share = (2.5 * 158e6 + 256e6) / psutil.virtual_memory().available
    result = run(toys, f"--llm-memory-share={share}")
    result.assert_outcomes(passed=6)
    assert (
        "llm-bench: 3 variants in groups of 2 + 2, each with toy (the most at a time: about 0.6 GB of "
        in result.stdout.str()
    )
    for record in toys.records():
        assert len(record["reference_s"]) == ROUNDS
    first = ["test_size[toy-4]", "test_size[half-4]", "test_size[third-4]"]  # what the answer goes by, of both groups
    assert measured(toys) == [*first, "test_size[third-8]", "test_size[toy-8]", "test_size[half-8]"]


def test_a_plugin_that_orders_tests_has_its_way(toys: Bench) -> None:
    hook = "\n\ndef pytest_collection_modifyitems(items):\n    items.reverse()\n"
    toys.write(**{**FILES, "conftest": FILES["conftest"] + hook})
    result = run(toys, variants="toy,half")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["llm-bench: another plugin, or --failed-first, orders the tests,*"])
    assert measured(toys) == ["test_size[toy-8]", "test_size[half-8]", "test_size[toy-4]", "test_size[half-4]"]


def test_tests_of_some_variants_among_tests_of_all_are_no_order_of_a_plugins(toys: Bench) -> None:
    """Bug: pytest 9.2 groups tests by a parameter's value, and half is the second of all and the first of some."""
    own = "import pytest\n{}\ndef test_mine(llm_benchmark): llm_benchmark('a')\n"
    some = "@pytest.mark.llm_variants('half', 'third')"
    toys.write(test_a=own.format(""), test_b=own.format(some), test_c=own.format(""))
    result = run(toys, "-k", "mine")
    result.assert_outcomes(passed=8, deselected=6)
    assert "orders the tests" not in result.stdout.str()


def test_the_most_telling_tests_come_first_whatever_file_they_are_in(toys: Bench) -> None:
    own = "import pytest\n@pytest.mark.llm_scenario('{}')\ndef test_mine{}(llm_benchmark, llm_prompts{}):\n    {}\n"
    toys.write(
        test_a=own.format("cache", "", "", "llm_benchmark('a b c')"),
        test_b=own.format("batch", "", ", llm_batch_size", "llm_benchmark(['a', 'b'], batch_size=llm_batch_size)"),
        test_c=own.format("prompt_length", "", "", "llm_benchmark('a')"),
    )
    result = run(toys, "--llm-batch-sizes=1,2", "-k", "mine", variants="toy")
    result.assert_outcomes(passed=4, deselected=2)
    assert "orders the tests" not in result.stdout.str()
    files = [record["test"].partition("::")[0] for record in toys.records()]
    assert files == ["test_c.py", "test_b.py", "test_a.py", "test_b.py"]


PAGE = """
from pathlib import Path

def test_page(llm_model):
    page = Path("llm-bench-report/report.html").read_text(encoding="utf-8")
    assert "Unfinished: this is the report so far, after 1 of 2 cases" in page
"""


def test_the_answer_so_far_is_shown_and_reported_while_the_run_goes_on(toys: Bench) -> None:
    toys.write(test_a=PAGE)
    result = run(toys, "-k", "page or size", variants="toy,half")
    told = [line for line in result.stdout.lines if "so far" in line]
    assert len(told) in (1, 2)  # a second time where quality changes what it says
    assert re.match("llm-bench: so far, after 1 of 2 cases: (use|keep|undecided|probably) ", told[0])
    result.stdout.re_match_lines(
        [r"llm-bench: about \d+ s: loading \d+ s, quality \d+ s, rounds \d+ s", "test_own.py .*"]
    )
    assert result.stdout.lines.index(told[0]) < len(result.stdout.lines) / 2
    page = (toys.pytester.path / "llm-bench-report" / "report.html").read_text(encoding="utf-8")
    assert "Unfinished" not in page


COUNTED = """
def pytest_llm_bench_metrics():
    from llm_bench_fixtures import Direction, Kind, Metric, Unit
    count = lambda record, variant: float(len(record.rounds_s))
    kind = Unit.NONE, Direction.NEITHER, Kind.EXACT
    return [Metric("counted", "Rounds", "rounds", *kind, "their number", value=count)]
"""


LONGER = ("--llm-time=60s", "--llm-max-noise=3%", "--llm-rounds=2", "--benchmark-json=all.json")


@pytest.fixture
def large(toys: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Toys that are taken for large, and have three times as many rounds as the first ones."""
    monkeypatch.setattr(measuring, "LARGE_WEIGHTS", 0.0)
    monkeypatch.setattr(budget, "MOST_TIMES", 3.0)
    monkeypatch.setattr(measuring, "MOST_TIMES", 3.0)
    toys.write(**FILES | {"conftest": FILES["conftest"] + COUNTED}, test_own=SIZES)
    return toys


def test_a_longer_time_than_a_large_model_needs_goes_into_further_rounds(large: Bench) -> None:
    """They are in the records, in pytest-benchmark's file and in what a project's own metric computes."""
    result = run(large, *LONGER, variants="toy,half")
    result.assert_outcomes(passed=4)
    result.stdout.re_match_lines([r"llm-bench: about \d+ s: .*rounds \d+ s, further rounds \d+ s"])
    saved = json.loads((large.pytester.path / "all.json").read_text(encoding="utf-8"))["benchmarks"]
    times = {one["fullname"]: one["stats"]["data"] for one in saved}
    for record in large.records():
        assert len(record["rounds_s"]) == len(record["reference_s"]) >= 4
        assert times[record["test"]] == record["rounds_s"]
        assert record["extra"]["counted"] == len(record["rounds_s"])
        assert len(record["tokens_s"]) == len(record["rounds_s"])


def test_where_further_rounds_are_interrupted_those_before_are_reported(
    large: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the second block: that of the first is in its case's records, which had two rounds."""
    begun: list[str] = []
    go_on = Blocks.go_on

    def cut(blocks: Blocks, step: Step) -> dict[str, Measured]:
        begun.append(blocks.rounds.reference)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return go_on(blocks, step)

    monkeypatch.setattr(Blocks, "go_on", cut)
    result = run(large, *LONGER, variants="toy,half", no_reraise_ctrlc=True)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(passed=4)
    assert large.results()["interrupted"] is True
    rounds = [len(record["rounds_s"]) for record in large.records()]
    assert len(rounds) == 4
    assert min(rounds) == 2
    assert max(rounds) > 2
    assert rounds.count(2) == 2
    assert "was interrupted" in large.page()


def test_one_at_a_time_each_is_still_in_a_process_of_its_own(toys: Bench) -> None:
    result = run(toys, "--llm-memory-share=0")
    result.assert_outcomes(passed=6)
    assert {tuple(record["reference_s"]) for record in toys.records()} == {()}
    assert toys.results()["provenance"]["isolated"] is True
    assert all(variant["first_generate_s"] for variant in toys.variants().values())


@pytest.mark.parametrize("option", ["--llm-in-process", "--benchmark-disable"])
def test_without_turns_there_are_no_other_processes_and_no_speed_up(option: str, toys: Bench) -> None:
    toys.write(test_here="def test_here(llm_model):\n    assert llm_model.model.eights >= 0\n")
    result = run(toys, option)
    result.assert_outcomes(passed=9)
    assert "loaded together" not in result.stdout.str()
    assert {tuple(record["reference_s"]) for record in toys.records()} == {()}
    assert toys.results()["provenance"]["isolated"] is False


def test_benchmarks_only(toys: Bench) -> None:
    toys.write(test_plain="def test_plain(): pass")
    run(toys, "--benchmark-only").assert_outcomes(passed=6, skipped=1)
    assert len(measured(toys)) == 6


def test_a_score_that_fails_for_the_reference_costs_its_quality_and_fails_the_run(toys: Bench) -> None:
    """The error came up in the tests of all variants that were to take turns with the reference."""
    hook = (
        "\nimport pytest\n"
        "@pytest.hookimpl(wrapper=True)\n"
        "def pytest_llm_bench_score(model):\n"
        "    assert model.variant.id != 'toy', 'no score'\n"
        "    return (yield)\n"
    )
    toys.write(**{**FILES, "conftest": FILES["conftest"] + hook})
    result = run(toys, variants="toy,half")
    result.assert_outcomes(passed=4)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert [record["status"] for record in toys.records()] == ["measured"] * 4
    assert toys.variants()["toy"]["quality_note"].startswith("AssertionError: no score")
    assert "perplexity" in toys.variants()["half"]["quality"]
