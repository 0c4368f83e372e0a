"""pytest-benchmark's own options go on working."""

from __future__ import annotations

import json
import shutil
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Bench

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def test_disabled_benchmarks_run_once_and_are_not_measured(bench: Bench) -> None:
    bench.write(
        test_own="""
        def test_mine(llm_benchmark, llm_model, monkeypatch):
            calls = []
            generate = llm_model.model.generate
            counted = lambda *args, **how: calls.append(args) or generate(*args, **how)
            monkeypatch.setattr(llm_model.model, "generate", counted)
            record = llm_benchmark("Hello")
            assert len(calls) == 1
            assert record.rounds_s == ()
            assert len(record.outputs) == 1
        """
    )
    result = bench.run("--benchmark-disable", "--llm-variants", "fp32,bf16")
    assert result.ret == 0
    result.assert_outcomes(passed=2)
    assert [record["status"] for record in bench.records()] == ["not measured"] * 2
    assert "latency_s" not in bench.records()[0]["metrics"]
    assert [record["reason"] for record in bench.records()] == ["--benchmark-disable"] * 2
    assert "not measured: --benchmark-disable" in bench.page()
    assert "Nothing was timed." in bench.markdown()


def test_only_benchmarks(bench: Bench) -> None:
    bench.write(
        test_own="""
        def test_plain():
            pass

        def test_mine(llm_benchmark):
            llm_benchmark("Hello")
        """
    )
    result = bench.run("--benchmark-only")
    assert result.ret == 0
    result.assert_outcomes(passed=1, skipped=1)
    assert [record["case"] for record in bench.records()] == ["mine"]


@pytest.mark.slow("starts processes that hold models")
def test_json_carries_the_records_with_their_metrics_and_the_rest_of_the_run(own_suite: Bench) -> None:
    """github-action-benchmark's reader takes `fullname`, and of `stats` what is named here; `ops` is what it draws. The
    histogram has every variant."""
    options = ("--benchmark-json=out.json", "--benchmark-histogram=times", "--llm-variants=fp32,bf16")
    assert own_suite.run_in_turns(*options).ret == 0
    written = json.loads((own_suite.pytester.path / "out.json").read_text(encoding="utf-8"))
    records = {record["test"]: record for record in own_suite.records()}
    assert [benchmark["fullname"] for benchmark in written["benchmarks"]] == list(records)
    assert [benchmark["group"] for benchmark in written["benchmarks"]] == ["own", "own"]
    for benchmark in written["benchmarks"]:
        extra, stats = benchmark["extra_info"]["llm_bench"], benchmark["stats"]
        own = extra["rounds_s"]
        assert extra == records[benchmark["fullname"]]
        assert benchmark["params"] == dict.fromkeys(("llm_model", "llm_prompts"), extra["variant"])
        assert extra["metrics"]["output_tokens_per_s"] == pytest.approx(2 / statistics.median(own))
        assert stats["data"] == own
        assert (stats["rounds"], stats["ops"]) == (len(own), pytest.approx(1 / statistics.fmean(own)))
        assert (stats["mean"], stats["stddev"]) == pytest.approx((statistics.fmean(own), statistics.stdev(own)))
    assert written["llm_bench"] == {**own_suite.results(), "records": []}
    (drawn,) = own_suite.pytester.path.glob("times*.svg")
    assert all(f"test_mine[{variant}]" in drawn.read_text(encoding="utf-8") for variant in ("fp32", "bf16"))


def test_storage_holds_what_never_became_a_benchmark_too_and_raw_data_only_when_asked(bench: Bench) -> None:
    bench.write(
        test_own="""
        def test_mine(llm_benchmark):
            llm_benchmark("Hello")

        def test_too_long(llm_benchmark, llm_prompts):
            llm_benchmark(llm_prompts.exact(5000))
        """
    )
    assert bench.run("--benchmark-save=lean").ret == 0
    assert bench.run("--benchmark-save=raw", "--benchmark-save-data").ret == 0
    lean, raw = (read_saved(bench, name) for name in ("0001_lean", "0002_raw"))
    for saved in (lean, raw):
        (skipped,) = saved["llm_bench"]["records"]
        assert (skipped["test"], skipped["status"]) == ("test_own.py::test_too_long[fp32]", "skipped")
        (benchmark,) = saved["benchmarks"]
        assert benchmark["extra_info"]["llm_bench"]["metrics"]["latency_s"] > 0
    assert "tokens_s" not in lean["benchmarks"][0]["extra_info"]["llm_bench"]
    assert raw["benchmarks"][0]["extra_info"]["llm_bench"]["tokens_s"]


