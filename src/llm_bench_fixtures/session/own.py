"""A user's own prompts as a run measures them: one at a time for latency, in full batches for throughput, each with as
many new tokens as its answer has; and which of their answers are scored.

Some of many prompts are timed, of all lengths: a round goes through all that are, and each variant needs several.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import cycle, islice
from typing import TYPE_CHECKING

from llm_bench_fixtures.answer.need import DEFAULT_NEED, Need, Reader
from llm_bench_fixtures.errors import InvalidSetting, WorkloadUnsupported
from llm_bench_fixtures.measure.windows import answer_window
from llm_bench_fixtures.models.chat import has_template, render_chats
from llm_bench_fixtures.models.needs import RoundSize
from llm_bench_fixtures.models.transformers import context_of
from llm_bench_fixtures.processes.calls import Raised
from llm_bench_fixtures.progress import Phase
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.text import some_of
from llm_bench_fixtures.workloads import CacheKind, Corpus, Prompts, TokenIds, Workload, text_ids

if TYPE_CHECKING:
    from llm_bench_fixtures.measure.own_prompts import OwnPrompt, OwnPrompts
    from llm_bench_fixtures.options.parsers import TokenShape
    from llm_bench_fixtures.options.settings import Settings
    from llm_bench_fixtures.session.setup import Setup

MOST_READ = 1000  # prompts that are encoded, and whose answers can be scored
MOST_TIMED = 64
FEWEST_TIMED = 4  # however long they are
MOST_STEPS = 160  # tokens that one round generates one after the other, at most: 1 s of a small model
PROMPT_STEPS = 1 / 16  # share of a step that a token of a prompt takes: prompts are read many tokens at a time
SHOWN = 5  # prompts that are named of those that are left out
APART = 150  # tokens of the embedded corpus between the beginnings of two prompts of one shape


@dataclass(frozen=True)
class OwnCase:
    """A case of the scenario: how many prompts at a time, of which shape where they are of one, and the cache."""

    size: str
    batch_size: int = 1
    shape: TokenShape | None = None
    cache: CacheKind = CacheKind.DYNAMIC

    def __str__(self) -> str:
        return self.size if self.cache is CacheKind.DYNAMIC else f"{self.size}, cache {self.cache}"


def own_cases(settings: Settings, need: Need = DEFAULT_NEED) -> tuple[OwnCase, ...]:
    """Cases for latency in ascending order, then that for throughput, and where more of it is wanted or some is needed,
    those of smaller batches that may meet the need; then the same with each further cache. None where no prompts or
    shapes are given."""
    if not settings.prompts and not settings.shape:
        return ()
    alone = [OwnCase(str(shape), shape=shape) for shape in settings.shape] or [OwnCase("one at a time")]
    sizes = sorted({size for size in settings.batch_sizes if size > 1}, reverse=True)
    is_limited = any(limit.metric.name == "output_tokens_per_s" for limit in need.limits)
    tried = sizes if is_limited or need.want is Reader.THROUGHPUT else sizes[:1]
    cases = (*alone, *(OwnCase(f"batch of {size}", size) for size in tried))
    return tuple(replace(case, cache=cache) for cache in settings.cache for case in cases)


@dataclass(frozen=True)
class OwnRow:
    """A prompt in a model's tokens, and how many new ones it gets."""

    prompt: TokenIds
    new_tokens: int

    @property
    def steps(self) -> float:
        """Decode steps that it takes."""
        return self.new_tokens + len(self.prompt) * PROMPT_STEPS


@dataclass(frozen=True)
class OwnWork:
    """One case of the user's own prompts, as `llm_benchmark` takes it."""

    rows: tuple[OwnRow, ...]
    batch_size: int
    cache: CacheKind

    @property
    def prompts(self) -> tuple[TokenIds, ...]:
        return tuple(row.prompt for row in self.rows)

    @property
    def new_tokens(self) -> tuple[int, ...]:
        """New tokens of each prompt."""
        return tuple(row.new_tokens for row in self.rows)

    @property
    def workload(self) -> Workload:
        """The work as it is run."""
        lengths = self.new_tokens
        return Workload(self.prompts, max(lengths), self.batch_size, cache=self.cache, lengths=lengths)


@dataclass(frozen=True)
class _Ready:
    """A prompt that fits the model's context."""

    given: OwnPrompt
    text: str
    """Text as the model is given it, in the chat template where it is a chat."""
    row: OwnRow
    answered: int
    """Tokens of the prompt and its answer; of one without an answer, of the prompt."""


