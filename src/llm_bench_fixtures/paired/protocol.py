"""What a coordinator and its workers say to each other: one message a line, as JSON, over a socket.

A worker is a pytest process of one side, and runs that side's version of this package. So that the two versions agree,
the first message of each carries `PROTOCOL`, which changes whenever any message does.

    worker       coordinator
    Hello    ->
             <-  Begin        what to do besides timing, and on which cores
    Collected ->
             <-  Chosen       the tests to run, in this order
    Ready    ->               of each test, once its model is loaded and has run the workload once
             <-  Go           run one round
    Pause    ->               within it: it's the other side's turn
             <-  Resume
    Times    ->               of that round
             <-  Next         no more rounds of this test
    Outcome  ->               of each test, also where it never came to Ready
    Finished ->               the session is over
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias, get_args

import msgspec

from llm_bench_fixtures.errors import ChannelClosed, MalformedMessage, NoAnswer
from llm_bench_fixtures.results.record import Status

PROTOCOL = 2
DESCRIPTOR = "LLM_BENCH_LOCKSTEP"  # the environment variable with the number of the worker's socket
CHUNK_BYTES = 65536


@dataclass(frozen=True)
class Hello:
    protocol: int
    version: str


@dataclass(frozen=True)
class Begin:
    """observes: look at memory, work and quality too. cores: those to run rounds on; empty where that is left open."""

    observes: bool
    cores: tuple[int, ...]


@dataclass(frozen=True)
class Collected:
    """The node ids of the tests that can be compared, in the order in which pytest would run them."""

    tests: tuple[str, ...]


@dataclass(frozen=True)
class Chosen:
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Times:
    """One round. The metrics of results/prefill_decode.py; None where the workload has no such value."""

    latency_s: float
    ttft_s: float | None
    tpot_s: float | None
    decode_tokens_per_s: float | None


@dataclass(frozen=True)
class Ready:
    """workload: the digest of what the test is about to time; two sides are comparable where it is the same. times: of
    the round that it has run, alone and wherever it liked."""

    test: str
    workload: str
    times: Times


@dataclass(frozen=True)
class Go:
    """is_counted: whether the round stands in the worker's own record; a warmup round doesn't.

    tokens_per_turn: after so many tokens, and wherever else the round's clock is read so often, the worker pauses. 0:
    it runs the round in one go.
    """

    is_counted: bool
    tokens_per_turn: int = 0


@dataclass(frozen=True)
class Pause:
    pass


@dataclass(frozen=True)
class Resume:
    pass


@dataclass(frozen=True)
class Next:
    pass


@dataclass(frozen=True)
class Outcome:
    test: str
    status: Status
    reason: str = ""


@dataclass(frozen=True)
class Finished:
    """run: as results.storage.run_to_json gives it, from a worker that observes; None from others."""

    exit_status: int
    run: Mapping[str, Any] | None = None


Message: TypeAlias = (
    Hello | Begin | Collected | Chosen | Ready | Go | Pause | Resume | Times | Next | Outcome | Finished
)

KINDS: Mapping[str, type[Message]] = {kind.__name__.lower(): kind for kind in get_args(Message)}


def encode(message: Message) -> bytes:
    """One line."""
    return json.dumps({"kind": type(message).__name__.lower(), **asdict(message)}).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Raises MalformedMessage for what isn't one of ours."""
    try:
        data = json.loads(line)
        return msgspec.convert(data, KINDS[data.pop("kind")])
    except (AttributeError, KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise MalformedMessage(line) from error


class Channel:
    """One end of the conversation."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received = b""

    def send(self, message: Message) -> None:
        """Raises ChannelClosed where the other end is gone."""
        try:
            self._connection.settimeout(None)
            self._connection.sendall(encode(message))
        except OSError as error:
            raise ChannelClosed("the other end is gone") from error

    def receive(self, until: float | None = None) -> Message:
        """The next message. Waits blocked, which takes no processor time, until `until` on time.monotonic.

        Raises ChannelClosed where the other end is gone, NoAnswer when the time is over, MalformedMessage.
        """
        while b"\n" not in self._received:
            self._received += self._chunk(until)
        line, _, self._received = self._received.partition(b"\n")
        return decode(line)

    def _chunk(self, until: float | None) -> bytes:
        try:
            self._connection.settimeout(None if until is None else max(until - time.monotonic(), 1e-3))
            chunk = self._connection.recv(CHUNK_BYTES)
        except TimeoutError:
            raise NoAnswer("no answer in time") from None
        except OSError as error:
            raise ChannelClosed("the other end is gone") from error
        if not chunk:
            raise ChannelClosed("the other end is gone")
        return chunk

    def close(self) -> None:
        self._connection.close()
