"""What is asked of a server in OpenAI's interface, what its answers say, and what it can do.

Servers ignore silently what they don't know, so what one can do is found out by asking, and its answers are checked
against what they must be.

New tokens are counted by their ids, by the usage that comes with each event or by llama.cpp's timings, whichever a
server gives; by the usage at the stream's end in any case. An event may hold several tokens, or a part of one.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from msgspec import Raw

from llm_bench_fixtures.errors import EndpointFailed
from llm_bench_fixtures.models.backends.endpoint_client import (
    CHARACTERS_A_TOKEN,
    MOST_CHARACTERS,
    NOTHING,
    Card,
    Cards,
    EndpointClient,
    Event,
    EventChoice,
    Name,
    Scored,
    Scores,
    Timings,
    UnreadableAnswer,
    Usage,
    read,
    room_for,
    summary,
)
from llm_bench_fixtures.text import without_middle
from llm_bench_fixtures.workloads import TokenIds, Tokenizer, plain_ids, read_corpus

DONE = b"[DONE]"
OTHER_FORM = frozenset({400, 404, 405, 422, 501})  # statuses of a server that doesn't know what it was asked
LOG_PROB_TOLERANCE = 0.1  # nats between a token's likelihood when generated and in a prompt; bfloat16 moves it
PROBED_CHARACTERS = 300  # from each text
LONGEST_NAME = 200  # characters of a model's, or of a server's for itself
MOST_LISTED = 20  # models listed in a message
PROBED_TEXTS = 4  # prose and code among them, which tokenizers cut differently
NEW_TOKENS = 4
MOST_SPECIAL = 4  # tokens that a server may put before a text to continue; a chat template may add any number


@dataclass(frozen=True)
class Form:
    """The form of a request that a server takes."""

    is_chat: bool = False
    """Whether prompts are messages, put through the server's chat template; else a text to continue."""
    is_extended: bool = True
    """Whether requests have what vLLM, llama.cpp and others add to OpenAI's: exact lengths, token ids, no prompt
    cache."""
    takes_ids: bool = False
    """Whether prompts may be token ids."""

    @property
    def path(self) -> str:
        return "/chat/completions" if self.is_chat else "/completions"

    def body(self, model: str, prompt: str | TokenIds, new_tokens: int) -> dict[str, Any]:
        """Body of a greedy request. prompt: token ids only where the server takes them."""
        asked = {"messages": [{"role": "user", "content": prompt}]} if self.is_chat else {"prompt": prompt}
        body = {"model": model, **asked, "max_tokens": new_tokens, "temperature": 0, "stream": True}
        options = {"include_usage": True}
        if not self.is_extended:
            return {**body, "stream_options": options}
        return {  # a server takes what it knows of these
            **body,
            "stream_options": {**options, "continuous_usage_stats": True},
            "ignore_eos": True,
            "return_token_ids": True,
            "timings_per_token": True,
            "cache_prompt": False,
            "cache_salt": secrets.token_hex(16),  # vLLM shares cached prompts among requests of the same one
        }


