from __future__ import annotations

import pickle
import re
from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from llm_bench_fixtures.errors import CorpusTooShort, InvalidSetting
from llm_bench_fixtures.measure.windows import (
    CutCorpus,
    Window,
    WindowPlan,
    WindowScheme,
    added_bos,
    count_words,
    cut_corpus,
    llama_windows,
    rolling_windows,
    samples_of,
    start_token,
    strided_windows,
)
from llm_bench_fixtures.models.source import ModelSource
from llm_bench_fixtures.workloads import Corpus

STRIDED, ROLLING, LLAMA = WindowScheme.STRIDED, WindowScheme.ROLLING, WindowScheme.LLAMA


@pytest.mark.parametrize(
    ("plan", "context", "resolved"),
    [
        (WindowPlan(), 512, (512, 256)),
        (WindowPlan(), 8192, (1024, 512)),
        (WindowPlan(window=100), 512, (100, 50)),
        (WindowPlan(window=100, stride=100), 512, (100, 100)),
        (WindowPlan(window=2000, stride=1500), 512, (512, 512)),
        (WindowPlan(stride=700), 512, (512, 512)),
        (WindowPlan(ROLLING), 8192, (1024, 0)),
        (WindowPlan(ROLLING, window=2048), 8192, (2048, 0)),
        (WindowPlan(LLAMA, window=2048), 512, (512, 0)),
    ],
)
def test_a_plan_resolves_to_the_context_up_to_1024_and_half_of_that(
    plan: WindowPlan, context: int, resolved: tuple[int, int]
) -> None:
    assert plan.resolved(context) == WindowPlan(plan.scheme, *resolved)


def test_a_resolved_plan_says_what_it_does() -> None:
    assert WindowPlan().resolved(512).description == "windows of 512 tokens, 256 apart"
    assert WindowPlan(ROLLING).resolved(512).description == "rolling windows of 512 tokens"
    assert WindowPlan(LLAMA, 64).resolved(512).description == "llama windows of 64 tokens"


def test_a_plan_reaches_another_process_as_it_is() -> None:
    plan = WindowPlan(LLAMA, 64)
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_the_model_is_given_all_but_the_last_token() -> None:
    piece = Window((5, 6, 7, 8), unscored=2)
    assert (piece.fed, piece.targets, piece.scored) == ((5, 6, 7), (7, 8), 2)


def test_strided_windows_by_hand() -> None:
    """Ten tokens in windows of six, four apart: tokens 1 to 5, then 6 to 9 with 4 and 5 as context."""
    assert strided_windows(tuple(range(10)), window=6, stride=4) == [
        Window((0, 1, 2, 3, 4, 5), unscored=1, start=0),
        Window((4, 5, 6, 7, 8, 9), unscored=2, start=4),
    ]


def test_a_last_token_alone_in_its_strided_window_makes_none() -> None:
    """It has nothing before it that could predict it."""
    assert [piece.ids for piece in strided_windows((0, 1, 2, 3, 4), window=2, stride=2)] == [(0, 1), (2, 3)]


def test_rolling_windows_by_hand() -> None:
    """Ten tokens, four at a time: the last two are given the four before the last of all."""
    assert rolling_windows(tuple(range(10)), window=4, start_id=99) == [
        Window((99, 0, 1, 2, 3), unscored=1, start=-1),
        Window((3, 4, 5, 6, 7), unscored=1, start=3),
        Window((5, 6, 7, 8, 9), unscored=3, start=5),
    ]


def test_a_short_text_is_one_rolling_window_after_the_start_token() -> None:
    assert rolling_windows((7, 8), window=4, start_id=99) == [Window((99, 7, 8), unscored=1, start=-1)]


def test_llama_windows_by_hand() -> None:
    """Fourteen tokens in chunks of six: of each the last two of six, after the one in the middle; two are left over."""
    ids = tuple(range(14))
    assert llama_windows(ids, window=6, bos=()) == [
        Window((0, 1, 2, 3, 4, 5), unscored=4, start=0),
        Window((6, 7, 8, 9, 10, 11), unscored=4, start=6),
    ]
    assert [piece.ids for piece in llama_windows(ids, window=6, bos=(99,))] == [
        (99, 1, 2, 3, 4, 5),
        (99, 7, 8, 9, 10, 11),
    ]


def test_an_odd_llama_window_scores_what_follows_its_middle() -> None:
    """Of five tokens, number two is in the middle; three and four are scored."""
    assert llama_windows(tuple(range(10)), window=5, bos=())[1].targets == (8, 9)


def test_less_text_than_two_llama_windows_is_refused_with_both_numbers() -> None:
    with pytest.raises(
        CorpusTooShort, match="llama windows of 6 tokens need a corpus of at least 12, and this one has 11"
    ):
        llama_windows(tuple(range(11)), window=6, bos=())


