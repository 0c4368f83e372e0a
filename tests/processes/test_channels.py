"""What both kinds of channel do alike, and what only one of them does. A message is a text here."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest
from waiting import BACKSTOP_S

from llm_bench_fixtures.errors import ChannelClosed, MalformedMessage, NoAnswer
from llm_bench_fixtures.processes.channels import Channel, LineChannel, PipeChannel

Ends = tuple[Channel[Any, Any], Channel[Any, Any]]


def encode(message: str) -> bytes:
    return json.dumps(message).encode() + b"\n"


def decode(line: bytes) -> str:
    try:
        message: str = json.loads(line)
    except ValueError as error:
        raise MalformedMessage(line) from error
    return message


def lines(connection: socket.socket) -> LineChannel[str, str]:
    return LineChannel(connection, encode, decode)


@pytest.fixture(params=["pipe", "lines"])
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    ours: Channel[Any, Any]
    theirs: Channel[Any, Any]
    if request.param == "pipe":
        ours, theirs = map(PipeChannel, multiprocessing.Pipe())
    else:
        ours, theirs = map(lines, socket.socketpair())
    yield ours, theirs
    ours.close()
    theirs.close()


def test_messages_arrive_whole_and_in_order(ends: Ends) -> None:
    ours, theirs = ends
    sent = ["", "one", "two\nlines", "é"]
    for message in sent:
        ours.send(message)
    assert [theirs.receive() for _ in sent] == sent


def test_a_message_of_a_megabyte_arrives_whole(ends: Ends) -> None:
    """It takes many reads, and more than a socket or a pipe holds at a time."""
    ours, theirs = ends
    sending = threading.Thread(target=ours.send, args=("x" * 1_000_000,))
    sending.start()
    assert theirs.receive(time.monotonic() + BACKSTOP_S) == "x" * 1_000_000
    sending.join()


def test_a_gone_peer_is_told(ends: Ends) -> None:
    ours, theirs = ends
    theirs.close()
    for _ in range(2):
        with pytest.raises(ChannelClosed):
            ours.receive()


def test_what_was_sent_before_the_end_arrives(ends: Ends) -> None:
    ours, theirs = ends
    theirs.send("the last")
    theirs.close()
    assert ours.receive() == "the last"
    with pytest.raises(ChannelClosed):
        ours.receive()


def test_nothing_can_be_sent_to_a_gone_peer(ends: Ends) -> None:
    ours, theirs = ends
    theirs.close()
    with pytest.raises(ChannelClosed):
        ours.send("anybody?")


def test_a_channel_that_was_closed_here_says_the_same(ends: Ends) -> None:
    ours, _ = ends
    ours.close()
    ours.close()
    with pytest.raises(ChannelClosed):
        ours.send("anybody?")
    with pytest.raises(ChannelClosed):
        ours.receive()


def test_silence_ends_at_its_time(ends: Ends) -> None:
    ours, _ = ends
    for ask in (ours.receive, ours.wait):
        started = time.monotonic()
        with pytest.raises(NoAnswer):
            ask(started + 0.05)
        assert time.monotonic() - started >= 0.05


def test_what_has_arrived_is_read_even_when_the_time_is_over(ends: Ends) -> None:
    ours, theirs = ends
    theirs.send("early")
    assert ours.receive(time.monotonic() - 5) == "early"


def test_waiting_takes_nothing(ends: Ends) -> None:
    ours, theirs = ends
    theirs.send("first")
    ours.wait()
    ours.wait(time.monotonic() + BACKSTOP_S)
    assert ours.receive() == "first"
    theirs.close()
    ours.wait()  # for the end, which there is
    with pytest.raises(ChannelClosed):
        ours.receive()


@pytest.mark.parametrize(("is_closed", "error"), [(True, ChannelClosed), (False, NoAnswer)])
def test_half_a_line_is_no_message(is_closed: bool, error: type[Exception]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(encode("a message")[:-5])
        if is_closed:
            theirs.close()
        with pytest.raises(error):
            lines(ours).receive(time.monotonic() + 0.05)


def test_a_line_that_is_no_message_is_refused_and_those_after_it_are_read() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"nonsense\n" + encode("sense"))
        channel = lines(ours)
        with pytest.raises(MalformedMessage, match="nonsense"):
            channel.receive()
        assert channel.receive() == "sense"


class ComesApart:
    """Travels as a call that fails on arrival, as a function of a module does that the other end can't import."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return importlib.import_module, ("no_such_module",)


@pytest.fixture
def pipe() -> Iterator[tuple[PipeChannel[Any, Any], PipeChannel[Any, Any], Connection[Any, Any]]]:
    """Both ends, and the connection of the second."""
    ours, theirs = multiprocessing.Pipe()
    yield PipeChannel(ours), PipeChannel(theirs), theirs
    ours.close()
    theirs.close()


Pipe = tuple[PipeChannel[Any, Any], PipeChannel[Any, Any], Connection]


def test_a_pickle_that_cannot_be_read_says_why_and_those_after_it_are_read(pipe: Pipe) -> None:
    ours, theirs, _ = pipe
    theirs.send(ComesApart())
    theirs.send(os.getcwd)
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        ours.receive()
    assert ours.receive() is os.getcwd


def test_what_cannot_be_pickled_is_not_sent(pipe: Pipe) -> None:
    ours, theirs, _ = pipe
    with pytest.raises((AttributeError, TypeError)):
        theirs.send(threading.Lock())
    theirs.send("next")
    assert ours.receive() == "next"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_the_end_of_a_pipe_is_told_although_another_process_holds_it_open(pipe: Pipe) -> None:
    """As one does that a test has forked meanwhile: without a farewell the other end waited for ever."""
    ours, theirs, connection = pipe
    held = os.dup(connection.fileno())
    theirs.close()
    try:
        with pytest.raises(ChannelClosed):
            ours.receive(time.monotonic() + BACKSTOP_S)
    finally:
        os.close(held)
