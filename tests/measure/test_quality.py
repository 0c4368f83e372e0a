from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.processors import TemplateProcessing
from whole_corpus import score_corpus

from llm_bench_fixtures.errors import ReferenceMismatch, WorkloadUnsupported
from llm_bench_fixtures.measure import quality
from llm_bench_fixtures.measure.equivalence import divergent_share, first_divergence
from llm_bench_fixtures.measure.quality import (
    Chunk,
    Part,
    Score,
    corpus_metrics,
    exp_or_inf,
    group_windows,
    join,
    score_chunks,
    score_part,
    score_windows,
    text_metrics,
)
from llm_bench_fixtures.measure.reference import divergence_metrics
from llm_bench_fixtures.measure.reference_files import plan_layout
from llm_bench_fixtures.measure.timing import run_round
from llm_bench_fixtures.measure.windows import CutCorpus, Window, WindowPlan, strided_windows
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.options.parsers import WindowScheme
from llm_bench_fixtures.workloads import Corpus, Prompts, TokenIds, Workload, read_corpus

ModelAround = Callable[[Any], TransformersModel]
STRIDED, ROLLING, LLAMA = WindowScheme.STRIDED, WindowScheme.ROLLING, WindowScheme.LLAMA
SHORT_PLANS = [WindowPlan(STRIDED, 64, 32), WindowPlan(STRIDED, 64, 64), WindowPlan(ROLLING, 64), WindowPlan(LLAMA, 64)]


class ConstantModel:
    """Gives each position the same probabilities, whatever came before."""

    def __init__(self, *probabilities: float) -> None:
        self.logits = torch.tensor(probabilities).log()
        self.seen: list[tuple[torch.Tensor, torch.Tensor]] = []
        text_config = SimpleNamespace(vocab_size=len(probabilities), max_position_embeddings=512)
        self.config = SimpleNamespace(get_text_config=lambda: text_config)

    def __call__(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, use_cache: bool = False
    ) -> SimpleNamespace:
        self.seen.append((input_ids, attention_mask))
        return SimpleNamespace(logits=self.logits.expand(*input_ids.shape, -1))


def score_texts(model: TransformersModel, texts: Sequence[TokenIds], window: int, stride: int) -> Score:
    return score_windows(model, [piece for ids in texts for piece in strided_windows(ids, window, stride)])


@pytest.mark.parametrize("vocabulary", [2, 7, 4096])
def test_a_uniform_model_has_the_size_of_its_vocabulary_as_perplexity(
    vocabulary: int, model_around: ModelAround
) -> None:
    model = model_around(ConstantModel(*[1 / vocabulary] * vocabulary))
    score = score_texts(model, [(0, 1, 1, 0), (1, 0)], 8, 4)
    assert exp_or_inf(score.loss) == pytest.approx(vocabulary)


@pytest.mark.parametrize(("window", "stride"), [(8, 4), (8, 7), (8, 1), (2, 1), (8, 8), (2, 2)])
def test_a_uniform_model_has_that_perplexity_at_every_window_and_stride(
    window: int, stride: int, model_around: ModelAround
) -> None:
    """Also where windows don't overlap: a token counted but not scored would lower the perplexity."""
    model = model_around(ConstantModel(*[1 / 5] * 5))
    score = score_texts(model, [tuple(index % 5 for index in range(30))], window, stride)
    assert exp_or_inf(score.loss) == pytest.approx(5)


@pytest.mark.parametrize("plan", SHORT_PLANS, ids=str)
def test_a_uniform_model_has_that_perplexity_in_every_scheme(plan: WindowPlan, model_around: ModelAround) -> None:
    """And ln(4096) nats, 12 bits, for each token of a text with as many bytes as there are."""
    corpus = Corpus("some", read_corpus(None).texts[:2])
    metrics = score_corpus(model_around(ConstantModel(*[1 / 4096] * 4096)), corpus, plan).metrics
    assert metrics["perplexity"] == pytest.approx(4096)
    scored_bytes = 12 * metrics["scored_tokens"] / metrics["bits_per_byte"]
    assert scored_bytes == pytest.approx(round(scored_bytes), abs=1e-3)
    assert math.log2(metrics["byte_perplexity"]) == pytest.approx(metrics["bits_per_byte"])


