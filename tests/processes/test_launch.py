"""Whether a process is forked or starts afresh, what it inherits, and that it ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil
import pytest
from waiting import BACKSTOP_S, has_ended, wait_until

from llm_bench_fixtures.errors import WorkerDied
from llm_bench_fixtures.processes.channels import Channel, LineChannel
from llm_bench_fixtures.processes.launch import (
    IMPORTS,
    await_imports,
    can_fork,
    start_function,
    start_importing,
    start_program,
)
from llm_bench_fixtures.processes.scratch import PREFIX
from llm_bench_fixtures.processes.worker import WorkerProcess


@pytest.mark.parametrize(
    ("platform", "on_cpu", "forks"),
    [("linux", True, True), ("linux", False, False), ("darwin", True, False), ("win32", True, False)],
    ids=["linux", "accelerator", "macos", "windows"],
)
def test_only_on_linux_and_without_an_accelerator_a_process_is_forked(
    platform: str, on_cpu: bool, forks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def context(method: str) -> None:
        asked.append(method)
        raise LookupError

    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(multiprocessing, "get_context", context)
    assert can_fork(on_cpu=on_cpu) is forks
    with pytest.raises(LookupError):
        start_function("", print, (), on_cpu=on_cpu)
    assert asked == ["forkserver" if forks else "spawn"]


def test_where_processes_start_afresh_no_server_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    from multiprocessing import forkserver

    monkeypatch.setattr(forkserver, "ensure_running", lambda: pytest.fail("a server was started"))
    start_importing(["json"], on_cpu=False)
    await_imports(on_cpu=False)


def test_the_environment_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    from multiprocessing import forkserver

    seen: list[str] = []
    monkeypatch.setattr(forkserver, "ensure_running", lambda: seen.append(os.environ[IMPORTS]))
    monkeypatch.setattr(sys, "platform", "linux")
    start_importing(["one", "two.three"], on_cpu=True)
    assert [names.split(",")[:2] for names in seen] == [["one", "two.three"]]
    assert IMPORTS not in os.environ


IN_A_FORK = """
import sys
from llm_bench_fixtures.processes.launch import start_function, start_importing

def look(channel):
    import logging
    channel.send(("colorsys" in sys.modules, "no_such_module" in sys.modules, logging.root.manager.disable))

if __name__ == "__main__":
    start_importing(["no_such_module", "noisy", "colorsys"], on_cpu=True)
    process = start_function("", look, (), on_cpu=True)
    print(*process.receive(), "colorsys" in sys.modules)
    process.close()
"""
NOISY = """
import logging, os, signal, warnings
os.kill(os.getpid(), signal.SIGINT)
logging.basicConfig()
logging.getLogger("noisy").warning("mind this")
warnings.warn("and this")
raise RuntimeError("which is no ImportError")
"""


def run_beside(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run the program with the folder's modules at hand."""
    path = folder / "program.py"
    path.write_text(program, encoding="utf-8")
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(
        [sys.executable, path], capture_output=True, text=True, timeout=BACKSTOP_S, check=False, env=variables
    )


@pytest.mark.skipif(sys.platform != "linux", reason="processes start afresh elsewhere")
def test_a_forked_process_has_imported_what_could_be(tmp_path: Path) -> None:
    """Quietly; what can't be imported hinders no other module, and this process imports none of them.

    Bug: at Ctrl-C in the first seconds the process that they are forked from wrote a traceback.
    """
    (tmp_path / "noisy.py").write_text(NOISY, encoding="utf-8")
    done = run_beside(tmp_path, IN_A_FORK)
    assert (done.stdout.split(), done.stderr) == (["True", "False", "0", "False"], "")


NEXT_TO_A_FORK = """
import multiprocessing
from llm_bench_fixtures.processes.launch import start_function

def answer(channel):
    channel.send("here")

if __name__ == "__main__":
    for _ in range(2):
        process = start_function("", answer, (), on_cpu=True)
        print(process.receive())
        process.close()
        forked = multiprocessing.get_context("fork").Process(target=int)
        forked.start()
        forked.join()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes start afresh elsewhere")
def test_a_process_that_others_fork_from_this_one_leaves_the_servers_socket(tmp_path: Path) -> None:
    """As torch's data loaders do."""
    done = run_beside(tmp_path, NEXT_TO_A_FORK)
    assert (done.stdout.split(), done.stderr) == (["here", "here"], "")


