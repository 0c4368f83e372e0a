"""A user's own prompts as a run measures them: one at a time for latency, in full batches for throughput, each with as
many new tokens as its answer has; and which of their answers are scored.

Of many prompts a seeded sample is taken: a round goes through all that are timed, and each variant needs several.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, islice
from typing import TYPE_CHECKING

from llm_bench_fixtures.errors import InvalidSetting, WorkloadUnsupported
from llm_bench_fixtures.measure.windows import answer_window
from llm_bench_fixtures.models.chat import has_template, render_chats
from llm_bench_fixtures.models.device import DeviceKind
from llm_bench_fixtures.models.needs import Round
from llm_bench_fixtures.models.transformers import context_of
from llm_bench_fixtures.processes.calls import Raised
from llm_bench_fixtures.progress import Phase
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.session.forecast import Shape
from llm_bench_fixtures.session.measuring import LARGE_WEIGHTS
from llm_bench_fixtures.workloads import Corpus, Workload, text_ids

if TYPE_CHECKING:
    from llm_bench_fixtures.measure.own_prompts import OwnPrompt, OwnPrompts
    from llm_bench_fixtures.options.parsers import TokenShape
    from llm_bench_fixtures.options.settings import Settings
    from llm_bench_fixtures.session.setup import Setup
    from llm_bench_fixtures.workloads import Prompts, TokenIds

MOST_READ = 1000  # prompts that are encoded, and whose answers can be scored
MOST_TIMED = 64
MOST_STEPS = 448  # tokens that a round generates one after the other, at most: 2 s of a small model, of each variant
MOST_STEPS_OF_LARGE = 256  # the same of a model whose steps take tens of milliseconds
PROMPT_STEPS = 1 / 16  # of a step, what a token of a prompt takes: prompts are read many tokens at a time
SHOWN = 5  # prompts that are named of those that are left out
APART = 150  # tokens of the embedded corpus between the beginnings of two prompts of one shape


@dataclass(frozen=True)
class OwnCase:
    """A case of the scenario: how many prompts at a time, and of which shape where they are of one."""

    name: str
    batch_size: int = 1
    shape: TokenShape | None = None

    def __str__(self) -> str:
        return self.name


def own_cases(settings: Settings) -> tuple[OwnCase, ...]:
    """Those for latency in ascending order, then that for throughput; none where no prompts or shapes are given."""
    if not settings.prompts and not settings.shape:
        return ()
    size = max(settings.batch_sizes)
    alone = [OwnCase(str(shape), shape=shape) for shape in settings.shape] or [OwnCase("one at a time")]
    return (*alone, *([OwnCase(f"batch of {size}", size)] if size > 1 else []))


@dataclass(frozen=True)
class OwnRow:
    """A prompt in a model's tokens, and how many new ones it gets."""

    prompt: TokenIds
    new_tokens: int

    @property
    def steps(self) -> float:
        """What it takes, in decode steps."""
        return self.new_tokens + len(self.prompt) * PROMPT_STEPS


@dataclass(frozen=True)
class OwnWork:
    """What `llm_benchmark` takes for one case of the user's own prompts."""

    rows: tuple[OwnRow, ...]
    batch_size: int

    @property
    def prompts(self) -> tuple[TokenIds, ...]:
        return tuple(row.prompt for row in self.rows)

    @property
    def new_tokens(self) -> tuple[int, ...]:
        """Of each prompt."""
        return tuple(row.new_tokens for row in self.rows)

    @property
    def shape(self) -> Shape:
        """Its size on average, for the forecast."""
        return Shape.of(Workload(self.prompts, max(self.new_tokens), self.batch_size, lengths=self.new_tokens))

    @property
    def round(self) -> Round:
        """Its largest batch at most, for the plan of memory."""
        return Round(self.batch_size, max(map(len, self.prompts)), max(self.new_tokens))


@dataclass(frozen=True)
class _Ready:
    """A prompt that fits the model's context."""

    given: OwnPrompt
    text: str
    """As the model is given it, in the chat template where it is a chat."""
    row: OwnRow
    answered: int
    """Tokens of the prompt and its answer; of one without an answer, of the prompt."""