def test_a_text_of_n_tokens_has_n_minus_1_scored_tokens(model_around: ModelAround) -> None:
    model = model_around(ConstantModel(0.5, 0.5))
    assert score_texts(model, [(0,) * 30, (1,) * 5, (1,)], 8, 4).tokens == 29 + 4 + 0


def test_the_loss_is_weighted_by_tokens_and_not_by_texts(model_around: ModelAround) -> None:
    """Four tokens of probability 0.8 and one of 0.2; a mean of the two texts' means would be another number."""
    model = model_around(ConstantModel(0.2, 0.8))
    score = score_texts(model, [(1, 1, 1, 1, 1), (0, 0)], 8, 4)
    assert score.loss == pytest.approx(-(4 * math.log(0.8) + math.log(0.2)) / 5)


def test_padding_is_masked_and_not_scored_and_the_last_token_is_not_fed(model_around: ModelAround) -> None:
    """The padding token is token 0, which this model finds unlikely."""
    module = ConstantModel(0.01, 0.99)
    score = score_texts(model_around(module), [(1, 1, 1, 1), (1, 1)], 8, 4)
    assert score.loss == pytest.approx(-math.log(0.99), rel=1e-4)
    ((input_ids, mask),) = module.seen
    assert input_ids.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0]]


def test_each_target_has_its_place_in_the_windows_order(model_around: ModelAround) -> None:
    """Whatever the order in which the windows are batched, the longest first."""
    model = model_around(ConstantModel(0.25, 0.75))
    score = score_texts(model, [(1, 0), (1, 1, 1, 0)], 8, 4)
    quarter, most = math.log(4), math.log(4 / 3)
    assert score.nll.tolist() == pytest.approx([quarter, most, most, quarter])


def test_an_infinite_loss_has_an_infinite_perplexity() -> None:
    for nll in ([math.inf, 1.0], [1000.0, 1000.0]):
        assert exp_or_inf(Score(np.array(nll, np.float32)).loss) == math.inf


def test_bits_bytes_and_words_by_hand() -> None:
    """Two tokens of 3 ln 2 nats are six bits: over four bytes and three words."""
    score = Score(np.full(2, 3 * math.log(2), np.float32))
    assert text_metrics(score, CutCorpus((), (), scored_bytes=4, scored_words=3, corpus_tokens=2)) == pytest.approx(
        {
            "loss": 3 * math.log(2),
            "perplexity": 8.0,
            "bits_per_byte": 1.5,
            "byte_perplexity": 2**1.5,
            "word_perplexity": 4.0,
            "scored_tokens": 2,
        }
    )


def test_without_bytes_and_words_there_is_nothing_over_them() -> None:
    score = Score(np.ones(2, np.float32))
    assert set(text_metrics(score, CutCorpus((), (), None, None, 2))) == {"loss", "perplexity", "scored_tokens"}


@settings(database=None)
@given(st.lists(st.integers(2, 3000), max_size=40))
def test_groups_hold_every_window_and_are_no_larger_than_the_limit(lengths: list[int]) -> None:
    windows = [Window((0,) * length, unscored=1) for length in lengths]
    groups = group_windows(windows, 4096)
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) * max(lengths[index] - 1 for index in group) <= 4096


def plain_nll(model: TransformersModel, ids: TokenIds) -> float:
    """Summed over the text's tokens but the first, as transformers computes it from labels."""
    row = torch.tensor([ids])
    with torch.inference_mode():
        return float(model.module(input_ids=row, labels=row).loss) * (len(ids) - 1)


def test_texts_that_fit_one_window_score_as_one_by_one_with_labels(
    tiny_fp32: TransformersModel, prompts: Prompts
) -> None:
    texts = prompts.varied()
    expected = sum(plain_nll(tiny_fp32, ids) for ids in texts) / sum(len(ids) - 1 for ids in texts)
    assert score_texts(tiny_fp32, texts, 64, 32).loss == pytest.approx(expected, abs=1e-4)


