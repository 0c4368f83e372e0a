from __future__ import annotations

import errno
import json
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest
from filelock import FileLock
from waiting import BACKSTOP_S

from llm_bench_fixtures.errors import UnwritableFile
from llm_bench_fixtures.models import artifacts
from llm_bench_fixtures.models.artifacts import (
    MANIFEST,
    Artifact,
    ArtifactStore,
    Key,
    Maker,
    discard,
    file_digest,
    folder_digest,
    kept_in,
    lock_of,
    made_s_of,
    makings_in,
)

KEY: Key = {"model": "abc", "opset": 17}


class Clock(Protocol):
    def __call__(self) -> float: ...

    def advance(self, seconds: float) -> None: ...


class Builder:
    """Writes two files and counts how often it did."""

    def __init__(self) -> None:
        self.builds = 0

    def __call__(self, folder: Path) -> None:
        self.builds += 1
        (folder / "weights.bin").write_bytes(b"0123456789")
        (folder / "sub").mkdir()
        (folder / "sub" / "config.json").write_text("{}")


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "cache")


@pytest.fixture
def builder() -> Builder:
    return Builder()


def test_the_first_call_builds_and_says_so(store: ArtifactStore, builder: Builder) -> None:
    artifact = store.get("export", KEY, builder)
    assert (artifact.reused, artifact.note) == (False, "export made in this run")
    assert (artifact.folder / "weights.bin").read_bytes() == b"0123456789"


def test_the_second_call_reuses_and_says_so(store: ArtifactStore, builder: Builder) -> None:
    first = store.get("export", KEY, builder)
    second = store.get("export", KEY, builder)
    assert second == Artifact(first.folder, reused=True, note="export reused from the cache", made_s=first.made_s)
    assert builder.builds == 1


