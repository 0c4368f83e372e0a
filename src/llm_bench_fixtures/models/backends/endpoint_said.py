"""What a server says, within bounds: the one reader of its bytes and its JSON.

Bytes are read up to a limit that follows what was asked for, and decoded into the types below: what isn't declared is
skipped, and a number beyond its bounds is an error in words. The limit of time is that of `EndpointClient`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
from msgspec import Meta, Raw

from llm_bench_fixtures.errors import EndpointFailed, first_line

if TYPE_CHECKING:
    from httpx2 import Response

MOST_BYTES = 4 * 2**20  # of an answer, and of an event: the first one may have all ids of a long prompt
BYTES_A_TOKEN = 4 * 2**10  # that an answer may have, besides, for each token that is asked for or scored
MOST_CHARACTERS = 10_000  # of a generated text
CHARACTERS_A_TOKEN = 1000  # that it may have, besides; the longest tokens of large vocabularies have some hundreds
QUOTED = 300  # characters of what a server says, in a reason
DEEPEST = 4  # levels of an error's JSON at which its message is looked for
NOTHING = frozenset({b"", b"null", b"false", b"0", b'""', b"{}", b"[]"})
_DATA = b"data:"

Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Length = Annotated[int, Meta(ge=1, le=2**31 - 1)]
TokenId = Annotated[int, Meta(ge=0, le=2**24)]  # vocabularies have up to a million
T = TypeVar("T")


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


class Choice(msgspec.Struct):
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
    choices: list[Choice] = []
    usage: Usage | None = None
    timings: Timings | None = None
    error: Raw = Raw(b"")


class LogProb(msgspec.Struct):
    logprob: float
    id: TokenId | None = None


class LogProbs(msgspec.Struct):
    """Of new tokens, or of a prompt that is echoed before them."""

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


class Name(msgspec.Struct):
    id: str


class Cards(msgspec.Struct):
    """Models, each to be read by itself: one that is described oddly costs no other."""

    data: list[Raw] = []


class _Complaint(msgspec.Struct):
    error: Raw = Raw(b"")
    message: Raw = Raw(b"")
    detail: Raw = Raw(b"")


class Unreadable(EndpointFailed):
    """An answer that isn't JSON, or isn't of the types above."""


def room_for(tokens: int) -> int:
    """Bytes that an answer about so many tokens may have."""
    return MOST_BYTES + BYTES_A_TOKEN * tokens


def read(data: bytes | Raw, kind: type[T], what: str = "an answer") -> T:
    """The value in JSON. Raises Unreadable."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(f"{what} that can't be read: {first_line(error)}") from None


async def parts(response: Response, most_bytes: int) -> AsyncIterator[bytes]:
    """The body as it comes. Raises EndpointFailed beyond that many bytes."""
    size = 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > most_bytes:
            raise EndpointFailed(f"an answer of over {most_bytes / 2**20:.2f} MiB")
        yield part


async def events(response: Response, most_bytes: int) -> AsyncIterator[bytes]:
    """The data of each event as it comes. Raises EndpointFailed beyond that many bytes in all."""
    pending = b""
    async for part in parts(response, most_bytes):
        *lines, pending = (pending + part).split(b"\n")
        for line in lines:
            if line.startswith(_DATA):
                yield line[len(_DATA) :].strip()
        if len(pending) > MOST_BYTES:
            raise EndpointFailed(f"an event of over {MOST_BYTES >> 20} MiB")
    if pending.startswith(_DATA):
        yield pending[len(_DATA) :].strip()


def summary(body: bytes, hide: Callable[[str], str]) -> str:
    """The message in an error's body, or what kind of body it is, in a line. hide: takes the key out of it."""
    if body.lstrip().startswith(b"<"):
        return "an HTML page"
    return first_line(hide(_message(body)))[:QUOTED] or "nothing"


def _message(body: bytes) -> str:
    """What servers put into the JSON of an error, wherever each of them puts it; else all of the body."""
    for _ in range(DEEPEST):
        try:
            found = read(body, _Complaint | str)  # type: ignore[arg-type]  # a union is no type, but it is taken
        except Unreadable:
            break
        if isinstance(found, str):
            return found
        inner = (bytes(one) for one in (found.error, found.message, found.detail))
        told = next((one for one in inner if one not in NOTHING), b"")
        if not told:
            break
        body = told
    return body.decode(errors="replace").strip()
