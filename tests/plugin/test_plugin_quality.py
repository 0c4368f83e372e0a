"""The quality metrics of a run: of each variant by itself, and against the reference."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from toy_engine import FILES

from llm_bench_fixtures.models.source import TINY, TINY_FOLDER, ModelSource

if TYPE_CHECKING:
    from conftest import Bench

ALONE = {"loss", "perplexity", "bits_per_byte", "byte_perplexity", "word_perplexity", "scored_tokens"}
COMPARED = {
    *("ppl_ratio", "ppl_ratio_error", "kld_mean", "kld_error", "kld_p50", "kld_max"),
    *("top1_agreement", "mean_dp", "rms_dp"),
}


def test_every_variant_but_the_reference_is_compared_with_it(
    own_suite: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its quality and its texts. What is kept of the reference for that is gone after the run."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert own_suite.run("--llm-variants", "fp32,bf16,fp16").ret == 0
    assert not list(tmp_path.glob("llm-bench-*"))
    quality = {name: variant["quality"] for name, variant in own_suite.variants().items()}
    assert set(quality["fp32"]) == ALONE
    assert set(quality["bf16"]) == set(quality["fp16"]) == ALONE | COMPARED
    assert 0 < quality["bf16"]["kld_mean"] < 0.01
    assert quality["bf16"]["ppl_ratio"] == pytest.approx(quality["bf16"]["perplexity"] / quality["fp32"]["perplexity"])
    assert quality["fp16"]["kld_max"] == 0.0  # on a CPU it is fp32 again
    fp32, bf16, fp16 = (record["metrics"] for record in own_suite.records())
    assert bf16["kld_mean"] == quality["bf16"]["kld_mean"]
    assert "first_divergent_token" not in fp32
    assert (fp16["first_divergent_token"], fp16["divergent_share"]) == (2, 0)


def test_without_the_reference_there_is_nothing_to_compare_with(own_suite: Bench) -> None:
    assert own_suite.run("--llm-variants", "bf16").ret == 0
    assert set(own_suite.variants()["bf16"]["quality"]) == ALONE


@pytest.mark.parametrize(
    ("scheme", "words", "scored"),
    [
        ("strided", "windows of 8 tokens, 4 apart", lambda tokens: tokens - 1),
        ("rolling", "rolling windows of 8 tokens", lambda tokens: tokens),
        ("llama", "llama windows of 8 tokens", lambda tokens: tokens // 8 * 3),  # the last three of each eight
    ],
)
def test_each_scheme_of_windows_scores_its_tokens_and_says_so(
    own_suite: Bench, scheme: str, words: str, scored: Callable[[int], int]
) -> None:
    text = own_suite.corpus.read_text(encoding="utf-8")
    tokens = len(ModelSource(TINY, TINY_FOLDER).load_tokenizer()(text)["input_ids"])
    assert own_suite.run("--llm-windows", scheme, "--llm-window", "8", "--llm-variants", "fp32,bf16").ret == 0
    assert own_suite.results()["provenance"]["corpus"].endswith(f", in {words}")
    assert own_suite.variants()["bf16"]["quality"]["scored_tokens"] == scored(tokens)


def test_a_corpus_too_short_for_the_windows_is_an_error_with_both_numbers(own_suite: Bench) -> None:
    result = own_suite.run("--llm-windows", "llama", "--llm-window", "500")
    assert result.ret == 1
    reason = own_suite.variants()["fp32"]["quality_note"]
    assert "llama windows of 500 tokens need a corpus of at least 1000, and this one has" in reason


NOTES = """

def note(what):
    with open("notes.txt", "a") as file:
        file.write(what + "\\n")

def pytest_llm_bench_score(model):
    note(f"{model.variant.id} is scored")
    return {"mine": 1.0}

def pytest_runtest_teardown(item):
    note(item.name)
