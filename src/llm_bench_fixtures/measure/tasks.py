"""What tasks of lm-evaluation-harness ask of a model: likelihoods of texts after others, and texts until one ends.

Texts become tokens, and long ones are cut, as in the harness's own `HFLM`, so that both find the same. These functions
run in the model's process, which needs nothing of the harness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from llm_bench_fixtures.errors import InvalidSetting, WorkloadUnsupported
from llm_bench_fixtures.measure.quality import Chunk, by_window, score_windows
from llm_bench_fixtures.measure.windows import Window, rolling_windows, start_token
from llm_bench_fixtures.models.model import Model, ScoresTokens
from llm_bench_fixtures.progress import tell_share
from llm_bench_fixtures.reading import Count, Name, Text
from llm_bench_fixtures.workloads import CacheKind, Side, TokenIds, pad_batch, plain_ids

FIRST_TOKENS = 64  # tokens generated before the first look for the text's end; each later stretch doubles it
UNKNOWN = -1  # no token's id


@dataclass(frozen=True)
class TaskMetric:
    """A metric of a task."""

    name: Name
    """The harness's name, with its filter where that has a name: "acc", "exact_match,strict-match"."""
    higher_is_better: bool | None
    """None: neither way is better."""
    is_share: bool
    """Whether it is the mean of figures from 0 to 1."""


@dataclass(frozen=True)
class TaskFacts:
    """A task, and how it was asked: of every variant the same."""

    name: Name
    """The harness's name. A group of tasks has its own name."""
    metrics: tuple[TaskMetric, ...]
    items: Count
    """How many were asked."""
    of: Count
    """How many there are."""
    shots: Count
    """Solved examples before each item."""
    digest: Text
    """Digest of the prompts, as far as the first items tell."""
    version: Text = ""
    """Version of the task; empty where it names none."""
    harness: Text = ""
    """The harness's version."""


@dataclass(frozen=True)
class Continuation:
    """A text to generate."""

    prompt: str
    stops: tuple[str, ...]
    """None of them empty: the text ends before any of them, and where the model would end it."""
    most_tokens: int


def log_likelihoods(model: Model, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, bool | None]]:
    """Log-likelihood in nats of each text after its context, and whether each of its tokens is the likeliest one; None
    where the model doesn't tell that.

    Raises WorkloadUnsupported where a text has no token, or more than the model's context.
    """
    return _score(model, [_window(model, *pair) for pair in pairs])


def rolling_log_likelihoods(model: Model, texts: Sequence[str]) -> list[float]:
    """Log-likelihood of each text in nats, in rolling windows of the model's context."""
    start, most = _start(model), _most_fed(model)
    cut = [rolling_windows(_encode(model, text), most, start) for text in texts]
    scored = iter(_score(model, [window for windows in cut for window in windows]))
    return [sum(next(scored)[0] for _ in windows) for windows in cut]


def continuations(model: Model, asked: Sequence[Continuation]) -> list[str]:
    """The greedy continuation of each prompt. Raises WorkloadUnsupported for a server, which may put another token in
    the place of the one that ends a text."""
    if isinstance(model, ScoresTokens):
        raise WorkloadUnsupported("a server may put another token in the place of the one that ends a text")
    texts = []
    for done, one in enumerate(asked, 1):
        texts.append(_continue(model, one))
        tell_share(done / len(asked))
    return texts


def _score(model: Model, windows: Sequence[Window]) -> list[tuple[float, bool | None]]:
    """As `log_likelihoods`, of each window's targets."""
    import numpy as np

    if not windows:
        return []
    likeliest = np.full(sum(window.scored for window in windows), UNKNOWN)  # in place of each target

    def note(first: int, chunk: Chunk) -> None:
        ids = chunk.shifted.argmax(-1)
        likeliest[first : first + len(ids)] = ids.cpu().numpy()

    nll = score_windows(model, windows, [note]).nll
    found: list[tuple[float, bool | None]] = []
    for window, own, ids in zip(windows, by_window(nll, windows), by_window(likeliest, windows), strict=True):
        is_likeliest = None if UNKNOWN in ids else tuple(ids.tolist()) == window.targets
        found.append((-float(own.sum(dtype=np.float64)), is_likeliest))
    return found


def _window(model: Model, context: str, text: str) -> Window:
    """White space at the context's end belongs to the text. What is too long for the model loses its beginning."""
    before, after = _split(model, context, text)
    most = _most_fed(model)
    if not before or not after:
        raise WorkloadUnsupported(f"{text!r:.100} after {context!r:.100} has no token of its own in this tokenizer")
    if len(after) > most:
        raise WorkloadUnsupported(f"a text has {len(after)} tokens, and the model's context is {most}")
    ids = (*before, *after)[-(most + 1) :]  # the last one isn't fed
    return Window(ids, len(ids) - len(after))


def _most_fed(model: Model) -> int:
    """Tokens before a window's last, which is a target only: a server reads that one, too."""
    return model.facts.context_length - isinstance(model, ScoresTokens)


def _split(model: Model, context: str, text: str) -> tuple[TokenIds, TokenIds]:
    if not context:
        start, ids = _start(model), plain_ids(model.tokenizer, text)
        return ((start,), ids) if ids[:1] != (start,) else (ids[:1], ids[1:])
    kept = context.rstrip()
    before = _encode(model, kept)
    return before, _encode(model, context + text)[len(before) :]


def _encode(model: Model, text: str) -> TokenIds:
    """Encode with the tokenizer's special tokens, unless the text begins with the one that begins texts."""
    is_plain = text.startswith(model.tokenizer.decode([_start(model)]))
    return tuple(model.tokenizer(text, add_special_tokens=not is_plain, verbose=False)["input_ids"])


def _start(model: Model) -> int:
    try:
        return start_token(model.tokenizer)
    except InvalidSetting:
        raise WorkloadUnsupported("its tokenizer has no token that begins a text") from None


def _continue(model: Model, asked: Continuation) -> str:
    room = model.facts.context_length - asked.most_tokens
    if room < 1:
        raise WorkloadUnsupported(
            f"{asked.most_tokens} new tokens are asked for, and the model's context is {model.facts.context_length}"
        )
    prompt, text, end = _encode(model, asked.prompt)[-room:], "", model.tokenizer.eos_token_id
    made: TokenIds = ()
    while len(made) < asked.most_tokens:
        new = min(max(len(made), FIRST_TOKENS), asked.most_tokens - len(made))
        ids = _generate(model, (*prompt, *made), new)
        kept = tuple(takewhile(lambda token: token != end, ids))
        made = (*made, *kept)
        text = model.tokenizer.decode(made, skip_special_tokens=True)
        if len(kept) < new or any(stop in text for stop in asked.stops):
            break
    for stop in asked.stops:
        text = text.partition(stop)[0]
    return text


def _generate(model: Model, prompt: TokenIds, new_tokens: int) -> TokenIds:
    kinds = model.facts.cache_kinds
    cache = CacheKind.DYNAMIC if CacheKind.DYNAMIC in kinds else next(iter(kinds))
    batch = pad_batch([prompt], len(prompt), Side.LEFT, model.tokenizer.pad_token_id, model.device.name)
    output = model.generate(batch.input_ids, batch.attention_mask, new_tokens, cache)
    return tuple(output[0, -new_tokens:].tolist())
