"""`llm-bench cache`: what is kept, and how it is removed."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from filelock import FileLock

from llm_bench_fixtures.cli.main import main
from llm_bench_fixtures.models.artifacts import MANIFEST, ArtifactStore, lock_of

DAY_S = 86400


def build(folder: Path) -> None:
    (folder / "weights.bin").write_bytes(b"0" * 2_000_000)


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    """An export that was used now, dummy weights that were used ten days ago, and half of an export."""
    found = ArtifactStore(tmp_path / "cache")
    export = found.get("onnx-export", {"model": "a"}, build).folder
    old = found.get("dummy-weights", {"model": "b"}, build).folder
    ten_days_ago = time.time() - 10 * DAY_S
    for path in (old / MANIFEST, old):
        os.utime(path, (ten_days_ago, ten_days_ago))
    half = export.with_name(f"{export.name}-abc_12")
    half.mkdir()
    shutil.copy(export / MANIFEST, half)
    return found


def run(capsys: pytest.CaptureFixture[str], store: ArtifactStore, *arguments: str) -> list[str]:
    assert main(["cache", "--cache-dir", str(store.root), *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_what_is_kept_is_listed_with_its_size_and_age(store: ArtifactStore, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, store)
    rows = [line.split() for line in lines if line.startswith(("onnx", "dummy"))]
    assert [row[0] for row in rows] == ["dummy-weights", "onnx-export", "onnx-export,"]
    assert rows[0][2:] == ["2.00", "MB", "10", "days", "ago"]
    assert rows[1][2:] == ["2.00", "MB", "within", "the", "hour"]
    assert lines[-1] == f"3 folders, 4.00 MB in {store.root}"


def test_what_is_listed_is_removed(store: ArtifactStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, store, "--prune", "--older-than", "9")[-1] == "removed 1 folder, 2.00 MB"
    assert [path.name for path in store.root.glob("dummy-weights/*")] == []
    assert run(capsys, store, "--prune")[-1] == "removed 2 folders, 2.00 MB"
    assert run(capsys, store)[-1] == f"0 folders, 0 B in {store.root}"


def test_what_is_being_made_stays(store: ArtifactStore, capsys: pytest.CaptureFixture[str]) -> None:
    (half,) = store.root.glob("onnx-export/*-abc_12")
    with FileLock(lock_of(half)):
        assert run(capsys, store, "--prune")[-1] == "removed 1 folder, 2.00 MB; 2 in use stay"
    assert run(capsys, store)[-1].startswith("2 folders,")


def test_a_clock_that_was_set_back_hides_nothing(
    store: ArtifactStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: what was used two hours from now was neither listed nor removed."""
    now = time.time()
    monkeypatch.setattr("llm_bench_fixtures.cli.cache.time.time", lambda: now - 7200)
    assert run(capsys, store)[-1] == f"3 folders, 4.00 MB in {store.root}"


def test_what_others_keep_there_is_neither_listed_nor_removed(
    store: ArtifactStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bugs: the next build removed a folder named as Docker names its layers, --prune one with any manifest."""
    names = ("overlay2/" + "a" * 64, "overlay2/" + "a" * 64 + "-init", "onnx-export/" + "b" * 64, "notes/b")
    others = [store.root / name for name in names]
    for folder in others:
        folder.mkdir(parents=True)
        (folder / "file").write_text("mine", encoding="utf-8")
        (folder / MANIFEST).write_text('{"key": {"model": "a"}, "files": {}}', encoding="utf-8")
    (store.root / "onnx-export" / ("c" * 64)).symlink_to(others[0])
    run(capsys, store, "--prune")
    store.get("another", {"model": "c"}, build)
    assert all((folder / "file").read_text(encoding="utf-8") == "mine" for folder in others)


def test_a_cache_that_is_not_there_is_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, ArtifactStore(tmp_path / "none"), "--prune")[-1] == "removed 0 folders, 0 B"
