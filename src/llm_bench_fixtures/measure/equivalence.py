"""Whether a model's answers depend on how it is run: with which cache, with padding, in a batch.

The plain mode runs a prompt alone, unpadded, with the usual cache. Another mode is compared with it token for token of
the greedy continuation, and by the log-probabilities of the likely next tokens at each step, as long as both have
the same text before them. Summing in another order alone moves these a little: a text that changes within the tolerance
of the model's arithmetic is a tie. What moves them further is an error, even where the text happens to stay.
A right-padded prompt is compared by its next token only, because `generate` would continue it from the padding.

How far two continuations agree is given by the first divergent token (FDT) and the normalized sum of divergent tokens
(SDT norm) of OpenVINO's "who what benchmark", on token ids.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from llm_bench_fixtures.errors import WorkloadUnsupported, reason_of
from llm_bench_fixtures.measure.support import check_cache, check_fits
from llm_bench_fixtures.models.model import Model, ShowsLogits
from llm_bench_fixtures.reading import Figure, Text
from llm_bench_fixtures.workloads import Batch, CacheKind, Side, TokenIds, pad_batch

if TYPE_CHECKING:
    import torch

PADDING = 5  # columns added to the longest prompt
LIKELY = 10  # tokens whose probability is compared at each step


class ExecutionMode(StrEnum):
    """How prompts are run: what differs from the plain mode."""

    CACHE = "cache"  # the cache against none
    STATIC_CACHE = "static cache"
    LEFT_PADDING = "left padding"
    RIGHT_PADDING = "right padding"
    BATCH = "batch"  # all prompts together, padded on the left where they are unequal


class EquivalenceVerdict(StrEnum):
    """Whether an execution mode changes the answers."""

    EQUAL = "equal"
    TIE = "tie"  # the text differs, within float error
    DIVERGES = "diverges"
    NOT_SUPPORTED = "not supported"
    FAILED = "failed"  # the model's code raised an error


class Equivalence(msgspec.Struct, frozen=True):
    """The verdict on one execution mode, over all prompts."""

    mode: ExecutionMode = msgspec.field(name="way")  # as stored files have it
    verdict: EquivalenceVerdict

    prompt: int | None = None
    """The prompt that the mode changes most, counted from 0. None: it changes none beyond float error."""

    token: int | None = None
    """The first token of that prompt's continuation that differs, counted from 0. None: its text stays."""

    gap: Figure | None = None
    """The largest change of a likely token's log-probability up to there, in nats. None: the logits are not finite."""

    tolerance: Figure | None = None
    """Gap up to which it is float error, in nats. None: the logits are not finite."""

    reason: Text = ""
    """Why the mode is not supported or failed; of one that diverges, what is known to be its cause."""

    @property
    def short(self) -> str:
        """The verdict, and by how much a mode changes what it changes."""
        return self.verdict.value if self.prompt is None else f"{self.verdict}: {self._amount}{self._cause}"

    @property
    def sentence(self) -> str:
        """Sentence for people, who count from 1."""
        if self.verdict is EquivalenceVerdict.NOT_SUPPORTED:
            return f"{self.mode} is not supported: {self.reason}"
        if self.verdict is EquivalenceVerdict.FAILED:
            return f"{self.mode} failed: {self.reason}"
        if self.prompt is None:
            return f"{self.mode} changes nothing"
        if self.token is None:
            what = f"the probabilities of prompt {self.prompt + 1}, though not its text,"
        else:
            what = f"token {self.token + 1} of prompt {self.prompt + 1}"
        tie = ", a tie" if self.verdict is EquivalenceVerdict.TIE else ""
        return f"{self.mode} changes {what} by {self._amount}{tie}{self._cause}"

    @property
    def _cause(self) -> str:
        return f"; cause: {self.reason}" if self.reason else ""

    @property
    def _amount(self) -> str:
        if self.gap is None or self.tolerance is None:
            return "no finite number of nats"
        return f"{self.gap:.2g} nats (tolerance {self.tolerance:.2g})"


