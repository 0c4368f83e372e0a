"""The wire to a server: requests and answers, within limits of time and size. Errors hold no key.

The key is sent in a header to the server's own address: redirects are not followed. TLS is verified. Bytes are read up
to a limit, and decoded into types: what isn't declared is skipped, and a number beyond its bounds is an error in words.
"""

from __future__ import annotations

import asyncio
import errno
import html
import ipaddress
import math
import os
import re
import string
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw

from llm_bench_fixtures.errors import EndpointFailed, InvalidSetting, first_line
from llm_bench_fixtures.text import LONGEST

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response

MOST_BYTES = 16 * 2**20  # in an answer: likelihoods take some 100 bytes a token
MOST_EVENT_BYTES = 4 * 2**20  # the first event of a stream may have all ids of a long prompt
QUOTED = 300  # characters of what a server says, in a reason
DEEPEST = 4  # levels of an error's JSON at which its message is looked for
NOTHING = frozenset({b"", b"null", b"false", b"0", b'""', b"{}", b"[]"})
KEPT_S = 60.0  # an idle connection; a server that closes it before is noticed
SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM})
MOST_TIMEOUTS = 3  # in a row: each costs a minute, and a suite has many requests
_DATA = b"data:"
HIDDEN = "[key]"
PART = 8  # characters in a row of a key that are hidden, too: servers say "sk-12345***6789"
_ESCAPE = re.compile(r"\\u00([0-9a-f]{2})|\\x([0-9a-f]{2})|%([0-9a-f]{2})|(&#?\w{1,8};)|\\([^\w\s])", re.IGNORECASE)
_SPELLED = re.compile(f"{_ESCAPE.pattern}|.", re.IGNORECASE | re.DOTALL)
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)

T = TypeVar("T")


class Key:
    """A secret. It shows itself in headers alone."""

    def __init__(self, text: str) -> None:
        self._text = text
        low = text.lower()
        self._parts = frozenset(low[start : start + PART] for start in range(len(low) - PART + 1))

    def __repr__(self) -> str:
        return f"Key({HIDDEN if self._text else ''})"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._text}"} if self._text else {}

    def hide(self, text: str) -> str:
        """The text without the key, which a server may repeat: in capitals, escaped for a URL, for JSON or for a page,
        or in part. It comes before a text is cut or its case changed. A key of under PART characters is hidden as it is
        spelled: words may have it in them."""
        if not self._parts:
            return text.replace(self._text, HIDDEN) if self._text else text
        plain = _ESCAPE.sub(_meant, text).translate(_LOWER)
        return self._without_parts(text[:LONGEST]) if any(part in plain for part in self._parts) else text

    def _without_parts(self, text: str) -> str:
        spelled = list(_SPELLED.finditer(text))  # a character each
        plain = "".join(map(_meant, spelled)).translate(_LOWER)
        starts = [start for start in range(len(plain)) if plain[start : start + PART] in self._parts]
        hidden = {place for start in starts for place in range(start, start + PART)}
        runs = groupby(enumerate(spelled), key=lambda one: one[0] in hidden)
        return "".join(HIDDEN if is_hidden else "".join(one.group() for _, one in run) for is_hidden, run in runs)


def _meant(spelled: re.Match[str]) -> str:
    """The character that is spelled so."""
    json, python, url, page, escaped = spelled.groups()
    if code := json or python or url:
        return chr(int(code, 16))
    return html.unescape(page)[:1] if page else escaped or spelled.group()


def read_key(variable: str, environment: Mapping[str, str] = os.environ) -> Key:
    """The key in an environment variable; an empty one where there is none. Raises InvalidSetting, which quotes
    nothing."""
    text = environment.get(variable, "").strip()
    if not text.isascii() or not text.isprintable() or " " in text:
        raise InvalidSetting(f"{variable} holds what can't be a key: spaces, or characters beyond ASCII")
    return Key(text)


class _Complaint(msgspec.Struct):
    error: Raw = Raw(b"")
    message: Raw = Raw(b"")
    detail: Raw = Raw(b"")


class UnreadableAnswer(EndpointFailed):
    """An answer that isn't JSON, or isn't of the type that was asked for."""


