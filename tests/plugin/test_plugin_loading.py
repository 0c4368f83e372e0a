"""Each variant is loaded once, one at a time; one that can't run or that fails is a row, not the end of the others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Bench

LOGGING_CONFTEST = """
    from pathlib import Path

    import pytest
    from llm_bench_fixtures.session import loader

    LOG = Path(__file__).with_name("loads.txt")

    def log(*words):
        with LOG.open("a") as file:
            print(*words, file=file)

    @pytest.fixture(scope="session", autouse=True)
    def logged_loads():
        load_variant = loader.load_variant

        def load(request):
            log("load", request.variant.id)
            model = load_variant(request)
            close = model.close

            def logged_close():
                close()
                log("close", request.variant.id)

            model.close = logged_close
            return model

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loader, "load_variant", load)
            yield
"""


def loads(bench: Bench) -> list[str]:
    return (bench.pytester.path / "loads.txt").read_text().splitlines()


def test_each_variant_is_loaded_once_and_closed_before_the_next(bench: Bench) -> None:
    """Across files, markers, other parameters and other fixtures; the reference first, though it was named last."""
    bench.write(
        conftest=LOGGING_CONFTEST,
        test_a="""
        import pytest

        @pytest.mark.llm_variants("bf16")
        def test_one_variant(llm_benchmark):
            llm_benchmark("Hello")

        def test_sweep(llm_benchmark, llm_prompts, llm_batch_size):
            llm_benchmark(llm_prompts.varied(2), batch_size=llm_batch_size)
        """,
        test_b="""
        import pytest

        def test_plain():
            pass

        @pytest.mark.parametrize("word", ["Hello", "Good day"])
        class TestClass:
            def test_model(self, word, llm_model):
                assert llm_model.model.module is not None

            @pytest.mark.llm_variants("quantization")
            def test_quantized(self, llm_benchmark, word):
                llm_benchmark(word)

            def test_device(self, word, llm_device):
                pass
        """,
    )
    result = bench.run("--llm-variants", "bf16,bnb-nf4,fp32", "--llm-batch-sizes", "1,2", "-v")
    assert result.ret == 0
    assert loads(bench) == ["load fp32", "close fp32", "load bf16", "close bf16", "load bnb-nf4", "close bnb-nf4"]
    assert list(bench.variants()) == ["fp32", "bf16", "bnb-nf4"]
    narrowed = {record["test"] for record in bench.records() if "one_variant" in record["test"]}
    assert narrowed == {"test_a.py::test_one_variant[bf16]"}
    quantized = {record["variant"] for record in bench.records() if "quantized" in record["test"]}
    assert quantized == {"fp32", "bnb-nf4"}  # and what it is made from


def test_a_variant_that_nobody_takes_is_not_loaded(bench: Bench) -> None:
    bench.write(
        conftest=LOGGING_CONFTEST,
        test_a="""
        import pytest

        @pytest.mark.llm_variants("bf16")
        def test_one_variant(llm_benchmark):
            llm_benchmark("Hello")
        """,
    )
    assert bench.run("--llm-variants", "fp32,bf16").ret == 0
    assert loads(bench) == ["load bf16", "close bf16"]


def test_a_marker_for_a_variant_that_is_not_selected_leaves_the_test_out(bench: Bench) -> None:
    bench.write(
        test_a="""
        import pytest

        def test_all(llm_benchmark):
            llm_benchmark("Hello")

        @pytest.mark.llm_variants("bf16")
        def test_one_variant(llm_benchmark):
            llm_benchmark("Hello")
        """
    )
    result = bench.run("--llm-variants", "fp32")
    assert result.ret == 0
    result.assert_outcomes(passed=1, skipped=1)
    assert [record["case"] for record in bench.records() if record["status"] == "measured"] == ["all"]


def test_a_variant_that_cannot_run_here_is_skipped_with_its_reason(own_suite: Bench) -> None:
    result = own_suite.run("--llm-variants", "fp32,autocast-fp16,bf16", "-rs")
    assert result.ret == 0
    result.assert_outcomes(passed=2, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*float16 autocast needs an accelerator; on CPU use autocast-bf16"])
    reason = "float16 autocast needs an accelerator; on CPU use autocast-bf16"
    assert f"| autocast-fp16 | skipped: {reason} |" in own_suite.markdown()
    assert reason in own_suite.page()
    assert own_suite.variants()["autocast-fp16"]["status"] == "skipped"
    skipped = next(record for record in own_suite.records() if record["variant"] == "autocast-fp16")
    assert (skipped["status"], skipped["reason"]) == ("skipped", reason)
    assert skipped["metrics"] == {}


def test_a_run_in_which_all_is_skipped_has_a_report(own_suite: Bench, pictures: None) -> None:
    result = own_suite.run("--llm-variants", "autocast-fp16")
    assert result.ret == 0
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["Loaded: tiny | device=cpu | dtype=nothing loaded", "Nothing was timed."])
    assert not list(own_suite.report.rglob("*.png"))


FAILING_CONFTEST = """
    from llm_bench_fixtures import Variant

    def pytest_llm_bench_variants():
        return [Variant(name, "failing_backend", "fails") for name in ("too-big", "no-memory", "broken")]