@dataclass(frozen=True)
class ScoredText:
    """The answer of a model to one prompt."""

    tokens: TokenIds
    """The greedy continuation."""

    logits: torch.Tensor
    """Logits that each token was chosen by: (len(tokens), V) float32."""


@dataclass(frozen=True)
class ModeChange:
    """Change by a mode to one prompt: the step that it changes most, of those with the same text before them."""

    prompt: int
    """Which prompt, counted from 0."""

    token: int | None
    """The first token that differs, counted from 0. None: none does."""

    gap: float
    """Difference in nats. NaN or infinite where the logits are."""

    scale: float
    """Scale of the step's logits."""

    @property
    def share(self) -> float:
        """The gap in scales; infinite where it is not a number."""
        share = self.gap / self.scale if self.scale else self.gap
        return math.inf if math.isnan(share) else share


def check_equivalence(model: Model, prompts: Sequence[TokenIds], new_tokens: int) -> tuple[Equivalence, ...]:
    """Every mode against the plain one."""
    one = EquivalenceCheck(model, prompts, new_tokens)
    return tuple(one.check(mode) for mode in ExecutionMode)


class EquivalenceCheck:
    """Runs prompts in the plain mode, once, and compares other modes with that.

    prompts: at least one, each of at least one token; of unequal lengths, so that a batch of them is padded.
    """

    def __init__(self, model: Model, prompts: Sequence[TokenIds], new_tokens: int) -> None:
        self._model = model
        self._prompts = tuple(prompts)
        self._new_tokens = new_tokens

    def check(self, mode: ExecutionMode) -> Equivalence:
        """Compare one mode. What it raises is its own result, so that the others have theirs."""
        try:
            found = equivalence_of(mode, self.changes(mode), self._model.facts.tolerance)
        except WorkloadUnsupported as error:
            return Equivalence(mode, EquivalenceVerdict.NOT_SUPPORTED, reason=str(error))
        except Exception as error:  # whatever a model's code raises in a mode that it can't run
            return Equivalence(mode, EquivalenceVerdict.FAILED, reason=reason_of(error))
        if found.verdict is not EquivalenceVerdict.DIVERGES:
            return found
        return replace(found, reason=self._model.facts.divergence_causes.get(mode, ""))

    def changes(self, mode: ExecutionMode) -> list[ModeChange]:
        """Changes that the mode makes to each prompt. Raises WorkloadUnsupported where the model can't run so."""
        answers: Mapping[ExecutionMode, Callable[[], list[ScoredText]]] = {
            ExecutionMode.CACHE: lambda: self._one_by_one(CacheKind.OFF),
            ExecutionMode.STATIC_CACHE: lambda: self._one_by_one(CacheKind.STATIC),
            ExecutionMode.LEFT_PADDING: lambda: self._one_by_one(CacheKind.DYNAMIC, self._longest + PADDING),
            ExecutionMode.RIGHT_PADDING: self._right_padded,
            ExecutionMode.BATCH: lambda: self._generate(self._prompts, self._longest, CacheKind.DYNAMIC),
        }
        pairs = zip(self._plain, answers[mode](), strict=True)
        return [compare(prompt, *pair) for prompt, pair in enumerate(pairs)]

    @cached_property
    def _plain(self) -> list[ScoredText]:
        return self._one_by_one(CacheKind.DYNAMIC)

    @property
    def _longest(self) -> int:
        return max(map(len, self._prompts))

    def _one_by_one(self, cache: CacheKind, width: int = 0) -> list[ScoredText]:
        """Answers to each prompt alone, padded on the left to at least that width."""
        return [answer for ids in self._prompts for answer in self._generate([ids], max(width, len(ids)), cache)]

    def _generate(self, rows: Sequence[TokenIds], width: int, cache: CacheKind) -> list[ScoredText]:
        """Answers to prompts together, padded on the left to that width."""
        model = self._model
        check_cache(model, cache)
        if not isinstance(model, ShowsLogits):
            raise WorkloadUnsupported(f"{model.variant.id} shows no logits while it generates")
        check_fits(model, width + self._new_tokens)
        batch = self._batch(rows, width, Side.LEFT)
        output, logits = model.generate_with_logits(batch.input_ids, batch.attention_mask, self._new_tokens, cache)
        texts = output[:, width:].tolist()
        return [ScoredText(tuple(text), scored) for text, scored in zip(texts, logits, strict=True)]

    def _right_padded(self) -> list[ScoredText]:
        """The next token of each prompt alone, padded on the right."""
        width = self._longest + PADDING
        check_fits(self._model, width)
        answers = []
        for ids in self._prompts:
            batch = self._batch([ids], width, Side.RIGHT)
            logits = self._model.logits(batch.input_ids, batch.attention_mask)[0, len(ids) - 1].float()
            answers.append(ScoredText((int(logits.argmax()),), logits[None]))
        return answers

    def _batch(self, rows: Sequence[TokenIds], width: int, side: Side) -> Batch:
        return pad_batch(rows, width, side, self._model.tokenizer.pad_token_id, self._model.device.name)