def read_saved(bench: Bench, name: str) -> dict[str, Any]:
    (path,) = (bench.pytester.path / ".benchmarks").glob(f"*/{name}.json")
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data


def test_a_saved_run_can_be_compared_with(own_suite: Bench) -> None:
    """In processes of their own: in one, the memory of the first run is in the way of the second."""
    first = own_suite.run_forked("--benchmark-autosave")
    assert first.ret == 0
    first.stderr.fnmatch_lines(["Saved benchmark data in: *"])
    second = own_suite.run_forked("--benchmark-compare")
    assert second.ret == 0
    second.stdout.fnmatch_lines_random(["*test_mine[[]fp32[]] (0001_*", "*test_mine[[]fp32[]] (NOW)*"])
    second.stdout.fnmatch_lines(["Nothing *changed*, compared with*"])  # but times, maybe, which fail no gate
    report = own_suite.pytester.path / "llm-bench-report"
    assert "compared with 0001_" in (report / "report.md").read_text(encoding="utf-8")
    assert 'id="changes"' in (report / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(("how", "groups"), [("group", ["'own'"]), ("param:word", ["'word='a''", "'word='b''"])])
def test_grouping(bench: Bench, how: str, groups: list[str]) -> None:
    bench.write(
        test_own="""
        import pytest

        @pytest.mark.parametrize("word", ["a", "b"])
        def test_mine(llm_benchmark, word):
            llm_benchmark(word)
        """
    )
    result = bench.run("--benchmark-group-by", how)
    assert result.ret == 0
    headings = [line for line in result.stdout.lines if " benchmark " in line and line.startswith("---")]
    assert len(headings) == len(groups)


@pytest.mark.slow("three runs, one of a model that is made slow")
def test_a_slowdown_fails_the_comparison_that_was_asked_for(bench: Bench) -> None:
    """A real one, of the generate itself."""
    test = """
        import time

        def test_mine(llm_benchmark, llm_model, monkeypatch):
            generate = llm_model.model.generate
            slow = lambda *args, **how: time.sleep({seconds}) or generate(*args, **how)
            monkeypatch.setattr(llm_model.model, "generate", slow)
            llm_benchmark("Hello")
        """
    bench.write(test_own=test.format(seconds=0))
    assert bench.run("--benchmark-save=before").ret == 0
    bench.write(test_own=test.format(seconds=1))
    result = bench.run("--benchmark-compare", "--benchmark-compare-fail=min:100%")
    assert result.ret  # pytest-benchmark raises at the very end, which ends a process with 1
    result.stdout.fnmatch_lines(["Report: llm-bench-report*"])
    result.stderr.fnmatch_lines(["*Performance has regressed*"])


def test_profiled_rounds_are_not_among_the_timed_ones(own_suite: Bench) -> None:
    result = own_suite.run("--benchmark-cprofile=tottime", "--llm-rounds=2", "--llm-max-noise=0")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*ncalls*tottime*"])
    assert [len(record["rounds_s"]) for record in own_suite.records()] == [2]


def test_a_comparison_within_what_is_allowed_passes(own_suite: Bench) -> None:
    assert own_suite.run("--benchmark-save=before").ret == 0
    assert own_suite.run("--benchmark-compare=0001", "--benchmark-compare-fail=mean:1000000%").ret == 0


def test_a_tests_own_group_is_kept(bench: Bench) -> None:
    bench.write(
        test_own="""
        import pytest

        @pytest.mark.benchmark(group="my group")
        def test_mine(llm_benchmark):
            llm_benchmark("Hello")
        """
    )
    bench.run().stdout.fnmatch_lines(["*- benchmark 'my group': 1 tests -*"])


def test_the_suites_own_benchmarks(bench: Bench) -> None:
    shutil.copytree(BENCHMARKS, bench.pytester.path / "benchmarks")
    result = bench.run("benchmarks", "--benchmark-disable", "-q", "--import-mode=importlib")
    assert result.ret == 0
    assert result.parseoutcomes() == {"passed": 28, "skipped": 3, "deselected": 1}  # nothing is quantized
    assert {record["scenario"] for record in bench.records()} == {
        "precision",
        "cache",
        "padding",
        "batch",
        "prompt_length",
        "edge_prompts",
    }
