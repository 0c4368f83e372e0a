"""Calls git."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from llm_bench_fixtures.errors import GitFailed, first_line

REMOTE = re.compile(
    r"(?:(?:https?|ssh|git)://(?:[^@/]*@)?|[\w.-]+@)([\w.-]+)(?::\d+(?=/))?[:/]([\w./~-]+?)(?:\.git)?/?"
)

# Untracked files that may change what is measured. Not what tools leave in a checkout: environments, caches and builds.
LEFT_BY_TOOLS = ("**/site-packages/**", "**/build/lib*/**", "**/.cache/**", "**/.eggs/**")
UNTRACKED = (":(top)*.py", *(f":(top,exclude,glob){pattern}" for pattern in LEFT_BY_TOOLS))


def git(folder: Path, *arguments: str) -> str:
    """Run git in the folder and return what it prints, with bytes that are no text as in Python's paths.

    Raises GitFailed.
    """
    program = shutil.which("git")
    if program is None:
        raise GitFailed("there is no git on the PATH")
    done = subprocess.run(  # noqa: S603  # never a shell
        [program, *arguments], cwd=folder, capture_output=True, encoding="utf-8", errors="surrogateescape", check=False
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


def changes_in(folder: Path, *, dirty: bool) -> str:
    """A digest of what was changed since the commit, and of Python files that aren't tracked and that no tool has left;
    empty where there are none. dirty: whether something tracked was changed."""
    parts = []
    if dirty:
        changes = git_output(folder, "diff", "--binary", "--no-ext-diff", "--no-textconv", "HEAD") or ""
        parts.append(changes.encode(errors="surrogateescape"))
    listed = git_output(folder, "ls-files", "--others", "--exclude-standard", "-z", *UNTRACKED) or ""
    for name in filter(None, listed.split("\0")):
        with suppress(OSError):
            parts += name.encode(errors="surrogateescape"), (folder / name).read_bytes()
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16] if any(parts) else ""


def commits_address(folder: Path) -> str:
    """The address of the commits of the repository's `origin`, before a commit's id; empty without one on a server."""
    found = REMOTE.fullmatch(git_output(folder, "remote", "get-url", "origin") or "")
    if found is None:
        return ""
    host, path = found.groups()
    return f"https://{host}/{path}/{'commits' if host == 'bitbucket.org' else 'commit'}/"
