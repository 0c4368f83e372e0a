"""A lock that another process holds is awaited with a word, and not for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from filelock import FileLock
from waiting import wait_until

from llm_bench_fixtures.errors import LockHeld
from llm_bench_fixtures.processes import locks, work_limit
from llm_bench_fixtures.processes.locks import find_holder, held

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who holds a lock")

HOLDS = """
import sys
from filelock import FileLock
with FileLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "SHORT_S", 0.05)
    monkeypatch.setattr(work_limit, "LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(work_limit, "LONGEST_STOP_S", 0.05)


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Holds the lock until its input ends, and waits meanwhile."""
    command = [sys.executable, "-c", HOLDS, str(tmp_path / "it.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("is_stopped", "why"), [(True, "a signal has stopped it"), (False, "it has done nothing")])
def test_a_holder_that_does_not_work_is_an_error_that_names_it(
    tmp_path: Path, holder: subprocess.Popen[bytes], is_stopped: bool, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a session whose neighbour was suspended while it exported waited without a word or an end."""
    shown: list[str] = []

    @contextmanager
    def show(text: str) -> Iterator[None]:
        shown.append(text)
        yield

    if is_stopped:
        holder.send_signal(signal.SIGSTOP)
    else:
        monkeypatch.setattr(locks, "LONGEST_IDLE_S", 0.2)
    with (
        pytest.raises(LockHeld, match=rf"^process {holder.pid} \(since .*it\.lock, and {why}"),
        held(FileLock(tmp_path / "it.lock"), show),
    ):
        pytest.fail("it isn't free")
    assert shown[0].startswith(f"waiting for process {holder.pid} (since ")


@pytest.mark.usefixtures("quick")
def test_a_lock_that_becomes_free_is_held(tmp_path: Path, holder: subprocess.Popen[bytes]) -> None:
    @contextmanager
    def let_go(_: str) -> Iterator[None]:
        assert holder.stdin is not None
        holder.stdin.close()
        yield

    with held(FileLock(tmp_path / "it.lock"), let_go):
        wait_until(lambda: find_holder(tmp_path / "it.lock"))
        found = find_holder(tmp_path / "it.lock")
        assert found is not None
        assert found.pid == os.getpid()
    assert find_holder(tmp_path / "it.lock") is None
