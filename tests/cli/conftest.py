"""The command line as its users type it, on a storage written by hand. Puts this folder's helpers on sys.path."""

from __future__ import annotations

from pathlib import Path

import pytest
from postgres import postgres_server, postgres_url, url  # noqa: F401  # pytest finds fixtures by their names here
from shell import Shell


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path / ".benchmarks", capsys)