def window_nll(model: TransformersModel, fed: TokenIds, targets: TokenIds) -> float:
    """Summed over the targets, which follow the last of what is fed."""
    row = torch.tensor([fed])
    logits = model.logits(row, torch.ones_like(row))[0, -len(targets) :]
    return float(torch.nn.functional.cross_entropy(logits, torch.tensor(targets), reduction="sum"))


def test_a_long_text_scores_as_window_by_window(tiny_fp32: TransformersModel, prompts: Prompts) -> None:
    """150 tokens in windows of 64, 32 apart; of every window but the first, the last 32 tokens (here or fewer)."""
    ids = prompts.exact(150)
    total, done = 0.0, 1
    for start, end in ((0, 64), (32, 96), (64, 128), (96, 150)):
        total += window_nll(tiny_fp32, ids[start : end - 1], ids[max(done, start + 1) : end])
        done = end
    assert score_texts(tiny_fp32, [ids], 64, 32).loss == pytest.approx(total / 149, abs=1e-4)


def test_a_corpus_scores_as_its_strided_windows(tiny_fp32: TransformersModel, prompts: Prompts) -> None:
    texts = ("Once upon a time there was a fox.", "The report is due on Friday.")
    expected = score_texts(tiny_fp32, [prompts.encode(text) for text in texts], 512, 256)
    assert score_corpus(tiny_fp32, Corpus("two sentences", texts), WindowPlan()).metrics["loss"] == expected.loss


def test_a_corpus_scores_as_its_rolling_windows(tiny_fp32: TransformersModel, prompts: Prompts) -> None:
    """A hundred-odd tokens, 64 at a time after the start token 0; the last ones are given the 64 before the last."""
    text = read_corpus(None).texts[0][:400]
    ids = prompts.encode(text)
    assert 64 < len(ids) < 128
    total = window_nll(tiny_fp32, (0, *ids[:63]), ids[:64])
    total += window_nll(tiny_fp32, ids[-65:-1], ids[64:])
    metrics = score_corpus(tiny_fp32, Corpus("one", (text,)), WindowPlan(ROLLING, 64)).metrics
    assert metrics["loss"] == pytest.approx(total / len(ids), rel=1e-5)
    assert metrics["bits_per_byte"] == pytest.approx(total / math.log(2) / 400, rel=1e-5)


def test_a_corpus_scores_as_its_llama_windows(tiny_fp32: TransformersModel, prompts: Prompts) -> None:
    """The embedded tokenizer adds no start token, so each chunk is scored as it stands."""
    text = read_corpus(None).texts[0][:400]
    ids = prompts.encode(text)
    assert 96 <= len(ids) < 144
    chunks = [ids[:48], ids[48:96]]
    total = sum(window_nll(tiny_fp32, chunk[:-1], chunk[25:]) for chunk in chunks)
    metrics = score_corpus(tiny_fp32, Corpus("one", (text,)), WindowPlan(LLAMA, 48)).metrics
    assert metrics["scored_tokens"] == 2 * 23
    assert metrics["loss"] == pytest.approx(total / 46, rel=1e-5)


def test_a_text_scores_the_same_alone_and_beside_a_longer_one(tiny_fp32: TransformersModel, prompts: Prompts) -> None:
    short, long = prompts.exact(10, start=100), prompts.exact(60)
    together = score_texts(tiny_fp32, [short, long], 64, 32)
    alone = np.concatenate([score_texts(tiny_fp32, [ids], 64, 32).nll for ids in (short, long)])
    np.testing.assert_allclose(together.nll, alone, rtol=1e-4, atol=1e-5)
    assert together.tokens == 9 + 59


def test_the_order_of_the_texts_changes_nothing(tiny_fp32: TransformersModel, prompts: Prompts) -> None:
    texts = prompts.varied()
    forward, backward = (score_texts(tiny_fp32, order, 32, 16) for order in (texts, texts[::-1]))
    assert forward.loss == pytest.approx(backward.loss, rel=1e-5)


