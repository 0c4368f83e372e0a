"""Runs that have less time than their tests need: what is reported, and that nothing of it is an error."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from toy_engine import FILES

from llm_bench_fixtures.progress import Phase
from llm_bench_fixtures.session import deadline
from llm_bench_fixtures.session.blocks import Blocks
from llm_bench_fixtures.session.case import CaseFigures
from llm_bench_fixtures.session.session import BenchSession

if TYPE_CHECKING:
    from pytester_bench import Bench

SUITE = """
import pytest

@pytest.mark.parametrize("words", [1, 2, 3])
def test_mine(llm_benchmark, words):
    llm_benchmark("Hello " * words)

def test_equivalence(llm_equivalence, llm_prompts):
    llm_equivalence([llm_prompts.plain(4), llm_prompts.plain(6)], "left padding")
"""


def statuses(bench: Bench) -> list[str]:
    return [record["status"] for record in bench.records()]


def over_before(monkeypatch: pytest.MonkeyPatch, phase: Phase, number: int) -> None:
    """Let the run's time be over when the activity of that number of a phase begins."""
    seen: list[Phase] = []

    def admit(began: Phase) -> None:
        seen.extend([began] if began is phase else [])

    make = BenchSession.__init__

    def init(self: BenchSession, *args: object, **named: object) -> None:
        make(self, *args, **named)  # type: ignore[arg-type]
        self.progress.admit = admit

    monkeypatch.setattr(BenchSession, "__init__", init)
    over_with(monkeypatch, seen, number)


def over_with(monkeypatch: pytest.MonkeyPatch, seen: Sequence[object], number: int) -> None:
    """Let the run's time be over once so many things are seen."""
    left_s = deadline.Deadline.left_s
    spent = property(lambda self: 0.0 if len(seen) >= number else left_s.__get__(self))
    monkeypatch.setattr(deadline.Deadline, "left_s", spent)


def test_a_time_too_short_for_any_variant_says_what_would_fit(own_suite: Bench) -> None:
    result = own_suite.run("--llm-time=1s", "-rs")
    assert result.ret == 0
    result.assert_outcomes(skipped=1)
    result.stdout.re_match_lines(
        [
            r"Not reached in 1 s: 0 of 1 benchmark measured \(loading fp32 takes about [1-9]\d* s;",
            r"SKIPPED \[1\] test_own\.py:1: .*loading fp32 takes about [1-9]\d* s; --llm-time \d+[sm] has room for it",
        ]
    )
    assert statuses(own_suite) == ["not reached"]
    assert own_suite.variants()["fp32"]["status"] == "not reached"
    assert own_suite.results()["time_limit_s"] == 1
    assert "Not reached in 1 s: 0 of 1 benchmark measured" in own_suite.page()
    assert "Not reached in 1 s: 0 of 1 benchmark measured" in own_suite.markdown()


