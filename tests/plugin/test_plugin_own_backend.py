"""A project's own backend that is not transformers, as the docs show it, from the hook to the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from docs_code import python_blocks

if TYPE_CHECKING:
    from conftest import Bench

SUITE = """
    import pytest

    def test_lengths(llm_benchmark, llm_prompts):
        llm_benchmark(llm_prompts.exact(20))

    def test_text(llm_benchmark):
        llm_benchmark("the hen")

    @pytest.mark.parametrize("mode", ["left padding", "static cache"])
    def test_modes(llm_equivalence, llm_prompts, mode):
        llm_equivalence(llm_prompts.varied(2), mode)

    def test_without_a_model(llm_prompts):
        assert len(llm_prompts.encode("the keeper")) < 10
"""


@pytest.fixture
def engines(bench: Bench) -> Bench:
    """A suite with the backend of the docs in a package of the project's."""
    backend, conftest = python_blocks("how-to/add-a-backend.md")[:2]
    assert backend.startswith("# my_package/bigram.py\n")
    bench.write(conftest=conftest, test_own=SUITE)
    (bench.pytester.mkpydir("my_package") / "bigram.py").write_text(backend, encoding="utf-8")
    return bench


@pytest.mark.parametrize("isolate", [False, True], ids=["here", "isolated"])
def test_it_is_measured_scored_compared_and_reported(engines: Bench, isolate: bool) -> None:
    run = engines.run_in_turns if isolate else engines.run
    variants = ("--llm-variants", "bigram,bigram-int8", "--llm-reference", "bigram")
    result = run(*variants)
    assert result.ret == 0
    result.assert_outcomes(passed=7, skipped=2)  # neither has a static cache
    plain, rounded = engines.variants().values()
    assert (plain["label"], rounded["label"]) == ("bigrams, torch.float32", "bigrams, torch.int8")
    assert (plain["quantized"], rounded["quantized"]) == (False, True)
    assert 1 < plain["quality"]["perplexity"] < 1000
    assert rounded["quality"]["kld_mean"] > 0
    assert rounded["quality"]["ppl_ratio"] == pytest.approx(
        rounded["quality"]["perplexity"] / plain["quality"]["perplexity"]
    )
    assert [found["verdict"] for found in plain["equivalence"]] == ["equal", "not supported"]
    records = {record["test"].partition("::")[2]: record for record in engines.records() if record["rounds_s"]}
    assert records["test_lengths[bigram]"]["workload"]["prompt_tokens"] == 20
    assert records["test_lengths[bigram]"]["metrics"]["latency_s"] > 0
    assert records["test_lengths[bigram]"]["metrics"]["ttft_s"] > 0
    assert records["test_text[bigram]"]["workload"]["prompt_tokens"] == len("the hen")
    assert "first_divergent_token" in records["test_text[bigram-int8]"]["metrics"]
    work = records["test_text[bigram]"]["work"]
    assert (work["forward_passes"], work["prefill_flops"], work["cache_bytes"]) == (None, None, None)
    assert "| bigram-int8 |" in engines.markdown()
    report = engines.page()
    assert "FLOPs are not counted: bigrams, torch.float32 is not the model of --llm-model" in report
    assert "cache's bytes are not counted: bigrams, torch.float32 doesn't run through transformers" in report


def test_beside_a_reference_of_another_vocabulary_it_is_measured_and_not_compared(engines: Bench) -> None:
    result = engines.run("--llm-variants", "fp32,bigram", "-k", "test_text or test_lengths")
    assert result.ret == 0
    result.assert_outcomes(passed=4)
    quality = engines.variants()["bigram"]["quality"]
    assert quality["perplexity"] > 1
    assert "kld_mean" not in quality
    assert "bigram: not compared with the reference variant: the reference has a vocabulary of 4096" in (engines.page())
    lengths = {
        record["variant"]: record["workload"]["prompt_tokens"]
        for record in engines.records()
        if record["test"].partition("::")[2].startswith("test_text")
    }
    assert lengths["bigram"] == len("the hen")
    assert lengths["fp32"] < lengths["bigram"]


def test_what_the_plan_cannot_ask_of_a_variant_costs_that_variant_alone(bench: Bench) -> None:
    """Bug: a quantization that a backend doesn't know, or a `storage` that raises, ended the whole run."""
    bench.write(
        conftest="""
        from llm_bench_fixtures import Variant

        def pytest_llm_bench_variants():
            return [
                Variant("odd", "onnxruntime", "no such quantization", quantization="odd"),
                Variant("raising", "raising_backend", "storage raises"),
            ]
        """,
        raising_backend="""
        from llm_bench_fixtures import Backend

        def load(request):
            raise ValueError("not to be loaded")

        def storage(variant, device):
            raise LookupError("no idea")

        BACKEND = Backend(load, storage=storage)
        """,
        test_own="def test_mine(llm_benchmark): llm_benchmark('Hello')",
    )
    result = bench.run_in_turns("--llm-variants", "fp32,odd,raising")
    result.assert_outcomes(passed=1, errors=2)
    assert "INTERNALERROR" not in result.stdout.str()
    reasons = {name: variant["reason"] for name, variant in bench.variants().items()}
    assert "knows no quantization 'odd'" in reasons["odd"]
    assert "not to be loaded" in reasons["raising"]