@st.composite
def lengths_windows_strides(draw: st.DrawFn) -> tuple[int, int, int]:
    """Windows that overlap: where they don't, the first token of each has nothing before it."""
    window = draw(st.integers(2, 12))
    return draw(st.integers(0, 60)), window, draw(st.integers(1, window - 1))


@settings(database=None)
@given(lengths_windows_strides())
def test_strided_windows_score_each_token_but_the_first_once_and_in_order(case: tuple[int, int, int]) -> None:
    length, window, stride = case
    windows = strided_windows(tuple(range(length)), window, stride)
    assert [token for piece in windows for token in piece.targets] == list(range(1, length))
    assert all(piece.unscored >= 1 for piece in windows)
    assert all(len(piece.ids) <= window for piece in windows)


@settings(database=None)
@given(st.integers(0, 60), st.integers(2, 12))
def test_rolling_windows_score_each_token_once_and_give_the_model_whole_windows(length: int, window: int) -> None:
    windows = rolling_windows(tuple(range(length)), window, start_id=-1)
    assert [token for piece in windows for token in piece.targets] == list(range(length))
    assert all(len(piece.fed) == min(window, length) for piece in windows)
    assert all(piece.fed == tuple(range(piece.fed[0], piece.fed[0] + len(piece.fed))) for piece in windows)