def read(data: bytes | Raw, kind: type[T], what: str = "an answer") -> T:
    """The value in JSON. Raises UnreadableAnswer."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableAnswer(f"{what} that can't be read: {first_line(error)}") from None


async def events(response: Response) -> AsyncIterator[bytes]:
    """The data of each event as it comes. Raises EndpointFailed for an event of over MOST_EVENT_BYTES."""
    pending = b""
    async for part in response.aiter_bytes():
        *lines, pending = (pending + part).split(b"\n")
        for line in lines:
            if line.startswith(_DATA):
                yield line[len(_DATA) :].strip()
        if len(pending) > MOST_EVENT_BYTES:
            raise EndpointFailed(f"an event of over {MOST_EVENT_BYTES >> 20} MiB")
    if pending.startswith(_DATA):
        yield pending[len(_DATA) :].strip()


def summary(body: bytes, hide: Callable[[str], str]) -> str:
    """The message in an error's body, or what kind of body it is, in a line. hide: takes the key out of it."""
    if body.lstrip().startswith(b"<"):
        return "an HTML page"
    return first_line(hide(_message(body)))[:QUOTED] or "nothing"


def _message(body: bytes) -> str:
    """Message that a server puts into the JSON of an error, wherever it puts it; else all of the body."""
    for _ in range(DEEPEST):
        try:
            found = read(body, _Complaint | str)  # type: ignore[arg-type]  # a union is no type, but it is taken
        except UnreadableAnswer:
            break
        if isinstance(found, str):
            return found
        told = [one for one in map(bytes, (found.error, found.message, found.detail)) if one not in NOTHING]
        if not told:
            break
        body = told[0]
    return body.decode(errors="replace").strip()


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class EndpointClient:
    """Asks one server. Every failure is an EndpointFailed, and none outlasts `timeout_s`."""

    def __init__(self, url: str, key: Key, timeout_s: float) -> None:
        """url: what the paths are added to, with /v1 at its end as a rule."""
        import httpx2

        self.url = url.rstrip("/")
        self.key = key
        self._timeout_s = timeout_s
        self._is_loaded = self._closes = False
        self._timeouts, self._last_timeout_s = 0, -math.inf
        make = partial(
            httpx2.AsyncClient,
            headers={**key.headers, "Accept-Encoding": "identity"},
            timeout=timeout_s,
            follow_redirects=False,
            trust_env=not is_loopback(url),  # a proxy stands between the two machines, not within one
            verify=httpx2.create_ssl_context(),  # SSL_CERT_FILE counts, on this machine too
        )
        limits = partial(httpx2.Limits, max_connections=None, keepalive_expiry=KEPT_S)
        self._http: AsyncClient = make(limits=limits(max_keepalive_connections=None))
        self._unkept: AsyncClient = make(limits=limits(max_keepalive_connections=0))

    async def close(self) -> None:
        await self._http.aclose()
        await self._unkept.aclose()

    @contextmanager
    def loaded(self) -> Iterator[None]:
        """While a load lasts: no request is sent twice. A server that was seen to close connections gets one for each
        request, as it can't be told there whether one was closed as it was idle, or as the server gave way."""
        with self.in_words(""):
            self._check_timeouts()
        self._is_loaded = True
        try:
            yield
        finally:
            self._is_loaded = False

    async def get(self, path: str, kind: type[T]) -> T:
        """Answer at a path below the URL. Raises UnreadableAnswer where it is of another kind."""
        return await self._read("GET", path, b"", kind)

    async def post(self, path: str, body: Mapping[str, Any], kind: type[T]) -> T:
        """Answer in JSON. Raises UnreadableAnswer where it is of another kind."""
        return await self._read("POST", path, msgspec.json.encode(body), kind)

    async def stream(self, path: str, body: Mapping[str, Any], take: Callable[[bytes], None]) -> None:
        """Post JSON and hand each event's data to `take` as it comes."""
        async with self._answer("POST", path, msgspec.json.encode(body)) as response:
            kind = self.key.hide(response.headers.get("content-type", "")).partition(";")[0].strip().lower()
            if kind not in ("text/event-stream", ""):
                raise EndpointFailed(f"answered with {kind[:QUOTED]} where a stream of events was asked for")
            async for data in events(response):
                take(data)

    async def _read(self, method: str, path: str, content: bytes, kind: type[T]) -> T:
        body = bytearray()
        async with self._answer(method, path, content) as response:
            async for part in response.aiter_bytes():
                body += part
                if len(body) > MOST_BYTES:
                    raise EndpointFailed(f"an answer of over {MOST_BYTES >> 20} MiB")
        try:
            return read(bytes(body), kind)
        except UnreadableAnswer as error:
            said = summary(bytes(body), self.key.hide)
            raise UnreadableAnswer(self.key.hide(f"{self.url}{path}: {error}: {said}")) from None

    @asynccontextmanager
    async def _answer(self, method: str, path: str, content: bytes) -> AsyncIterator[Response]:
        """The answer once its head is here. Raises EndpointFailed where it is no success."""
        with self.in_words(path), self._counting_timeouts():
            async with asyncio.timeout(self._timeout_s):
                response = await self._send(method, path, content)
                try:
                    if not response.is_success:
                        raise EndpointFailed(await _refusal(response, self.key), response.status_code)
                    yield response
                finally:
                    await response.aclose()

    def _check_timeouts(self) -> None:
        """Raise EndpointFailed where the server hangs: after MOST_TIMEOUTS in a row nothing more is asked."""
        if self._timeouts >= MOST_TIMEOUTS:
            raise EndpointFailed(f"no answer in time {MOST_TIMEOUTS} times in a row, so it isn't asked any more")

    @contextmanager
    def _counting_timeouts(self) -> Iterator[None]:
        """A request. Timeouts of requests at the same time count as one. Raises EndpointFailed after too many."""
        import httpx2

        self._check_timeouts()
        sent_s = time.monotonic()
        try:
            yield
        except (httpx2.TimeoutException, TimeoutError):
            if sent_s >= self._last_timeout_s:
                self._timeouts, self._last_timeout_s = self._timeouts + 1, time.monotonic()
            raise
        except Exception:
            self._timeouts = 0
            raise
        self._timeouts = 0

    async def _send(self, method: str, path: str, content: bytes) -> Response:
        """The head of the answer. Once more where a connection that was idle is gone before it: a server may close
        one, as llama.cpp does after each stream, and say so too late."""
        import httpx2

        events: list[str] = []

        async def trace(event: str, _: Mapping[str, Any]) -> None:
            events.append(event)

        headers = {"Content-Type": "application/json"} if content else {}
        http = self._unkept if self._is_loaded and self._closes else self._http
        request = http.build_request(
            method, self.url + path, content=content or None, headers=headers, extensions={"trace": trace}
        )
        try:
            return await http.send(request, stream=True)
        except (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError):
            is_new = any("connect_tcp" in event for event in events)
            if is_new or self._is_loaded:
                raise
            self._closes = True
            return await self._unkept.send(request, stream=True)

    @contextmanager
    def in_words(self, path: str) -> Iterator[None]:
        """Raise what fails inside the block as an EndpointFailed that says where and hides the key."""
        import httpx2

        where, status, is_clients = self.url + path, 0, False
        try:
            yield
            return
        except EndpointFailed as error:
            reason, status, is_clients = f"{where}: {error}", error.status, error.is_clients
        except (httpx2.TimeoutException, TimeoutError):
            reason = f"{where}: no whole answer within {self._timeout_s:g} s (--llm-endpoint-timeout)"
        except httpx2.ConnectError as error:
            shortage = _shortage(error)
            reason, is_clients = f"{self.url} can't be reached: {shortage or first_line(error)}", bool(shortage)
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            reason = f"{where}: the connection broke off: {first_line(error) or type(error).__name__}"
        raise EndpointFailed(
            self.key.hide(reason), status, is_clients=is_clients
        ) from None  # the cause's frames hold headers


