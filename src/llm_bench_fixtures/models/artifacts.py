"""What export, quantization and dummy weights make, kept on disk and keyed by everything that went into it.

What the store keeps can be listed with size and age, and removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import msgspec

from llm_bench_fixtures.errors import LlmBenchError, UnwritableFile
from llm_bench_fixtures.models.backend import installed_versions
from llm_bench_fixtures.processes.locks import held
from llm_bench_fixtures.processes.scratch import remove, remove_unless_locked
from llm_bench_fixtures.progress import Phase, Progress
from llm_bench_fixtures.version import __version__
from llm_bench_fixtures.writing import is_of_file_in, naming_full_disks, replacing

MANIFEST = "manifest.json"
MOST_MANIFEST_BYTES = 10_000_000
DIGITS = 64  # digits of a key's digest, with which the names of its folders begin
SCRATCH = re.compile(r"[0-9a-f]{64}-\w+", re.ASCII)  # the folder of a build that goes on, or was killed

KeyValue: TypeAlias = str | int | float | bool | None
Key: TypeAlias = Mapping[str, KeyValue]


class Maker(msgspec.Struct, frozen=True):
    """For which variant of which model something is made."""

    variant: str = ""
    model: str = ""
    """The model's `identity`."""
    weights: int = 0


class Manifest(msgspec.Struct):
    """What a store keeps next to the files of an artifact."""

    files: dict[str, str]
    """SHA-256 of each file by its path; none where a library keeps a cache of its own in the folder."""
    key: Key = {}
    made_s: float | None = None
    maker: Maker = Maker()


@dataclass(frozen=True)
class Artifact:
    """A folder of files made once."""

    folder: Path
    reused: bool

    note: str
    """Whether it was made now or found, in words for the report."""

    made_s: float | None
    """Seconds that making it took, whenever that was. None where nobody has kept them."""


class ArtifactStore:
    """Folders below `root` (default: this user's cache folder), one for each kind and key.

    A folder is built beside its place and moved there whole; a lock file keeps two sessions from building the same
    one; a manifest with the hash of every file tells a damaged one, which is built again. A whole one is used without
    the lock, so that a store that can't be written serves what it has.
    """

    def __init__(self, root: Path | None = None, progress: Progress | None = None, maker: Maker | None = None) -> None:
        self._maker = maker or Maker()
        self.root = root or default_root()
        self._progress = progress or Progress()

    def get(self, kind: str, key: Key, build: Callable[[Path], None]) -> Artifact:
        """The artifact for `key`; where it isn't there or is damaged, `build(folder)` fills a new folder.

        Raises UnwritableFile where the store can't be written and has to be.
        """
        key = {**key, "llm-bench-fixtures": __version__}
        folder = self.root / kind / _digest(key)
        damage = self._checked(kind, folder)
        if damage is not None:
            self.remove_unfinished()
            with self._locked(folder):
                damage = self._checked(kind, folder)  # another session may have built it meanwhile
                if damage is not None:
                    self._rebuild(folder, key, build)
        if damage is None:
            note = f"{kind} reused from the cache"
            with suppress(OSError):  # a store that can't be written
                os.utime(folder / MANIFEST)
        else:
            note = f"{kind} made in this run" + (f"; the cached one was damaged: {damage}" if damage else "")
        manifest = _manifest_of(folder)
        return Artifact(folder, reused=damage is None, note=note, made_s=manifest.made_s if manifest else None)

    def workspace(self, kind: str, key: Key) -> Path:
        """The folder for `key` that a library keeps a cache of its own in, made where there is none.

        What is in it is the library's to check. Raises UnwritableFile.
        """
        key = {**key, "llm-bench-fixtures": __version__}
        folder = self.root / kind / _digest(key)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / MANIFEST).exists():
                with replacing(folder / MANIFEST) as path:
                    path.write_bytes(msgspec.json.encode(Manifest({}, key)))
        except OSError as error:
            raise self._unwritable(error) from error
        return folder

    def remove_unfinished(self) -> None:
        """Remove what builds that were killed have left: their folders, whose locks nobody holds."""
        for scratch in self.root.glob("*/*-*"):
            with suppress(OSError):  # the build has ended meanwhile
                if SCRATCH.fullmatch(scratch.name) and _own_manifest(scratch):
                    remove_unless_locked(lock_of(scratch), scratch)

    def _checked(self, kind: str, folder: Path) -> str | None:
        with self._progress.activity(Phase.CHECKING, f"checking the cached {kind}"):
            return damage_of(folder)

    @contextmanager
    def _locked(self, folder: Path) -> Iterator[None]:
        """Keep other sessions from building this folder. Raises UnwritableFile where the lock can't be made, LockHeld
        where whoever holds it doesn't work."""
        from filelock import FileLock

        with ExitStack() as stack:
            try:
                folder.parent.mkdir(parents=True, exist_ok=True)
                stack.enter_context(held(FileLock(lock_of(folder)), partial(self._progress.activity, Phase.CHECKING)))
            except OSError as error:
                raise self._unwritable(error) from error
            yield

    def _rebuild(self, folder: Path, key: Key, build: Callable[[Path], None]) -> None:
        try:
            with naming_full_disks(self.root):
                remove(folder)
                self._build(folder, key, build)
        except OSError as error:
            if isinstance(error, LlmBenchError) or not is_of_file_in(error, self.root):
                raise
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> UnwritableFile:
        return UnwritableFile(
            f"nothing can be kept in the cache {self.root}: {error.strerror or error}. "
            "Name a folder that can be written, and has room, with --llm-cache-dir"
        )

    def _build(self, folder: Path, key: Key, build: Callable[[Path], None]) -> None:
        with tempfile.TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent) as scratch:
            (Path(scratch) / MANIFEST).write_bytes(msgspec.json.encode(Manifest({}, key)))
            made = Path(scratch) / "artifact"
            made.mkdir()
            started = time.perf_counter()
            build(made)
            made_s = time.perf_counter() - started
            files = {path.relative_to(made).as_posix(): file_digest(path) for path in _files(made)}
            (made / MANIFEST).write_bytes(msgspec.json.encode(Manifest(files, key, made_s, self._maker)))
            made.replace(folder)


