"""A backend that is not transformers, that of the docs, is measured, scored, compared and checked like any other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from docs_code import python_blocks
from whole_corpus import score_corpus

from llm_bench_fixtures.errors import ReferenceMismatch
from llm_bench_fixtures.measure.equivalence import ExecutionMode, check_equivalence
from llm_bench_fixtures.measure.flops import FlopCounter
from llm_bench_fixtures.measure.timing import run_round
from llm_bench_fixtures.measure.windows import WindowPlan
from llm_bench_fixtures.measure.work import count_work, observe
from llm_bench_fixtures.models.handle import LocalModel, ModelHandle
from llm_bench_fixtures.models.loading import IsolatedModel, LoadRequest, load_variant
from llm_bench_fixtures.models.source import ModelSource
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.models.variants import Variant
from llm_bench_fixtures.workloads import CacheKind, Corpus, Workload

MakeRequest = Callable[..., LoadRequest]
BIGRAM = Variant("bigram", "bigram_backend", "letters that follow letters")
ROUNDED = Variant("bigram-int8", "bigram_backend", "in powers of two", quantization="int8-exponents", base="bigram")


TEXT = "the hen in the pen"
SIGNS = " abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(scope="module", autouse=True)
def bigram_backend(tmp_path_factory: pytest.TempPathFactory, preloaded: None) -> Iterator[None]:
    """The page's module, in a folder that a process of its own imports from too."""
    folder = tmp_path_factory.mktemp("engines")
    (folder / "bigram_backend.py").write_text(python_blocks("how-to/add-a-backend.md")[0], encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield


@pytest.fixture(scope="module")
def bigram(make_request: MakeRequest) -> LocalModel:
    return load_variant(make_request(BIGRAM))


@pytest.fixture(scope="module")
def rounded(make_request: MakeRequest) -> LocalModel:
    return load_variant(make_request(ROUNDED))


def probability(before: str, following: str) -> float:
    """Counted without the backend."""
    pairs = Counter(pairwise(TEXT))
    of_before = sum(count for pair, count in pairs.items() if pair[0] == before)
    return (pairs[before, following] + 1) / (of_before + len(SIGNS))


def test_its_facts_are_its_own_with_what_the_load_took(bigram: LocalModel, rounded: LocalModel) -> None:
    assert (bigram.facts.weight_bytes, rounded.facts.weight_bytes) == (27 * 27 * 4, 27 * 27)
    assert (bigram.facts.configuration, rounded.facts.configuration) == ("bigram", "bigram-int8")
    assert bigram.facts.resident_before_load_bytes > 1 << 20
    assert not bigram.facts.runs_source


def test_the_perplexity_is_the_one_counted_by_hand(bigram: LocalModel) -> None:
    """Each of three h is followed by an e, two of four e by an n: p(e|h) = (3 + 1) / (3 + 27), p(n|e) = 3 / 31."""
    assert probability("h", "e") == pytest.approx(4 / 30)
    assert probability("e", "n") == pytest.approx(3 / 31)
    metrics = score_corpus(bigram.model, Corpus("hen", ("hen",)), WindowPlan()).metrics
    assert metrics["perplexity"] == pytest.approx(math.sqrt(30 / 4 * 31 / 3))
    assert metrics["scored_tokens"] == 2
    assert metrics["bits_per_byte"] == pytest.approx(math.log2(30 / 4 * 31 / 3) / 2)


def test_it_is_compared_with_another_variant_of_its_vocabulary(
    bigram: LocalModel, rounded: LocalModel, tmp_path: Path
) -> None:
    """The divergence is that of the two rows of probabilities that "hen" is scored by, one rounded to powers of two."""
    corpus = Corpus("hen", ("hen",))
    score_corpus(bigram.model, corpus, WindowPlan(), keep=tmp_path)
    metrics = score_corpus(rounded.model, corpus, WindowPlan(), compare_with=tmp_path).metrics
    divergences = []
    for before in "he":
        p = [probability(before, sign) for sign in SIGNS]
        powers = [2.0 ** round(math.log2(one)) for one in p]
        divergences.append(sum(a * math.log(a / (b / sum(powers))) for a, b in zip(p, powers, strict=True)))
    assert metrics["kld_mean"] == pytest.approx(sum(divergences) / 2, rel=1e-4)
    assert metrics["kld_mean"] > 0


def test_a_reference_of_another_vocabulary_is_refused(
    bigram: LocalModel, tiny_fp32: TransformersModel, tmp_path: Path
) -> None:
    corpus = Corpus("hen", ("The hen is in the pen.",))
    score_corpus(tiny_fp32, corpus, WindowPlan(), keep=tmp_path)
    with pytest.raises(ReferenceMismatch, match="has a vocabulary of 4096, and the model one of 27"):
        score_corpus(bigram.model, corpus, WindowPlan(), compare_with=tmp_path)


def test_its_rounds_are_timed_token_by_token(bigram: LocalModel) -> None:
    """After an h comes an e; after that a space or an n, twice each; after a space an h, an i, a p or a t, once each.

    Of equals the first in the alphabet is the likeliest.
    """
    workload = Workload((bigram.prompts.encode("h"), bigram.prompts.encode("th")), new_tokens=4, batch_size=2)
    done = run_round(bigram.model, workload)
    assert [bigram.prompts.decode(row) for row in done.continuations] == ["e he", "e he"]
    (batch,) = done.batches
    assert len(batch.tokens_s) == 4
    assert list(batch.tokens_s) == sorted(batch.tokens_s)


def test_what_can_not_be_seen_of_its_work_is_not_known_and_says_why(
    bigram: LocalModel, tiny_source: ModelSource
) -> None:
    workload = Workload((bigram.prompts.encode("hen"),), new_tokens=4, batch_size=1)
    observed = observe(bigram.model, workload).observed
    work = count_work(workload, observed, FlopCounter(tiny_source.load_config()), bigram.facts)
    assert (work.prompt_tokens, work.new_tokens, work.batches) == (3, 4, 1)
    unknown = (work.forward_passes, work.decode_passes, work.cache_bytes, work.cache_bytes_read, work.prefill_flops)
    assert unknown == (None,) * 5
    assert work.passes_reason == "bigrams, torch.float32 doesn't run through transformers"
    assert work.flops_reason == (
        "bigrams, torch.float32 is not the model of --llm-model, whose config they are counted from"
    )


def test_the_modes_to_run_it_are_compared(bigram: LocalModel) -> None:
    """It has one cache, and no mode to right padding's answers but those of the same letter."""
    prompts = [bigram.prompts.encode(text) for text in ("the hen", "in")]
    found = {one.mode: one.verdict.value for one in check_equivalence(bigram.model, prompts, 4)}
    assert found == {
        ExecutionMode.CACHE: "not supported",
        ExecutionMode.STATIC_CACHE: "not supported",
        ExecutionMode.LEFT_PADDING: "equal",
        ExecutionMode.RIGHT_PADDING: "equal",
        ExecutionMode.BATCH: "equal",
    }


def answers(model: ModelHandle) -> tuple[str, list[int]]:
    ids = torch.tensor([model.prompts.encode("hen")])
    output = model.generate(ids, torch.ones_like(ids), 3, CacheKind.DYNAMIC)
    return type(model.tokenizer).__name__, output.tolist()


def test_in_a_process_of_its_own_it_keeps_its_tokenizer(bigram: LocalModel, make_request: MakeRequest) -> None:
    isolated = IsolatedModel(make_request(BIGRAM))
    try:
        assert answers(isolated) == answers(bigram)
        assert isolated.facts.label == bigram.facts.label
    finally:
        isolated.close()


def test_closing_releases_the_model(make_request: MakeRequest) -> None:
    import weakref

    handle = load_variant(make_request(BIGRAM))
    run_round(handle.model, Workload(((1, 2),), new_tokens=2, batch_size=1))
    gone = weakref.ref(handle.model)
    handle.close()
    assert gone() is None
