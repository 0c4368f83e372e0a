from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from waiting import BACKSTOP_S

from llm_bench_fixtures.processes.scratch import OWNER, ScratchFolder, remove_abandoned


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_it_is_there_until_it_is_closed() -> None:
    with ScratchFolder("test") as scratch:
        (scratch.path / "file").touch()
        assert scratch.path.is_dir()
    scratch.close()  # once more
    assert not scratch.path.exists()


def hold_and_be_killed(folder: str, said: Any) -> None:
    """What the process runs."""
    tempfile.tempdir = folder
    scratch = ScratchFolder("test")
    said.send(scratch.path)
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_killed_process_left_is_removed_by_the_next(temporary: Path) -> None:
    """Bug: 107 MB stayed of each run that SIGTERM ended."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=hold_and_be_killed, args=(str(temporary), theirs))
    process.start()
    abandoned = ours.recv()
    process.join(BACKSTOP_S)
    os.utime(abandoned / OWNER)  # which was made just now, however long the process took to end
    with ScratchFolder("test") as own:
        assert abandoned.exists()  # it may be so young that its owner hasn't come to lock it
        remove_abandoned(young_s=0)
        assert not abandoned.exists()
        assert own.path.exists()


def make(temporary: Path, name: str) -> Path:
    """A folder as a killed process leaves it, an hour ago."""
    folder = temporary / name
    folder.mkdir(mode=0o700)
    (folder / OWNER).touch()
    hour_ago = time.time() - 3600
    os.utime(folder / OWNER, (hour_ago, hour_ago))
    return folder


def test_what_is_not_ours_stays(temporary: Path) -> None:
    """Another program's, one into which others may write, and a link to somewhere else."""
    abandoned, other, shared = (make(temporary, name) for name in ("llm-bench-x", "other", "llm-bench-shared"))
    shared.chmod(0o777)
    (temporary / "llm-bench-link").symlink_to(other)
    ScratchFolder("test").close()
    assert not abandoned.exists()
    assert all((folder / OWNER).exists() for folder in (other, shared))


def test_where_folders_have_no_modes_what_was_left_is_removed(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: on Windows, where each folder's mode is 0o777, nothing was ever removed."""
    abandoned, other = make(temporary, "llm-bench-x"), make(temporary, "other")
    abandoned.chmod(0o777)
    (temporary / "llm-bench-link").symlink_to(other)
    monkeypatch.delattr(os, "getuid")
    remove_abandoned()
    assert not abandoned.exists()
    assert other.exists()
