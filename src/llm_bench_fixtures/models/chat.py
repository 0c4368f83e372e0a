"""Prompts in a model's chat template: turns, and what opens the answer.

A template is a program of the model's author. transformers renders it in Jinja's sandbox, which keeps it from files and
from Python's insides, but neither from running for ever nor from filling memory. So it is rendered in a process of its
own, with an end to its time and its memory. For prompts of one user's turn it is rendered only once: around a mark, in
whose place the texts are then put.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, TypeAlias

from llm_bench_fixtures.errors import InvalidSetting, NoAnswer, WorkerDied
from llm_bench_fixtures.processes.calls import Raised
from llm_bench_fixtures.processes.channels import Channel
from llm_bench_fixtures.processes.launch import start_function
from llm_bench_fixtures.processes.memory import limit_own_memory
from llm_bench_fixtures.workloads import Prompts, Tokenizer

MARK = "what-the-user-says"
RENDER_S = 10.0  # seconds of the process' work
CHAT_S = 0.05  # more for each further chat: the longest published templates take a tenth of it
MOST_RENDERED_BYTES = 1 << 30  # memory beyond what the process has before
MOST_CHARACTERS = 1_000_000
TODAY = datetime(2024, 7, 26, tzinfo=UTC)  # for templates that tell the date: the same prompts on every day

Chat: TypeAlias = Sequence[Mapping[str, str]]
"""Messages, each with its role and content, as templates take them."""


def chat_prompts(name: str, tokenizer: Tokenizer, load: Callable[[], Tokenizer], *, on_cpu: bool) -> Prompts:
    """Prompts in the chat template of the tokenizer.

    name: whose it is, for errors. load: gives the tokenizer in another process. on_cpu: whether models run on the CPU.
    Raises InvalidSetting where there is no template, or none that can be used.
    """
    if not has_template(tokenizer):
        raise InvalidSetting(
            f"--llm-chat: {name} has no chat template; give an instruct model, or leave the option out"
        )
    whose = f"--llm-chat: the chat template of {name}"
    (text,) = render_chats(whose, load, [[{"role": "user", "content": MARK}]], on_cpu=on_cpu)
    if isinstance(text, Raised):
        raise InvalidSetting(f"{whose} can't be rendered: {text.message}")
    shown = text.count(MARK)
    if shown != 1:
        raise InvalidSetting(f"{whose} shows what the user says {shown} times, and once is what makes a prompt")
    before, _, after = text.partition(MARK)
    return Prompts(tokenizer, (before, after))


def has_template(tokenizer: Tokenizer) -> bool:
    return bool(getattr(tokenizer, "chat_template", None))


def render_chats(
    whose: str, load: Callable[[], Tokenizer], chats: Sequence[Chat], *, on_cpu: bool
) -> list[str | Raised]:
    """Each chat in the template, up to where the answer begins; or what the template raised for it.

    whose: names the template in errors. load: gives the tokenizer in another process. Raises InvalidSetting where the
    template runs too long, or dies of what it asks for.
    """
    process = start_function(f"{whose}: the process that rendered it", _render, (load, chats), on_cpu=on_cpu)
    limit_s = RENDER_S + CHAT_S * (len(chats) - 1)
    try:
        process.receive()  # the process has loaded the tokenizer
        answer: list[str | Raised] = process.receive_within(process.limit(limit_s))
    except NoAnswer:
        process.kill()
        raise InvalidSetting(f"{whose} was not rendered after {limit_s:.0f} s; it may have no end") from None
    except WorkerDied as error:
        raise InvalidSetting(str(error)) from error
    finally:
        process.close()
    return answer


def _render(channel: Channel[Any, Any], load: Callable[[], Any], chats: Sequence[Chat]) -> None:
    """Work in the process: say when it begins, and send what comes of it."""
    from transformers.utils import chat_template_utils

    tokenizer = load()
    channel.send(None)
    limit_own_memory(MOST_RENDERED_BYTES)
    chat_template_utils.datetime = _OneDay  # transformers 5 takes no function of one's own for the date
    channel.send([_rendered(tokenizer, chat) for chat in chats])


def _rendered(tokenizer: Any, chat: Chat) -> str | Raised:
    try:
        text: str = tokenizer.apply_chat_template(list(chat), tokenize=False, add_generation_prompt=True)
        if len(text) > MOST_CHARACTERS:
            raise InvalidSetting(f"it is longer than {MOST_CHARACTERS:,} characters")
    except Exception as error:  # whatever a template makes Jinja, or transformers, raise
        return Raised.of(error, InvalidSetting)
    return text


class _OneDay(datetime):
    """TODAY, whenever one asks."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> _OneDay:
        return cls.combine(TODAY.date(), TODAY.time(), tz)