"""
FAILING_BACKEND = """
    from llm_bench_fixtures import Backend

    def load(request):
        if request.variant.id == "too-big":
            import torch

            torch.empty(1 << 50)  # of 4 bytes each
        if request.variant.id == "no-memory":
            raise MemoryError
        raise KeyError("a bug of the backend")

    BACKEND = Backend(load)
"""


def test_a_variant_that_fails_to_load_does_not_end_the_others(bench: Bench) -> None:
    bench.write(
        conftest=FAILING_CONFTEST,
        failing_backend=FAILING_BACKEND,
        test_own="""
        def test_one(llm_benchmark):
            llm_benchmark("Hello")

        def test_two(llm_benchmark):
            llm_benchmark("Good day")
        """,
    )
    result = bench.run("--llm-variants", "fp32,too-big,no-memory,broken,bf16")
    assert result.ret == 1
    result.assert_outcomes(passed=4, errors=6)
    too_big = "OutOfMemory: too-big: out of memory, 4503599627370496 bytes asked for"
    no_memory = "OutOfMemory: no-memory: out of memory, an unknown amount asked for"
    broken = "KeyError: 'a bug of the backend'"
    variants = bench.variants()
    for name, reason in (("too-big", too_big), ("no-memory", no_memory), ("broken", broken)):
        assert (variants[name]["status"], variants[name]["reason"]) == ("error", reason)
        assert f"| {name} | error: {reason} |" in bench.markdown()
    assert "> **Failed to load: too-big, no-memory, broken.**" in bench.markdown()
    assert too_big.removeprefix("OutOfMemory: ") in bench.page()
    assert [record["variant"] for record in bench.records() if record["status"] == "measured"] == [
        "fp32",
        "fp32",
        "bf16",
        "bf16",
    ]
    assert "Traceback" not in result.stdout.str()


def test_memory_that_runs_out_or_too_few_tokens_are_an_error_of_that_test_only(bench: Bench) -> None:
    bench.write(
        test_own="""
        import torch

        def test_big(llm_benchmark, llm_model, monkeypatch):
            monkeypatch.setattr(llm_model.model, "generate", lambda *args, **how: torch.empty(1 << 50))
            llm_benchmark("Hello")

        def test_short(llm_benchmark, llm_model, monkeypatch):
            generate = llm_model.model.generate
            monkeypatch.setattr(llm_model.model, "generate", lambda *args, **how: generate(*args, **how)[:, :-1])
            llm_benchmark("Hello")

        def test_usual(llm_benchmark):
            llm_benchmark("Hello")
        """
    )
    result = bench.run()
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*generate returned [[]1[]] new tokens where 2 were asked for*"])
    status = {record["case"]: record["status"] for record in bench.records()}
    assert status == {"big": "error", "short": "error", "usual": "measured"}
    big = next(record for record in bench.records() if record["case"] == "big")
    assert "fp32: out of memory, 4503599627370496 bytes asked for" in big["reason"]


@pytest.mark.parametrize(
    ("backend", "needs", "quantization", "known"),
    [
        ("torch", "torch", "int8", "none"),
        ("onnxruntime", "optimum", "int4", "int8-dynamic, int8-static"),
        ("bitsandbytes", "bitsandbytes", "int2", "int8, nf4, fp4"),
    ],
)
def test_a_quantization_that_its_backend_does_not_know_is_an_error_of_one_line(
    own_suite: Bench, backend: str, needs: str, quantization: str, known: str
) -> None:
    pytest.importorskip(needs)
    own_suite.write(
        conftest=f"""
        from llm_bench_fixtures import Variant

        def pytest_llm_bench_variants():
            return [Variant("own", "{backend}", "", quantization="{quantization}")]
        """
    )
    result = own_suite.run("--llm-variants", "fp32,own,bf16")
    assert result.ret == 1
    result.assert_outcomes(passed=2, errors=1)
    assert "Traceback" not in result.stdout.str()
    found = own_suite.variants()["own"]
    reason = f"InvalidSetting: {backend} knows no quantization '{quantization}'; known: {known}"
    assert (found["status"], found["reason"]) == ("error", reason)


def test_each_finished_variant_is_saved_at_once(bench: Bench) -> None:
    """So that a process that is killed leaves what it had: the second variant sees the first one's results."""
    bench.write(
        test_own="""
        import json
        from pathlib import Path

        def test_mine(llm_benchmark, llm_model):
            llm_benchmark("Hello")
            if llm_model.variant.id == "bf16":
                saved = json.loads(Path("llm-bench-report/results.json").read_text())
                assert saved["interrupted"]
                assert [record["variant"] for record in saved["records"]] == ["fp32"]
        """
    )
    assert bench.run("--llm-variants", "fp32,bf16").ret == 0
    assert not bench.results()["interrupted"]


