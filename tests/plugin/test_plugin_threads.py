"""A sweep over numbers of threads, as its users run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Bench

SUITE = """
import pytest


@pytest.mark.llm_scenario("threads")
def test_threads(llm_benchmark, llm_threads):
    assert llm_benchmark("Hello").variant.endswith("-3t") == (llm_threads == 3)


def test_other(llm_benchmark):
    llm_benchmark("Hello, you")
"""


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default, of as many cores as there may be."""
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    monkeypatch.setattr("llm_bench_fixtures.models.variants.usable_cores", lambda: 4)
    monkeypatch.setattr("llm_bench_fixtures.processes.affinity.usable_cores", lambda: 4)


def test_without_numbers_the_sweep_is_not_there(bench: Bench) -> None:
    bench.write(test_own=SUITE)
    result = bench.run("--collect-only", "-q")
    result.stdout.fnmatch_lines(["*test_own.py::test_other[[]fp32[]]"])
    result.stdout.no_fnmatch_line("*test_threads*")
    named = bench.run("test_own.py::test_threads")
    named.stdout.fnmatch_lines(["llm-bench: a sweep over threads needs their numbers: --llm-threads 1,2 or auto"])


@pytest.mark.usefixtures("two_threads")
def test_each_variant_runs_by_default_and_in_the_other_numbers(bench: Bench) -> None:
    bench.write(test_own=SUITE)
    result = bench.run("--collect-only", "-q", "--llm-threads", "1,2,4", "--llm-variants", "fp32,bf16")
    names = ("fp32", "bf16", "fp32-1t", "fp32-4t", "bf16-1t", "bf16-4t")
    assert [line.partition("[")[2] for line in result.outlines if "test_threads" in line] == [
        f"{name}]" for name in names
    ]


@pytest.mark.usefixtures("two_threads")
def test_the_default_alone_is_no_sweep_and_is_said(bench: Bench) -> None:
    bench.write(test_own=SUITE)
    result = bench.run("--collect-only", "-q", "--llm-threads", "2", "--llm-variants", "fp32")
    result.stdout.fnmatch_lines(["*--llm-threads names no number but the default, 2"])


@pytest.mark.usefixtures("two_threads")
def test_more_threads_than_cores_are_refused(bench: Bench) -> None:
    bench.write(test_own=SUITE)
    result = bench.run("--llm-threads", "1,8")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --llm-threads: expected at most 4, one for each core to be used, or auto, got 8"]
    )
    result = bench.run("--llm-variants", "fp32,fp32-8t")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: fp32-8t: expected at least 1 thread and at most 4, one for each core to be used"]
    )


@pytest.mark.usefixtures("two_threads")
def test_in_one_process_other_numbers_are_skipped_with_the_reason(bench: Bench) -> None:
    bench.write(test_own=SUITE)
    result = bench.run("--llm-threads", "1", "-k", "threads", "-rs")
    result.assert_outcomes(passed=1, skipped=1, deselected=1)
    result.stdout.fnmatch_lines(["*its threads are set for a process of its own, and here all variants share one"])


@pytest.mark.parametrize(("policy", "status"), [("passive", "measured"), ("active", "skipped")])
def test_in_one_process_a_passive_variant_runs_where_all_threads_wait_so(
    policy: str, status: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a pair's workers."""
    monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    bench.write(test_own=SUITE)
    bench.run("--llm-variants", "fp32,fp32-passive")
    assert bench.variants()["fp32-passive"]["status"] == status


@pytest.mark.slow("starts processes that hold models")
def test_the_report_compares_a_variant_with_itself_by_default(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each number in a process of its own; the rest of the report knows of none but the default."""
    bench.write(test_own=SUITE)
    monkeypatch.setattr("llm_bench_fixtures.models.variants.usable_cores", lambda: 4)
    monkeypatch.setattr("llm_bench_fixtures.processes.affinity.usable_cores", lambda: 4)
    result = bench.run_in_turns("--llm-threads", "3", "--llm-rounds", "3")
    result.assert_outcomes(passed=3)
    variants = bench.variants()
    assert (variants["fp32-3t"]["threads"], variants["fp32-3t"]["threads_of"]) == (3, "fp32")
    assert variants["fp32-3t"]["label"] == "float32, in 3 threads"
    assert variants["fp32-3t"]["quality"] == variants["fp32"]["quality"] != {}
    sweep = {one["variant"]: one for one in bench.records() if one["scenario"] == "threads"}
    assert sweep["fp32-3t"]["reference_s"] == sweep["fp32"]["rounds_s"]
    assert "fp32-3t" not in bench.page()
    assert "over the default" in bench.page()
