"""What of the memory may still be taken, where a container has less than the machine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from llm_bench_fixtures.processes.memory import free_memory_bytes

MACHINE = 1000


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=MACHINE))


def free(tmp_path: Path, membership: str, files: dict[str, str]) -> int:
    """With these files of the folder of control groups."""
    for name, text in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "membership").write_text(membership)
    return free_memory_bytes(tmp_path / "membership", tmp_path / "groups")


def limited(group: str, limit: object, used: int, inactive: int = 0, active: int = 0) -> dict[str, str]:
    """A group of version 2."""
    stat = f"anon {used - inactive - active}\ninactive_anon 9\ninactive_file {inactive}\nactive_file {active}\n"
    files = {"memory.max": f"{limit}\n", "memory.current": f"{used}\n", "memory.stat": stat}
    return {f"{group}{name}": text for name, text in files.items()}


def test_without_control_groups_it_is_what_the_machine_has(tmp_path: Path) -> None:
    assert free_memory_bytes(tmp_path / "nothing", tmp_path) == MACHINE


def test_a_group_without_limit_is_none(tmp_path: Path) -> None:
    assert free(tmp_path, "0::/\n", limited("", "max", 10)) == MACHINE


def test_a_limit_leaves_what_is_not_used(tmp_path: Path) -> None:
    assert free(tmp_path, "0::/\n", limited("", 600, 250)) == 350


def test_pages_of_files_are_free(tmp_path: Path) -> None:
    """Bug: those that were read twice, such as a model's that was loaded before, weren't."""
    assert free(tmp_path, "0::/\n", limited("", 600, 250, inactive=100)) == 450
    assert free(tmp_path, "0::/\n", limited("", 600, 580, inactive=60, active=500)) == 580


def test_a_limit_above_what_the_machine_has_changes_nothing(tmp_path: Path) -> None:
    assert free(tmp_path, "0::/\n", limited("", 10 * MACHINE, 250)) == MACHINE


def test_of_groups_in_each_other_the_narrowest_counts(tmp_path: Path) -> None:
    files = {**limited("a/b/", "max", 10), **limited("a/", 500, 100), **limited("", 700, 200)}
    assert free(tmp_path, "0::/a/b\n", files) == 400


def test_a_path_that_only_the_machine_knows_ends_at_the_containers_own_root(tmp_path: Path) -> None:
    assert free(tmp_path, "0::/docker/0123456789\n", limited("", 600, 250)) == 350


def test_a_group_that_is_overdrawn_leaves_nothing(tmp_path: Path) -> None:
    assert free(tmp_path, "0::/\n", limited("", 600, 650)) == 0


def test_version_1_is_read_too(tmp_path: Path) -> None:
    files = {
        "memory/job/memory.limit_in_bytes": "600",
        "memory/job/memory.usage_in_bytes": "250",
        "memory/job/memory.stat": "inactive_file 1\ntotal_inactive_file 70\ntotal_active_file 30\n",
        "memory/memory.limit_in_bytes": "9223372036854771712",
        "memory/memory.usage_in_bytes": "300",
    }
    assert free(tmp_path, "5:cpu,cpuacct:/job\n4:memory:/job\n0::/\n", files) == 450
