"""Prompts in a model's chat template: a user's turn, and what opens the answer.

A template is a program of the model's author. transformers renders it in Jinja's sandbox, which keeps it from files and
from Python's insides, but neither from running for ever nor from filling memory. So it is rendered in a process of its
own, with an end to its time and its memory, and only once: around a mark, in whose place the texts are then put.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import InvalidSetting, NoAnswer, WorkerDied, WorkloadUnsupported
from llm_bench_fixtures.processes.calls import Raised, Returned
from llm_bench_fixtures.processes.launch import start_function
from llm_bench_fixtures.processes.memory import limit_own_memory
from llm_bench_fixtures.workloads import VARIED_LENGTHS, Prompts, TokenIds, Tokenizer, plain_ids

if TYPE_CHECKING:
    from llm_bench_fixtures.processes.channels import Channel

MARK = "what-the-user-says"
RENDER_S = 10.0  # of its process' work
MOST_RENDERED_BYTES = 1 << 30  # of memory, beyond what the process has before
MOST_CHARACTERS = 1_000_000
TODAY = datetime(2024, 7, 26, tzinfo=UTC)  # for templates that tell the date: the same prompts on every day


@dataclass(frozen=True)
class Frame:
    """A chat template as rendered: what stands before and after the user's text."""

    before: str
    after: str


class ChatPrompts(Prompts):
    """Prompts that are a user's turn each. Their lengths count the template's tokens too."""

    def __init__(self, tokenizer: Tokenizer, frame: Frame) -> None:
        super().__init__(tokenizer)
        self._frame = frame
        self._before, self._after = plain_ids(tokenizer, frame.before), plain_ids(tokenizer, frame.after)

    @property
    def framing(self) -> int:
        """Tokens that the template alone takes."""
        return len(self._before) + len(self._after)

    def encode(self, text: str) -> TokenIds:
        """The turn's token ids, as of one text."""
        ids = plain_ids(self._tokenizer, f"{self._frame.before}{text}{self._frame.after}")  # with its special tokens
        return ids or super().encode(text)

    def exact(self, tokens: int, start: int = 0) -> TokenIds:
        """A turn of exactly that many tokens, the template's among them: its content is cut from the embedded corpus to
        what is left of them, and encoded apart from the template.

        Raises WorkloadUnsupported where nothing is left.
        """
        return (*self._before, *self.plain(self._room(tokens), start), *self._after)

    def _room(self, tokens: int) -> int:
        """What the template leaves of so many tokens."""
        if tokens <= self.framing:
            raise WorkloadUnsupported(
                f"a chat doesn't fit in a length of {tokens}: the model's chat template alone takes {self.framing} "
                "tokens"
            )
        return tokens - self.framing

    def unlike(self, tokens: int, number: int, salt: str) -> TokenIds:
        """A turn of exactly that many tokens whose content begins unlike any other's.

        Raises WorkloadUnsupported where the template leaves no room for it.
        """
        return (
            *self._before,
            *self._salted(plain_ids(self._tokenizer, salt), self._room(tokens), number),
            *self._after,
        )

    def varied(self, count: int = len(VARIED_LENGTHS)) -> tuple[TokenIds, ...]:
        """Different turns, the same ones each time, whose contents have the varying lengths."""
        lengths = islice(cycle(VARIED_LENGTHS), count)
        return tuple(self.exact(self.framing + length, start=150 * index) for index, length in enumerate(lengths))


def chat_prompts(name: str, tokenizer: Tokenizer, load: Callable[[], Tokenizer], *, on_cpu: bool) -> ChatPrompts:
    """Prompts in the chat template of the tokenizer.

    name: whose it is, for errors. load: gives the tokenizer in another process. on_cpu: whether models run on the CPU.
    Raises InvalidSetting where there is no template, or none that can be used.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise InvalidSetting(
            f"--llm-chat: {name} has no chat template; give an instruct model, or leave the option out"
        )
    text = _rendered(name, load, on_cpu=on_cpu)
    shown = text.count(MARK)
    if shown != 1:
        raise InvalidSetting(f"{_whose(name)} shows what the user says {shown} times, and once is what makes a prompt")
    before, _, after = text.partition(MARK)
    return ChatPrompts(tokenizer, Frame(before, after))


def _whose(name: str) -> str:
    return f"--llm-chat: the chat template of {name}"


def _rendered(name: str, load: Callable[[], Tokenizer], *, on_cpu: bool) -> str:
    """The template around MARK. Raises InvalidSetting where it fails, runs too long or dies of what it asks for."""
    process = start_function(f"{_whose(name)}: the process that rendered it", _render, (load,), on_cpu=on_cpu)
    try:
        process.receive()  # it has loaded the tokenizer
        answer = process.receive_within(process.limit(RENDER_S))
    except NoAnswer:
        process.kill()
        raise InvalidSetting(f"{_whose(name)} was not rendered after {RENDER_S:.0f} s; it may have no end") from None
    except WorkerDied as error:
        raise InvalidSetting(str(error)) from error
    finally:
        process.close()
    if isinstance(answer, Raised):
        raise InvalidSetting(f"{_whose(name)} can't be rendered: {answer.message}")
    return str(answer.result)


def _render(channel: Channel[Any, Any], load: Callable[[], Any]) -> None:
    """In the process: say when it begins, and send what comes of it."""
    from transformers.utils import chat_template_utils

    tokenizer = load()
    channel.send(None)
    limit_own_memory(MOST_RENDERED_BYTES)
    chat_template_utils.datetime = _OneDay  # transformers 5 takes no function of one's own for the date
    try:
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": MARK}],
            tokenize=False,
            add_generation_prompt=True,
        )
        if len(text) > MOST_CHARACTERS:
            raise InvalidSetting(f"it is longer than {MOST_CHARACTERS:,} characters")
    except Exception as error:  # whatever a template makes Jinja, or transformers, raise
        channel.send(Raised.of(error, InvalidSetting))
    else:
        channel.send(Returned(text))


class _OneDay(datetime):
    """TODAY, whenever one asks."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> _OneDay:
        return cls.combine(TODAY.date(), TODAY.time(), tz)