def compare(prompt: int, plain: ScoredText, other: ScoredText) -> ModeChange:
    """Compare an answer to one prompt with the plain one, over as many steps as the shorter one has."""
    import torch

    both = min(len(plain.tokens), len(other.tokens))
    first = first_divergence(plain.tokens, other.tokens)
    steps = min(first + 1, both)  # the token that differs was still chosen after the same text
    logits = plain.logits[:steps]
    likely = logits.topk(min(LIKELY, logits.shape[-1])).indices
    before, after = (part.log_softmax(-1).gather(-1, likely) for part in (logits, other.logits[:steps]))
    gaps = torch.where(before == after, 0.0, after - before).abs().amax(-1)  # also where both are minus infinity
    scales = torch.stack([logit_scale(step) for step in logits])
    worst = int((gaps / scales).nan_to_num(nan=math.inf).argmax())
    return ModeChange(prompt, first if first < both else None, float(gaps[worst]), float(scales[worst]))


def equivalence_of(mode: ExecutionMode, changes: Sequence[ModeChange], tolerance: float) -> Equivalence:
    """The verdict on a mode from what it does to each prompt. tolerance: in scales."""
    beyond = [change for change in changes if change.share > tolerance]
    ties = [change for change in changes if change.token is not None]
    if not beyond and not ties:
        return Equivalence(mode, EquivalenceVerdict.EQUAL)
    worst = max(beyond or ties, key=lambda change: (change.token is not None, change.share))
    verdict = EquivalenceVerdict.DIVERGES if beyond else EquivalenceVerdict.TIE
    return Equivalence(mode, verdict, worst.prompt, worst.token, _finite(worst.gap), _finite(tolerance * worst.scale))


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def logit_scale(logits: torch.Tensor) -> torch.Tensor:
    """How large the logits (V,) are: the top one's distance from zero or from the median, whichever is more.

    Rounding is in proportion to what is rounded, so a model with logits around -100 has larger ties than one with
    logits around 1. The median, because a model may put tokens that it never uses at minus infinity.
    """
    top = logits.max()
    return top.abs().maximum(top - logits.median())


def first_divergence(a: Sequence[object], b: Sequence[object]) -> int:
    """Index of the first token, or character, that differs; where none does, the number of them that both have."""
    shared = min(len(a), len(b))
    return next((index for index in range(shared) if a[index] != b[index]), shared)


def divergent_share(a: Sequence[int], b: Sequence[int]) -> float:
    """Share of the positions whose tokens differ, of the longer one's; 0 for two empty ones.

    A position that only one of them has is one that differs.
    """
    longer = max(len(a), len(b))
    same = sum(x == y for x, y in zip(a, b, strict=False))
    return (longer - same) / longer if longer else 0.0