def test_the_embedded_model_predicts_english_better_than_chance(fp32_loss: float) -> None:
    assert fp32_loss < math.log(4096) - 1


def chunks_of(logits: torch.Tensor, targets: TokenIds, rows: int = 100) -> Chunk:
    """All positions, each scored, their chunks joined again. logits: (n, V)."""
    parts = [
        [part.clone() for part in (chunk.shifted, chunk.weights, chunk.norm, chunk.nll)]
        for chunk in score_chunks(logits, Window((0, *targets), unscored=1), rows)
    ]
    return Chunk(*(torch.cat(same) for same in zip(*parts, strict=True)))


def random_logits(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, TokenIds]:
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(0, 11, (7,), generator=generator)
    return (5 * torch.randn(7, 11, generator=generator)).to(dtype), tuple(targets.tolist())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_nll_is_torchs_cross_entropy_in_float32(dtype: torch.dtype) -> None:
    logits, targets = random_logits(dtype)
    expected = torch.nn.functional.cross_entropy(logits.float(), torch.tensor(targets), reduction="none")
    torch.testing.assert_close(chunks_of(logits, targets).nll, expected, rtol=1e-5, atol=1e-6)


def test_scoring_leaves_the_logits_as_they_are() -> None:
    logits, targets = random_logits()
    before = logits.clone()
    chunks_of(logits, targets)
    assert torch.equal(logits, before)


def test_the_nll_by_hand() -> None:
    """Probabilities 1/4 and 3/4."""
    logits = torch.tensor([[0.0, math.log(3)], [0.0, math.log(3)]])
    assert chunks_of(logits, (0, 1)).nll.tolist() == pytest.approx([math.log(4), math.log(4 / 3)])


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
def test_chunks_of_any_size_hold_the_same(rows: int) -> None:
    logits, targets = random_logits()
    whole, parts = chunks_of(logits, targets), chunks_of(logits, targets, rows)
    for name in ("shifted", "weights", "norm", "nll"):
        torch.testing.assert_close(getattr(parts, name), getattr(whole, name))


def test_only_targets_are_scored() -> None:
    """Four tokens fed, the last two predictions scored."""
    logits = torch.arange(20.0).reshape(4, 5)
    (chunk,) = score_chunks(logits, Window((0, 1, 2, 3, 4), unscored=3), 100)
    assert torch.equal(chunk.shifted, logits[2:] - logits[2:, -1:])


def test_logits_too_large_for_a_plain_exp_are_scored() -> None:
    assert chunks_of(torch.tensor([[1000.0, 0.0]]), (1,)).nll.item() == 1000.0


# Against a reference


PROMPTS = ("Once upon a time", "The keeper climbed the stairs at dusk.", "The hen")
ANSWERS = (", there was a little hen.", " She lit the lamp, and the ships came home.", " laid an egg")


CHAT_TEMPLATE = "{{ bos_token }}{% for one in messages %}[{{ one.role }}] {{ one.content }}\n{% endfor %}{{ '[A]\\n' }}"


def with_chat_template(model: TransformersModel) -> TransformersModel:
    """Its tokenizer puts a BOS before a text, as many an instruct model's does; the template has its own."""
    tokenizer = copy.deepcopy(model.tokenizer)
    bos = (tokenizer.bos_token, tokenizer.bos_token_id)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=f"{bos[0]} $A", special_tokens=[bos])
    tokenizer.chat_template = CHAT_TEMPLATE
    return replace(model, tokenizer=tokenizer)


def chat_of(model: TransformersModel, prompt: str, **options: bool) -> Any:
    return model.tokenizer.apply_chat_template([{"role": "user", "content": prompt}], **options)