IMPORTS_SLOWLY = """
from pathlib import Path
from llm_bench_fixtures.processes.launch import await_imports, start_importing

if __name__ == "__main__":
    start_importing(["slow"], on_cpu=True)
    await_imports(on_cpu=True)
    print(Path(__file__).with_name("imported").exists())
"""
SLOW = """
import pathlib, time
time.sleep(1)
pathlib.Path(__file__).with_name("imported").touch()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes start afresh elsewhere")
def test_the_end_of_the_imports_can_be_awaited(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW, encoding="utf-8")
    done = run_beside(tmp_path, IMPORTS_SLOWLY)
    assert (done.stdout.split(), done.stderr) == (["True"], "")


def describe_process(channel: Channel[Any, Any], word: str) -> None:
    channel.send((word, os.getpid(), os.environ["SOMETHING_OF_THE_TEST"], list(sys.path)))
    os.kill(os.getpid(), signal.SIGINT)
    channel.send(channel.receive() + 1)


@pytest.fixture(scope="module", autouse=True)
def own_server() -> Iterator[None]:
    """Gone before other tests want one, where none ran before."""
    from multiprocessing import forkserver

    server: Any = forkserver._forkserver  # type: ignore[attr-defined]
    was_running = server._forkserver_pid is not None
    start_importing([], on_cpu=True)
    yield
    if not was_running:
        server._stop()


def test_a_function_finds_this_environment_and_does_not_hear_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that runs already has the environment of its start."""
    monkeypatch.setenv("SOMETHING_OF_THE_TEST", "it's here")
    monkeypatch.syspath_prepend("/of/the/test")
    process = start_function("it", describe_process, ("a word",), on_cpu=True)
    word, pid, value, paths = process.receive()
    assert (word, value, paths) == ("a word", "it's here", sys.path)
    assert psutil.Process(pid).is_running()
    if sys.platform == "linux":  # bug: where memory ran out, the kernel killed the whole run
        assert int(Path(f"/proc/{pid}/oom_score_adj").read_text()) >= 500
    process.send(41)
    assert process.receive() == 42
    with pytest.raises(WorkerDied, match=r"^it ended with status 0$"):
        process.receive()
    process.close()
    assert not psutil.pid_exists(pid)


def test_a_server_that_can_fork_no_process_is_told_of_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: "EOFError: unexpected EOF" was all that was told where a limit of processes ended the server."""

    def start(_: object) -> None:
        raise EOFError("unexpected EOF")

    monkeypatch.setattr(BaseProcess, "start", start)
    with pytest.raises(WorkerDied, match=r"^it could not be started \(most often a limit on processes and threads"):
        start_function("it", describe_process, ("a word",), on_cpu=True)


def fail_at_once(_: Channel[Any, Any]) -> None:
    raise RuntimeError("can't start new thread")


def test_a_function_that_raises_says_so_with_its_last_words() -> None:
    """Bug: "ended with status 1" was all that was told where a limit of processes let it start no thread."""
    process = start_function("it", fail_at_once, (), on_cpu=True)
    with pytest.raises(WorkerDied, match=r"^it failed: RuntimeError: can't start new thread \(most often a limit"):
        process.receive()
    process.close()


class Panic(BaseException):
    """As libraries in Rust raise it."""


def panic(_: Channel[Any, Any]) -> None:
    raise Panic("no pool of threads")


def test_a_panic_says_so_too() -> None:
    """Bug: "ended with status 1" was all that was told of a tokenizer that could start no thread."""
    process = start_function("it", panic, (), on_cpu=True)
    with pytest.raises(WorkerDied, match=r"^it failed: Panic: no pool of threads$"):
        process.receive()
    process.close()


STOPPED_SERVER = """
import os, signal
from multiprocessing import forkserver
import psutil
from llm_bench_fixtures.processes import launch, work_limit

def stay(channel):
    channel.send(0)

