"""Questions of multiple choice: the set that is asked, and which of each item's choices a model finds likeliest.

A choice follows its prompt after a space. Its score is the sum of its tokens' log-likelihoods, given the prompt.
Source: `acc` of lm-evaluation-harness, with its default delimiter.

Answers that change against a reference's are flips: one was right and is wrong, or was wrong and is right. Accuracy
alone hides them, because the two directions cancel out. Source: Dutta, Krishnan, Kwatra and Ramjee, "Accuracy is not
all you need" (arXiv 2407.09141).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

import msgspec

from llm_bench_fixtures.errors import InvalidSetting, WorkloadUnsupported
from llm_bench_fixtures.measure.quality import by_window, score_windows
from llm_bench_fixtures.measure.windows import Window, added_bos
from llm_bench_fixtures.models.model import Model
from llm_bench_fixtures.options.parsers import parse_path
from llm_bench_fixtures.statistics.spread import exact_interval
from llm_bench_fixtures.workloads import ASSETS, TokenIds, Tokenizer, plain_ids, read_readable, short_digest

CHOICES_FILE = ASSETS / "choices.jsonl"
NONE = "none"  # value of --llm-choices
EXAMPLE = '{"prompt": "Snow is", "choices": ["white.", "loud."], "answer": 0}'

AnswerIndex: TypeAlias = int | None
"""Index of the choice that was likeliest; None where the model gave no likelihood that can be compared."""


@dataclass(frozen=True)
class ChoiceItem:
    """A prompt and its possible endings. Raises InvalidSetting where nothing can be asked with them."""

    prompt: str
    choices: tuple[str, ...]
    answer: int
    """Index of the right one, counted from 0."""

    def __post_init__(self) -> None:
        if not self.prompt.strip():
            raise InvalidSetting("the prompt is blank")
        if len(self.choices) < 2 or not all(choice.strip() for choice in self.choices):
            raise InvalidSetting("an item needs at least two choices, none of them blank")
        if len(set(self.choices)) < len(self.choices):
            raise InvalidSetting("two of the choices are the same")
        if not 0 <= self.answer < len(self.choices):
            raise InvalidSetting(f"the answer is {self.answer}, and there are choices 0 to {len(self.choices) - 1}")


@dataclass(frozen=True)
class ChoiceSet:
    """The items that are asked. `name` says which for the report."""

    name: str
    items: tuple[ChoiceItem, ...]

    @property
    def digest(self) -> str:
        """Digest of the items in their order."""
        return short_digest([(item.prompt, item.choices, item.answer) for item in self.items])

    @property
    def guessing(self) -> float:
        """The share of right answers that guessing gets."""
        return fmean(1 / len(item.choices) for item in self.items)

    @property
    def description(self) -> str:
        """Description for the report. Runs with equal ones were asked the same."""
        guessed = f"{self.guessing * 100:.1f} %"
        return f"{self.name} ({self.digest}), {len(self.items)} items, of which guessing gets {guessed}"


def read_choices(given: str) -> ChoiceSet | None:
    """The set in a file. An empty text stands for the embedded set, NONE for no set. Raises InvalidSetting."""
    if not given:
        return embedded_choices()
    if given == NONE:
        return None
    try:
        path = parse_path(given)
        return ChoiceSet(path.name, _read_items(path))
    except InvalidSetting as error:
        raise InvalidSetting(f"--llm-choices: {error}") from error


def embedded_choices() -> ChoiceSet:
    return ChoiceSet("embedded choices", _read_items(CHOICES_FILE))


def _read_items(path: Path) -> tuple[ChoiceItem, ...]:
    """Items from JSON lines. Raises InvalidSetting that names file and line."""
    items = []
    for number, line in enumerate(read_readable(path).splitlines(), 1):
        try:
            if line.strip():
                items.append(msgspec.json.decode(line, type=ChoiceItem))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidSetting(f"{path}, line {number}: {error}. A line is such as {EXAMPLE}") from error
    if not items:
        raise InvalidSetting(f"there is no item in {path}")
    return tuple(items)


def choose(model: Model, items: Sequence[ChoiceItem]) -> tuple[AnswerIndex, ...]:
    """The model's answer to each item. Of choices that are equally likely it is the first.

    Raises WorkloadUnsupported where an item doesn't fit the model's context, or has a choice without a token.
    """
    import numpy as np

    start = added_bos(model.tokenizer)
    windows = [window for item in items for window in _windows(item, model.tokenizer, start)]
    longest, context = max(len(window.fed) for window in windows), model.facts.context_length
    if longest > context:
        raise WorkloadUnsupported(f"an item has {longest} tokens, and the model's context is {context}")
    by_choice = by_window(score_windows(model, windows).nll, windows)
    sums = iter([float(nll.sum(dtype=np.float64)) for nll in by_choice])
    return tuple(_likeliest([next(sums) for _ in item.choices]) for item in items)


def _windows(item: ChoiceItem, tokenizer: Tokenizer, start: TokenIds) -> Iterator[Window]:
    """Each choice after its prompt. White space at the prompt's end belongs to the choice, as in the harness."""
    context = len(start) + len(plain_ids(tokenizer, item.prompt.rstrip()))
    for choice in item.choices:
        ids = (*start, *plain_ids(tokenizer, f"{item.prompt} {choice}"))
        if not 0 < context < len(ids):
            raise WorkloadUnsupported(f"{choice!r} after {item.prompt!r} has no token of its own in this tokenizer")
        yield Window(ids, context)


def _likeliest(nll: Sequence[float]) -> AnswerIndex:
    """nll: nats of each choice of an item."""
    import numpy as np

    least = int(np.argmin(nll))  # NaN counts as the least
    return least if math.isfinite(nll[least]) else None


def accuracy_metrics(items: Sequence[ChoiceItem], answers: Sequence[AnswerIndex]) -> dict[str, float]:
    """Metrics of a model by itself. An item without an answer counts as wrong."""
    right = _right(items, answers)
    return {"choice_items": len(right), "choice_accuracy": sum(right) / len(right)}


def flip_metrics(
    items: Sequence[ChoiceItem], answers: Sequence[AnswerIndex], was: Sequence[AnswerIndex]
) -> dict[str, float]:
    """Metrics of a model against the reference's answers to the same items, `was`."""
    lost, gained = count_flips(_right(items, was), _right(items, answers))
    low, high = exact_interval(lost + gained, len(items))
    return {
        "flips": (lost + gained) / len(items),
        "flips_low": low,
        "flips_high": high,
        "flips_lost": lost,
        "flips_gained": gained,
        "answers_changed": sum(one != other for one, other in zip(answers, was, strict=True)) / len(items),
    }


def count_flips(was_right: Sequence[object], is_right: Sequence[object]) -> tuple[int, int]:
    """How many answers turn from right to wrong, and from wrong to right. Right ones are true."""
    pairs = list(zip(was_right, is_right, strict=True))
    lost = sum(bool(before and not after) for before, after in pairs)
    return lost, sum(bool(after and not before) for before, after in pairs)


def _right(items: Sequence[ChoiceItem], answers: Sequence[AnswerIndex]) -> list[bool]:
    return [answer == item.answer for item, answer in zip(items, answers, strict=True)]
