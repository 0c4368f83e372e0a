"""A suite of one's own: its benchmarks, its fixtures and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Bench


def test_a_suite_of_three_lines(own_suite: Bench, pictures: None) -> None:
    result = own_suite.run("--llm-variants", "fp32,bf16,fp16")
    assert result.ret == 0
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        [
            "*= llm-bench: tiny =*",
            "Loaded: tiny | device=cpu | dtype=float32",
            "variant *latency, ms *tokens/s*",
            "fp32 *",
            "bf16 *",
            "fp32: float32",
            "bf16: bfloat16",
            "Report: llm-bench-report/report.html",
        ]
    )
    assert "float32 (float16 requested; CPU)" in " ".join(result.stdout.str().split())
    _check_files(own_suite)
    _check_results(own_suite)


def _check_files(bench: Bench) -> None:
    names = {str(path.relative_to(bench.report)) for path in bench.report.rglob("*") if path.is_file()}
    plots = {f"plots/{name}.{kind}" for name in ("tradeoff", "memory", "phases") for kind in ("png", "svg")}
    written = {"report.html", "report.md", "results.csv", "results.json", "results.tex", *plots}
    assert names == {".llm-bench-report", ".gitignore", *written}
    for name in ("report.html", "report.md", "results.csv", "results.json", "results.tex"):
        assert "float32 (float16 requested; CPU)" in (bench.report / name).read_text(encoding="utf-8")
    assert "\n| Own |" in bench.markdown()
    assert "\nLoaded: tiny | device=cpu | dtype=float32\n" in bench.markdown()


def _check_results(bench: Bench) -> None:
    results = bench.results()
    assert (results["interrupted"], results["reference"]) == (False, "fp32")
    assert [record["test"] for record in results["records"]] == [
        f"test_own.py::test_mine[{variant}]" for variant in ("fp32", "bf16", "fp16")
    ]
    for record in results["records"]:
        assert (record["scenario"], record["case"], record["status"]) == ("own", "mine", "measured")
        assert len(record["rounds_s"]) == 2
        assert record["workload"]["new_tokens"] == 2
        assert record["metrics"]["output_tokens_per_s"] == 2 / record["metrics"]["latency_s"]
        assert record["metrics"]["perplexity"] > 1
    assert bench.variants()["fp16"]["configuration"] == bench.variants()["fp32"]["configuration"]


def test_the_time_that_is_reported_is_the_time_that_the_batches_took(bench: Bench) -> None:
    """Of every round: the batches' times add up to no more than the round's, and warmup rounds are in neither."""
    bench.write(
        test_own="""
        import time

        def test_mine(llm_benchmark, llm_model, monkeypatch):
            calls = []
            generate = llm_model.model.generate

            def far_longer_s():
                return 1.0 + 10 * calls[0]

            def slow_at_first(*args, **how):
                began_s = time.perf_counter()
                try:
                    return generate(*args, **how)
                finally:
                    calls.append(time.perf_counter() - began_s)
                    if len(calls) <= 2:
                        time.sleep(far_longer_s())

            monkeypatch.setattr(llm_model.model, "generate", slow_at_first)
            record = llm_benchmark(["Hello", "Good day"], batch_size=1)
            assert len(calls) == 6  # two batches in one warmup round and in two rounds
            assert record.batch_rows == (1, 1)
            assert len(record.batches_s) == len(record.rounds_s) == 2
            for round_s, batches_s in zip(record.rounds_s, record.batches_s):
                assert len(batches_s) == 2
                assert 0 < sum(batches_s) <= round_s < far_longer_s()
        """
    )
    bench.run().assert_outcomes(passed=1)


def test_metrics_can_be_asserted_and_a_test_is_one_benchmark(bench: Bench) -> None:
    """Bug: a second call measured all its rounds and then failed with pytest-benchmark's words."""
    bench.write(
        conftest="""
        def pytest_llm_bench_measure(record):
            return {"mine": len(record.outputs) + 2}
        """,
        test_own="""
        import pytest

        def test_metrics(llm_benchmark):
            record = llm_benchmark("Hello")
            assert 0 < record.ttft_s < record.latency_s < 100
            assert (record.new_tokens, record.mine, record.load_s > 0, record.perplexity > 1) == (2, 3, True, True)

        def test_none(llm_benchmark):
            record = llm_benchmark("Hello", new_tokens=1)
            with pytest.raises(AttributeError, match="no tpot_s: it is .*none for one token. It has latency_s, "):
                record.tpot_s

        def test_twice(llm_benchmark):
            with pytest.raises(pytest.skip.Exception):
                llm_benchmark("Hello", new_tokens=100_000)  # which measures nothing
            llm_benchmark("Hello")
            llm_benchmark("Hello there")
        """,
    )
    result = bench.run()
    result.assert_outcomes(passed=2, failed=1)
    said = "calls llm_benchmark again: a test is one benchmark, *@pytest.mark.parametrize runs once for each value"
    result.stdout.fnmatch_lines([f"*test_own.py::test_twice[[]fp32[]] {said}"])
    assert [record["status"] for record in bench.records()] == ["measured", "measured", "error"]
    assert len(bench.records()[2]["rounds_s"]) == 2  # of the first call