def test_what_is_measured_in_time_stays_and_the_rest_is_not_reached(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is over when the second test's operations are counted, after it was measured."""
    bench.write(test_own=SUITE)
    over_before(monkeypatch, Phase.COUNTING, 2)
    result = bench.run("--llm-time=20m")
    assert result.ret == 0
    result.assert_outcomes(passed=2, skipped=2)
    assert statuses(bench) == ["measured"] * 2 + ["not reached"] * 2
    result.stdout.fnmatch_lines(["Not reached in 20 min: 2 of 4 benchmarks measured. A longer --llm-time reaches*"])


def test_a_later_variant_that_is_not_loaded_in_time_is_a_row(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.write(test_own=SUITE)
    over_before(monkeypatch, Phase.COUNTING, 3)
    result = bench.run("--llm-time=20m", "--llm-variants=fp32,bf16")
    assert result.ret == 0
    assert bench.variants()["fp32"]["status"] == "measured"
    assert (bench.variants()["bf16"]["status"], bench.variants()["bf16"]["reason"]) == (
        "not reached",
        "20 min were over",
    )
    assert statuses(bench).count("not reached") == 5


def test_setting_the_systems_clock_takes_no_time_away(own_suite: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time that pytest's process asks it, it has been set another day ahead."""
    days, real_time = itertools.count(1), time.time
    monkeypatch.setattr(time, "time", lambda: real_time() + next(days) * 86_400)
    result = own_suite.run("--llm-time=60s")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*reached*")
    assert own_suite.results()["session_s"] < 60


def test_without_a_limit_nothing_is_said_of_time(own_suite: Bench) -> None:
    result = own_suite.run("--llm-time=none")
    result.assert_outcomes(passed=1)
    assert own_suite.results()["time_limit_s"] is None
    result.stdout.no_fnmatch_line("*reached*")


SLEEPING = """
import time
from llm_bench_fixtures import Backend

def load(request):
    def build(folder):
        (folder / "half").write_text("of it")
        begin()
        with request.progress.activity(Phase.EXPORTING, "making it"):
            time.sleep(60)

    if request.variant.id == "made":
        from llm_bench_fixtures.progress import Phase
        request.store.get("made", {}, build)
    begin()
    time.sleep(60)

def begin():
    open(__file__ + ".begun", "w").close()

BACKEND = Backend(load)
"""
SLEEPERS = """
from llm_bench_fixtures import Variant

def pytest_llm_bench_variants():
    return [
        Variant("slow", "sleeping", "sleeps for a minute when it is loaded"),
        Variant("made", "sleeping", "sleeps for a minute while it is made"),
    ]
"""


@pytest.mark.slow("a process that imports torch")
@pytest.mark.parametrize("variant", ["slow", "made"])
def test_a_load_or_an_export_under_way_is_stopped(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variant: str
) -> None:
    """Its process would sleep for a minute. Nothing of what it was making stays in the cache."""
    bench.write(conftest=SLEEPERS, sleeping=SLEEPING, test_own=SUITE)
    monkeypatch.syspath_prepend(str(bench.pytester.path))
    monkeypatch.setattr(deadline, "RESERVE_S", 0.0)
    began_s = time.monotonic()
    options = ("--llm-time=10s", f"--llm-variants={variant}", f"--llm-cache-dir={tmp_path}", "-k", "mine")
    result = bench.run_in_turns(*options)
    assert result.ret == 0
    assert time.monotonic() - began_s < 60
    assert (bench.pytester.path / "sleeping.py.begun").exists()
    assert statuses(bench) == ["not reached"] * 3
    assert bench.variants()[variant]["status"] == "not reached"
    assert re.match(rf"loading {variant} was stopped after \d+ s", bench.variants()[variant]["reason"])
    assert not [path for path in tmp_path.glob("made/*") if path.is_dir()]


CASES = ("test_length[4-", "test_throughput", "test_length[8-", "test_other")  # in the order of the plan


def run_of_all_stages(bench: Bench, monkeypatch: pytest.MonkeyPatch, reached: int) -> None:
    """A run whose time ends early. reached: how many of the cases it measures, on two variants."""
    bench.write(
        **FILES,
        test_prompt_length="def test_length(llm_benchmark, llm_prompts, llm_prompt_length):\n"
        "    llm_benchmark(llm_prompts.exact(llm_prompt_length))\n",
        test_batch="def test_throughput(llm_benchmark, llm_batch_size):\n    llm_benchmark(['Hello'] * 2)\n",
        test_cache="def test_other(llm_benchmark):\n    llm_benchmark('Hello there')\n",
    )
    monkeypatch.syspath_prepend(str(bench.pytester.path))
    toys = ("--llm-variants=toy,half", "--llm-reference=toy", "--llm-batch-sizes=2", "--llm-prompt-lengths=4,8")
    result = bench.run_in_turns("--llm-time=20m", *toys)
    assert result.ret == 0
    of = [{one["status"] for one in bench.records() if name in one["test"]} for name in CASES]
    assert of == [{"measured"}] * reached + [{"not reached"}] * (len(CASES) - reached)
    told = f"Not reached in 20 min: {2 * reached} of 8 benchmarks measured"
    result.stdout.fnmatch_lines([f"{told}*"])
    assert told in bench.page()
    assert told in bench.markdown()


@pytest.mark.slow("processes that hold models")
@pytest.mark.parametrize(
    ("stages", "reached", "is_scored"),
    [(1, 1, False), (2, 2, False), (3, 2, True), (4, 3, True)],
    ids=["latency", "throughput", "quality", "lengths"],
)
def test_a_run_that_is_cut_after_a_stage_has_what_was_measured_in_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, stages: int, reached: int, is_scored: bool
) -> None:
    ended: list[None] = []
    end = BenchSession.end_stage
    monkeypatch.setattr(BenchSession, "end_stage", lambda self: (end(self), ended.append(None)))
    over_with(monkeypatch, ended, stages)
    run_of_all_stages(bench, monkeypatch, reached)
    assert ["perplexity" in one["quality"] for one in bench.variants().values()] == [is_scored] * 2


@pytest.mark.slow("processes that hold models")
def test_a_run_that_is_cut_within_its_first_case_says_so(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[object] = []
    measure = Blocks.measure

    def counting(blocks: Blocks) -> CaseFigures:
        step = blocks.step
        blocks.step = lambda *told: (steps.append(told), step(*told))  # type: ignore[func-returns-value]
        return measure(blocks)

    monkeypatch.setattr(Blocks, "measure", counting)
    over_with(monkeypatch, steps, 2)
    run_of_all_stages(bench, monkeypatch, 0)
    assert len(steps) == 2
    assert {one["status"] for one in bench.variants().values()} == {"measured"}  # they are loaded