def test_the_seconds_of_making_it_are_kept_with_it(
    store: ArtifactStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export of 20 s, and what is quantized from it in 7 s; the export counts once."""
    monkeypatch.setattr("llm_bench_fixtures.models.artifacts.time.perf_counter", clock)

    def taking(seconds: float) -> Callable[[Path], None]:
        def build(folder: Path) -> None:
            (folder / "weights.bin").write_bytes(b"0")
            clock.advance(seconds)

        return build

    export = store.get("export", KEY, taking(20))
    quantized = store.get("quantized", KEY, taking(7))
    assert made_s_of(export, export) == 20
    assert made_s_of(store.get("export", KEY, taking(1)), store.get("quantized", KEY, taking(1))) == 27
    assert made_s_of(export, replace(quantized, made_s=None)) is None


def test_what_made_it_for_whom_is_kept_with_it(
    store: ArtifactStore, builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "installed_versions", lambda names: {"torch": "2.0"} if "torch" in names else {})
    store.get("unknown", KEY, builder)
    maker = Maker("ort", "c0ffee", 7)
    known = ArtifactStore(store.root, maker=maker)
    for version in ("1.0", "2.0"):
        known.get("export", {**KEY, "torch": version}, builder)
    found = sorted(makings_in(store.root), key=lambda one: one.is_current)
    assert [(one.kind, one.maker, one.is_current) for one in found] == [
        ("export", maker, False),
        ("export", maker, True),
    ]


def test_an_artifact_whose_seconds_nobody_kept_is_reused(store: ArtifactStore, builder: Builder) -> None:
    manifest = store.get("export", KEY, builder).folder / MANIFEST
    kept = json.loads(manifest.read_text())
    del kept["made_s"]
    manifest.write_text(json.dumps(kept))
    again = store.get("export", KEY, builder)
    assert (again.reused, again.made_s) == (True, None)


def test_another_store_on_the_same_folder_reuses(store: ArtifactStore, builder: Builder) -> None:
    store.get("export", KEY, builder)
    assert ArtifactStore(store.root).get("export", KEY, builder).reused


def test_another_key_builds_beside_the_first(store: ArtifactStore, builder: Builder) -> None:
    first = store.get("export", KEY, builder)
    second = store.get("export", {**KEY, "opset": 18}, builder)
    assert not second.reused
    assert first.folder.exists()
    assert first.folder != second.folder
    assert store.get("export", KEY, builder).reused


def test_another_kind_builds_beside_the_first(store: ArtifactStore, builder: Builder) -> None:
    store.get("export", KEY, builder)
    assert not store.get("int8", KEY, builder).reused


def test_the_order_of_the_key_does_not_matter(store: ArtifactStore, builder: Builder) -> None:
    store.get("export", KEY, builder)
    assert store.get("export", dict(reversed(list(KEY.items()))), builder).reused


def flip_a_byte(folder: Path) -> None:
    data = bytearray((folder / "weights.bin").read_bytes())
    data[3] ^= 1
    (folder / "weights.bin").write_bytes(data)


def damage(name: str, text: str | None) -> Callable[[Path], None]:
    """Puts the text in the file's place, or nothing."""

    def apply(folder: Path) -> None:
        if text is None:
            (folder / name).unlink()
        else:
            (folder / name).write_text(text)

    return apply


def cut_the_manifest(folder: Path) -> None:
    text = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(text[: len(text) // 2])


def in_its_place(put: Callable[[Path], None]) -> Callable[[Path], None]:
    """Puts something else where the folder was."""

    def apply(folder: Path) -> None:
        shutil.rmtree(folder)
        put(folder)

    return apply


DAMAGES = [
    pytest.param(flip_a_byte, "weights.bin has changed", id="flipped-bit"),
    pytest.param(damage("weights.bin", "0123"), "weights.bin has changed", id="truncated-file"),
    pytest.param(damage("weights.bin", None), "weights.bin is missing", id="deleted-file"),
    pytest.param(damage("sub/config.json", None), "sub/config.json is missing", id="deleted-in-subfolder"),
    pytest.param(cut_the_manifest, "manifest.json can't be read", id="truncated-manifest"),
    pytest.param(damage(MANIFEST, None), "manifest.json can't be read", id="no-manifest"),
    pytest.param(damage(MANIFEST, "not json"), "manifest.json can't be read", id="manifest-not-json"),
    pytest.param(damage(MANIFEST, "[]"), "manifest.json can't be read", id="manifest-a-list"),
    pytest.param(damage(MANIFEST, "{}"), "manifest.json can't be read", id="manifest-without-files"),
    pytest.param(damage(MANIFEST, '{"files": null}'), "manifest.json can't be read", id="files-null"),
    pytest.param(damage(MANIFEST, '{"files": []}'), "manifest.json can't be read", id="files-a-list"),
    pytest.param(damage(MANIFEST, ""), "manifest.json can't be read", id="manifest-of-0-bytes"),
    pytest.param(damage(MANIFEST, '{"files": {}}'), "manifest.json names no files", id="manifest-emptied"),
    pytest.param(damage("sub/extra.bin", "?"), "sub/extra.bin is no part of it", id="extra-file"),
    pytest.param(in_its_place(Path.touch), "manifest.json can't be read", id="file-for-folder"),
    pytest.param(in_its_place(lambda path: path.symlink_to("/nowhere")), "manifest.json can't be read", id="dead-link"),
]


@pytest.mark.parametrize(("hurt", "what"), DAMAGES)
def test_a_damaged_artifact_is_built_again_with_a_note_that_names_the_file(
    hurt: Callable[[Path], None], what: str, store: ArtifactStore, builder: Builder
) -> None:
    hurt(store.get("export", KEY, builder).folder)
    artifact = store.get("export", KEY, builder)
    assert not artifact.reused
    assert artifact.note == f"export made in this run; the cached one was damaged: {what}"
    assert (artifact.folder / "weights.bin").read_bytes() == b"0123456789"
    assert store.get("export", KEY, builder).reused


def forbid_locks(folder: Path) -> None:
    """A folder where the lock file would be, which not even root can open for writing."""
    lock = folder.with_name(f"{folder.name}.lock")
    lock.unlink(missing_ok=True)
    lock.mkdir(parents=True)


def test_what_is_whole_is_used_without_a_lock(store: ArtifactStore, builder: Builder) -> None:
    """Bug: a cache that is mounted read-only was of no use, since its lock could not be opened."""
    forbid_locks(store.get("export", KEY, builder).folder)
    assert store.get("export", KEY, builder).reused


def test_a_cache_that_cannot_be_written_is_named_with_its_option(store: ArtifactStore, builder: Builder) -> None:
    folder = store.get("export", KEY, builder).folder
    forbid_locks(folder)
    flip_a_byte(folder)
    with pytest.raises(UnwritableFile, match=f"can be kept in the cache {store.root}: .*--llm-cache-dir"):
        store.get("export", KEY, builder)
    store.root.with_name("file").touch()
    with pytest.raises(UnwritableFile, match="--llm-cache-dir"):
        ArtifactStore(store.root.with_name("file")).get("export", KEY, builder)


def test_a_cache_without_room_is_named_and_another_failure_is_its_own(
    store: ArtifactStore, builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_up(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def miss(folder: Path) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file", f"{store.root}-of-another/weights")

    monkeypatch.setattr("llm_bench_fixtures.writing._free_bytes", lambda folder: float(folder != store.root))
    with pytest.raises(UnwritableFile, match=r"no room left in .*--llm-cache-dir"):
        store.get("export", KEY, fill_up)
    with pytest.raises(FileNotFoundError):
        store.get("export", KEY, miss)


def build_and_be_killed(root: Path) -> None:
    """What the process runs."""

    def build(folder: Path) -> None:
        (folder / "half.bin").write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)

    ArtifactStore(root).get("export", KEY, build)


def test_what_a_killed_build_left_is_removed_by_the_next_and_what_goes_on_is_not(
    store: ArtifactStore, builder: Builder
) -> None:
    """Bug: 21 MB stayed for each export that was killed."""
    process = multiprocessing.get_context("spawn").Process(target=build_and_be_killed, args=(store.root,))
    process.start()
    process.join(BACKSTOP_S)
    (abandoned,) = (store.root / "export").glob("*-*")
    going_on = store.get("goes on", KEY, builder).folder
    going_on = going_on.rename(going_on.with_name(f"{going_on.name}-abc_12"))
    with FileLock(lock_of(going_on)):
        store.get("another", KEY, builder)
    assert not abandoned.exists()
    assert going_on.exists()


def test_a_build_that_raises_leaves_no_folder_and_no_file(store: ArtifactStore, builder: Builder) -> None:
    def fail(folder: Path) -> None:
        (folder / "half.bin").write_bytes(b"half")
        raise RuntimeError("export failed")

    with pytest.raises(RuntimeError, match="export failed"):
        store.get("export", KEY, fail)
    assert [path for path in (store.root / "export").iterdir() if path.suffix != ".lock"] == []
    assert not store.get("export", KEY, builder).reused


def get_at_the_same_time(root: Path, barrier: Any, log: Path) -> None:
    """What each of the two processes runs. The build is slow so that the other one comes while it runs."""

    def build(folder: Path) -> None:
        with log.open("a") as file:
            file.write("built\n")
        time.sleep(0.3)
        (folder / "weights.bin").write_bytes(b"0123456789")

    barrier.wait(BACKSTOP_S)
    artifact = ArtifactStore(root).get("export", KEY, build)
    with log.open("a") as file:
        file.write(f"reused {artifact.reused} {file_digest(artifact.folder / 'weights.bin')[:8]}\n")


def test_two_processes_at_once_build_once_and_both_get_the_whole_artifact(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    log = tmp_path / "log"
    arguments = (tmp_path / "cache", context.Barrier(2), log)
    processes = [context.Process(target=get_at_the_same_time, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(BACKSTOP_S)
    assert [process.exitcode for process in processes] == [0, 0]
    whole = "84d89877"  # the start of the SHA-256 of 0123456789
    assert sorted(log.read_text().splitlines()) == ["built", f"reused False {whole}", f"reused True {whole}"]


def test_without_a_root_the_store_is_in_this_users_cache() -> None:
    import platformdirs

    assert ArtifactStore().root == Path(platformdirs.user_cache_dir("llm-bench-fixtures", appauthor=False))


def test_the_digest_of_a_folder_knows_names_and_contents_and_not_the_place(tmp_path: Path, builder: Builder) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        builder(tmp_path / name)
    same = folder_digest(tmp_path / "a")
    assert folder_digest(tmp_path / "b") == same
    (tmp_path / "b" / "sub" / "config.json").rename(tmp_path / "b" / "sub" / "other.json")
    assert folder_digest(tmp_path / "b") != same


def test_the_digest_of_a_folder_changes_with_one_bit(tmp_path: Path, builder: Builder) -> None:
    builder(tmp_path)
    before = folder_digest(tmp_path)
    flip_a_byte(tmp_path)
    assert folder_digest(tmp_path) != before


def test_the_digest_of_an_empty_file_is_sha256_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert file_digest(tmp_path / "empty") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_a_workspace_is_the_same_folder_for_the_same_key_whatever_a_library_does_in_it(store: ArtifactStore) -> None:
    folder = store.workspace("compiled", KEY)
    (folder / "code.so").write_bytes(b"code")
    assert store.workspace("compiled", KEY) == folder
    assert (folder / "code.so").read_bytes() == b"code"
    assert store.workspace("compiled", {**KEY, "opset": 18}) != folder
    kept = {one.folder: one for one in kept_in(store.root)}[folder]
    assert kept.is_whole
    assert discard(kept)
    assert not folder.exists()


def test_a_workspace_that_is_there_is_not_written_again(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a cache that can only be read."""
    folder = store.workspace("compiled", KEY)
    monkeypatch.setattr(artifacts, "replacing", None)
    assert store.workspace("compiled", KEY) == folder


def test_a_workspace_that_can_not_be_made_says_where(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UnwritableFile, match="nothing can be kept in the cache"):
        ArtifactStore(tmp_path / "cache").workspace("compiled", KEY)
