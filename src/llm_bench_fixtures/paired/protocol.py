"""The messages between the coordinator of a paired run and its workers: one a line, as JSON, over a socket.

A worker is a pytest process of one side, and runs that side's version of this package. `PROTOCOL` changes whenever any
message does. A worker tells its version in its first message, which every version can read, so that the coordinator
can refuse a version that isn't its own.

    worker           coordinator
    Hello        ->
                 <-  Begin        what to do besides timing, and on which cores
    Collected    ->
                 <-  Selected     the tests to run, in this order
    Ready        ->               of each test, once its model is loaded and has run the workload's first tokens
                 <-  Go           run one round, of all tokens or of the first only
    Pause        ->               within the round: the other side takes its turn
                 <-  Resume
    Times        ->               of that round
                 <-  Next         no more rounds of this test
    Ended        ->               of each test, also of one that was never ready
    Finished     ->               the session is over
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from llm_bench_fixtures.errors import MalformedMessage
from llm_bench_fixtures.processes.channels import LineChannel
from llm_bench_fixtures.results.record import Status

PROTOCOL = 4


class _Tagged(msgspec.Struct, frozen=True, tag_field="kind", tag=str.lower):
    """Base of the messages. On the wire each has its class's name in lower case as its "kind"."""


class Hello(_Tagged, frozen=True):
    protocol: int
    """PROTOCOL of the worker's package."""
    version: str
    """Version of the worker's package."""


class Begin(_Tagged, frozen=True):
    observes: bool
    """Whether to measure memory, work and quality too."""
    cores: tuple[int, ...]
    """Cores to run the rounds on; empty if any will do."""


class Collected(_Tagged, frozen=True):
    tests: tuple[str, ...]
    """Node ids of the tests that can be compared, in the order in which pytest would run them."""


class Selected(_Tagged, frozen=True):
    tests: tuple[str, ...]
    """Node ids of the tests to run, in this order."""


class Times(_Tagged, frozen=True):
    """The metrics of one round, as results/prefill_decode.py defines them; None if the workload has no such value."""

    latency_s: float
    ttft_s: float | None
    tpot_s: float | None
    decode_tokens_per_s: float | None
    prefills_s: tuple[float, ...] = ()
    """Seconds of each batch until its first token."""
    steps_s: tuple[float, ...] = ()
    """Seconds of each decode step, batch by batch; empty if each prompt got one token."""


class Ready(_Tagged, frozen=True):
    test: str
    workload: str
    """Digest of the workload that the test is about to time; two sides are comparable if it is the same."""
    variant: str
    """Id of the variant that runs it."""
    is_on_cpu: bool
    """Whether it runs on the CPU, so that binding its process to a core keeps it apart from other processes."""
    times: Times
    """Times of the round that the test has run already, without turns: of the first two tokens, as a warm-up."""


class Go(_Tagged, frozen=True):
    is_counted: bool
    """Whether the round goes into the worker's own record; a warmup round doesn't."""
    tokens_per_turn: int = 0
    """The worker pauses each time that it has read the round's clock so often, which it does at each token and at a few
    other places. 0: it runs the round without a pause."""
    is_prefill: bool = False
    """Whether to generate one token only. Such a round costs no decode, and never goes into the worker's own record."""


class Pause(_Tagged, frozen=True):
    pass


class Resume(_Tagged, frozen=True):
    pass


class Next(_Tagged, frozen=True):
    pass


class Ended(_Tagged, frozen=True):
    test: str
    status: Status
    reason: str = ""
    """Why it was skipped or failed; empty if it passed."""


BROKEN_OFF = frozenset((2, 3, 4))  # pytest's exit statuses where something else than its tests ended a session


class Finished(_Tagged, frozen=True):
    exit_status: int
    """Pytest's."""
    run: Mapping[str, Any] | None = None
    """Run as results.storage.run_to_json returns it; None from a worker that doesn't observe."""


Message: TypeAlias = (
    Hello | Begin | Collected | Selected | Ready | Go | Pause | Resume | Times | Next | Ended | Finished
)

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Message)


def encode(message: Message) -> bytes:
    """One line."""
    return _ENCODER.encode(message) + b"\n"


def decode(line: bytes) -> Message:
    """Raises MalformedMessage if the line is none of the messages."""
    try:
        message: Message = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedMessage(line) from error
    return message


def open_channel(connection: socket.socket) -> LineChannel[Message, Message]:
    """One end of the conversation."""
    return LineChannel(connection, encode, decode)
