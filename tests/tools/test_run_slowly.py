"""A command is run, whatever slows it down, and nothing is left."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest
import run_slowly

LEAVES_WITH_3 = [sys.executable, "-c", "import sys; sys.exit(3)"]


def test_without_a_quota_a_command_runs_beside_busy_processes_that_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    before = len(psutil.Process().children())
    assert run_slowly.main(["--share", "50", *LEAVES_WITH_3], tmp_path) == 3
    assert "beside 1 busy processes" in capfd.readouterr().err
    assert len(psutil.Process().children()) == before


@pytest.mark.parametrize(
    ("folder", "written"),
    [("cpu", {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "20000"}), ("", {"cpu.max": "20000 100000"})],
    ids=["version 1", "version 2"],
)
def test_a_quota_is_a_share_of_each_tenth_of_a_second(folder: str, written: dict[str, str], tmp_path: Path) -> None:
    """In files of the test, whose folder isn't removed as a group's is."""
    root = tmp_path / folder
    root.mkdir(exist_ok=True)
    if not folder:
        (root / "cgroup.controllers").touch()
    assert run_slowly.main(["--share", "20", *LEAVES_WITH_3], tmp_path) == 3
    (group,) = (path for path in root.iterdir() if path.is_dir())
    assert {path.name: path.read_text() for path in group.glob("cpu.*")} == written