def stay_too(channel):
    channel.send(0)
    channel.send(channel.receive())

if __name__ == "__main__":
    work_limit.LOOK_EVERY_S = work_limit.LONGEST_STOP_S = 0.1
    launch.start_importing([], on_cpu=True)
    (server,) = [one for one in psutil.Process().children() if "forkserver" in " ".join(one.cmdline())]
    server.suspend()
    process = launch.start_function("it", stay, (), on_cpu=True)
    other = launch.start_function("another", stay_too, (), on_cpu=True)
    print(process.receive(), other.receive())
    server.suspend()
    process.kill()
    process.close()
    other.send(1)
    print(other.receive())
    other.kill()
    other.close()
"""


@pytest.mark.slow("a stopped server is awaited for seconds")
@pytest.mark.skipif(sys.platform != "linux", reason="processes start afresh elsewhere")
def test_a_server_that_a_signal_stops_is_woken(tmp_path: Path) -> None:
    """Bug: a session whose server was stopped waited for over three minutes; then the server was killed, and with it
    the processes of all variants. Here it is stopped before a process starts, and before one is killed."""
    path = tmp_path / "stopped_server.py"
    path.write_text(STOPPED_SERVER, encoding="utf-8")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=BACKSTOP_S, check=False)
    assert done.stderr == ""
    assert done.stdout == "0 0\n1\n"


def wait_for_ever(channel: Channel[Any, Any]) -> None:
    channel.send(os.getpid())
    while True:
        time.sleep(1)


def test_a_function_that_does_not_return_is_killed() -> None:
    process = start_function("it", wait_for_ever, (), on_cpu=True)
    pid = process.receive()
    process.kill()
    with pytest.raises(WorkerDied, match=r"^it was killed by SIGKILL"):
        process.receive()
    process.close()
    assert not psutil.pid_exists(pid)


PROGRAM = """
import os, socket, subprocess, sys
peer = socket.socket(fileno=int(sys.argv[1])).makefile("rw")
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("its last words", flush=True)
peer.write(f"{os.getcwd()} {os.environ['WORD']} {os.getpid()} {child.pid}\\n")
peer.flush()
peer.readline()
"""


def words(connection: socket.socket) -> LineChannel[str, str]:
    return LineChannel(connection, str.encode, bytes.decode)


def start_words(folder: Path, program: str = sys.executable) -> WorkerProcess[str, str]:
    with (folder / "output.txt").open("wb") as output:
        return start_program(
            "it",
            lambda number: [program, "-c", PROGRAM, str(number)],
            folder,
            {**os.environ, "WORD": "given"},
            output,
            words,
        )


HOLDS_ONE = """
import os, sys, time
from llm_bench_fixtures.processes.launch import start_function

def stay(channel):
    channel.send(os.getpid())
    time.sleep(600)

if __name__ == "__main__":
    process = start_function("", stay, (), on_cpu=sys.argv[1] == "forked")
    print(process.receive(), flush=True)
    time.sleep(600)
"""


@pytest.fixture
def temporary() -> Iterator[Path]:
    """With a path that is short enough for a socket in it."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.parametrize("how", ["forked", "afresh"])
@pytest.mark.parametrize("is_stopped", [False, True], ids=["it runs", "it is stopped"])
def test_a_function_ends_in_the_middle_of_its_call_once_its_caller_was_killed(
    tmp_path: Path, temporary: Path, how: str, is_stopped: bool
) -> None:
    """Bug: the process that holds the model went on until its call ended, and one that was stopped stayed for good.
    Bug: an empty folder stayed, too."""
    if is_stopped and sys.platform != "linux":
        pytest.skip("only Linux kills a process with its parent")
    path = tmp_path / "holds_one.py"
    path.write_text(HOLDS_ONE, encoding="utf-8")
    variables = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen([sys.executable, path, how], stdout=subprocess.PIPE, text=True, env=variables) as caller:
        assert caller.stdout is not None
        pid = int(caller.stdout.readline())
        others = [process.pid for process in psutil.Process(caller.pid).children(recursive=True)]
        assert pid in others
        if is_stopped:
            os.kill(pid, signal.SIGSTOP)
        caller.kill()
    wait_until(lambda: all(map(has_ended, others)))
    assert all(folder.name.startswith(PREFIX) for folder in temporary.iterdir())  # which the next one removes