def test_the_fixtures_give_what_they_say(bench: Bench) -> None:
    bench.write(
        test_fixtures="""
        import pytest
        from llm_bench_fixtures import Device, ModelHandle, Record, Status

        def test_device(llm_device):
            assert isinstance(llm_device, Device)
            assert llm_device.name == "cpu"
            assert llm_device.hardware
            llm_device.synchronize()

        def test_prompts(llm_prompts):
            assert len(llm_prompts.exact(17)) == 17
            assert llm_prompts.decode(llm_prompts.encode("Hello there")) == "Hello there"
            assert len(set(map(len, llm_prompts.varied(4)))) == 4
            assert len(llm_prompts.standard) == 3
            assert len(llm_prompts.edge("longest", longest=40)) == 40

        def test_corpus(llm_corpus):
            assert llm_corpus.name == "short.txt"
            assert llm_corpus.texts[0].startswith("The keeper climbed")

        def test_model(llm_model, llm_device):
            assert isinstance(llm_model, ModelHandle)
            assert llm_model.device is llm_device
            assert llm_model.variant.id == "fp32"
            assert llm_model.label == "float32"
            assert llm_model.weight_bytes > 1_000_000
            assert llm_model.facts.load_s > 0
            assert llm_model.tokenizer("Hello")["input_ids"]

        def test_benchmark(llm_benchmark, llm_prompts, llm_model):
            assert llm_benchmark.longest_prompt == llm_model.context_length - 2
            record = llm_benchmark([llm_prompts.exact(5), "A text"], batch_size=2, new_tokens=3)
            assert isinstance(record, Record)
            assert record.status is Status.MEASURED
            assert record.workload.prompts == 2
            assert record.workload.new_tokens == 6
            assert record.workload.padded_tokens > 0
            assert len(record.outputs) == 2

        def test_one_prompt_of_tokens(llm_benchmark, llm_prompts):
            record = llm_benchmark(llm_prompts.exact(5))
            assert (record.workload.prompts, record.workload.prompt_tokens) == (1, 5)

        def test_a_batch_cut_in_parts(llm_benchmark, llm_prompts):
            assert llm_benchmark(llm_prompts.varied(5), batch_size=2).batch_rows == (2, 2, 1)
        """
    )
    result = bench.run()
    assert result.ret == 0, result.stdout.str()
    result.assert_outcomes(passed=7)
    assert {record["test"].split("::")[1].split("[")[0] for record in bench.records()} == {
        "test_benchmark",
        "test_one_prompt_of_tokens",
        "test_a_batch_cut_in_parts",
    }


