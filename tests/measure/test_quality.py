from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_bench_fixtures.measure import quality
from llm_bench_fixtures.measure.quality import (
    Score,
    Window,
    cut_windows,
    group_windows,
    resolve_windows,
    score_corpus,
    score_texts,
    token_nll,
)
from llm_bench_fixtures.models import LoadedModel
from llm_bench_fixtures.workloads import Corpus, Prompts, TokenIds

ModelAround = Callable[[Any], LoadedModel]


class ConstantModel:
    """Gives each position the same probabilities, whatever came before."""

    def __init__(self, *probabilities: float) -> None:
        self.logits = torch.tensor(probabilities).log()
        self.seen: list[tuple[torch.Tensor, torch.Tensor]] = []
        text_config = SimpleNamespace(vocab_size=len(probabilities))
        self.config = SimpleNamespace(get_text_config=lambda: text_config)

    def __call__(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, use_cache: bool = False
    ) -> SimpleNamespace:
        self.seen.append((input_ids, attention_mask))
        return SimpleNamespace(logits=self.logits.expand(*input_ids.shape, -1))


@pytest.mark.parametrize("vocabulary", [2, 7, 4096])
def test_a_uniform_model_has_the_size_of_its_vocabulary_as_perplexity(
    vocabulary: int, model_around: ModelAround
) -> None:
    model = model_around(ConstantModel(*[1 / vocabulary] * vocabulary))
    assert score_texts(model, [(0, 1, 1, 0), (1, 0)], 8, 4).perplexity == pytest.approx(vocabulary)


@pytest.mark.parametrize(("window", "stride"), [(8, 4), (8, 7), (8, 1), (2, 1), (8, 8), (2, 2)])
def test_a_uniform_model_has_that_perplexity_at_every_window_and_stride(
    window: int, stride: int, model_around: ModelAround
) -> None:
    """Also where windows don't overlap: a token counted but not scored would lower the perplexity."""
    model = model_around(ConstantModel(*[1 / 5] * 5))
    score = score_texts(model, [tuple(index % 5 for index in range(30))], window, stride)
    assert score.perplexity == pytest.approx(5)


def test_a_text_of_n_tokens_has_n_minus_1_scored_tokens(model_around: ModelAround) -> None:
    model = model_around(ConstantModel(0.5, 0.5))
    assert score_texts(model, [(0,) * 30, (1,) * 5, (1,)], 8, 4).tokens == 29 + 4 + 0


def test_the_loss_is_weighted_by_tokens_and_not_by_texts(model_around: ModelAround) -> None:
    """Four tokens of probability 0.8 and one of 0.2; a mean of the two texts' means would be another number."""
    model = model_around(ConstantModel(0.2, 0.8))
    score = score_texts(model, [(1, 1, 1, 1, 1), (0, 0)], 8, 4)
    assert score.loss == pytest.approx(-(4 * math.log(0.8) + math.log(0.2)) / 5)


def test_padding_is_masked_and_not_scored(model_around: ModelAround) -> None:
    """The padding token is token 0, which this model finds unlikely."""
    module = ConstantModel(0.01, 0.99)
    score = score_texts(model_around(module), [(1, 1, 1, 1), (1, 1)], 8, 4)
    assert score.loss == pytest.approx(-math.log(0.99), rel=1e-4)
    ((input_ids, mask),) = module.seen
    assert input_ids.tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert mask.tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]


def test_a_corpus_without_a_token_to_score_is_refused(model_around: ModelAround) -> None:
    with pytest.raises(ValueError, match="a text of at least two tokens"):
        score_texts(model_around(ConstantModel(1.0)), [(0,), ()], 8, 4)


def test_an_infinite_loss_has_an_infinite_perplexity() -> None:
    assert Score(nll_sum=math.inf, tokens=2, window=8, stride=4).perplexity == math.inf
    assert Score(nll_sum=2000.0, tokens=2, window=8, stride=4).perplexity == math.inf