@dataclass(frozen=True)
class Completion:
    """Whole answer of a server to one request."""

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

    def _take_choice(self, choice: EventChoice, event: Event) -> None:
        self._texts.append(text := choice.new_text)
        self._characters += len(text)
        if self._characters > MOST_CHARACTERS + CHARACTERS_A_TOKEN * self._most:
            raise EndpointFailed(f"a text of {self._characters:,} characters for {self._most} tokens")
        self._ids += choice.token_ids or ()
        self._prompt_ids = choice.prompt_token_ids or self._prompt_ids
        self._is_over |= choice.finish_reason is not None
        told = len(self._ids) or _told(event)
        if told is None and text:
            # Unknown until the end: the last token isn't there before it, however many events came.
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

    def finish(self) -> Completion:
        """Raises EndpointFailed for a stream that stopped before its end, or that doesn't say how many tokens came."""
        if not self._is_over:
            raise EndpointFailed(f"the stream ended in the middle, after {self._tokens} tokens")
        usage, timings = self._usage, self._timings
        total = len(self._ids) or usage.completion_tokens
        if total is None:
            total = timings.predicted_n
        if total is None:
            raise EndpointFailed("its stream reports neither token ids nor usage, and events are not tokens")
        self._grow(total)
        details = usage.prompt_tokens_details
        return Completion(
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


FORMS = (Form(), Form(is_extended=False), Form(is_chat=True), Form(is_chat=True, is_extended=False))


class Scoring(StrEnum):
    """How a server is asked for the likelihoods of a prompt's tokens."""

    PROMPT_LOGPROBS = "prompt_logprobs"  # vLLM's
    ECHO = "echo"  # OpenAI's, of before the chat


@dataclass(frozen=True)
class Asker:
    """Asks a server for one of its models."""

    client: EndpointClient
    model: str
    """The model's name on the server."""
    tokenizer: Tokenizer
    """Ours."""

    async def find_form(self, text: str) -> tuple[Form, Completion]:
        """The first form that it takes, with its answer. Raises EndpointFailed with what it said to the others."""
        refused: dict[str, EndpointFailed] = {}  # by path, the refusal of the plainest form
        for form in FORMS:
            try:
                return form, await self.converse(form, text, NEW_TOKENS)
            except EndpointFailed as error:
                if error.status not in OTHER_FORM:
                    raise
                refused[form.path] = error
        reasons = dict.fromkeys(map(str, refused.values()))
        raise EndpointFailed("; ".join(reasons), max(error.status for error in refused.values()))

    async def converse(
        self, form: Form, prompt: str | TokenIds, new_tokens: int, on_tokens: Callable[[int], None] | None = None
    ) -> Completion:
        """Send one request and read its answer to the end. Raises EndpointFailed."""
        reader = StreamReader(new_tokens, on_tokens, self.client.key.hide)
        most_bytes = room_for(len(prompt) + new_tokens)
        await self.client.stream(form.path, form.body(self.model, prompt, new_tokens), reader.take, most_bytes)
        with self.client.in_words(form.path):
            answer = reader.finish()
        return replace(answer, text=self.client.key.hide(answer.text))

    async def added_tokens(self, form: Form, texts: Sequence[str]) -> int | None:
        """How many tokens it has more than we have, if it is the same for all texts, as of another tokenizer it
        isn't."""
        found = set()
        for text in texts:
            ours, answer = plain_ids(self.tokenizer, text), await self.converse(form, text, 1)
            if answer.prompt_tokens is None:
                return None
            if answer.prompt_ids is not None and not form.is_chat and answer.prompt_ids[-len(ours) :] != ours:
                return None
            found.add(answer.prompt_tokens - len(ours))
        is_same = len(found) == 1 and min(found) >= 0 and (form.is_chat or max(found) <= MOST_SPECIAL)
        return found.pop() if is_same else None

    async def with_ids(self, form: Form, ids: TokenIds) -> Form:
        """The form with token ids for prompts, if the server takes them for what they are."""
        by_ids = Form(form.is_chat, form.is_extended, takes_ids=True)
        try:
            answer = await self.converse(by_ids, ids, 1)
        except EndpointFailed as error:
            if not error.status:
                raise
            return form
        return by_ids if answer.prompt_tokens == len(ids) else form

    async def find_scoring(
        self, form: Form, ids: TokenIds, chosen: tuple[int, float] | None
    ) -> tuple[Scoring | None, str]:
        """How it gives the likelihoods of a prompt's tokens, or why they can't be had.

        chosen: the token that it generates after the ids, with its log-likelihood, which is the known answer: in a
        prompt the token must have the same.
        """
        if not form.takes_ids:
            return None, "the server takes no prompts in the tokens of --llm-model, which are to be scored"
        if chosen is None:
            why = "the server doesn't report a generated token with its likelihood, so a prompt's can't be checked"
            return None, why
        token, expected = chosen
        reasons = []
        for way in Scoring:
            try:
                found = await self.log_likelihoods(way, (*ids, token))
            except EndpointFailed as error:
                reasons.append(f"{way}: {str(error).removeprefix(f'{self.client.url}/completions: ')}")
                continue
            if not abs(found[-1] - expected) <= LOG_PROB_TOLERANCE:  # a NaN isn't within either
                seen = f"a token had {expected:.2f} nats when it was generated, and {found[-1]:.2f} in a prompt"
            elif min(found) >= -LOG_PROB_TOLERANCE:
                seen = "every token of a prompt is as good as certain"
            else:
                return way, ""
            reasons.append(f"{way}: {seen}")
        return None, f"the server gives no likelihoods of a prompt's tokens ({'; '.join(reasons)})"

    async def generated(self, ids: TokenIds) -> tuple[int, float] | None:
        """The token that follows, and its log-likelihood; None where the server doesn't report both."""
        asked = {"model": self.model, "prompt": ids, "max_tokens": 1, "temperature": 0, "logprobs": 1}
        for extension in ({"return_token_ids": True}, {}):
            try:
                found = await self.client.post("/completions", {**asked, **extension}, Scores, room_for(len(ids)))
                return _read_generated(found.choices[0], self.tokenizer)
            except UnreadableAnswer:
                return None
            except EndpointFailed as error:
                if not error.status:
                    raise
                if error.status not in OTHER_FORM:
                    return None
        return None

    async def log_likelihoods(self, way: Scoring, ids: TokenIds) -> tuple[float, ...]:
        """Log likelihood of each token after the first, in nats. Raises EndpointFailed where the answer isn't that."""
        asked: dict[str, Any] = {"model": self.model, "prompt": ids, "max_tokens": 1, "temperature": 0}
        asked |= {"prompt_logprobs": 0} if way is Scoring.PROMPT_LOGPROBS else {"echo": True, "logprobs": 1}
        body = await self.client.post("/completions", asked, Scores, room_for(len(ids)))
        found = (_read_prompt_logprobs if way is Scoring.PROMPT_LOGPROBS else _read_echo)(body.choices[0], ids)
        with self.client.in_words("/completions"):
            if len(found) != len(ids) - 1:
                raise EndpointFailed("it was ignored")
            if not all(map(math.isfinite, found)) or max(found, default=0.0) > LOG_PROB_TOLERANCE:
                raise EndpointFailed("what came are no logarithms of probabilities")
        return found


def _read_generated(choice: Scored, tokenizer: Tokenizer) -> tuple[int, float] | None:
    """Id and log likelihood of the generated token: the id as reported, else from its text where that is one token of
    ours. None without either."""
    found = choice.logprobs
    if found is None:
        return None
    if found.content:  # llama.cpp's
        first = found.content[0]
        return None if first.id is None else (first.id, first.logprob)
    ids, [score] = choice.token_ids or plain_ids(tokenizer, choice.text or ""), (found.token_logprobs or [None])[:1]
    return (ids[0], score) if len(ids) == 1 and score is not None else None


def _read_prompt_logprobs(choice: Scored, ids: TokenIds) -> tuple[float, ...]:
    """A dictionary by token id for each token, but the first. Fewer values where it isn't that."""
    entries = choice.prompt_logprobs or []
    if len(entries) != len(ids):
        return ()
    told = ((entry or {}).get(str(token)) for token, entry in zip(ids[1:], entries[1:], strict=True))
    return tuple(one.logprob for one in told if one is not None)


def _read_echo(choice: Scored, ids: TokenIds) -> tuple[float, ...]:
    """A number for each token, but the first, those of new tokens after them. Fewer values where it isn't that."""
    found = (choice.logprobs.token_logprobs if choice.logprobs else None) or []
    if len(found) not in (len(ids), len(ids) + 1) or found[0] is not None:
        return ()
    return tuple(one for one in found[1 : len(ids)] if one is not None)


@dataclass(frozen=True)
class Served:
    """Abilities that a server was found to have."""

    model: str
    """The model's name on the server."""
    owner: str
    """Server's name for itself, if it has one."""
    context_length: int | None
    form: Form
    added_tokens: int | None
    """Tokens that it puts around a prompt's text. None: it cuts texts into other tokens than ours."""
    has_times: bool
    """Whether it tells with each event how many tokens there are."""
    tells_ids: bool
    cached_tokens: int | None
    """Tokens of a repeated prompt that came from a cache. None: not known."""
    scoring: Scoring | None
    no_scoring: str = ""
    """Why it isn't asked for likelihoods."""
    first_tokens: int = 1
    """New tokens that come with the first event."""
    unread: str = ""
    """Why its description of the model can't be read, where that is so."""


async def explore(client: EndpointClient, wanted: str, tokenizer: Tokenizer) -> Served:
    """wanted: the model's name, or "" for the only one. tokenizer: ours. Raises EndpointFailed."""
    card, unread = await _choose(client, wanted)
    texts = [text[:PROBED_CHARACTERS] for text in read_corpus(None).texts[-PROBED_TEXTS:]]
    asker = Asker(client, card.id, tokenizer)
    form, first = await asker.find_form(texts[0])
    added = await asker.added_tokens(form, texts)
    ids = plain_ids(tokenizer, texts[0])
    if added is not None and not form.is_chat:
        form = await asker.with_ids(form, ids)
    prompt: str | TokenIds = ids if form.takes_ids else texts[0]
    again = [await asker.converse(form, prompt, NEW_TOKENS) for _ in range(2)][-1]
    chosen = await asker.generated(ids) if form.takes_ids else None
    scoring, why_not = await asker.find_scoring(form, ids, chosen)
    return Served(
        model=card.id,
        owner=without_middle(card.owned_by or "", LONGEST_NAME),
        context_length=card.context_length,
        unread=unread,
        form=form,
        added_tokens=added,
        has_times=first.has_times and again.has_times,
        tells_ids=again.ids is not None,
        cached_tokens=again.cached_tokens,
        scoring=scoring,
        no_scoring=why_not,
        first_tokens=again.first_tokens,
    )


async def _choose(client: EndpointClient, wanted: str) -> tuple[Card, str]:
    """The model that is asked for, with what the server says of it, and why only its name can be read, if so.

    Raises EndpointFailed where it is asked for none, and doesn't list exactly one.
    """
    cards = await _listed(client)
    names = list(cards)
    if wanted and wanted not in cards:
        return Card(wanted), ""
    if not wanted and (len(names) != 1 or len(names[0]) > LONGEST_NAME):
        raise EndpointFailed(
            client.key.hide(f"{client.url}: give --llm-endpoint-model the model to ask for; {_list_of(names)}")
        )
    name = wanted or names[0]
    try:
        return read(cards[name], Card, "a description"), ""
    except UnreadableAnswer as error:
        return Card(name), client.key.hide(str(error))


async def _listed(client: EndpointClient) -> dict[str, Raw]:
    """The descriptions of models by their names; none where the server has no list, or one of another kind."""
    try:
        found = (await client.get("/models", Cards)).data
    except UnreadableAnswer:
        return {}
    except EndpointFailed as error:
        if error.status not in OTHER_FORM:
            raise
        return {}
    cards = {}
    for one in found:
        with suppress(UnreadableAnswer):  # a name that isn't there can't be asked for
            cards[read(one, Name).id] = one
    return cards


def _list_of(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_LISTED:,} more" if len(names) > MOST_LISTED else ""
    shown = ", ".join(without_middle(name, LONGEST_NAME) for name in names[:MOST_LISTED])
    return f"it lists {shown or 'none'}{more}"
