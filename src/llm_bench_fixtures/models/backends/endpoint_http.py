"""The HTTP side of a server: requests and their answers, within a limit of time. What fails is told in words that hold
no key.

The key is sent in a header to the server's own address: redirects are not followed. TLS is verified.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from llm_bench_fixtures.errors import EndpointFailed, first_line
from llm_bench_fixtures.models.backends.endpoint_key import Key
from llm_bench_fixtures.models.backends.endpoint_patience import Patience
from llm_bench_fixtures.models.backends.endpoint_said import (
    MOST_BYTES,
    QUOTED,
    Unreadable,
    events,
    parts,
    read,
    summary,
)

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response

T = TypeVar("T")

KEPT_S = 60.0  # an idle connection; a server that closes it before is noticed
SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM})


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
        self._patience = Patience()
        make = partial(
            httpx2.AsyncClient,
            headers={**key.headers, "Accept-Encoding": "identity"},
            timeout=timeout_s,
            follow_redirects=False,
            trust_env=not is_loopback(url),  # a proxy stands between the two machines, not within one
            verify=httpx2.create_ssl_context(),  # by SSL_CERT_FILE, on this machine too
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
            self._patience.check()
        self._is_loaded = True
        try:
            yield
        finally:
            self._is_loaded = False

    async def get(self, path: str, kind: type[T]) -> T:
        """What is at a path below the URL. Raises Unreadable where it is of another kind."""
        return await self._read("GET", path, b"", kind, MOST_BYTES)

    async def post(self, path: str, body: Mapping[str, Any], kind: type[T], most_bytes: int = MOST_BYTES) -> T:
        """What answers JSON. Raises Unreadable where it is of another kind."""
        return await self._read("POST", path, msgspec.json.encode(body), kind, most_bytes)

    async def stream(
        self, path: str, body: Mapping[str, Any], take: Callable[[bytes], None], most_bytes: int = MOST_BYTES
    ) -> None:
        """Post JSON and hand each event's data to `take` as it comes."""
        async with self._answer("POST", path, msgspec.json.encode(body)) as response:
            _check_streams(response, self.key)
            async for data in events(response, most_bytes):
                take(data)

    async def _read(self, method: str, path: str, content: bytes, kind: type[T], most_bytes: int) -> T:
        async with self._answer(method, path, content) as response:
            body = b"".join([part async for part in parts(response, most_bytes)])
        try:
            return read(body, kind)
        except Unreadable as error:
            said = summary(body, self.key.hide)
            raise Unreadable(self.key.hide(f"{self.url}{path}: {error}: {said}")) from None

    @asynccontextmanager
    async def _answer(self, method: str, path: str, content: bytes) -> AsyncIterator[Response]:
        """The answer once its head is here. Raises EndpointFailed where it is no success."""
        with self.in_words(path), self._patience.watch():
            async with asyncio.timeout(self._timeout_s):
                response = await self._send(method, path, content)
                try:
                    if not response.is_success:
                        raise EndpointFailed(await _refusal(response, self.key), response.status_code)
                    yield response
                finally:
                    await response.aclose()

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
        """What fails within, as an EndpointFailed that says where and hides the key."""
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
        ) from None  # whose frames hold headers


def _shortage(error: BaseException) -> str:
    """What this machine is short of, by the errors that led to this one; empty where it isn't."""
    pending = [error]
    while pending:
        one = pending.pop()
        if isinstance(one, OSError) and one.errno in SHORTAGES:
            return f"this client is short of resources: {os.strerror(one.errno)}"
        within = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        pending += filter(None, (*within, one.__cause__, one.__context__))
    return ""


def _check_streams(response: Response, key: Key) -> None:
    kind = key.hide(response.headers.get("content-type", "")).partition(";")[0].strip().lower()
    if kind not in ("text/event-stream", ""):
        raise EndpointFailed(f"answered with {kind[:QUOTED]} where a stream of events was asked for")


async def _refusal(response: Response, key: Key) -> str:
    """What an answer that is no success says, without the key."""
    status = key.hide(f"{response.status_code} {response.reason_phrase}".strip())[:QUOTED]
    if response.is_redirect:
        where = _destination(key.hide(response.headers.get("location", "")))
        return f"{status}: redirected to {where[:QUOTED]}. No redirect is followed, so that no key is: give that URL"
    body = b""
    async for part in response.aiter_bytes():
        body += part
        if len(body) > MOST_BYTES:
            break
    wait = key.hide(response.headers.get("retry-after", ""))
    return f"{status}: {summary(body, key.hide)}" + (f" (retry after {wait[:20]})" if wait else "")


def _destination(location: str) -> str:
    """Of a redirect, without a user's name, a password and a query."""
    try:
        parts = urlsplit(location)
    except ValueError:
        return "what is no URL"
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" if host else parts.path
