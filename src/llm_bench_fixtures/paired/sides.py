"""The two versions that are compared: the folder of their code and the interpreter that runs it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from llm_bench_fixtures.errors import GitFailed, UnknownSide
from llm_bench_fixtures.history.git import git, git_output
from llm_bench_fixtures.options.parsers import parse_path
from llm_bench_fixtures.processes.scratch import PREFIX

PAIR = "pair"  # in the name of the folder that holds the worktrees


@dataclass(frozen=True)
class PairSide:
    """One version."""

    description: str
    """Meaning of its name, for people."""
    folder: Path
    """The working folder of its tests."""
    python: str
    """The path of its interpreter."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables, besides those that all sides have."""

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """The environment of the calling process, with `variables` and with the side's own code first in PYTHONPATH,
        before what is installed, so that each side runs its own version of it."""
        source, inherited = self.folder / "src", os.environ.get("PYTHONPATH")
        paths = [*([source] if source.is_dir() else []), self.folder, *([inherited] if inherited else [])]
        return {**os.environ, **variables, **self.variables, "PYTHONPATH": os.pathsep.join(map(str, paths))}


@contextmanager
def open_side(name: str, here: Path, scratch: Path) -> Iterator[PairSide]:
    """The side that `name` means: a git ref, or else a folder, or else an interpreter. Relative paths begin in `here`.

    A ref is checked out in a worktree below `scratch`, which is removed at the end, also after an error.
    Raises UnknownSide, GitFailed, and InvalidSetting for the home of an unknown user.
    """
    commit = _commit(name, here)
    if commit is not None:
        with _worktree(commit, here, scratch) as folder:
            yield PairSide(f"commit {commit[:10]}", folder, sys.executable)
        return
    path = here / parse_path(name)
    if path.is_dir():
        yield PairSide(f"folder {path.resolve()}", path.resolve(), sys.executable)
    elif path.is_file() and os.access(path, os.X_OK):
        python = str(path.absolute())  # unresolved: a venv's is a link
        yield PairSide(f"interpreter {path}", here.resolve(), python)
    else:
        raise UnknownSide(name, _tried(path, here))


def _tried(path: Path, here: Path) -> list[tuple[str, str]]:
    has_repository = git_output(here, "rev-parse", "--git-dir")
    return [
        ("git ref", "no such ref here" if has_repository else f"{here} is in no repository"),
        ("folder", f"{path} is {'a file' if path.is_file() else 'not there'}"),
        ("interpreter", f"{path} can't be executed" if path.is_file() else f"{path} is not there"),
    ]


def _commit(name: str, here: Path) -> str | None:
    """The commit that `name` means to git; None if it means none, or if there is no git or no repository."""
    if name.startswith("-"):  # an option, to git
        return None
    return git_output(here, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")


@contextmanager
def _worktree(commit: str, here: Path, scratch: Path) -> Iterator[Path]:
    """Checks the commit out in a folder of its own; yields the folder in it that corresponds to `here`."""
    _forget_abandoned(here)
    folder = scratch / f"tree-{commit[:10]}-{len(list(scratch.iterdir()))}"
    inner = git_output(here, "rev-parse", "--show-prefix") or ""
    try:
        git(here, "worktree", "add", "--detach", "--force", str(folder), commit)
        if not (folder / inner).is_dir():
            raise GitFailed(f"commit {commit[:10]} has no folder {inner}, in which this was called")
        yield folder / inner
    finally:
        git_output(here, "worktree", "remove", "--force", "--force", str(folder))  # twice: also one half made
        shutil.rmtree(folder, ignore_errors=True)


def _forget_abandoned(here: Path) -> None:
    """Have git forget the worktrees of runs that were killed, whose folders have been removed since."""
    for line in (git_output(here, "worktree", "list", "--porcelain") or "").splitlines():
        folder = Path(line.removeprefix("worktree "))
        if folder.parent.name.startswith(f"{PREFIX}{PAIR}-") and not folder.exists():
            git_output(here, "worktree", "remove", "--force", "--force", str(folder))
