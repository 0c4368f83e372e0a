"""How the processes are started: to call a function of this program, or as a program of their own.

The first is forked from a process that has imported the libraries already, or starts afresh. A fork takes a fraction of
a second, an import of the libraries several. What an accelerator's driver has set up doesn't outlast a fork, so there
each process starts afresh, as on systems that can't fork.

The second may have another interpreter, another environment and another version of this package. So nothing that is
imported here is of use to it, and it inherits a socket, whose number a command line can tell.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from llm_bench_fixtures.errors import PROCESS_LIMIT, WorkerDied, last_line
from llm_bench_fixtures.processes import work_limit
from llm_bench_fixtures.processes.channels import Channel, PipeChannel
from llm_bench_fixtures.processes.environment import off_the_working_folder, setting
from llm_bench_fixtures.processes.parent import end_with_parent, kill_with_parent, lead_group
from llm_bench_fixtures.processes.scratch import ScratchFolder
from llm_bench_fixtures.processes.work_limit import StopLimit, is_stopped
from llm_bench_fixtures.processes.worker import WorkerProcess

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

IMPORTS = "LLM_BENCH_IMPORTS"  # in the server's environment: what it imports, separated by commas
ENDS_WITH_US = "LLM_BENCH_ENDS_WITH_US"  # in its environment: whether it ends with the thread that starts it
LONGEST_SOCKET = 107  # bytes of its path
AFTER_SOCKETS = -100  # at the end of the process, as multiprocessing removes a folder of its own
PRELOADED = "llm_bench_fixtures.processes.preloaded"


def can_fork(*, on_cpu: bool) -> bool:
    """on_cpu: whether the processes' models run on the CPU, so that no driver is set up."""
    return sys.platform == "linux" and on_cpu


def start_importing(modules: Sequence[str], *, on_cpu: bool) -> None:
    """Begin to import the modules in a process that later ones are forked from; returns at once.

    Does nothing where processes start afresh, or where the server runs already.
    """
    if can_fork(on_cpu=on_cpu):
        _ensure_server(modules)


def await_imports(*, on_cpu: bool) -> None:
    """Return once the modules of `start_importing` are imported, as processes can be forked from then on. Where none
    can be started, the next one says why."""
    if can_fork(on_cpu=on_cpu):
        with contextlib.suppress(WorkerDied):
            start_function("a process that does nothing", _do_nothing, (), on_cpu=True).close()


def _do_nothing(_: object) -> None:
    pass


def _ensure_server(modules: Sequence[str] = ()) -> None:
    """Start the server that processes are forked from, unless it runs."""
    from multiprocessing import forkserver, resource_tracker

    with off_the_working_folder():
        resource_tracker.ensure_running()  # starting it unblocks Ctrl-C
    _own_temporary_folder()
    multiprocessing.get_context("forkserver").set_forkserver_preload([PRELOADED])
    with (
        setting(IMPORTS, ",".join(modules)),
        setting(ENDS_WITH_US, "1" if _is_main_thread() else ""),
        off_the_working_folder(),
        _deaf_to_ctrl_c(),
    ):
        forkserver.ensure_running()


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Make processes that start inside the block deaf to Ctrl-C from their first moment on. Here Ctrl-C comes
    afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@functools.cache
def _own_temporary_folder() -> ScratchFolder | None:
    """Where multiprocessing has its sockets from now on: its own folder would stay where this process is killed.

    The cache holds the folder: a forked process forgets multiprocessing's finalizers, and would remove it with them.
    """
    from multiprocessing import util

    config = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    longest = len(os.fsencode(tempfile.gettempdir())) + len("/llm-bench-server-xxxxxxxx/listener-xxxxxxxx")
    if "tempdir" in config or longest > LONGEST_SOCKET:
        return None
    folder = ScratchFolder("server", ends_with_process=False)
    util.Finalize(None, folder.close, exitpriority=AFTER_SOCKETS)
    config["tempdir"] = str(folder.path)
    return folder


