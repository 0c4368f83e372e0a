"""What a node does with a cell."""

from __future__ import annotations

from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from llm_bench_fixtures.sweep.node import LOCK, alone


def test_no_other_cell_is_measured_on_the_host_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever sweep, or node of Ray's, it is of."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    other = FileLock(tmp_path / LOCK)
    with alone(), pytest.raises(Timeout):
        other.acquire(timeout=0)
    with other.acquire(timeout=0):
        assert other.is_locked
