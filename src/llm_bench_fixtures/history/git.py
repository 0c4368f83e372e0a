"""Calls git."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from llm_bench_fixtures.errors import GitFailed, first_line


def git(folder: Path, *arguments: str) -> str:
    """Run git in the folder and return what it prints. Raises GitFailed."""
    program = shutil.which("git")
    if program is None:
        raise GitFailed("there is no git on the PATH")
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603  # never a shell
    if done.returncode:
        raise GitFailed(f"git {' '.join(arguments)}: {first_line(done.stderr) or f'status {done.returncode}'}")
    return done.stdout.strip()


def git_output(folder: Path, *arguments: str) -> str | None:
    """Run git in the folder and return what it prints; None where it fails or prints nothing."""
    try:
        return git(folder, *arguments) or None
    except GitFailed:
        return None