def plain_log_probabilities(model: TransformersModel, prompt: str, answer: str) -> tuple[torch.Tensor, torch.Tensor]:
    """As one writes it: log probabilities at each of the answer's tokens, (n, V), and the tokens, (n,)."""
    is_chat = model.tokenizer.chat_template is not None
    text = chat_of(model, prompt, tokenize=False) if is_chat else prompt
    ids = model.tokenizer(text + answer, return_tensors="pt", add_special_tokens=not is_chat)["input_ids"]
    before = len(chat_of(model, prompt, return_dict=False) if is_chat else model.tokenizer(prompt)["input_ids"])
    with torch.no_grad():
        logits = model.module(ids).logits[0]
    return torch.log_softmax(logits.double(), -1)[before - 1 : -1], ids[0, before:]


@pytest.mark.parametrize("is_chat", [False, True], ids=["texts", "chats"])
def test_answers_have_the_quality_that_a_plain_loop_finds(
    is_chat: bool, tmp_path: Path, tiny_fp32: TransformersModel
) -> None:
    """Perplexity, divergence and agreement to 1e-6, of a model with noise on its weights against the one without."""
    model, texts = tiny_fp32, PROMPTS
    if is_chat:
        model = with_chat_template(tiny_fp32)
        texts = tuple(chat_of(model, prompt, tokenize=False) for prompt in PROMPTS)
    other = damaged(model, 0.2)
    corpus = Corpus("answers", texts, ANSWERS, is_rendered=is_chat)
    score_corpus(model, corpus, WindowPlan(window=8), keep=tmp_path)
    metrics = score_corpus(other, corpus, WindowPlan(window=8), compare_with=tmp_path).metrics
    nll, kld, same = [], [], []
    for pair in zip(PROMPTS, ANSWERS, strict=True):
        (reference, _), (found, targets) = (plain_log_probabilities(one, *pair) for one in (model, other))
        nll += (-found.gather(-1, targets.unsqueeze(-1)).squeeze(-1)).tolist()
        kld += (reference.exp() * (reference - found)).sum(-1).tolist()
        same += (reference.argmax(-1) == found.argmax(-1)).tolist()
    assert metrics["scored_tokens"] == len(nll)
    assert metrics["perplexity"] == pytest.approx(math.exp(sum(nll) / len(nll)), rel=1e-6)
    assert metrics["kld_mean"] == pytest.approx(sum(kld) / len(kld), abs=1e-6)
    assert metrics["kld_mean"] > 0.01
    assert metrics["top1_agreement"] == pytest.approx(sum(same) / len(same), abs=1e-6)
    assert metrics["bits_per_byte"] == pytest.approx(sum(nll) / math.log(2) / len("".join(ANSWERS)), rel=1e-6)


def test_an_answer_beyond_the_context_is_said(model_around: ModelAround) -> None:
    corpus = Corpus("answers", ("a " * 600,), ("b",))
    with pytest.raises(WorkloadUnsupported, match=r"an answer ends after \d+ tokens, and the model's context is 512"):
        score_corpus(model_around(ConstantModel(*[1 / 4096] * 4096)), corpus, WindowPlan())


@pytest.fixture(scope="module")
def short_corpus_of_four() -> Corpus:
    return Corpus("four", tuple(text[:600] for text in read_corpus(None).texts[:4]))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, tiny_fp32: TransformersModel, short_corpus_of_four: Corpus) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    score_corpus(tiny_fp32, short_corpus_of_four, WindowPlan(window=64), keep=folder)
    return folder


COMPARED = {
    *("ppl_ratio", "ppl_ratio_error"),
    *("kld_mean", "kld_error", "kld_p50", "kld_p99", "kld_max"),
    *("top1_agreement", "mean_dp", "rms_dp"),
}


def test_the_reference_itself_has_no_comparison(
    tmp_path: Path, tiny_fp32: TransformersModel, short_corpus_of_four: Corpus
) -> None:
    metrics = score_corpus(tiny_fp32, short_corpus_of_four, WindowPlan(window=64), keep=tmp_path).metrics
    assert not COMPARED & set(metrics)


