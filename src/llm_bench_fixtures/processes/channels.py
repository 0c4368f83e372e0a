"""How messages travel between two processes: as pickles through a pipe, or as lines over a socket.

Both ends of a pipe run the same code in the same environment. So a message may be whatever can be pickled (a function,
a tensor, an error), and nobody has to declare it.

The ends of a socket may run two versions of this package in two environments. A pickle of the one may fail in the
other, with an error that names neither. A line is checked against the messages that this version knows, and the first
one, which every version can read, tells the other end's version, so that it can be refused in a sentence.
"""

from __future__ import annotations

import contextlib
import pickle
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any, Generic, TypeVar

from llm_bench_fixtures.errors import ChannelClosed, NoAnswer

S = TypeVar("S")
R = TypeVar("R")

CHUNK_BYTES = 65536
FAREWELL = b"farewell"  # no pickle begins like that


class Channel(ABC, Generic[S, R]):
    """One end of a conversation: it sends S and receives R. Waiting for a message takes no processor time."""

    @abstractmethod
    def send(self, message: S) -> None:
        """Raises ChannelClosed where the other end is gone."""

    @abstractmethod
    def wait(self, until: float | None = None) -> None:
        """Return once there is something to receive, a message or the end of the conversation.

        until: on time.monotonic. Raises NoAnswer when that time is over.
        """

    @abstractmethod
    def receive(self, until: float | None = None) -> R:
        """The next message. Raises ChannelClosed where the other end is gone, NoAnswer when the time is over, and what
        reading the message raises: MalformedMessage, or an error of its pickle's own."""

    @abstractmethod
    def close(self) -> None:
        """End the conversation; the other end is notified."""


@dataclass(frozen=True)
class Pickled:
    """A message that is pickled already, so that sending it fails only where the other end is gone."""

    content: bytes

    @classmethod
    def of(cls, message: object) -> Pickled:
        """Raises whatever pickling raises."""
        return cls(bytes(ForkingPickler.dumps(message)))


class PipeChannel(Channel[S, R]):
    """Pickles through a pipe."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection

    def send(self, message: S) -> None:
        pickled = message if isinstance(message, Pickled) else Pickled.of(message)
        try:
            self._connection.send_bytes(pickled.content)
        except TimeoutError:  # no pipe's own: an alarm's, as time limits raise it
            raise
        except OSError as error:
            raise ChannelClosed from error

    def wait(self, until: float | None = None) -> None:
        try:
            has_something = self._connection.poll(None if until is None else max(until - time.monotonic(), 0.0))
        except TimeoutError:
            raise
        except OSError:
            return  # `receive` tells it
        if not has_something:
            raise NoAnswer("no answer in time")

    def receive(self, until: float | None = None) -> R:
        if until is not None:
            self.wait(until)
        try:
            content = self._connection.recv_bytes()
        except TimeoutError:
            raise
        except (EOFError, OSError) as error:
            raise ChannelClosed from error
        if content.startswith(FAREWELL):
            raise ChannelClosed(content.removeprefix(FAREWELL).decode())
        message: R = pickle.loads(content)  # noqa: S301  # of this program's own process
        return message

    def close(self, last_words: str = "") -> None:
        """Say farewell too: a process that was forked meanwhile may hold the pipe open. last_words: why."""
        with contextlib.suppress(OSError):
            self._connection.send_bytes(FAREWELL + last_words.encode(errors="replace"))
        self._connection.close()


class LineChannel(Channel[S, R]):
    """Lines over a socket."""

    def __init__(self, connection: socket.socket, encode: Callable[[S], bytes], decode: Callable[[bytes], R]) -> None:
        """encode: gives a message's line, with its end. decode: is given a line without it; raises MalformedMessage."""
        self._connection = connection
        self._encode = encode
        self._decode = decode
        self._received = b""

    def send(self, message: S) -> None:
        try:
            self._connection.settimeout(None)
            self._connection.sendall(self._encode(message))
        except OSError as error:
            raise ChannelClosed from error

    def wait(self, until: float | None = None) -> None:
        with contextlib.suppress(ChannelClosed):  # `receive` tells it
            self._read_line(until)

    def receive(self, until: float | None = None) -> R:
        self._read_line(until)
        line, _, self._received = self._received.partition(b"\n")
        return self._decode(line)

    def close(self) -> None:
        """Wake threads that wait for the socket, too."""
        with contextlib.suppress(OSError):  # the other end was quicker
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _read_line(self, until: float | None) -> None:
        """Read until there is a whole line."""
        while b"\n" not in self._received:
            try:
                self._connection.settimeout(None if until is None else max(until - time.monotonic(), 1e-3))
                chunk = self._connection.recv(CHUNK_BYTES)
            except TimeoutError:
                raise NoAnswer("no answer in time") from None
            except OSError as error:
                raise ChannelClosed from error
            if not chunk:
                raise ChannelClosed
            self._received += chunk
