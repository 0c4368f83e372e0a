"""What is asked of a server in OpenAI's interface, and what its stream of events says.

New tokens are counted by their ids, by the usage that comes with each event or by llama.cpp's timings, whichever a
server tells; by the usage at the stream's end in any case. An event may hold several tokens, or a part of one.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import EndpointFailed
from llm_bench_fixtures.models.backends.endpoint_said import (
    CHARACTERS_A_TOKEN,
    MOST_CHARACTERS,
    NOTHING,
    Choice,
    Event,
    Timings,
    Usage,
    read,
    room_for,
    summary,
)

if TYPE_CHECKING:
    from llm_bench_fixtures.models.backends.endpoint_http import EndpointClient
    from llm_bench_fixtures.workloads import TokenIds

DONE = b"[DONE]"


@dataclass(frozen=True)
class Form:
    """The form of a request that a server takes."""

    is_chat: bool = False
    """By messages, through its chat template; else by a text to continue."""
    is_extended: bool = True
    """With what vLLM, llama.cpp and others add to OpenAI's: exact lengths, token ids, no prompt cache."""
    takes_ids: bool = False
    """Whether prompts may be token ids."""

    @property
    def path(self) -> str:
        return "/chat/completions" if self.is_chat else "/completions"

    def body(self, model: str, prompt: str | TokenIds, new_tokens: int) -> dict[str, Any]:
        """Of a greedy request. prompt: token ids only where they are taken."""
        asked = {"messages": [{"role": "user", "content": prompt}]} if self.is_chat else {"prompt": prompt}
        body = {"model": model, **asked, "max_tokens": new_tokens, "temperature": 0, "stream": True}
        options = {"include_usage": True}
        if not self.is_extended:
            return {**body, "stream_options": options}
        return {**body, "stream_options": {**options, "continuous_usage_stats": True}, **_extensions(new_tokens)}


def _extensions(new_tokens: int) -> Mapping[str, Any]:
    """A server takes what it knows of them."""
    return {
        "ignore_eos": True,
        "min_tokens": new_tokens,
        "return_token_ids": True,
        "timings_per_token": True,
        "cache_prompt": False,
        "cache_salt": secrets.token_hex(16),  # vLLM shares cached prompts among requests of the same one
    }


@dataclass(frozen=True)
class Answer:
    """What a server has answered to one request, to the end."""

    tokens: int
    """New ones."""
    ids: tuple[int, ...] | None
    """None where they aren't told."""
    text: str
    has_times: bool
    """Whether it was told with each event how many tokens there are."""
    first_tokens: int
    """Tokens that came with the first event that had any."""
    prompt_tokens: int | None
    prompt_ids: tuple[int, ...] | None
    cached_tokens: int | None


class StreamReader:
    """Reads the events of one answer. `on_tokens` is called with the number of tokens that are there, as it grows.

    most: new tokens that were asked for. hide: takes the key out of what a server says.
    """

    def __init__(
        self,
        most: int,
        on_tokens: Callable[[int], None] | None = None,
        hide: Callable[[str], str] = lambda text: text,
    ) -> None:
        self._most = most
        self._on_tokens = on_tokens
        self._hide = hide
        self._tokens = self._first_tokens = 0
        self._has_times = True
        self._ids: list[int] = []
        self._prompt_ids: list[int] | None = None
        self._texts: list[str] = []
        self._characters = 0
        self._usage = Usage()
        self._timings = Timings()
        self._is_over = False

    def take(self, data: bytes) -> None:
        """data: of one event. Raises EndpointFailed."""
        if data == DONE:
            self._is_over = True
            return
        event = read(data, Event, "an event")
        if (failure := bytes(event.error)) not in NOTHING:
            raise EndpointFailed(f"after {self._tokens} tokens: {summary(failure, self._hide)}")
        self._usage, self._timings = event.usage or self._usage, event.timings or self._timings
        for choice in event.choices[:1]:
            self._take_choice(choice, event)

    def _take_choice(self, choice: Choice, event: Event) -> None:
        self._texts.append(text := choice.new_text)
        self._characters += len(text)
        if self._characters > MOST_CHARACTERS + CHARACTERS_A_TOKEN * self._most:
            raise EndpointFailed(f"a text of {self._characters:,} characters for {self._most} tokens")
        self._ids += choice.token_ids or ()
        self._prompt_ids = choice.prompt_token_ids or self._prompt_ids
        self._is_over |= choice.finish_reason is not None
        told = len(self._ids) or _told(event)
        if told is None and text:
            # Until the end tells: the last token isn't there before it, however many events came.
            self._has_times, told = False, min(self._tokens + 1, max(self._most - 1, 1))
        self._grow(told or 0)

    def _grow(self, tokens: int) -> None:
        if tokens > self._most:
            raise EndpointFailed(f"the server gave {tokens} tokens where {self._most} were asked for")
        if tokens > self._tokens:
            self._first_tokens = self._first_tokens or tokens
            self._tokens = tokens
            if self._on_tokens is not None:
                self._on_tokens(tokens)

    def finish(self) -> Answer:
        """Raises EndpointFailed for a stream that stopped before its end, or that doesn't say how many tokens came."""
        if not self._is_over:
            raise EndpointFailed(f"the stream ended in the middle, after {self._tokens} tokens")
        usage, timings = self._usage, self._timings
        total = len(self._ids) or usage.completion_tokens
        if total is None:
            total = timings.predicted_n
        if total is None:
            raise EndpointFailed("its stream tells neither token ids nor usage, and events are no tokens")
        self._grow(total)
        details = usage.prompt_tokens_details
        return Answer(
            total,
            tuple(self._ids) or None,
            "".join(self._texts),
            self._has_times,
            self._first_tokens,
            usage.prompt_tokens,
            None if self._prompt_ids is None else tuple(self._prompt_ids),
            details.cached_tokens if details and details.cached_tokens is not None else timings.cache_n,
        )


def _told(event: Event) -> int | None:
    """How many tokens there are by now, by what came with the event. None: it doesn't say."""
    if event.usage is not None and event.usage.completion_tokens is not None:
        return event.usage.completion_tokens
    return event.timings.predicted_n if event.timings else None


async def converse(
    client: EndpointClient,
    form: Form,
    model: str,
    prompt: str | TokenIds,
    new_tokens: int,
    on_tokens: Callable[[int], None] | None = None,
) -> Answer:
    """Send one request and read its answer to the end. Raises EndpointFailed."""
    reader = StreamReader(new_tokens, on_tokens, client.key.hide)
    most_bytes = room_for(len(prompt) + new_tokens)
    await client.stream(form.path, form.body(model, prompt, new_tokens), reader.take, most_bytes)
    with client.in_words(form.path):
        answer = reader.finish()
    return replace(answer, text=client.key.hide(answer.text))