@pytest.mark.parametrize(
    ("window", "stride", "context", "resolved"),
    [
        (0, 0, 512, (512, 256)),
        (0, 0, 8192, (1024, 512)),
        (100, 0, 512, (100, 50)),
        (100, 100, 512, (100, 100)),
        (2000, 1500, 512, (512, 512)),
        (0, 700, 512, (512, 512)),
    ],
)
def test_windows_resolve_to_the_context_up_to_1024_and_half_of_that(
    window: int, stride: int, context: int, resolved: tuple[int, int]
) -> None:
    assert resolve_windows(window, stride, context) == resolved


def test_windows_by_hand() -> None:
    """Ten tokens in windows of six, four apart: tokens 1 to 5, then 6 to 9 with 4 and 5 as context."""
    assert cut_windows(tuple(range(10)), window=6, stride=4) == [
        Window((0, 1, 2, 3, 4, 5), unscored=1),
        Window((4, 5, 6, 7, 8, 9), unscored=2),
    ]


@st.composite
def lengths_windows_strides(draw: st.DrawFn) -> tuple[int, int, int]:
    """Windows that overlap: where they don't, the first token of each has nothing before it."""
    window = draw(st.integers(2, 12))
    return draw(st.integers(0, 60)), window, draw(st.integers(1, window - 1))


@settings(deadline=None, database=None)
@given(lengths_windows_strides())
def test_each_token_but_the_first_is_scored_exactly_once_and_in_order(case: tuple[int, int, int]) -> None:
    length, window, stride = case
    windows = cut_windows(tuple(range(length)), window, stride)
    assert [token for piece in windows for token in piece.ids[piece.unscored :]] == list(range(1, length))


@settings(deadline=None, database=None)
@given(lengths_windows_strides())
def test_each_scored_token_has_another_before_it_in_its_window(case: tuple[int, int, int]) -> None:
    """The first token of a window has nothing before it that could predict it, also where windows don't overlap."""
    length, window, stride = case
    assert all(piece.unscored >= 1 for piece in cut_windows(tuple(range(length)), window, stride))


@settings(deadline=None, database=None)
@given(lengths_windows_strides())
def test_no_window_is_longer_than_asked(case: tuple[int, int, int]) -> None:
    length, window, stride = case
    assert all(len(piece.ids) <= window for piece in cut_windows(tuple(range(length)), window, stride))


@settings(deadline=None, database=None)
@given(st.lists(st.integers(2, 3000), max_size=40))
def test_groups_hold_every_window_and_are_no_larger_than_the_limit(lengths: list[int]) -> None:
    windows = [Window((0,) * length, unscored=1) for length in lengths]
    groups = group_windows(windows, 4096)
    assert sorted(len(piece.ids) for group in groups for piece in group) == sorted(lengths)
    for group in groups:
        assert len(group) * max(len(piece.ids) for piece in group) <= 4096


def plain_nll(model: LoadedModel, ids: TokenIds) -> float:
    """Summed over the text's tokens but the first, as transformers computes it from labels."""
    row = torch.tensor([ids])
    with torch.inference_mode():
        return float(model.module(input_ids=row, labels=row).loss) * (len(ids) - 1)


def test_texts_that_fit_one_window_score_as_one_by_one_with_labels(tiny_fp32: LoadedModel, prompts: Prompts) -> None:
    texts = prompts.varied()
    expected = sum(plain_nll(tiny_fp32, ids) for ids in texts) / sum(len(ids) - 1 for ids in texts)
    assert score_texts(tiny_fp32, texts, 64, 32).loss == pytest.approx(expected, abs=1e-4)


def test_a_long_text_scores_as_window_by_window(tiny_fp32: LoadedModel, prompts: Prompts) -> None:
    """150 tokens in windows of 64, 32 apart; of every window but the first, the last 32 tokens (here or fewer)."""
    ids = prompts.exact(150)
    total, done = 0.0, 1
    for start, end in ((0, 64), (32, 96), (64, 128), (96, 150)):
        row = torch.tensor([ids[start:end]])
        logits = tiny_fp32.logits(row, torch.ones_like(row))[0]
        nll = torch.nn.functional.cross_entropy(logits[:-1], row[0, 1:], reduction="none")
        total += float(nll[done - start - 1 :].sum())
        done = end
    assert score_texts(tiny_fp32, [ids], 64, 32).loss == pytest.approx(total / 149, abs=1e-4)


