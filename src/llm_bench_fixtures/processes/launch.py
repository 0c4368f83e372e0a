"""How the processes are started: to call a function of this program, or as a program of their own.

The first is forked from a process that has imported the libraries already, or starts afresh. A fork takes a fraction of
a second, an import of the libraries several. What an accelerator's driver has set up doesn't outlast a fork, so there
each process starts afresh, as on systems that can't fork.

The second may have another interpreter, another environment and another version of this package. So nothing that is
imported here is of use to it, and it inherits a socket, whose number a command line can tell.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from llm_bench_fixtures.errors import last_line
from llm_bench_fixtures.processes.channels import Channel, PipeChannel
from llm_bench_fixtures.processes.environment import off_the_working_folder, setting
from llm_bench_fixtures.processes.worker import WorkerProcess

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerContext, SpawnContext
    from multiprocessing.process import BaseProcess

S = TypeVar("S")
R = TypeVar("R")

LAST_WORDS_S = 1.0  # for a program whose starter is gone to end by itself
IMPORTS = "LLM_BENCH_IMPORTS"  # in the server's environment: what it imports, separated by commas
PRELOADED = "llm_bench_fixtures.processes.preloaded"


def can_fork(*, on_cpu: bool) -> bool:
    """on_cpu: whether the processes' models run on the CPU, so that no driver is set up."""
    return sys.platform == "linux" and on_cpu


def start_importing(modules: Sequence[str], *, on_cpu: bool) -> None:
    """Begin to import the modules in a process that later ones are forked from; returns at once.

    Does nothing where processes start afresh, or where the server runs already.
    """
    if not can_fork(on_cpu=on_cpu):
        return
    from multiprocessing import forkserver

    with setting(IMPORTS, ",".join(modules)), off_the_working_folder():
        multiprocessing.get_context("forkserver").set_forkserver_preload([PRELOADED])
        forkserver.ensure_running()


def process_context(*, on_cpu: bool) -> ForkServerContext | SpawnContext:
    """The context of multiprocessing to start a process with."""
    if can_fork(on_cpu=on_cpu):
        return multiprocessing.get_context("forkserver")
    return multiprocessing.get_context("spawn")


def start_function(
    name: str, function: Callable[..., None], arguments: tuple[object, ...], *, on_cpu: bool
) -> WorkerProcess[Any, Any]:
    """Call the function in a process of its own, with its end of the channel and the arguments.

    They have to be picklable. The process has this one's import paths and environment, and doesn't hear Ctrl-C, after
    which this one ends it. name: what the message of its death begins with.
    """
    context = process_context(on_cpu=on_cpu)
    ours, theirs = context.Pipe()
    inherited = (theirs, tuple(sys.path), dict(os.environ))
    process = context.Process(target=_call, args=(*inherited, function, arguments), daemon=True)
    with off_the_working_folder():
        process.start()
    theirs.close()
    return WorkerProcess(name, _Function(process), PipeChannel(ours))


def _call(
    connection: Connection[Any, Any],
    paths: Sequence[str],
    environment: Mapping[str, str],
    function: Callable[..., None],
    arguments: tuple[object, ...],
) -> None:
    """In the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both; the other side ends this one
    channel: PipeChannel[Any, Any] = PipeChannel(connection)
    try:
        _be_the_first_to_go()
        threading.Thread(target=_end_with_parent, daemon=True).start()
        sys.path[:] = paths
        os.environ.clear()
        os.environ.update(environment)
        function(channel, *arguments)
    except Exception as error:
        channel.close(last_line(error))
        sys.exit(1)


def _be_the_first_to_go() -> None:
    """Have Linux kill this process where memory runs out, and not the one that keeps what was measured."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


def _end_with_parent() -> None:
    """End this process once the one that started it is gone, in the middle of a call too: nobody waits for its answer.

    The thread sleeps until then.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)


def end_with_starter(connection: socket.socket, is_over: threading.Event) -> None:
    """In a program that `start_program` started: end it, with its children, soon after the one that started it is gone,
    in the middle of a call too.

    connection: the inherited socket. A thread sleeps until its other end is closed. is_over: set once nobody waits for
    the program any more: it ends by itself.
    """
    threading.Thread(target=_end_with_starter, args=(connection.fileno(), is_over), daemon=True).start()


def _end_with_starter(number: int, is_over: threading.Event) -> None:
    closing = select.poll()
    closing.register(number, select.POLLHUP)
    closing.poll()
    if is_over.wait(LAST_WORDS_S):
        return
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def start_program(
    name: str,
    command: Callable[[int], Sequence[str]],
    folder: Path,
    environment: Mapping[str, str],
    output: IO[bytes],
    open_channel: Callable[[socket.socket], Channel[S, R]],
) -> WorkerProcess[S, R]:
    """Start a program that inherits a socket. Raises OSError if it can't be started.

    command: the program and its arguments, which tell it the number of the socket. folder: its working folder. output:
    what it writes. It doesn't hear Ctrl-C, after which this process ends it, with its children. name: what the message
    of its death begins with.
    """
    ours, theirs = socket.socketpair()
    with theirs, contextlib.ExitStack() as failed:
        failed.callback(ours.close)
        process = subprocess.Popen(  # noqa: S603  # the user's own interpreter and arguments
            command(theirs.fileno()),
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        failed.pop_all()
    return WorkerProcess(name, _Program(process), open_channel(ours))


@dataclass(frozen=True)
class _Function:
    """A process of multiprocessing's."""

    process: BaseProcess

    @property
    def pid(self) -> int:
        return self.process.pid or 0

    def wait(self, seconds: float | None = None) -> int | None:
        self.process.join(seconds)
        return self.process.exitcode

    def kill(self) -> None:
        self.process.kill()


@dataclass(frozen=True)
class _Program:
    """A process of subprocess', in a session of its own."""

    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait(self, seconds: float | None = None) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(seconds)
        return None

    def kill(self) -> None:
        """Its children too, also where it has ended itself."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
