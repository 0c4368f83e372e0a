"""What BASE and HEAD may be, and that a worktree leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from llm_bench_fixtures.errors import GitFailed, InvalidSetting, UnknownSide
from llm_bench_fixtures.paired.sides import PairSide, open_side
from llm_bench_fixtures.processes.scratch import ScratchFolder

Git = Callable[..., str]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    (folder / "inner").mkdir(parents=True)
    return folder


@pytest.fixture
def git(repository: Path) -> Git:
    """Runs git in the repository, which has one commit, tagged v1, of a file `which` that says "first"."""

    def run(*arguments: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        command = ["git", *identity, *arguments]
        return subprocess.run(command, cwd=repository, check=True, capture_output=True, text=True).stdout

    run("init", "-q", "-b", "main")
    (repository / "inner" / "which").write_text("first", encoding="utf-8")
    run("add", ".")
    run("commit", "-q", "-m", "first")
    run("tag", "v1")
    (repository / "inner" / "which").write_text("changed", encoding="utf-8")
    return run


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def test_a_ref_is_its_commit_in_a_worktree_that_is_gone_afterwards(git: Git, repository: Path, scratch: Path) -> None:
    with open_side("v1", repository, scratch) as side:
        assert (side.folder / "inner" / "which").read_text() == "first"
        assert side.description == f"commit {git('rev-parse', 'v1')[:10]}"
        assert side.python == sys.executable
        assert len(git("worktree", "list").splitlines()) == 2
    assert len(git("worktree", "list").splitlines()) == 1
    assert list(scratch.iterdir()) == []


def test_the_worktree_is_gone_after_an_interruption_too(git: Git, repository: Path, scratch: Path) -> None:
    with pytest.raises(KeyboardInterrupt), open_side("main", repository, scratch):
        raise KeyboardInterrupt
    assert len(git("worktree", "list").splitlines()) == 1


def test_what_git_knows_of_a_killed_runs_worktree_is_forgotten(git: Git, repository: Path, tmp_path: Path) -> None:
    """Bug: each killed run left one for good."""
    killed = tmp_path / "llm-bench-pair-abc"
    killed.mkdir()
    git("worktree", "add", "--detach", str(killed / "tree-1"), "v1")
    shutil.rmtree(killed)
    (tmp_path / "next").mkdir()
    with open_side("v1", repository, tmp_path / "next"):
        pass
    assert len(git("worktree", "list").splitlines()) == 1


KILLED = """
import os, signal
from pathlib import Path
from llm_bench_fixtures.paired.sides import open_side
from llm_bench_fixtures.processes.scratch import ScratchFolder

with ScratchFolder("pair") as scratch, open_side("v1", Path.cwd(), scratch.path):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_worktree_of_a_killed_run_is_removed_by_the_next(
    git: Git, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    subprocess.run([sys.executable, "-c", KILLED], cwd=repository, check=False)
    (abandoned,) = tmp_path.glob("llm-bench-pair-*/owner.lock")
    assert len(git("worktree", "list").splitlines()) == 2
    os.utime(abandoned, (0, 0))
    with ScratchFolder("pair") as scratch, open_side("v1", repository, scratch.path):
        assert not abandoned.parent.exists()
        assert len(git("worktree", "list").splitlines()) == 2
    assert len(git("worktree", "list").splitlines()) == 1


def test_other_worktrees_stay_even_where_their_folder_is_away(
    git: Git, repository: Path, scratch: Path, tmp_path: Path
) -> None:
    git("worktree", "add", "--detach", str(tmp_path / "elsewhere"), "v1")
    (tmp_path / "elsewhere").rename(tmp_path / "on another disk")
    with open_side("v1", repository, scratch):
        pass
    assert len(git("worktree", "list").splitlines()) == 2


def test_in_a_folder_of_the_repository_a_ref_is_that_folder(git: Git, repository: Path, scratch: Path) -> None:
    with open_side("v1", repository / "inner", scratch) as side:
        assert (side.folder / "which").read_text() == "first"


def test_a_commit_without_that_folder_is_an_error(git: Git, repository: Path, scratch: Path) -> None:
    (repository / "later").mkdir()
    with pytest.raises(GitFailed, match="has no folder later/"), open_side("v1", repository / "later", scratch):
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every name is text")
def test_a_folder_whose_name_is_no_text_can_be_measured(git: Git, repository: Path, scratch: Path) -> None:
    """Bug: UnicodeDecodeError, from what git printed."""
    odd = repository / os.fsdecode(b"caf\xe9")
    odd.mkdir()
    (odd / "which").write_text("third", encoding="utf-8")
    git("add", ".")
    git("commit", "-q", "-m", "third")
    with open_side("main", odd, scratch) as side:
        assert (side.folder / "which").read_text() == "third"


def test_a_folder_is_what_is_in_it(git: Git, repository: Path, scratch: Path) -> None:
    with open_side(".", repository, scratch) as side:
        assert side.folder == repository.resolve()
        assert (side.folder / "inner" / "which").read_text() == "changed"


def test_a_ref_comes_before_a_folder_of_its_name(git: Git, repository: Path, scratch: Path) -> None:
    (repository / "v1").mkdir()
    with open_side("v1", repository, scratch) as side:
        assert side.description.startswith("commit")
    with open_side("./v1", repository, scratch) as side:
        assert side.folder == (repository / "v1").resolve()


def test_an_interpreter_runs_the_tests_of_this_folder(tmp_path: Path, scratch: Path) -> None:
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    with open_side("python", tmp_path, scratch) as side:
        assert side.folder == tmp_path.resolve()
        assert side.python == str(link)  # not what it points to: a virtual environment would be lost


def test_a_name_that_is_nothing_says_what_was_tried(git: Git, repository: Path, scratch: Path) -> None:
    (repository / "notes.txt").write_text("", encoding="utf-8")
    with pytest.raises(UnknownSide) as caught, open_side("notes.txt", repository, scratch):
        pass
    message = str(caught.value)
    assert "git ref      no such ref here" in message
    assert "notes.txt is a file" in message
    assert "notes.txt can't be executed" in message


def test_outside_a_repository_that_is_said(tmp_path: Path, scratch: Path) -> None:
    with pytest.raises(UnknownSide, match="is in no repository"), open_side("main", tmp_path, scratch):
        pass


def test_an_option_to_git_is_no_ref(git: Git, repository: Path, scratch: Path) -> None:
    with pytest.raises(UnknownSide), open_side("--all", repository, scratch):
        pass


def test_a_sides_own_code_comes_before_what_is_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src").mkdir()
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    environment = PairSide("", tmp_path, "").environment({"GIVEN": "yes"})
    assert environment["PYTHONPATH"].split(os.pathsep) == [str(tmp_path / "src"), str(tmp_path), "elsewhere"]
    assert environment["GIVEN"] == "yes"


@pytest.mark.parametrize(("name", "message"), [("~nosuchuser/x", "~nosuchuser/x: no user of that"), ("", "expected a")])
def test_a_side_that_is_no_path_is_refused(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=f"^{message}"), open_side(name, tmp_path, tmp_path):
        pass