@pytest.mark.parametrize("plan", SHORT_PLANS, ids=str)
def test_an_identical_model_differs_by_exactly_nothing(
    plan: WindowPlan, tmp_path: Path, tiny_fp32: TransformersModel, short_corpus_of_four: Corpus
) -> None:
    own = score_corpus(tiny_fp32, short_corpus_of_four, plan, keep=tmp_path).metrics
    metrics = score_corpus(tiny_fp32, short_corpus_of_four, plan, compare_with=tmp_path).metrics
    assert {name: metrics[name] for name in own} == own
    for name in COMPARED & set(metrics):
        assert metrics[name] == (1.0 if name in ("ppl_ratio", "top1_agreement") else 0.0), name


def compare_constants(
    p: Sequence[float], q: Sequence[float], model_around: ModelAround, folder: Path, texts: tuple[str, ...] = ("ab",)
) -> Mapping[str, float]:
    """What sets a model that always says q apart from a reference that always says p."""
    corpus, plan = Corpus("letters", texts), WindowPlan(ROLLING)
    score_corpus(model_around(ConstantModel(*p)), corpus, plan, keep=folder)
    return score_corpus(model_around(ConstantModel(*q)), corpus, plan, compare_with=folder).metrics


def vocabulary_of(tiny: Prompts, first: float, second: float) -> list[float]:
    """Probabilities over the embedded vocabulary: those two of the tokens "a" and "b", the rest spread evenly."""
    ids = [token for letter in "ab" for token in tiny.encode(letter)]
    spread = [(1 - first - second) / 4094] * 4096
    spread[ids[0]], spread[ids[1]] = first, second
    return spread


def test_two_known_distributions_have_their_known_divergence(
    model_around: ModelAround, prompts: Prompts, tmp_path: Path
) -> None:
    """p = (1/2, 1/4, rest 1/4) and q = (1/8, 3/8, rest 1/2), of "a", "b" and the rest; scored are "a", "b" and "b"."""
    texts = ("a", "b", "b")
    ids = [token for text in texts for token in prompts.encode(text)]
    assert len(ids) == 3
    p, q = vocabulary_of(prompts, 1 / 2, 1 / 4), vocabulary_of(prompts, 1 / 8, 3 / 8)
    kld = 1 / 2 * math.log(4) + 1 / 4 * math.log(2 / 3) + 1 / 4 * math.log(1 / 2)
    metrics = compare_constants(p, q, model_around, tmp_path, texts)
    change = [q[token] - p[token] for token in ids]
    assert metrics["scored_tokens"] == len(ids)
    assert metrics["kld_mean"] == pytest.approx(kld, rel=1e-5)
    assert metrics["kld_max"] == metrics["kld_p50"] == pytest.approx(kld, rel=1e-5)
    assert metrics["kld_error"] == 0.0
    assert metrics["top1_agreement"] == 0.0
    assert metrics["mean_dp"] == pytest.approx(sum(change) / len(ids), rel=1e-5)
    assert metrics["rms_dp"] == pytest.approx(math.sqrt(sum(d * d for d in change) / len(ids)), rel=1e-5)
    logs = [math.log(p[token] / q[token]) for token in ids]
    mean = sum(logs) / len(logs)
    assert metrics["ppl_ratio"] == pytest.approx(math.exp(mean), rel=1e-5)
    variance = sum((log - mean) ** 2 for log in logs) / (len(logs) - 1)
    error = math.exp(mean) * math.sqrt(variance / len(logs))
    assert metrics["ppl_ratio_error"] == pytest.approx(error, rel=1e-4)


def test_a_variant_whose_most_likely_tokens_include_the_references_agrees(
    model_around: ModelAround, prompts: Prompts, tmp_path: Path
) -> None:
    p, q = vocabulary_of(prompts, 1 / 2, 1 / 4), vocabulary_of(prompts, 3 / 8, 3 / 8)
    assert compare_constants(p, q, model_around, tmp_path)["top1_agreement"] == 1.0


def test_percentiles_that_the_positions_cannot_support_are_left_out() -> None:
    found = [
        sorted(name for name in divergence_metrics(*np.zeros((2, positions))) if name.startswith("kld_p"))
        for positions in (1, 2, 99, 100, 999, 1000)
    ]
    assert found == [[], ["kld_p50"], ["kld_p50"], *[["kld_p50", "kld_p99"]] * 2, ["kld_p50", "kld_p99", "kld_p999"]]