class OwnRun:
    """The prompts, or shapes, of one run. What is asked of them raises InvalidSetting where the prompts are chats that
    the model has no template for."""

    def __init__(self, given: OwnPrompts | None, setup: Setup) -> None:
        """given: None where the settings have shapes."""
        self._given = given
        self._cases = own_cases(setup.settings, setup.need)
        self._setup = setup
        self._settings = setup.settings
        self._left_out: dict[str, list[str]] = defaultdict(list)  # which prompts, by the reason

    def work(self, case: OwnCase, prompts: Prompts) -> OwnWork:
        """The case's prompts, in the tokens of `prompts`. Raises WorkloadUnsupported where none fits."""
        if case.shape is not None:
            return OwnWork((OwnRow(prompts.exact(case.shape.prompt), case.shape.new),), 1, case.cache)
        size = case.batch_size
        rows = [*(self._in_tokens_of(prompts, size) if self._given else self._of_shapes(size, prompts))]
        if not rows:
            raise WorkloadUnsupported(self.left_out)
        return OwnWork(tuple(full_batches(rows, size, self._context) if size > 1 else rows), size, case.cache)

    @property
    def rounds(self) -> list[RoundSize]:
        """The largest, for the plan of memory: of each case, and of answers as they are scored."""
        answered = [one.answered for one in self._ready if one.given.answer] if self._given else []
        found = [RoundSize(1, max(answered))] if answered else []
        for case in self._cases:
            with suppress(WorkloadUnsupported):  # the test itself says it
                found.append(RoundSize.of(self.work(case, self._setup.prompts).workload))
        return found

    @cached_property
    def answers(self) -> Corpus | None:
        """A corpus of the answers, each after its prompt; None where no prompt that fits has one."""
        answered = [one for one in self._ready if one.given.answer.strip()] if self._given else []
        if self._given is None or not answered:
            return None
        texts, answers = tuple(one.text for one in answered), tuple(one.given.answer for one in answered)
        return Corpus(f"answers of {self._given.name}", texts, answers, self._is_rendered)

    @property
    def left_out(self) -> str:
        """How many of the prompts that were read, or of the shapes, are left out, and why; empty where none are known
        to be."""
        parts = [f"{len(which)} {reason} ({some_of(which, SHOWN)})" for reason, which in self._left_out.items()]
        of = count(len(self._sampled), "prompt") if self._given else count(len(self._settings.shape), "shape")
        return f"left out of {of}: {'; '.join(parts)}" if parts else ""

    @property
    def description(self) -> str:
        """Description of what is measured, for the report and the terminal."""
        if self._given is None:
            return f"{', '.join(map(str, self._settings.shape))} (prompt/new tokens), cut from the embedded corpus"
        return "; ".join(self._described(self._given))

    def _described(self, given: OwnPrompts) -> Iterator[str]:
        chats = " in the model's chat template" if given.are_chats else ""
        yield f"{given.name} ({given.digest}), {count(len(given.prompts), 'prompt')}{chats}"
        if given.unasked:
            yield f"left out: {count(given.unasked, 'conversation')} in which no user asks, or a tool is called"
        if "_ready" not in vars(self):
            return
        is_sample = len(self._sampled) < len(given.prompts)
        timed = {case.size: len(self._timed(case.batch_size)) for case in self._cases}  # whatever their cache
        if min(timed.values()) < len(self._ready):
            those = ", ".join(f"{number} ({case})" for case, number in timed.items())
            more = "; shorter prompts or answers allow more" if min(timed.values()) < MOST_TIMED else ""
            of = f"a seeded sample of {len(self._ready):,}" if is_sample else len(self._ready)
            yield f"timed: {those} of {of}, the longest too{more}"
        if self.answers and is_sample:
            yield f"scored: {len(self.answers.answers):,} answers of a seeded sample"
        if self.left_out:
            yield self.left_out

    @cached_property
    def _context(self) -> int:
        return context_of(self._setup.source.load_config().get_text_config())

    @property
    def _too_long(self) -> str:
        return f"longer than the model's context of {self._context} tokens, new ones included"

    @property
    def _is_rendered(self) -> bool:
        """Whether the texts have the template's special tokens."""
        return self._setup.settings.chat or (self._given is not None and self._given.are_chats)

    @cached_property
    def _sampled(self) -> Sequence[OwnPrompt]:
        given = self._given.prompts if self._given else ()
        if len(given) <= MOST_READ:
            return given
        chosen = random.Random(self._settings.seed).sample(range(len(given)), MOST_READ)  # noqa: S311  # no secret
        return [given[number] for number in sorted(chosen)]

    @cached_property
    def _ready(self) -> tuple[_Ready, ...]:
        """Prompts that were read and fit, in the file's order."""
        with self._setup.progress.activity(Phase.CHECKING, "reading the prompts"):
            return tuple(self._fitting())

    def _fitting(self) -> Iterator[_Ready]:
        tokenizer, settings = self._setup.prompts.tokenizer, self._settings
        for one, text in self._rendered():
            piece = answer_window(tokenizer, text, one.answer, is_rendered=self._is_rendered)
            default = piece.scored if piece.scored and "new_tokens" not in settings.given else settings.new_tokens
            row = OwnRow(piece.ids[: piece.unscored], one.output_tokens or default)
            if piece.unscored + max(row.new_tokens, piece.scored) > self._context:
                self._left_out[self._too_long].append(one.where)
            elif row.prompt:
                yield _Ready(one, text, row, len(piece.ids))

    def _rendered(self) -> Iterator[tuple[OwnPrompt, str]]:
        """Each prompt with its text as the model is given it."""
        given, name = self._given, self._setup.source.name
        if given is None or not given.are_chats:
            yield from ((one, self._setup.prompts.framed(one.text)) for one in self._sampled)
            return
        if not has_template(self._setup.prompts.tokenizer):
            raise InvalidSetting(
                f"--llm-prompts: {given.name} has chats, and {name} has no chat template; give an instruct model, or "
                "each prompt as a text"
            )
        whose = f"--llm-prompts: the chat template of {name}"
        chats = [one.messages for one in self._sampled]
        found = render_chats(whose, self._setup.source.load_tokenizer, chats, on_cpu=self._setup.on_cpu)
        refused = [one.message for one in found if isinstance(one, Raised)]
        if len(refused) == len(found):
            raise InvalidSetting(f"{whose} takes none of the chats in {given.name}: {refused[0]}")
        for one, text in zip(self._sampled, found, strict=True):
            if isinstance(text, Raised):
                self._left_out["refused by the model's chat template"].append(one.where)
            else:
                yield one, text

    def _timed(self, size: int) -> list[_Ready]:
        """Prompts to time, in the file's order. size: how many run at a time."""
        rows = [one.row for one in self._ready]
        return [self._ready[number] for number in sample(rows, MOST_STEPS, self._settings.seed, size)]

    def _in_tokens_of(self, prompts: Prompts, size: int) -> list[OwnRow]:
        """The timed prompts. A model with a tokenizer of its own gets as many new tokens as the others. Raises
        WorkloadUnsupported where one is too long in its tokens."""
        timed = self._timed(size)
        if prompts is self._setup.prompts:
            return [one.row for one in timed]
        texts = [one.text if one.given.messages else prompts.framed(one.given.text) for one in timed]
        found = [text_ids(prompts.tokenizer, text, is_rendered=self._is_rendered) for text in texts]
        rows = [OwnRow(ids, one.row.new_tokens) for one, ids in zip(timed, found, strict=True)]
        if too_long := [one.given.where for one, row in zip(timed, rows, strict=True) if _width([row]) > self._context]:
            raise WorkloadUnsupported(f"in the variant's own tokens {self._too_long}: {some_of(too_long, SHOWN)}")
        return rows

    def _of_shapes(self, size: int, prompts: Prompts) -> Iterator[OwnRow]:
        """A batch of each shape that fits."""
        shapes = self._settings.shape
        if too_long := [shape for shape in shapes if shape.prompt + shape.new > self._context]:
            self._left_out[self._too_long] = list(map(str, too_long))
        for shape in shapes:
            if shape not in too_long:
                starts = (APART * number for number in range(size))
                yield from (OwnRow(prompts.exact(shape.prompt, start), shape.new) for start in starts)