LISTENS = """
from multiprocessing import resource_sharer
from llm_bench_fixtures.processes.launch import start_importing

if __name__ == "__main__":
    start_importing([], on_cpu=True)
    resource_sharer.DupFd(0)
"""


def test_a_socket_of_multiprocessings_is_removed_before_its_folder(tmp_path: Path, temporary: Path) -> None:
    """Bug: the end of a process that had shared a tensor printed a traceback."""
    path = tmp_path / "listens.py"
    path.write_text(LISTENS, encoding="utf-8")
    variables = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, env=variables, check=True)
    assert done.stderr == ""
    assert list(temporary.iterdir()) == []


posix = pytest.mark.skipif(os.name != "posix", reason="a socket can't be inherited")


@posix
def test_a_program_inherits_a_socket_and_is_ended_with_its_children(tmp_path: Path) -> None:
    process = start_words(tmp_path)
    folder, word, pid, child = process.receive(time.monotonic() + BACKSTOP_S).split()
    assert (folder, word) == (str(tmp_path), "given")
    assert os.getpgid(int(pid)) == os.getpgid(int(child)) != os.getpgid(0)
    process.kill()
    with pytest.raises(WorkerDied) as died:
        process.receive()
    assert died.value.how.startswith("was killed by SIGKILL")
    process.close()
    wait_until(lambda: has_ended(int(child)))
    assert (tmp_path / "output.txt").read_text() == "its last words\n"


@posix
def test_a_program_may_end_by_itself(tmp_path: Path) -> None:
    process = start_words(tmp_path)
    process.receive(time.monotonic() + BACKSTOP_S)
    process.send("farewell\n")
    with pytest.raises(WorkerDied, match=r"^it ended with status 0$"):
        process.receive()
    process.kill()  # the child that it has left
    process.close()


WATCHED = """
import os, socket, sys, threading, time
from llm_bench_fixtures.processes.parent import end_with_starter
peer = socket.socket(fileno=int(sys.argv[1]))
is_over = threading.Event()
end_with_starter(peer, is_over)
if len(sys.argv) > 2:
    is_over.set()
peer.sendall(b"ready\\n")
time.sleep(3 if is_over.is_set() else 600)
sys.exit(7)
"""


@posix
@pytest.mark.parametrize(("arguments", "status"), [((), -signal.SIGKILL), (("over",), 7)], ids=["waited for", "over"])
def test_a_program_ends_in_the_middle_of_its_call_once_its_starter_is_gone(
    arguments: tuple[str, ...], status: int
) -> None:
    """Unless nobody waits for it any more: then it ends by itself."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-c", WATCHED, str(theirs.fileno()), *arguments]
    with ours, theirs, subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True) as program:
        assert ours.recv(100) == b"ready\n"
        ours.close()
        assert program.wait(BACKSTOP_S) == status


@posix
def test_a_program_that_is_not_there_is_an_error_and_leaves_no_socket(tmp_path: Path) -> None:
    before = psutil.Process().num_fds()
    with pytest.raises(FileNotFoundError):
        start_words(tmp_path, program=str(tmp_path / "nothing"))
    assert psutil.Process().num_fds() == before


def echo(channel: Channel[Any, Any]) -> None:
    """Answer whatever is said."""
    while True:
        channel.send(channel.receive())


@pytest.mark.skipif(sys.platform != "linux", reason="there is no server that processes are forked from")
def test_a_stopped_process_does_not_wake_the_server_it_was_forked_from() -> None:
    """A hundred times. It may wake now and then for what other tests have started."""
    from multiprocessing import forkserver

    process = start_function("it", echo, (), on_cpu=True)
    process.send(None)
    process.receive()
    server = psutil.Process(forkserver._forkserver._forkserver_pid)  # type: ignore[attr-defined]
    before = server.num_ctx_switches().voluntary
    for _ in range(100):
        process.suspend()
        process.send(None)
        process.receive()
    assert server.num_ctx_switches().voluntary - before < 20
    process.close()
