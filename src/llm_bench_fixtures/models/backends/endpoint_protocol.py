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
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from llm_bench_fixtures.errors import EndpointFailed
from llm_bench_fixtures.models.backends.endpoint_client import NOTHING, EndpointClient, UnreadableAnswer, read, summary
from llm_bench_fixtures.text import without_middle
from llm_bench_fixtures.workloads import TokenIds, Tokenizer, plain_ids, read_corpus

DONE = b"[DONE]"
MOST_CHARACTERS = 10_000  # in a generated text
CHARACTERS_A_TOKEN = 1000  # more allowed for each token; the longest tokens of large vocabularies have some hundreds
OTHER_FORM = frozenset({400, 404, 405, 422, 501})  # statuses of a server that doesn't know what it was asked
LOG_PROB_TOLERANCE = 0.1  # nats between a token's likelihood when generated and in a prompt; bfloat16 moves it
PROBED_CHARACTERS = 300  # from each text
LONGEST_NAME = 200  # characters of a model's, or of a server's for itself
MOST_LISTED = 20  # models listed in a message
PROBED_TEXTS = 4  # prose and code among them, which tokenizers cut differently
NEW_TOKENS = 4
MOST_SPECIAL = 4  # tokens that a server may put before a text to continue; a chat template may add any number

Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Length = Annotated[int, Meta(ge=1, le=2**31 - 1)]
TokenId = Annotated[int, Meta(ge=0, le=2**24)]  # vocabularies have up to a million


class PromptDetails(msgspec.Struct):
    cached_tokens: Count | None = None


class Usage(msgspec.Struct):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: PromptDetails | None = None


class Timings(msgspec.Struct):
    """llama.cpp's."""

    predicted_n: Count | None = None
    cache_n: Count | None = None


class Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class EventChoice(msgspec.Struct):
    """A part of a stream's text."""

    text: str | None = None
    delta: Delta | None = None
    token_ids: list[TokenId] | None = None
    prompt_token_ids: list[TokenId] | None = None
    finish_reason: str | None = None

    @property
    def new_text(self) -> str:
        said = (self.delta.reasoning_content or self.delta.reasoning, self.delta.content) if self.delta else ()
        return "".join(filter(None, (self.text, *said)))


class Event(msgspec.Struct):
    choices: list[EventChoice] = []
    usage: Usage | None = None
    timings: Timings | None = None
    error: Raw = Raw(b"")


class LogProb(msgspec.Struct):
    logprob: float
    id: TokenId | None = None


class LogProbs(msgspec.Struct):
    """Log probabilities of new tokens, or of a prompt that is echoed before them."""

    token_logprobs: list[float | None] | None = None
    content: list[LogProb] | None = None  # llama.cpp's


class Scored(msgspec.Struct):
    text: str | None = None
    token_ids: list[TokenId] | None = None
    logprobs: LogProbs | None = None
    prompt_logprobs: list[dict[str, LogProb] | None] | None = None  # vLLM's: by token id, for each token but the first


class Scores(msgspec.Struct):
    """The answer to a request that isn't streamed."""

    choices: Annotated[list[Scored], Meta(min_length=1)]


class ServerMeta(msgspec.Struct):
    n_ctx: Length | None = None


class Card(msgspec.Struct):
    """A model, as it is listed."""

    id: str
    owned_by: str | None = None
    max_model_len: Length | None = None
    meta: ServerMeta | None = None

    @property
    def context_length(self) -> int | None:
        return self.max_model_len or (self.meta.n_ctx if self.meta else None)

    @property
    def owner(self) -> str:
        """Server's name for itself, if it has one."""
        return without_middle(self.owned_by or "", LONGEST_NAME)


class Name(msgspec.Struct):
    id: str


class Cards(msgspec.Struct):
    """Models, each to be read by itself: one that is described oddly costs no other."""

    data: list[Raw] = []


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


