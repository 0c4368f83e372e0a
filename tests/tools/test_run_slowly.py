"""A command is run, whatever slows it down, and nothing is left."""

from __future__ import annotations

import os
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


@pytest.fixture
def membership(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is in the group `mine` of both versions."""
    file = tmp_path / "membership"
    file.write_text("2:cpuset:/other\n1:cpu,cpuacct:/mine\n0::/mine\n")
    monkeypatch.setattr(run_slowly, "MEMBERSHIP", file)


@pytest.mark.usefixtures("membership")
@pytest.mark.parametrize(
    ("folder", "written"),
    [("cpu", {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "20000"}), ("", {"cpu.max": "20000 100000"})],
    ids=["version 1", "version 2"],
)
def test_a_quota_is_a_share_of_each_tenth_of_a_second(folder: str, written: dict[str, str], tmp_path: Path) -> None:
    """In files of the test, whose folder isn't removed as a group's is. Bug: the process ended in the root group."""
    root = tmp_path / folder
    (root / "mine").mkdir(parents=True)
    if not folder:
        (root / "cgroup.controllers").touch()
    assert run_slowly.main(["--share", "20", *LEAVES_WITH_3], tmp_path) == 3
    (group,) = root.glob("run-slowly-*")
    assert {path.name: path.read_text() for path in group.glob("cpu.*")} == written
    assert (root / "mine" / "cgroup.procs").read_text() == str(os.getpid())
    assert not (root / "cgroup.procs").exists()


@pytest.mark.usefixtures("membership")
def test_a_process_stays_in_its_group_where_no_quota_can_be_set(tmp_path: Path) -> None:
    """Bug: it was moved into the root group."""
    for name in ("cgroup.controllers", "mine", "cgroup.subtree_control"):  # a folder can't be written
        (tmp_path / name).mkdir()
    with pytest.raises(OSError, match="subtree_control"), run_slowly.quota(20, tmp_path):
        pass
    assert not [*tmp_path.rglob("cgroup.procs"), *tmp_path.glob("run-slowly-*")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--share", "20"], "no command to run: give it last, as in --share 20 python -m pytest tests/processes"),
        (["--share", "0", "true"], "--share 0: give a percentage of one core, 1 to 100"),
    ],
)
def test_what_is_missing_is_said(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Bug: without a command, an IndexError."""
    with pytest.raises(SystemExit):
        run_slowly.main(arguments)
    assert message in capsys.readouterr().err
