"""How a corpus is cut into what the model sees at once, and which of its tokens are scored there.

Three schemes, each a convention whose figures people compare:

- strided: windows that start `stride` tokens apart; a token is scored in the first window that holds it, given all
  tokens before it there. The first token of a text is not scored. Source: Hugging Face, "Perplexity of fixed-length
  models".
- rolling: every token of a text is scored once, the first one given a start token (BOS, else EOS). Targets are
  disjoint, at most `window` in a row, and the model is given at most `window` tokens; the last window reaches back so
  that it is given as many as the others. Source: lm-evaluation-harness, `loglikelihood_rolling`.
- llama: the texts in a row are one text. It is cut into chunks of `window` tokens; the first of each is replaced by
  BOS where the tokenizer adds one, and the targets are the tokens after the chunk's middle. What is left at the end is
  dropped. Source: llama.cpp, `llama-perplexity`.

A corpus of answers is not cut: each is a window with its whole prompt, and all of its tokens are targets.
"""

from __future__ import annotations

import hashlib
import random
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from llm_bench_fixtures.errors import CorpusTooShort, InvalidSetting
from llm_bench_fixtures.options.parsers import WindowScheme
from llm_bench_fixtures.workloads import Corpus, TokenIds, Tokenizer, plain_ids, text_ids

if TYPE_CHECKING:
    from llm_bench_fixtures.options.settings import Settings

USUAL_WINDOW = 1024
FIRST_TOKENS = 1000  # targets of the first sample, at least: fewer may be of one kind
SEED = 0  # for the order in which a corpus and the questions are sampled


