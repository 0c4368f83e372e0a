"""The script that measures what the commands cost on a long history."""

from __future__ import annotations

import re
from pathlib import Path

import measure_history
import pytest

from llm_bench_fixtures.cli.main import main


def test_the_commands_read_the_history_that_it_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bug: it crashed, as it named no library whose version it wanted."""
    measure_history.make(2, tmp_path)
    assert main(["history", "--storage", str(tmp_path)]) == 0
    assert re.findall(r"^\d{4}", capsys.readouterr().out, re.MULTILINE) == ["0001", "0002"]
