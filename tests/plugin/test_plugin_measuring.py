"""Options of how it is measured: in a process of its own, how exactly, beside which limits."""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING

import pytest

from llm_bench_fixtures.session import budget

if TYPE_CHECKING:
    from conftest import Bench

KILLED = """
import os, signal

def test_mine(llm_benchmark, llm_model):
    if llm_model.variant.id == "fp32":
        llm_model.call(os_kill)
    llm_benchmark("Hello")

def os_kill(model):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow("a process that imports torch")
def test_in_a_process_of_its_own_a_variant_has_a_truly_first_generate(own_suite: Bench) -> None:
    assert own_suite.run_in_turns().ret == 0
    assert own_suite.results()["provenance"]["isolated"] is True
    variant, (record,) = own_suite.variants()["fp32"], own_suite.records()
    assert variant["first_generate_s"] > 0
    assert variant["resident_before_load_bytes"] == record["metrics"]["libraries_bytes"] > 0
    assert variant["quality"]["perplexity"] > 1
    assert record["metrics"]["own_memory_bytes"] > 0
    assert record["metrics"]["ttft_s"] < record["metrics"]["latency_s"]
    assert "each variant in a process of its own" in own_suite.markdown()


@pytest.mark.slow("two variants, each in a process that imports torch")
def test_a_killed_process_is_an_error_row_and_the_next_variant_runs(bench: Bench) -> None:
    bench.write(test_own=KILLED)
    result = bench.run_in_turns("--llm-variants", "fp32,bf16", "--import-mode=prepend")
    result.assert_outcomes(passed=1, failed=1)
    killed, other = bench.records()
    assert killed["status"] == "error"
    assert killed["reason"].endswith(
        "fp32: the process that it ran in was killed by SIGKILL, perhaps for lack of memory"
    )
    assert other["status"] == "measured"


def test_rounds_are_added_until_the_interval_is_narrow_enough(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of six the interval is narrower than 100 times the latency; fewer are not believed, unless they took 0.6 s."""
    monkeypatch.setattr(budget, "BENCHMARK_S", 60.0)
    bench.write(
        test_own="""
        def test_mine(llm_benchmark):
            rounds_s = llm_benchmark("Hello").rounds_s
            assert len(rounds_s) == 6 or sum(rounds_s) > 0.6
        """
    )
    assert bench.run("--llm-max-noise=10000%").ret == 0


def test_no_round_is_added_once_the_time_is_spent(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "BENCHMARK_S", 1e-9)
    bench.write(
        test_own="""
        def test_mine(llm_benchmark):
            assert len(llm_benchmark("Hello").rounds_s) == 2
        """
    )
    assert bench.run("--llm-max-noise=0.0001%").ret == 0


def test_the_machines_limits_reach_every_record_and_the_report(own_suite: Bench) -> None:
    assert own_suite.run("--llm-limits-time=0.05", "--llm-new-tokens=4").ret == 0
    (record,) = own_suite.records()
    assert {"mbu", "mfu", "roofline_ttft_s", "roofline_tpot_s"} <= record["metrics"].keys()
    provenance = own_suite.results()["provenance"]
    assert provenance["read_bytes_per_s"] > 1e8
    assert provenance["matmul_flops_per_s"]["float32"] > 1e8
    assert "- Limits, measured: memory " in own_suite.markdown()
    assert "Prefill and decode" in own_suite.page()
    assert "Decode of fp32 r" in own_suite.markdown()


def test_nothing_is_probed_where_nothing_is_timed(own_suite: Bench) -> None:
    assert own_suite.run("--llm-limits-time=0.05", "--benchmark-disable").ret == 0
    assert own_suite.results()["provenance"]["read_bytes_per_s"] is None


def test_a_probe_is_run_before_each_timed_round(own_suite: Bench) -> None:
    assert own_suite.run("--llm-probe", "--llm-rounds=4", "--llm-warmup-rounds=3").ret == 0
    (record,) = own_suite.records()
    assert len(record["probe_s"]) == len(record["rounds_s"]) == 4
    assert all(product_s > 0 and read_s > 0 for product_s, read_s in record["probe_s"])
    products_s, reads_s = zip(*record["probe_s"], strict=True)
    assert record["metrics"]["probe_matmul_s"] == pytest.approx(statistics.median(products_s))
    assert record["metrics"]["probe_read_s"] == pytest.approx(statistics.median(reads_s))


def test_no_probe_is_run_unless_asked_for(bench: Bench) -> None:
    bench.write(
        test_own="""
        from llm_bench_fixtures.measure import limits

        def has_probe(model):
            return limits._PROBES.get(model) is not None

        def test_mine(llm_benchmark, llm_model):
            assert llm_benchmark("Hello").probe_s == ()
            assert not llm_model.call(has_probe)
        """
    )
    assert bench.run().ret == 0
    assert bench.run("--llm-probe", "--benchmark-disable").ret == 0