"""
TURNS = ("--llm-rounds=2", "--llm-max-noise=0", "--llm-new-tokens=2", "--llm-reference=toy", "--llm-variants=toy,half")


def noted(bench: Bench, tests: str, *options: str) -> list[str]:
    """What happened in a run of the tests, in order."""
    bench.write(**{**FILES, "conftest": FILES["conftest"] + NOTES}, test_own=tests)
    bench.run_with(*bench.in_turns, *TURNS, f"--llm-corpus={bench.corpus}", "--llm-choices=none", *options)
    return (bench.pytester.path / "notes.txt").read_text(encoding="utf-8").splitlines()


TWO = """
import pytest

@pytest.mark.llm_scenario("prompt_length")
def test_first(llm_benchmark):
    llm_benchmark("Hello")

@pytest.mark.llm_scenario("cache")
def test_later(llm_benchmark):
    llm_benchmark("Hello there")
"""
SCORED = ["toy is scored", "half is scored"]


@pytest.mark.slow("starts processes that hold models")
def test_quality_comes_after_what_the_answer_goes_by_first_and_before_the_rest(bench: Bench) -> None:
    first, later = ([f"test_{name}[{variant}]" for variant in ("toy", "half")] for name in ("first", "later"))
    assert noted(bench, TWO) == [*first, *SCORED, *later]
    assert bench.records()[0]["metrics"]["mine"] == bench.records()[3]["metrics"]["mine"] == 1.0


@pytest.mark.slow("starts processes that hold models")
def test_where_a_plugin_orders_the_tests_quality_follows_the_first_comparison(bench: Bench) -> None:
    """Bug: it came after all tests, so that a run whose time they fill had none."""
    bench.write(reverses="def pytest_collection_modifyitems(items):\n    items.reverse()\n")
    bench.pytester.syspathinsert()
    first, later = ([f"test_{name}[{variant}]" for variant in ("toy", "half")] for name in ("first", "later"))
    assert noted(bench, TWO, "-p", "reverses") == [*later, *SCORED, *first]


@pytest.mark.slow("starts processes that hold models")
def test_where_nothing_comes_after_quality_is_scored_at_the_end(bench: Bench) -> None:
    first = [f"test_first[{variant}]" for variant in ("toy", "half")]
    assert noted(bench, TWO, "-k", "first") == [*first, *SCORED]
    assert set(bench.variants()["half"]["quality"]) >= {"perplexity", "ppl_ratio", "mine"}


@pytest.mark.slow("starts processes that hold models")
def test_a_test_that_reads_a_quality_has_its_variant_scored_then(bench: Bench) -> None:
    reads = TWO.replace('llm_benchmark("Hello")', 'assert llm_benchmark("Hello").mine == 1.0')
    notes = noted(bench, reads, "-k", "first")
    assert notes == ["toy is scored", "test_first[toy]", "half is scored", "test_first[half]"]


@pytest.mark.slow("starts processes that hold models")
def test_where_memory_is_for_one_the_reference_is_scored_when_it_makes_room(bench: Bench) -> None:
    """The others are compared with it."""
    assert noted(bench, TWO, "--llm-memory-share=0") == [
        *("test_first[toy]", "toy is scored", "test_first[half]", "half is scored"),
        *("test_later[half]", "test_later[toy]"),
    ]
    assert "ppl_ratio" in bench.variants()["half"]["quality"]


@pytest.mark.slow("starts processes that hold models")
def test_what_can_not_be_scored_fails_the_run_and_keeps_its_times(bench: Bench) -> None:
    bench.write(**FILES, test_own=TWO)
    options = (f"--llm-corpus={bench.corpus}", "--llm-choices=none", "--llm-windows=llama", "--llm-window=500")
    result = bench.run_with(*bench.in_turns, *TURNS, *options, "-k", "first")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["llm-bench: toy could not be scored: llama windows of 500 tokens *"])
    assert bench.variants()["toy"]["quality_note"].startswith("CorpusTooShort: ")
    assert [len(record["rounds_s"]) for record in bench.records()] == [2, 2]