def _manifest_of(folder: Path) -> Manifest | None:
    """The folder's manifest; None where there is none that can be read."""
    path = folder / MANIFEST
    try:
        if path.lstat().st_size > MOST_MANIFEST_BYTES or not path.is_file():
            return None
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None


@dataclass(frozen=True)
class Making:
    """How an artifact came to be, for whoever wants to know how long another takes."""

    kind: str
    maker: Maker
    seconds: float
    is_current: bool
    """Whether this version and the libraries that are installed use it."""


def makings_in(root: Path) -> Iterator[Making]:
    """Makings of the artifacts in a store whose manifests tell."""
    for folder in root.glob("*/*"):
        manifest = _own_manifest(folder) if KEY.fullmatch(folder.name) else None
        if manifest and manifest.maker.variant and manifest.made_s is not None:
            yield Making(folder.parent.name, manifest.maker, manifest.made_s, _is_current(manifest.key))


def _is_current(key: Key) -> bool:
    """Whether what the key says of versions is what is installed."""
    versions = {**installed_versions(key), "llm-bench-fixtures": __version__}
    return all(key[name] == version for name, version in versions.items() if name in key)


def _own_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder, whole or unfinished, whose name is the digest of its key; None for other programs'."""
    manifest = None if folder.is_symlink() else _manifest_of(folder)
    return manifest if manifest and _digest(manifest.key) == folder.name[:DIGITS] else None


def made_s_of(*artifacts: Artifact) -> float | None:
    """Seconds that making all of them took, each once. None where one doesn't say."""
    seconds = {artifact.folder: artifact.made_s for artifact in artifacts}.values()
    known = [each for each in seconds if each is not None]
    return sum(known) if len(known) == len(seconds) else None


def damage_of(folder: Path) -> str | None:
    """Damage of an artifact: None where there is none, an empty text where there is no artifact."""
    if not os.path.lexists(folder):
        return ""
    manifest = _manifest_of(folder)
    if manifest is None:
        return f"{MANIFEST} can't be read"
    expected = manifest.files
    if not expected:
        return f"{MANIFEST} names no files"
    for name, digest in expected.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if file_digest(path) != digest:
            return f"{name} has changed"
    there = {path.relative_to(folder).as_posix() for path in _files(folder)} - {MANIFEST}
    return next((f"{name} is no part of it" for name in sorted(there - expected.keys())), None)


def lock_of(folder: Path) -> Path:
    """The lock file of an artifact's folder, or of its build's."""
    return folder.with_name(f"{folder.name[:DIGITS]}.lock")


def default_root() -> Path:
    """The folder for the package among the user's caches."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("llm-bench-fixtures", appauthor=False))


def file_digest(path: Path) -> str:
    """SHA-256 of the file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_digest(folder: Path) -> str:
    """SHA-256 over the names and contents of the folder's files, subfolders included."""
    listing: Key = {path.relative_to(folder).as_posix(): file_digest(path) for path in _files(folder)}
    return _digest(listing)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _digest(key: Key) -> str:
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


KEY = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True)
class CachedArtifact:
    """An artifact, or what a build that was killed has left of one."""

    kind: str
    """Kind of artifact: an export, say."""
    folder: Path
    size_bytes: int
    used: float
    """When it was last used or made: seconds since 1970."""
    is_whole: bool
    """Whether it can be used; else a build was killed, or goes on."""

    @property
    def name(self) -> str:
        """Tells it from others of its kind."""
        return self.folder.name[:8]


def kept_in(root: Path) -> list[CachedArtifact]:
    """Artifacts in the store, the least recently used first. What it didn't make is not among it."""
    return sorted(_kept_in(root), key=lambda one: one.used)


def _kept_in(root: Path) -> Iterator[CachedArtifact]:
    for folder in root.glob("*/*"):
        is_whole = bool(KEY.fullmatch(folder.name))
        with suppress(OSError):  # a build that goes on may have removed it
            if (is_whole or SCRATCH.fullmatch(folder.name)) and _own_manifest(folder):
                used = max(path.lstat().st_mtime for path in (folder, folder / MANIFEST))
                yield CachedArtifact(folder.parent.name, folder, _size(folder), used, is_whole)


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # a build that goes on may have removed it
            total += path.lstat().st_size if path.is_file() else 0
    return total


def discard(kept: CachedArtifact) -> bool:
    """Remove it, and its lock file; False where a build holds the lock. Raises OSError."""
    lock = lock_of(kept.folder)
    return remove_unless_locked(lock, kept.folder, *([lock] if kept.is_whole else []))