@dataclass(frozen=True)
class WindowPlan:
    """How to cut: lengths in tokens, 0 for the default. Only strided windows have a stride."""

    scheme: WindowScheme = WindowScheme.STRIDED
    window: int = 0
    stride: int = 0

    def resolved(self, context_length: int) -> WindowPlan:
        """Plan with the lengths that a model takes. Defaults: its context up to 1024, and half a window."""
        window = min(self.window or USUAL_WINDOW, context_length)
        if self.scheme is not WindowScheme.STRIDED:
            return replace(self, window=window)
        return replace(self, window=window, stride=min(self.stride or max(window // 2, 1), window))

    @property
    def description(self) -> str:
        """Description of a resolved plan, for the report."""
        if self.scheme is WindowScheme.STRIDED:
            return f"windows of {self.window} tokens, {self.stride} apart"
        return f"{self.scheme} windows of {self.window} tokens"


def plan_windows(settings: Settings) -> WindowPlan:
    """How the options say to cut."""
    return WindowPlan(settings.windows, settings.window, settings.stride)


@dataclass(frozen=True)
class Window:
    """Consecutive tokens of a text: first some that are context only, then the targets."""

    ids: TokenIds
    unscored: int
    """How many of the first tokens are context only."""
    start: int = 0
    """Position of the first token in its text. Below 0 for what comes before it: rolling windows' start token, and an
    answer's prompt."""

    @property
    def scored(self) -> int:
        return len(self.ids) - self.unscored

    @property
    def fed(self) -> TokenIds:
        """Tokens that the model is given: the last token is a target only."""
        return self.ids[:-1]

    @property
    def targets(self) -> TokenIds:
        return self.ids[self.unscored :]


@dataclass(frozen=True)
class CutCorpus:
    """A sample of a corpus, or all of it, as windows."""

    windows: tuple[Window, ...]
    places: tuple[int, ...]
    """Position of each window's first target among those of the whole corpus."""
    scored_bytes: int | None
    """Bytes in UTF-8 of the text that the targets of this sample and the samples before it make up. None: the tokenizer
    doesn't say which text a token stands for."""
    scored_words: int | None
    """Words of that text. None: the tokenizer doesn't say which text a token stands for."""
    corpus_tokens: int
    """Targets of the whole corpus."""
    share: float = 1.0
    """Share of the tokens that scoring the whole corpus feeds the model."""
    is_last: bool = True
    """Whether the samples up to this one are the whole corpus."""

    @property
    def tokens(self) -> int:
        """Targets of all windows."""
        return sum(piece.scored for piece in self.windows)

    @property
    def digest(self) -> str:
        """Digest of targets and contexts in their order."""
        digest = hashlib.sha256()
        for piece in self.windows:
            digest.update(array("q", (len(piece.ids), piece.unscored, *piece.ids)).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class _CutText:
    """A text of a corpus, and its windows."""

    text: str
    tokens: int
    ends: list[int] | None
    windows: list[Window]


def cut_corpus(corpus: Corpus, tokenizer: Tokenizer, plan: WindowPlan, sample: int | None = None) -> CutCorpus:
    """Cut a corpus by a resolved plan: the sample of that number, from 0, or all of it.

    Raises CorpusTooShort where there is nothing to score.
    """
    parts = [*(_cut_answers(corpus, tokenizer) if corpus.answers else _cut_whole(corpus.texts, tokenizer, plan))]
    windows = [window for part in parts for window in part.windows]
    *firsts, total = accumulate((piece.scored for piece in windows), initial=0)
    if not total:
        raise CorpusTooShort("a corpus needs a text of at least two tokens")
    samples = [list(range(len(windows)))] if sample is None else samples_of(windows)
    number = sample or 0
    chosen, so_far = samples[number], {index for one in samples[: number + 1] for index in one}
    indices = iter(range(len(windows)))
    kept = [replace(part, windows=[one for one in part.windows if next(indices) in so_far]) for part in parts]
    scored_bytes, scored_words = _scored_size(kept)
    return CutCorpus(
        tuple(windows[index] for index in chosen),
        tuple(firsts[index] for index in chosen),
        scored_bytes,
        scored_words,
        total,
        sum(len(windows[index].fed) for index in chosen) / sum(len(piece.fed) for piece in windows),
        number == len(samples) - 1,
    )


def samples_of(windows: Sequence[Window]) -> list[list[int]]:
    """Numbers of the windows of each sample, in an order that is the same for all variants.

    The first has FIRST_TOKENS targets or a little more, each after it as many windows as all before it together.
    """
    order = list(range(len(windows)))
    random.Random(SEED).shuffle(order)  # noqa: S311
    sizes = accumulate(windows[index].scored for index in order)
    ends = [next((count for count, size in enumerate(sizes, 1) if size >= FIRST_TOKENS), len(order))]
    while ends[-1] < len(order):
        ends.append(min(2 * ends[-1], len(order)))
    return [sorted(order[start:end]) for start, end in pairwise([0, *ends])]


def _cut_whole(texts: Sequence[str], tokenizer: Tokenizer, plan: WindowPlan) -> Iterator[_CutText]:
    for text in ["".join(texts)] if plan.scheme is WindowScheme.LLAMA else texts:
        ids, ends = _encode(text, tokenizer, special=plan.scheme is not WindowScheme.ROLLING)
        if plan.scheme is WindowScheme.ROLLING:
            windows = rolling_windows(ids, plan.window, start_token(tokenizer))
        elif plan.scheme is WindowScheme.LLAMA:
            windows = llama_windows(ids, plan.window, added_bos(tokenizer))
        else:
            windows = strided_windows(ids, plan.window, plan.stride)
        yield _CutText(text, len(ids), ends, windows)


def _cut_answers(corpus: Corpus, tokenizer: Tokenizer) -> Iterator[_CutText]:
    for prompt, answer in zip(corpus.texts, corpus.answers, strict=True):
        piece = answer_window(tokenizer, prompt, answer, is_rendered=corpus.is_rendered)
        yield _CutText(answer, piece.scored, None, [piece])


def _scored_size(parts: Sequence[_CutText]) -> tuple[int, int] | tuple[None, None]:
    """Bytes and words of what the parts' windows score; None where a stretch of it can't be told."""
    runs = [run for part in parts for run in _scored_runs(part)]
    known = [run for run in runs if run is not None]
    if len(known) < len(runs):
        return None, None
    return sum(len(run.encode()) for run in known), sum(map(count_words, known))


def count_words(text: str) -> int:
    """The parts between whitespace, the empty ones before the first and after the last counted too.

    As lm-evaluation-harness counts the words of its wikitext task.
    """
    return len(re.split(r"\s+", text))


def _encode(text: str, tokenizer: Tokenizer, *, special: bool) -> tuple[TokenIds, list[int] | None]:
    """Token ids, and where in the text each one's part ends; None where the tokenizer can't tell.

    special: whether to let the tokenizer add its special tokens. Of tokens that share a character, the first has it.
    """
    fast = bool(getattr(tokenizer, "is_fast", False))
    encoded = tokenizer(text, add_special_tokens=special, return_offsets_mapping=fast, verbose=False)
    ends = list(accumulate((end for _, end in encoded["offset_mapping"]), max)) if fast else None
    return tuple(encoded["input_ids"]), ends


def answer_window(tokenizer: Tokenizer, prompt: str, answer: str, *, is_rendered: bool) -> Window:
    """The answer's tokens after the prompt's, which are those that the prompt has alone.

    Both are encoded as one text, which sentencepiece's tokenizers need for a word's first token; unless a token would
    then stand for the prompt's end and the answer's beginning. is_rendered: as in `Corpus`.
    """
    before = text_ids(tokenizer, prompt, is_rendered=is_rendered)
    ids = text_ids(tokenizer, f"{prompt}{answer}", is_rendered=is_rendered)
    if ids[: len(before)] != before:
        ids = (*before, *plain_ids(tokenizer, answer))
    return Window(ids, len(before), -len(before))


def start_token(tokenizer: Tokenizer) -> int:
    """BOS, else EOS. Raises InvalidSetting where the tokenizer has neither."""
    for token in (tokenizer.bos_token_id, tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    raise InvalidSetting("--llm-windows rolling needs a start token, and this tokenizer has none")


def added_bos(tokenizer: Tokenizer) -> TokenIds:
    """The BOS that the tokenizer puts before a text; nothing where it adds none."""
    bos = tokenizer.bos_token_id
    return (int(bos),) if bos is not None and tokenizer("a")["input_ids"][:1] == [bos] else ()


def strided_windows(ids: TokenIds, window: int, stride: int) -> list[Window]:
    """Windows that score each token but the first once; with stride == window, none of the windows' first ones."""
    windows = []
    scored_up_to = 1
    for start in range(0, len(ids), stride):
        end = min(start + window, len(ids))
        unscored = max(scored_up_to - start, 1)
        if start + unscored < end:
            windows.append(Window(ids[start:end], unscored, start))
            scored_up_to = end
        if end == len(ids):
            break
    return windows


def rolling_windows(ids: TokenIds, window: int, start_id: int) -> list[Window]:
    """Windows that score each token once, in rows of `window` tokens, given as many before the last of them."""
    windows = []
    row = (start_id, *ids)  # token i of the text is number i + 1 here
    for first in range(0, len(ids), window):
        end = min(first + window, len(ids))
        begin = max(end - window, 0)
        windows.append(Window(row[begin : end + 1], first - begin + 1, begin - 1))
    return windows


def llama_windows(ids: TokenIds, window: int, bos: TokenIds) -> list[Window]:
    """Whole chunks that score what follows the token in their middle. bos: what each begins with, if anything.

    Raises CorpusTooShort below two chunks, as llama-perplexity does.
    """
    if len(ids) < 2 * window:
        raise CorpusTooShort(
            f"llama windows of {window} tokens need a corpus of at least {2 * window}, and this one has {len(ids)}: "
            "give a longer --llm-corpus or a smaller --llm-window"
        )
    starts = range(0, len(ids) - window + 1, window)
    return [Window((*bos, *ids[start + len(bos) : start + window]), window // 2 + 1, start) for start in starts]


def _scored_runs(part: _CutText) -> Iterator[str | None]:
    """The stretches of a text that its windows' targets stand for; None for one that can't be told."""
    text, ends = part.text, part.ends
    for first, stop in _spans(part.windows):
        if (first, stop) == (0, part.tokens):
            yield text
        elif ends is None:
            yield None
        else:
            yield text[ends[first - 1] if first else 0 : len(text) if stop == part.tokens else ends[stop - 1]]


def _spans(windows: Sequence[Window]) -> list[tuple[int, int]]:
    """Ranges of the text's tokens that hold targets, adjoining windows joined: first and stop."""
    spans: list[tuple[int, int]] = []
    for piece in windows:
        first, stop = piece.start + piece.unscored, piece.start + len(piece.ids)
        if spans and spans[-1][1] == first:
            first, _ = spans.pop()
        spans.append((first, stop))
    return spans