def test_a_text_scores_the_same_alone_and_beside_a_longer_one(tiny_fp32: LoadedModel, prompts: Prompts) -> None:
    short, long = prompts.exact(10, start=100), prompts.exact(60)
    together = score_texts(tiny_fp32, [short, long], 64, 32)
    alone = [score_texts(tiny_fp32, [ids], 64, 32) for ids in (short, long)]
    assert together.nll_sum == pytest.approx(sum(score.nll_sum for score in alone), rel=1e-5)
    assert together.tokens == 9 + 59


def test_the_order_of_the_texts_changes_nothing(tiny_fp32: LoadedModel, prompts: Prompts) -> None:
    texts = prompts.varied()
    forward, backward = (score_texts(tiny_fp32, order, 32, 16) for order in (texts, texts[::-1]))
    assert forward.loss == pytest.approx(backward.loss, rel=1e-5)


def test_the_size_of_the_batches_changes_nothing(
    tiny_fp32: LoadedModel, prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = prompts.varied()
    together = score_texts(tiny_fp32, texts, 64, 32)
    monkeypatch.setattr(quality, "BATCH_TOKENS", 1)
    assert score_texts(tiny_fp32, texts, 64, 32).loss == pytest.approx(together.loss, rel=1e-5)


def test_a_corpus_scores_as_its_tokens(tiny_fp32: LoadedModel, prompts: Prompts) -> None:
    texts = ("Once upon a time there was a fox.", "The report is due on Friday.")
    expected = score_texts(tiny_fp32, [prompts.encode(text) for text in texts], 512, 256)
    assert score_corpus(tiny_fp32, Corpus("two sentences", texts), 0, 0) == expected


def test_the_embedded_model_predicts_english_better_than_chance(fp32_loss: float) -> None:
    assert fp32_loss < math.log(4096) - 1


def random_logits(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(0, 11, (2, 7), generator=generator)
    targets[0, 3] = targets[1, :2] = -100
    return (5 * torch.randn(2, 7, 11, generator=generator)).to(dtype), targets


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_token_nll_is_torchs_cross_entropy_in_float32(dtype: torch.dtype) -> None:
    logits, targets = random_logits(dtype)
    expected = torch.nn.functional.cross_entropy(logits.float().reshape(-1, 11), targets.reshape(-1), reduction="none")
    torch.testing.assert_close(token_nll(logits, targets), expected.reshape(2, 7).double(), rtol=1e-5, atol=1e-6)


def test_token_nll_by_hand() -> None:
    """Probabilities 1/4 and 3/4."""
    logits = torch.tensor([[[0.0, math.log(3)], [0.0, math.log(3)]]])
    nll = token_nll(logits, torch.tensor([[0, 1]]))
    assert nll.tolist() == [[pytest.approx(math.log(4)), pytest.approx(math.log(4 / 3))]]


def test_token_nll_is_zero_where_there_is_no_target() -> None:
    logits, targets = random_logits()
    assert (token_nll(logits, targets)[targets == -100] == 0).all()


def test_token_nll_without_any_target_is_all_zero() -> None:
    logits, targets = random_logits()
    assert not token_nll(logits, torch.full_like(targets, -100)).any()


@pytest.mark.parametrize("elements", [1, 11, 33, 1000])
def test_token_nll_is_the_same_in_slices(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, targets = random_logits()
    whole = token_nll(logits, targets)
    monkeypatch.setattr(quality, "CHUNK_ELEMENTS", elements)
    torch.testing.assert_close(token_nll(logits, targets), whole)


def test_token_nll_takes_logits_too_large_for_a_plain_exp() -> None:
    nll = token_nll(torch.tensor([[[1000.0, 0.0]]]), torch.tensor([[1]]))
    assert nll.item() == 1000.0