def _shortage(error: BaseException) -> str:
    """Resource that this machine is short of, by the errors that led to this one; empty where it isn't."""
    pending = [error]
    while pending:
        one = pending.pop()
        if isinstance(one, OSError) and one.errno in SHORTAGES:
            return f"this client is short of resources: {os.strerror(one.errno)}"
        within = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        pending += filter(None, (*within, one.__cause__, one.__context__))
    return ""


async def _refusal(response: Response, key: Key) -> str:
    """Words of an answer that is no success, without the key."""
    status = key.hide(f"{response.status_code} {response.reason_phrase}".strip())[:QUOTED]
    if response.is_redirect:
        where = _destination(key.hide(response.headers.get("location", "")))
        return f"{status}: redirected to {where[:QUOTED]}. No redirect is followed, so that no key is: give that URL"
    body = b""
    async for part in response.aiter_bytes():
        body += part
        if len(body) > MOST_EVENT_BYTES:
            break
    wait = key.hide(response.headers.get("retry-after", ""))
    return f"{status}: {summary(body, key.hide)}" + (f" (retry after {wait[:20]})" if wait else "")


def _destination(location: str) -> str:
    """Destination of a redirect, without a user's name, a password and a query."""
    try:
        parts = urlsplit(location)
    except ValueError:
        return "what is no URL"
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" if host else parts.path