def sample(rows: Sequence[OwnRow], most: float, seed: int, size: int = 1) -> list[int]:
    """Numbers of those that are timed, ascending: all where they take no more steps; else a few from the shortest to
    the longest, enough for a batch, and as many others by chance, in full batches, as there are steps for.

    size: prompts per batch. In a batch, each prompt's steps count divided by the root of this: on a GPU a batch takes
    as long as one prompt, on a CPU nearly as long as all of them.
    """
    steps = [row.steps / math.sqrt(size) for row in rows]
    if len(rows) <= MOST_TIMED and sum(steps) <= most:
        return list(range(len(rows)))
    by_length = sorted(range(len(rows)), key=lambda number: _width([rows[number]]))
    fewest = min(max(size, FEWEST_TIMED), len(rows))
    chosen = [by_length[(len(rows) - 1) * place // max(fewest - 1, 1)] for place in range(fewest)]
    others = sorted({*by_length}.difference(chosen))
    random.Random(seed).shuffle(others)  # noqa: S311  # no secret
    for number in others[: max(MOST_TIMED - fewest, 0)]:
        if sum(steps[one] for one in (*chosen, number)) > most:
            break
        chosen.append(number)
    return sorted(chosen[: max(len(chosen) // size * size, fewest)])


def full_batches(rows: Sequence[OwnRow], size: int, context: int) -> list[OwnRow]:
    """The rows with those in one batch that need about as many new tokens, and together fit the context. A batch that
    would not be full has rows of others, too, as far as they fit; else its own again."""
    left, filled = sorted(rows, key=lambda row: (row.new_tokens, len(row.prompt))), list[OwnRow]()
    while left:
        batch: list[OwnRow] = []
        left = _fill(batch, left, size, context)
        _fill(batch, dict.fromkeys(reversed(filled)), size, context)
        filled += islice(cycle(batch), size)
    return filled


def _fill(batch: list[OwnRow], rows: Iterable[OwnRow], size: int, context: int) -> list[OwnRow]:
    """Add what fits to the batch; gives the others."""
    others: list[OwnRow] = []
    for row in rows:
        fits = not batch or (len(batch) < size and _width([*batch, row]) <= context)
        (batch if fits else others).append(row)
    return others


def _width(batch: Sequence[OwnRow]) -> int:
    return max(len(row.prompt) for row in batch) + max(row.new_tokens for row in batch)
