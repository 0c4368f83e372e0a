"""Calls git."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from llm_bench_fixtures.errors import GitFailed, first_line

REMOTE = re.compile(
    r"(?:(?:https?|ssh|git)://(?:[^@/]*@)?|[\w.-]+@)([\w.-]+)(?::\d+(?=/))?[:/]([\w./~-]+?)(?:\.git)?/?"
)


def git(folder: Path, *arguments: str) -> str:
    """Run git in the folder and return what it prints, with bytes that are no text as in Python's paths.

    Raises GitFailed.
    """
    program = shutil.which("git")
    if program is None:
        raise GitFailed("there is no git on the PATH")
    done = subprocess.run(  # noqa: S603  # never a shell
        [program, *arguments],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
    )
    if done.returncode:
        raise GitFailed(f"git {' '.join(arguments)}: {first_line(done.stderr) or f'status {done.returncode}'}")
    return done.stdout.strip()


def git_output(folder: Path, *arguments: str) -> str | None:
    """Run git in the folder and return what it prints; None where it fails or prints nothing."""
    try:
        return git(folder, *arguments) or None
    except GitFailed:
        return None


def commits_address(folder: Path) -> str:
    """The address of the commits of the repository's `origin`, before a commit's id; empty without one on a server."""
    found = REMOTE.fullmatch(git_output(folder, "remote", "get-url", "origin") or "")
    if found is None:
        return ""
    host, path = found.groups()
    return f"https://{host}/{path}/{'commits' if host == 'bitbucket.org' else 'commit'}/"