@dataclass(eq=False, repr=False)
class StreamedAnswer:
    """Answer of a server to one request, read as its events come."""

    most: int
    """New tokens that were asked for."""
    on_tokens: Callable[[int], None] = lambda _: None
    """Called with the number of tokens that are there, as it grows."""
    hide: Callable[[str], str] = lambda text: text
    """Takes the key out of what a server says."""
    tokens: int = 0
    """New ones, as far as they are there."""
    first_tokens: int = 0
    """Tokens that came with the first event that had any."""
    has_times: bool = True
    """Whether it was told with each event how many tokens there are."""
    ids: list[int] = field(default_factory=list)
    """Ids of the new tokens; none where they aren't told."""
    prompt_ids: list[int] = field(default_factory=list)
    text: str = ""
    _usage: Usage = field(default_factory=Usage)
    _timings: Timings = field(default_factory=Timings)
    _is_over: bool = False

    @property
    def prompt_tokens(self) -> int | None:
        return self._usage.prompt_tokens

    @property
    def cached_tokens(self) -> int | None:
        details = self._usage.prompt_tokens_details
        return details.cached_tokens if details and details.cached_tokens is not None else self._timings.cache_n

    def take(self, data: bytes) -> None:
        """data: of one event. Raises EndpointFailed."""
        if data == DONE:
            self._is_over = True
            return
        event = read(data, Event, "an event")
        if (failure := bytes(event.error)) not in NOTHING:
            raise EndpointFailed(f"after {self.tokens} tokens: {summary(failure, self.hide)}")
        self._usage, self._timings = event.usage or self._usage, event.timings or self._timings
        for choice in event.choices[:1]:
            self._take_choice(choice, event)

    def _take_choice(self, choice: EventChoice, event: Event) -> None:
        self.text += choice.new_text
        if len(self.text) > MOST_CHARACTERS + CHARACTERS_A_TOKEN * self.most:
            raise EndpointFailed(f"a text of {len(self.text):,} characters for {self.most} tokens")
        self.ids += choice.token_ids or ()
        self.prompt_ids = choice.prompt_token_ids or self.prompt_ids
        self._is_over |= choice.finish_reason is not None
        told = len(self.ids) or _told(event.usage or Usage(), event.timings or Timings())
        if told is None and choice.new_text:
            # Unknown until the end: the last token isn't there before it, however many events came.
            self.has_times, told = False, min(self.tokens + 1, max(self.most - 1, 1))
        self._grow(told or 0)

    def _grow(self, tokens: int) -> None:
        if tokens > self.most:
            raise EndpointFailed(f"the server gave {tokens} tokens where {self.most} were asked for")
        if tokens > self.tokens:
            self.first_tokens = self.first_tokens or tokens
            self.tokens = tokens
            self.on_tokens(tokens)

    def finish(self) -> None:
        """Raises EndpointFailed for a stream that stopped before its end, or that doesn't say how many tokens came."""
        if not self._is_over:
            raise EndpointFailed(f"the stream ended in the middle, after {self.tokens} tokens")
        total = len(self.ids) or _told(self._usage, self._timings)
        if total is None:
            raise EndpointFailed("its stream reports neither token ids nor usage, and events are not tokens")
        self._grow(total)
        self.tokens = total
        self.text = self.hide(self.text)


def _told(usage: Usage, timings: Timings) -> int | None:
    """How many new tokens there are by now. None: neither says."""
    return timings.predicted_n if usage.completion_tokens is None else usage.completion_tokens


FORMS = (Form(), Form(is_extended=False), Form(is_chat=True), Form(is_chat=True, is_extended=False))