def test_one_position_has_no_error_of_the_ratio(model_around: ModelAround, tmp_path: Path) -> None:
    uniform = [1 / 4096] * 4096
    metrics = compare_constants(uniform, uniform, model_around, tmp_path, ("a",))
    assert metrics["scored_tokens"] == 1
    assert metrics["ppl_ratio"] == 1.0
    assert "ppl_ratio_error" not in metrics


def test_a_token_that_neither_model_thinks_possible_adds_nothing(model_around: ModelAround, tmp_path: Path) -> None:
    """Its logit is minus infinity, and 0 times that is not a number."""
    p = [0.5, 0.5 / 4094, *[0.5 / 4094] * 4093, 0.0]
    metrics = compare_constants(p, p, model_around, tmp_path)
    assert metrics["kld_mean"] == 0.0
    q = [0.25, 0.75 / 4094, *[0.75 / 4094] * 4093, 0.0]
    expected = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    assert compare_constants(p, q, model_around, tmp_path)["kld_mean"] == pytest.approx(expected, rel=1e-4)


def test_a_token_that_only_the_variant_thinks_impossible_is_an_infinite_divergence(
    model_around: ModelAround, tmp_path: Path
) -> None:
    p, q = [1 / 4096] * 4096, [1 / 4095] * 4095 + [0.0]
    assert compare_constants(p, q, model_around, tmp_path)["kld_max"] == math.inf


def damaged(model: TransformersModel, size: float) -> TransformersModel:
    """With noise of `size` standard deviations added to each of its matrices."""
    module = copy.deepcopy(model.module)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in module.transformer.h.parameters():
            if weight.dim() == 2:
                weight += size * weight.std() * torch.randn(weight.shape, generator=generator)
    return replace(model, module=module)


def test_more_damage_to_the_weights_moves_the_metrics_further(
    tiny_fp32: TransformersModel, short_corpus_of_four: Corpus, kept: Path
) -> None:
    runs = [
        score_corpus(damaged(tiny_fp32, size), short_corpus_of_four, WindowPlan(window=64), compare_with=kept).metrics
        for size in (0.0, 0.25, 0.5, 1.0)
    ]
    rising = {"loss", "perplexity", "bits_per_byte", "word_perplexity", "byte_perplexity", "ppl_ratio", "rms_dp"}
    for name in rising | {"kld_mean", "kld_p50", "kld_p99", "kld_max"}:
        values = [run[name] for run in runs]
        assert values == sorted(set(values)), name
    agreement = [run["top1_agreement"] for run in runs]
    assert agreement == sorted(set(agreement), reverse=True)


def test_more_damage_moves_the_outermost_thousandth_and_the_generated_text_further(
    tiny_fp32: TransformersModel, prompts: Prompts, tmp_path: Path
) -> None:
    """A thousandth takes a thousand positions."""
    corpus = read_corpus(None)
    corpus = Corpus("beginnings", tuple(text[:1200] for text in corpus.texts))
    plan = WindowPlan(window=64, stride=64)
    score_corpus(tiny_fp32, corpus, plan, keep=tmp_path)
    workload = Workload(prompts.varied(8), new_tokens=12, batch_size=8)
    undamaged = run_round(tiny_fp32, workload).continuations
    kld_p999, shares, firsts = [], [], []
    for size in (0.0, 0.25, 1.0):
        other = damaged(tiny_fp32, size)
        kld_p999.append(score_corpus(other, corpus, plan, compare_with=tmp_path).metrics["kld_p999"])
        texts = list(zip(undamaged, run_round(other, workload).continuations, strict=True))
        shares.append(sum(divergent_share(*pair) for pair in texts))
        firsts.append(sum(first_divergence(*pair) for pair in texts))
    assert kld_p999 == sorted(set(kld_p999))
    assert shares == sorted(set(shares))
    assert firsts == sorted(set(firsts), reverse=True)