def test_scenarios_and_cases(bench: Bench) -> None:
    """By the file's name, the marker, the function and the parameters; sweeps take their values from the options."""
    bench.write(
        test_chat="""
        import pytest

        def test_chat(llm_benchmark):
            llm_benchmark("Hello")

        @pytest.mark.llm_scenario("questions")
        @pytest.mark.parametrize("mood", ["kind", "curt"])
        def test_ask(llm_benchmark, mood):
            llm_benchmark(mood)

        def test_batches(llm_benchmark, llm_prompts, llm_batch_size):
            llm_benchmark(llm_prompts.varied(4), batch_size=llm_batch_size)

        def test_lengths(llm_benchmark, llm_prompts, llm_prompt_length):
            llm_benchmark(llm_prompts.exact(llm_prompt_length))
        """
    )
    result = bench.run("--llm-batch-sizes", "4,1", "--llm-prompt-lengths", "7,3")
    assert result.ret == 0
    records = {(record["scenario"], record["case"]): record["workload"] for record in bench.records()}
    assert list(records) == [
        ("chat", ""),
        ("questions", "ask, kind"),
        ("questions", "ask, curt"),
        ("chat", "batches, 1"),
        ("chat", "batches, 4"),
        ("chat", "lengths, 3"),
        ("chat", "lengths, 7"),
    ]
    assert records["chat", "batches, 4"]["batch_size"] == 4
    assert records["chat", "lengths, 7"]["prompt_tokens"] == 7
    assert "\n| Questions | ask, kind |" in bench.markdown()


def test_a_skip_has_its_reason_a_failure_what_it_measured_and_a_test_without_a_model_no_row(bench: Bench) -> None:
    bench.write(
        test_own="""
        def test_plain():
            assert False

        def test_short(llm_benchmark):
            llm_benchmark("Hello")

        def test_long(llm_benchmark, llm_model, llm_prompts):
            llm_benchmark(llm_prompts.exact(llm_model.context_length - 1))

        def test_slow(llm_benchmark):
            record = llm_benchmark("Hello")
            assert record.median_s < 1e-9, "too slow"
        """
    )
    result = bench.run("-rs")
    assert result.ret == 1
    result.assert_outcomes(passed=1, skipped=1, failed=2)
    result.stdout.fnmatch_lines(["SKIPPED*513 tokens, padding and new ones included, don't fit*context of 512*"])
    records = {record["case"]: record for record in bench.records()}
    assert list(records) == ["short", "long", "slow"]
    assert (records["long"]["status"], records["long"]["rounds_s"]) == ("skipped", [])
    assert "- fp32: 1 benchmark skipped: 513 tokens, padding and new ones included" in bench.markdown()
    slow = records["slow"]
    assert slow["status"] == "error"
    assert slow["reason"].startswith("AssertionError: too slow")
    assert len(slow["rounds_s"]) == 2
    assert slow["metrics"]["latency_s"] > 0
    assert "- fp32: 1 benchmark failed: AssertionError: too slow" in bench.markdown()
    assert "error: AssertionError: too slow" in bench.page()


def test_an_interrupted_run_reports_what_it_finished(bench: Bench) -> None:
    bench.write(
        test_own="""
        def test_one(llm_benchmark):
            llm_benchmark("Hello")

        def test_two(llm_benchmark):
            llm_benchmark("Good day")

        def test_three(llm_benchmark):
            raise KeyboardInterrupt

        def test_four(llm_benchmark):
            llm_benchmark("Never")
        """
    )
    result = bench.run(no_reraise_ctrlc=True)
    assert result.ret == 2
    assert bench.results()["interrupted"]
    measured = [record for record in bench.records() if record["status"] == "measured"]
    assert [record["case"] for record in measured] == ["one", "two"]
    assert all(len(record["rounds_s"]) == 2 for record in measured)
    assert "was interrupted; this is what had finished by then." in bench.markdown()
    assert "was interrupted" in bench.page()
    result.stdout.fnmatch_lines(["fp32 *", "Report: *"])


def test_a_suite_that_takes_the_model_but_measures_nothing(bench: Bench) -> None:
    bench.write(test_own="def test_mine(llm_model): assert llm_model.weight_bytes")
    result = bench.run()
    assert result.ret == 0
    assert bench.records() == []
    assert "Nothing was timed." in bench.markdown()