class ScoringApi(StrEnum):
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

    async def find_form(self, text: str) -> tuple[Form, StreamedAnswer]:
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
        self, form: Form, prompt: str | TokenIds, new_tokens: int, on_tokens: Callable[[int], None] = lambda _: None
    ) -> StreamedAnswer:
        """Send one request and read its answer to the end. Raises EndpointFailed."""
        answer = StreamedAnswer(new_tokens, on_tokens, self.client.key.hide)
        await self.client.stream(form.path, form.body(self.model, prompt, new_tokens), answer.take)
        with self.client.in_words(form.path):
            answer.finish()
        return answer

    async def added_tokens(self, form: Form, texts: Sequence[str]) -> int | None:
        """How many tokens it has more than we have, if it is the same for all texts, as of another tokenizer it
        isn't."""
        found = set()
        for text in texts:
            ours, answer = plain_ids(self.tokenizer, text), await self.converse(form, text, 1)
            if answer.prompt_tokens is None:
                return None
            if answer.prompt_ids and not form.is_chat and tuple(answer.prompt_ids[-len(ours) :]) != ours:
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

    async def find_scoring(self, form: Form, ids: TokenIds) -> tuple[ScoringApi | None, str]:
        """How it gives the likelihoods of a prompt's tokens, or why they can't be had.

        The token that it generates after the ids has a known log-likelihood: in a prompt it must have the same.
        """
        if not form.takes_ids:
            return None, "the server takes no prompts in the tokens of --llm-model, which are to be scored"
        chosen = await self.generated(ids)
        if chosen is None:
            why = "the server doesn't report a generated token with its likelihood, so a prompt's can't be checked"
            return None, why
        token, expected = chosen
        reasons = []
        for way in ScoringApi:
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
                found = await self.client.post("/completions", {**asked, **extension}, Scores)
                return _read_generated(found.choices[0], self.tokenizer)
            except UnreadableAnswer:
                return None
            except EndpointFailed as error:
                if not error.status:
                    raise
                if error.status not in OTHER_FORM:
                    return None
        return None

    async def log_likelihoods(self, way: ScoringApi, ids: TokenIds) -> tuple[float, ...]:
        """Log likelihood of each token after the first, in nats. Raises EndpointFailed where the answer isn't that."""
        asked: dict[str, Any] = {"model": self.model, "prompt": ids, "max_tokens": 1, "temperature": 0}
        asked |= {"prompt_logprobs": 0} if way is ScoringApi.PROMPT_LOGPROBS else {"echo": True, "logprobs": 1}
        body = await self.client.post("/completions", asked, Scores)
        found = (_read_prompt_logprobs if way is ScoringApi.PROMPT_LOGPROBS else _read_echo)(body.choices[0], ids)
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

    asker: Asker
    card: Card
    """Its description of the model."""
    unread: str
    """Why that can't be read, where it is so."""
    form: Form
    added_tokens: int | None
    """Tokens that it puts around a prompt's text. None: it cuts texts into other tokens than ours."""
    first: StreamedAnswer
    """Answer to the first text that it took."""
    again: StreamedAnswer
    """Answer to a repeated prompt."""
    scoring: ScoringApi | None
    no_scoring: str = ""
    """Why it isn't asked for likelihoods."""


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
    scoring, why_not = await asker.find_scoring(form, ids)
    return Served(asker, card, unread, form, added, first, again, scoring, why_not)


async def _choose(client: EndpointClient, wanted: str) -> tuple[Card, str]:
    """The model that is asked for, with what the server says of it, and why only its name can be read, if so.

    Raises EndpointFailed where it is asked for none, and doesn't list exactly one.
    """
    cards = await _listed(client)
    names = list(cards)
    if wanted and wanted not in cards:
        return Card(wanted), ""
    if not wanted and (len(names) != 1 or len(names[0]) > LONGEST_NAME):
        more = f" and {len(names) - MOST_LISTED:,} more" if len(names) > MOST_LISTED else ""
        shown = ", ".join(without_middle(name, LONGEST_NAME) for name in names[:MOST_LISTED])
        listed = f"it lists {shown or 'none'}{more}"
        raise EndpointFailed(client.key.hide(f"{client.url}: give --llm-endpoint-model the model to ask for; {listed}"))
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