def test_rounds_that_are_added_have_their_probe_and_profiled_ones_leave_none(
    own_suite: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rounds are too few, so that four are added unless they took long; profiled ones run twice and have none."""
    monkeypatch.setattr(budget, "BENCHMARK_S", 60.0)
    options = (
        "--llm-max-noise=10000%",
        "--benchmark-cprofile=tottime",
        "--benchmark-cprofile-loops=2",
    )
    assert own_suite.run("--llm-probe", *options).ret == 0
    (record,) = own_suite.records()
    assert len(record["probe_s"]) == len(record["rounds_s"])
    assert len(record["rounds_s"]) == 6 or sum(record["rounds_s"]) > 0.6


@pytest.mark.slow("a process that imports torch")
def test_in_a_process_of_its_own_the_probe_is_run_there_and_takes_no_memory_of_the_workloads(bench: Bench) -> None:
    """It holds 64 MiB once a first benchmark was timed, which a second of the same workload doesn't show."""
    bench.write(
        test_own="""
        import pytest
        from llm_bench_fixtures.measure import limits

        def has_probe(model):
            return limits._PROBES.get(model) is not None

        @pytest.mark.parametrize("time", ["first", "second"])
        def test_mine(llm_benchmark, llm_model, time):
            assert llm_model.call(has_probe) == (time == "second")
            record = llm_benchmark("Hello")
            assert len(record.probe_s) == len(record.rounds_s) == 2
            assert llm_model.call(has_probe)
        """
    )
    assert bench.run_in_turns("--llm-probe", "--import-mode=prepend").ret == 0
    first_bytes, second_bytes = (record["memory"]["peak_resident_bytes"] for record in bench.records())
    assert second_bytes < first_bytes + (32 << 20)


def test_no_latency_holds_the_probes_time(bench: Bench) -> None:
    """Half a second each, where a round of two tokens takes some milliseconds."""
    bench.write(
        test_own="""
        import time

        def slow():
            time.sleep(0.5)
            return 0.25, 0.25

        def test_mine(llm_benchmark, monkeypatch):
            monkeypatch.setattr("llm_bench_fixtures.measure.limits.make_probe", lambda device: slow)
            llm_benchmark("Hello")
        """
    )
    assert bench.run("--llm-probe", "--llm-rounds=3", "--benchmark-json=out.json").ret == 0
    (record,) = bench.records()
    assert record["probe_s"] == [[0.25, 0.25]] * 3
    assert record["metrics"]["latency_s"] < 0.5
    assert max(record["rounds_s"]) < 0.5
    (benchmark,) = json.loads((bench.pytester.path / "out.json").read_text(encoding="utf-8"))["benchmarks"]
    assert len(benchmark["stats"]["data"]) == 3
    assert max(benchmark["stats"]["data"]) < 0.5


def test_what_taking_the_times_costs_is_told(bench: Bench) -> None:
    bench.write(
        test_own="""
        def test_overhead(llm_overhead, llm_prompts):
            assert len(llm_overhead(llm_prompts.exact(8), pairs=4)) == 4
        """
    )
    result = bench.run("--llm-overhead")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["Recording token times changed fp32's latency by *"])
    assert list(map(len, bench.results()["instrumentation_ratios"].values())) == [4]


def test_one_pair_is_too_few_to_tell_what_the_times_cost(bench: Bench) -> None:
    bench.write(
        test_own="""
        def test_overhead(llm_overhead, llm_prompts):
            llm_overhead(llm_prompts.exact(8), pairs=1)
        """
    )
    result = bench.run("--llm-overhead")
    result.stdout.fnmatch_lines(["What taking each token's time costs fp32 is not known from 1 pair."])


def test_what_it_costs_is_not_measured_where_nothing_is_timed(bench: Bench) -> None:
    bench.write(test_own="def test_overhead(llm_overhead): raise AssertionError")
    bench.run("--llm-overhead", "--benchmark-disable").assert_outcomes(skipped=1)


def test_the_tool_itself_is_measured_only_when_asked_for(bench: Bench) -> None:
    bench.write(test_own="def test_overhead(llm_overhead): raise AssertionError\ndef test_else(): pass")
    result = bench.run()
    result.assert_outcomes(passed=1, deselected=1)
    assert result.ret == 0
    assert "llm-bench: 1 test measures the tool itself: --llm-overhead runs it" in result.stdout.str().splitlines()


def test_a_run_of_nothing_else_says_how_to_measure_the_tool(bench: Bench) -> None:
    bench.write(test_own="def test_one(llm_overhead): assert False\ndef test_two(llm_overhead): assert False")
    line = "llm-bench: 2 tests measure the tool itself: --llm-overhead runs them"
    assert bench.run().stdout.str().splitlines().count(line) == 1
    assert "measure the tool" not in bench.run("-q").stdout.str()
    assert "measure the tool" not in bench.run("--llm-overhead", "--benchmark-disable").stdout.str()


def test_work_is_counted_and_the_same_each_time(own_suite: Bench) -> None:
    """And in this one process there is no first generate."""
    work = []
    for _ in range(2):
        assert own_suite.run().ret == 0
        work.append(own_suite.records()[0]["work"])
    variant = own_suite.variants()["fp32"]
    assert variant["first_generate_s"] is variant["resident_before_load_bytes"] is None
    assert work[0] == work[1]
    assert (work[0]["forward_passes"], work[0]["new_tokens"]) == (2, 2)
    assert work[0]["prefill_flops"] > work[0]["decode_flops"] > 0