class OwnRun:
    """The prompts, or shapes, of one run. What is asked of them raises InvalidSetting where the prompts are chats that
    the model has no template for."""

    def __init__(self, given: OwnPrompts | None, setup: Setup) -> None:
        """given: None where the settings have shapes."""
        self._given = given
        self._setup = setup
        self._settings = setup.settings
        self._left_out: dict[str, list[str]] = defaultdict(list)  # by the reason, which prompts

    def work(self, case: OwnCase, prompts: Prompts) -> OwnWork:
        """The case's prompts, in the tokens of `prompts`. Raises WorkloadUnsupported where none fits."""
        if case.shape is not None:
            return OwnWork((OwnRow(prompts.exact(case.shape.prompt), case.shape.new),), 1)
        rows = [*(self._in_tokens_of(prompts) if self._given else self._of_shapes(case.batch_size, prompts))]
        if not rows:
            raise WorkloadUnsupported(self.left_out or f"no shape fits the model's context of {self._context} tokens")
        if case.batch_size > 1:
            rows = full_batches(rows, case.batch_size, self._context)
        return OwnWork(tuple(rows), case.batch_size)

    @property
    def rounds(self) -> list[Round]:
        """The largest, for the plan of memory: of each case, and of answers as they are scored."""
        answered = [one.answered for one in self._ready if one.given.answer] if self._given else []
        found = [Round(1, max(answered))] if answered else []
        for case in own_cases(self._settings):
            with suppress(WorkloadUnsupported):  # its own test says so
                found.append(self.work(case, self._setup.prompts).round)
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
        """How many of the prompts that were read are left out, and why; empty where none are, or none was read."""
        parts = [f"{len(which)} {reason} ({_listed(which)})" for reason, which in self._left_out.items()]
        return f"left out of {count(len(self._sampled), 'prompt')}: {'; '.join(parts)}" if parts else ""

    @property
    def description(self) -> str:
        """What is measured, for the report and the terminal."""
        if self._given is None:
            return f"{', '.join(map(str, self._settings.shape))} (prompt/new tokens), cut from the embedded corpus"
        return "; ".join(self._described(self._given))

    def _described(self, given: OwnPrompts) -> Iterator[str]:
        chats = " in the model's chat template" if given.are_chats else ""
        yield f"{given.name} ({given.digest}), {count(len(given.prompts), 'prompt')}{chats}"
        if given.unasked:
            yield f"left out: {count(given.unasked, 'conversation')} in which no user asks anything"
        if "_ready" not in vars(self):
            return
        if len(self._timed) < len(self._ready):
            yield f"timed: a seeded sample of {len(self._timed)}"
        if self.answers and len(self._sampled) < len(given.prompts):
            yield f"scored: {len(self.answers.answers):,} answers of a seeded sample"
        if self.left_out:
            yield self.left_out

    @cached_property
    def _context(self) -> int:
        return context_of(self._setup.source.load_config().get_text_config())

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
        """Those that were read and fit, in the file's order."""
        with self._setup.progress.activity(Phase.CHECKING, "reading the prompts"):
            return tuple(self._fitting())

    def _fitting(self) -> Iterator[_Ready]:
        tokenizer, settings = self._setup.prompts.tokenizer, self._settings
        for one, text in self._rendered():
            piece = answer_window(tokenizer, text, one.answer, is_rendered=self._is_rendered)
            default = piece.scored if piece.scored and "new_tokens" not in settings.given else settings.new_tokens
            row = OwnRow(piece.ids[: piece.unscored], one.output_tokens or default)
            if piece.unscored + max(row.new_tokens, piece.scored) > self._context:
                reason = f"longer than the model's context of {self._context} tokens, new ones included"
                self._left_out[reason].append(one.where)
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
        on_cpu = self._setup.device.kind is DeviceKind.CPU
        found = render_chats(whose, self._setup.source.load_tokenizer, chats, on_cpu=on_cpu)
        refused = [one.message for one in found if isinstance(one, Raised)]
        if len(refused) == len(found):
            raise InvalidSetting(f"{whose} takes none of the chats in {given.name}: {refused[0]}")
        for one, text in zip(self._sampled, found, strict=True):
            if isinstance(text, Raised):
                self._left_out["refused by the model's chat template"].append(one.where)
            else:
                yield one, text

    @cached_property
    def _timed(self) -> tuple[_Ready, ...]:
        """In the file's order."""
        most = MOST_STEPS_OF_LARGE if self._setup.source.weights >= LARGE_WEIGHTS else MOST_STEPS
        chosen = sample([one.row.steps for one in self._ready], most, self._settings.seed)
        return tuple(self._ready[number] for number in chosen)

    def _in_tokens_of(self, prompts: Prompts) -> Iterator[OwnRow]:
        """The timed prompts. A model with a tokenizer of its own gets as many new tokens as the others."""
        for one in self._timed:
            if prompts is self._setup.prompts:
                yield one.row
            else:
                text = one.text if one.given.messages else prompts.framed(one.given.text)
                yield OwnRow(text_ids(prompts.tokenizer, text, is_rendered=self._is_rendered), one.row.new_tokens)

    def _of_shapes(self, batch_size: int, prompts: Prompts) -> Iterator[OwnRow]:
        """A batch of each shape that fits."""
        for shape in self._settings.shape:
            if shape.prompt + shape.new <= self._context:
                starts = (APART * number for number in range(batch_size))
                yield from (OwnRow(prompts.exact(shape.prompt, start), shape.new) for start in starts)


def sample(steps: Sequence[float], most: float, seed: int) -> list[int]:
    """Numbers of those that are timed, ascending: all where they take no more steps, else a seeded sample; at least
    one."""
    if len(steps) <= MOST_TIMED and sum(steps) <= most:
        return list(range(len(steps)))
    order = list(range(len(steps)))
    random.Random(seed).shuffle(order)  # noqa: S311  # no secret
    chosen: list[int] = []
    for number in order[:MOST_TIMED]:
        if chosen and sum(steps[one] for one in (*chosen, number)) > most:
            break
        chosen.append(number)
    return sorted(chosen)


def full_batches(rows: Sequence[OwnRow], size: int, context: int) -> list[OwnRow]:
    """The rows with those next to each other that need about as many new tokens; those of a last batch that would not
    be full come again. What fits the context, but not together with the others of its batch, is left out."""
    kept = sorted(rows, key=lambda row: (row.new_tokens, len(row.prompt)))
    while True:
        rest = len(kept) % size
        filled = [*kept, *islice(cycle(kept[-rest:]), size - rest)] if rest else kept
        batches = [filled[start : start + size] for start in range(0, len(filled), size)]
        wide = next((batch for batch in batches if _width(batch) > context), None)
        if wide is None:
            return filled
        kept.remove(max(wide, key=lambda row: len(row.prompt)))


def _width(batch: Sequence[OwnRow]) -> int:
    return max(len(row.prompt) for row in batch) + max(row.new_tokens for row in batch)


def _listed(places: Sequence[str]) -> str:
    """Some of them, and how many others there are."""
    if len(places) <= SHOWN:
        return ", ".join(places)
    return f"{', '.join(places[:SHOWN])} and {len(places) - SHOWN} more"