@settings(database=None)
@given(st.integers(3, 12), st.integers(2, 5), st.integers(0, 11))
def test_llama_windows_score_half_of_each_whole_chunk(window: int, chunks: int, rest: int) -> None:
    windows = llama_windows(tuple(range(window * chunks + rest % window)), window, bos=())
    assert len(windows) == chunks
    assert all(piece.scored == window - window // 2 - 1 for piece in windows)


class Letters:
    """A tokenizer with a token for each letter, which ends where the letter does; BOS before them where asked."""

    is_fast = True

    def __init__(self, bos: int | None = None, eos: int | None = None, adds_bos: bool = False) -> None:
        self.bos_token_id = bos
        self.eos_token_id = eos
        self.adds_bos = adds_bos

    def __call__(self, text: str, add_special_tokens: bool = True, **_: object) -> dict[str, Any]:
        ids, offsets = [ord(letter) for letter in text], [(at, at + 1) for at in range(len(text))]
        if self.adds_bos and add_special_tokens:
            ids, offsets = [self.bos_token_id, *ids], [(0, 0), *offsets]
        return {"input_ids": ids, "offset_mapping": offsets}


def cut(texts: Sequence[str], plan: WindowPlan, tokenizer: object = None) -> CutCorpus:
    chosen = tokenizer or Letters(bos=1)
    return cut_corpus(Corpus("texts", tuple(texts)), cast(PreTrainedTokenizerBase, chosen), plan)


def test_the_start_token_is_bos_else_eos() -> None:
    assert start_token(cast(PreTrainedTokenizerBase, Letters(bos=0, eos=2))) == 0
    assert start_token(cast(PreTrainedTokenizerBase, Letters(eos=2))) == 2
    with pytest.raises(InvalidSetting, match="rolling needs a start token"):
        start_token(cast(PreTrainedTokenizerBase, Letters()))


def test_bos_counts_as_added_only_where_the_tokenizer_adds_it() -> None:
    assert added_bos(cast(PreTrainedTokenizerBase, Letters(bos=1, adds_bos=True))) == (1,)
    assert added_bos(cast(PreTrainedTokenizerBase, Letters(bos=1))) == ()
    assert added_bos(cast(PreTrainedTokenizerBase, Letters())) == ()


@pytest.mark.parametrize(
    ("text", "words"), [("one two", 2), ("one  two\nthree", 3), (" one ", 3), ("one two\n", 3), ("", 1)]
)
def test_words_are_what_a_split_at_whitespace_gives(text: str, words: int) -> None:
    """As lm-evaluation-harness counts them, the empty ones at both ends included."""
    assert count_words(text) == words


def test_rolling_windows_score_the_whole_of_each_text() -> None:
    """Five letters in seven bytes, and three; two words and one."""
    corpus = cut(["aé ü ", "bcd"], WindowPlan(ROLLING, 4))
    assert (corpus.tokens, corpus.scored_bytes, corpus.scored_words) == (8, 10, 4)


def test_rolling_windows_take_no_special_token_but_the_start() -> None:
    (piece,) = cut(["ab"], WindowPlan(ROLLING, 4), Letters(bos=1, adds_bos=True)).windows
    assert piece.ids == (1, ord("a"), ord("b"))


def test_strided_windows_score_a_text_without_its_first_token() -> None:
    """Without the "a", which has one byte; the "é" has two."""
    corpus = cut(["aé b"], WindowPlan(STRIDED, 3, 2))
    assert (corpus.tokens, corpus.scored_bytes, corpus.scored_words) == (3, 4, 2)


def test_strided_windows_after_an_added_bos_score_all_of_the_text() -> None:
    corpus = cut(["aé b"], WindowPlan(STRIDED, 3, 2), Letters(bos=1, adds_bos=True))
    assert (corpus.tokens, corpus.scored_bytes) == (4, 5)


def test_windows_that_do_not_overlap_leave_the_bytes_of_their_first_tokens_out() -> None:
    """Of "abcdefg", three at a time, "bc" and "ef" are scored."""
    corpus = cut(["abcdefg"], WindowPlan(STRIDED, 3, 3))
    assert (corpus.tokens, corpus.scored_bytes, corpus.scored_words) == (4, 4, 2)


def test_llama_windows_take_the_texts_as_one() -> None:
    """Of "abc" and "defgh", in chunks of four, "d" and "h" are scored."""
    corpus = cut(["abc", "defgh"], WindowPlan(LLAMA, 4))
    assert [chr(token) for piece in corpus.windows for token in piece.targets] == ["d", "h"]
    assert (corpus.scored_bytes, corpus.scored_words) == (2, 2)


def test_a_character_in_several_tokens_counts_to_the_first(tiny_source: ModelSource) -> None:
    """The embedded tokenizer has no token for this bird: it is four, of a byte each. Scored without the "a"."""
    corpus = cut(["a🦜"], WindowPlan(STRIDED, 8, 4), tiny_source.load_tokenizer())
    assert (corpus.tokens, corpus.scored_bytes) == (4, 4)


def test_a_tokenizer_that_tells_no_offsets_leaves_bytes_and_words_open() -> None:
    class Slow(Letters):
        is_fast = False

        def __call__(self, text: str, add_special_tokens: bool = True, **how: object) -> dict[str, Any]:
            assert not how.get("return_offsets_mapping")
            return {"input_ids": super().__call__(text, add_special_tokens)["input_ids"]}

    strided, rolling = (cut(["abc"], plan, Slow(bos=1)) for plan in (WindowPlan(STRIDED, 4, 2), WindowPlan(ROLLING, 4)))
    assert (strided.tokens, strided.scored_bytes, strided.scored_words) == (2, None, None)
    assert (rolling.tokens, rolling.scored_bytes, rolling.scored_words) == (3, 3, 1)


def answered(prompt: str, answer: str, tokenizer: object, *, is_rendered: bool = False) -> CutCorpus:
    corpus = Corpus("answers", (prompt,), (answer,), is_rendered)
    return cut_corpus(corpus, cast(PreTrainedTokenizerBase, tokenizer), WindowPlan(ROLLING, 2))


def test_an_answer_is_scored_whole_after_its_whole_prompt() -> None:
    """However short the windows are; of a chat template's text no special token is added."""
    found = answered("ab ", "é d", Letters(bos=1, adds_bos=True))
    assert found.windows == (Window((1, *map(ord, "ab é d")), unscored=4, start=-4),)
    assert (found.tokens, found.scored_bytes, found.scored_words) == (3, 4, 2)
    (piece,) = answered("ab ", "é d", Letters(bos=1, adds_bos=True), is_rendered=True).windows
    assert piece.ids == tuple(map(ord, "ab é d"))


def test_a_prompt_has_the_tokens_that_it_has_alone() -> None:
    """Where one token would stand for its end and the answer's beginning, the answer is encoded alone."""

    class Pairs(Letters):
        def __call__(self, text: str, add_special_tokens: bool = True, **_: object) -> dict[str, Any]:
            return {"input_ids": [1000 if pair == "bc" else ord(pair) for pair in re.findall("bc|.", text)]}

    (piece,) = answered("ab", "cd", Pairs()).windows
    assert (piece.ids, piece.unscored) == (tuple(map(ord, "abcd")), 2)
    (piece,) = answered("ab", "d", Pairs()).windows
    assert (piece.ids, piece.unscored) == (tuple(map(ord, "abd")), 2)


def test_a_corpus_without_a_token_to_score_is_refused() -> None:
    with pytest.raises(CorpusTooShort, match="a text of at least two tokens"):
        cut(["a", "b"], WindowPlan(STRIDED, 8, 4))


def test_the_digest_tells_texts_and_windows_apart() -> None:
    plans = [WindowPlan(STRIDED, 4, 2), WindowPlan(STRIDED, 4, 4), WindowPlan(ROLLING, 4), WindowPlan(LLAMA, 4)]
    digests = [cut([text], plan).digest for text in ("abcdefghij", "xbcdefghij") for plan in plans]
    assert len(set(digests)) == 8
    assert cut(["abcdefghij"], plans[0]).digest == digests[0]


def test_samples_double_and_are_all_of_the_corpus() -> None:
    """Windows of 300 targets: four of them are the first 1,000 or more."""
    windows = [Window(tuple(range(301)), 1)] * 21
    samples = samples_of(windows)
    assert [len(sample) for sample in samples] == [4, 4, 8, 5]
    assert sorted(number for sample in samples for number in sample) == list(range(21))
    assert samples == samples_of(windows)
    assert samples[0] != [0, 1, 2, 3]
    assert samples_of(windows[:2]) == [[0, 1]]