def test_a_variant_that_runs_out_of_memory_while_it_is_scored_keeps_its_times(bench: Bench) -> None:
    bench.write(
        conftest=LOGGING_CONFTEST
        + """
    import pytest

    @pytest.hookimpl(wrapper=True)
    def pytest_llm_bench_score(model):
        if model.variant.id == "fp32":
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return (yield)
        """,
        test_own="def test_mine(llm_benchmark): llm_benchmark('Hello')",
    )
    result = bench.run("--llm-variants", "fp32,bf16")
    assert result.ret == 1
    result.assert_outcomes(passed=2)
    assert loads(bench) == ["load fp32", "close fp32", "load bf16", "close bf16"]
    fp32, bf16 = bench.variants()["fp32"], bench.variants()["bf16"]
    assert fp32["quality_note"].endswith("scoring fp32: out of memory, 2.00 GiB asked for")
    assert not fp32["quality"]
    assert bf16["quality"]["perplexity"] > 1


def test_a_quantized_checkpoint_is_measured_as_it_is_and_nothing_else_is_made_of_it(
    own_suite: Bench, tmp_path: Path
) -> None:
    """Unasked, and as the reference."""
    pytest.importorskip("bitsandbytes")
    from families import BY_NAME

    from llm_bench_fixtures.models.quiet import quiet_libraries

    with quiet_libraries():
        BY_NAME["llama-nf4"].build(tmp_path)
    result = own_suite.run(f"--llm-model={tmp_path}", "--llm-variants=fp32,bnb-nf4,checkpoint")
    result.assert_outcomes(passed=1, skipped=2)
    assert own_suite.results()["reference"] == "checkpoint"
    variants = own_suite.variants()
    assert variants["checkpoint"]["label"].startswith("bitsandbytes, nf4 (Linear4bit)")
    reason = "are quantized already (bitsandbytes, nf4): --llm-variants checkpoint runs them as they are"
    for name in ("fp32", "bnb-nf4"):
        assert variants[name]["reason"].endswith(reason)


def test_a_first_candidate_whose_config_cannot_be_read_is_a_reason(own_suite: Bench, tmp_path: Path) -> None:
    """What names the reference looks into it before anything is tried."""
    (tmp_path / "config.json").write_text("[" * 100_000)
    result = own_suite.run(f"--llm-model={tmp_path},tiny", "--llm-variants=fp32")
    result.assert_outcomes(passed=1)
    assert own_suite.results()["reference"] == "fp32"