def start_function(
    name: str, function: Callable[..., None], arguments: tuple[object, ...], *, on_cpu: bool, afresh: bool = False
) -> WorkerProcess[Any, Any]:
    """Call the function in a process of its own, with its end of the channel and the arguments.

    They have to be picklable. The process has this one's import paths and environment, and doesn't hear Ctrl-C, after
    which this one ends it. name: what the message of its death begins with. afresh: not forked, as where libraries are
    to read its environment while they are imported. Raises WorkerDied where it can't be started.
    """
    from multiprocessing import util

    is_forked = can_fork(on_cpu=on_cpu) and not afresh
    context: Any = multiprocessing.get_context("forkserver" if is_forked else "spawn")
    ours, theirs = context.Pipe()
    if is_forked:
        _ensure_server()
    inherited = (theirs, tuple(sys.path), dict(os.environ), is_forked or _is_main_thread())
    process = context.Process(target=_call, args=(*inherited, function, arguments), daemon=True)
    with off_the_working_folder(), _server_that_works():
        try:
            process.start()
        except EOFError:  # the server that was to fork it
            raise WorkerDied(name, f"could not be started{PROCESS_LIMIT}") from None
    theirs.close()
    started = _Function(process)
    if hasattr(signal, "SIGCONT"):  # multiprocessing, at this process' end, awaits those it asks to end
        util.Finalize(None, started.signal, args=(signal.SIGCONT,), exitpriority=0)
    return WorkerProcess(name, started, PipeChannel(ours))


@contextmanager
def _server_that_works() -> Iterator[None]:
    """Wake the server inside the block where a signal has stopped it for long: it would be awaited for ever."""
    pid, is_over, stop = _server_pid(), threading.Event(), StopLimit()

    def wake_where_stopped() -> None:
        while pid is not None and not is_over.wait(work_limit.LOOK_EVERY_S):
            if stop.is_over(is_stopped=is_stopped(pid)):
                _wake(pid)

    threading.Thread(target=wake_where_stopped, daemon=True).start()
    try:
        yield
    finally:
        is_over.set()


def _server_pid() -> int | None:
    """None where it doesn't run."""
    if sys.platform != "linux":
        return None
    from multiprocessing import forkserver

    return getattr(forkserver._forkserver, "_forkserver_pid", None)


def _wake(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def _call(
    connection: Connection[Any, Any],
    paths: Sequence[str],
    environment: Mapping[str, str],
    is_killed: bool,
    function: Callable[..., None],
    arguments: tuple[object, ...],
) -> None:
    """Run the function in the process.

    is_killed: whether the kernel is to kill it with the thread that started it; not where that thread may end before
    whoever asked for the process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other side ends this one
    if hasattr(signal, "pthread_sigmask"):  # processes started by this one hear it as they would elsewhere
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    lead_group()
    channel: PipeChannel[Any, Any] = PipeChannel(connection)
    try:
        _be_the_first_to_go()
        if is_killed:
            kill_with_parent()
        end_with_parent()
        sys.path[:] = paths
        os.environ.clear()
        os.environ.update(environment)
        function(channel, *arguments)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # a panic of Rust is no Exception
        channel.close(last_line(error))
        sys.exit(1)


def _be_the_first_to_go() -> None:
    """Have Linux kill this process where memory runs out, and not the one that keeps what was measured."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


def start_program(
    name: str,
    command: Callable[[int], Sequence[str]],
    folder: Path,
    environment: Mapping[str, str],
    output: IO[bytes],
    open_channel: Callable[[socket.socket], Channel[Any, Any]],
) -> WorkerProcess[Any, Any]:
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
        """Kill the process and its children, while it runs. A stopped server is woken, as it alone tells that the
        process has ended."""
        server = _server_pid()
        if server is not None and is_stopped(server):
            _wake(server)
        if self.pid and self.process.exitcode is None and hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError, PermissionError):  # the process doesn't lead its group yet
                os.killpg(self.pid, signal.SIGKILL)
        self.process.kill()

    def signal(self, number: int) -> None:
        if self.pid and self.process.exitcode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


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
        """Kill the process and its children; the children also where it has ended itself."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)