@pytest.mark.parametrize("size", [0.02, 0.25, 1.0])
def test_every_sampled_figure_is_exact_to_its_stated_error(
    size: float,
    tiny_fp32: TransformersModel,
    short_corpus_of_four: Corpus,
    kept: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The embedded model's 4096 probabilities of a position against 16 + 16 of them."""
    plan = WindowPlan(window=64)
    monkeypatch.setattr(quality, "plan_layout", partial(plan_layout, budget_bytes=1))
    score_corpus(tiny_fp32, short_corpus_of_four, plan, keep=tmp_path)
    exact, sampled = (
        score_corpus(damaged(tiny_fp32, size), short_corpus_of_four, plan, compare_with=folder).metrics
        for folder in (kept, tmp_path)
    )
    assert abs(sampled["kld_mean"] - exact["kld_mean"]) <= 2 * sampled["kld_error"]
    for name in ("kld_p50", "kld_p99", "kld_max"):
        assert sampled[f"{name}_error"] > 0
        assert abs(sampled[name] - exact[name]) <= sampled[f"{name}_error"]
        assert f"{name}_error" not in exact


def test_much_damage_lowers_the_mean_probability_of_the_true_token(
    tiny_fp32: TransformersModel, short_corpus_of_four: Corpus, kept: Path
) -> None:
    """Little damage may raise it: noise makes a model surer of itself, sometimes rightly."""
    some, much = (
        score_corpus(damaged(tiny_fp32, size), short_corpus_of_four, WindowPlan(window=64), compare_with=kept).metrics
        for size in (1.0, 2.0)
    )
    assert 0 > some["mean_dp"] > much["mean_dp"]


@pytest.mark.parametrize("setting", [("BATCH_TOKENS", 1), ("CHUNK_ELEMENTS", 4096 * 3), ("CHUNK_ELEMENTS", 1)])
def test_the_size_of_batches_and_chunks_changes_nothing(
    setting: tuple[str, int],
    tiny_fp32: TransformersModel,
    short_corpus_of_four: Corpus,
    kept: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = damaged(tiny_fp32, 0.1)
    plan = WindowPlan(window=64)
    usual = score_corpus(other, short_corpus_of_four, plan, compare_with=kept).metrics
    monkeypatch.setattr(quality, *setting)
    assert score_corpus(other, short_corpus_of_four, plan, compare_with=kept).metrics == pytest.approx(usual, rel=1e-4)


def test_another_text_or_other_windows_are_not_compared(
    tiny_fp32: TransformersModel, short_corpus_of_four: Corpus, kept: Path
) -> None:
    other = Corpus("four", tuple(text.replace("e", "a", 1) for text in short_corpus_of_four.texts))
    for corpus, plan in ((other, WindowPlan(window=64)), (short_corpus_of_four, WindowPlan(window=32))):
        with pytest.raises(ReferenceMismatch, match="both need the same corpus, tokenizer and windows"):
            score_corpus(tiny_fp32, corpus, plan, compare_with=kept)


def test_samples_that_are_joined_say_what_the_whole_corpus_says(
    tiny_fp32: TransformersModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llm_bench_fixtures.measure.windows.FIRST_TOKENS", 30)
    corpus, plan = (
        Corpus("four", tuple(f"{text} " * 9 for text in ("The hen", "The lamp", "Ships", "A keeper"))),
        WindowPlan(window=32),
    )
    other = damaged(tiny_fp32, 0.05)
    score_corpus(tiny_fp32, corpus, plan, keep=tmp_path / "whole")
    whole = score_part(other, corpus, plan, compare_with=tmp_path / "whole")
    parts: list[Part] = []
    while not (parts and parts[-1].cut.is_last):
        sample, folder = len(parts), tmp_path / str(len(parts))
        score_part(tiny_fp32, corpus, plan, sample, keep=folder)
        parts.append(score_part(other, corpus, plan, sample, compare_with=folder))
    joined = join(parts)
    assert len(parts) > 1
    assert joined.cut.share == pytest.approx(1)
    assert joined.places.tolist() == whole.places.tolist()
    assert corpus_metrics(joined) == pytest.approx(corpus_metrics(whole), rel=1e-3, abs=1e-6)
