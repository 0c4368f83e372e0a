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

KeyValue: TypeAlias = "str | int | float | bool | None"
Key: TypeAlias = Mapping[str, KeyValue]


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

    def __init__(self, root: Path | None = None, progress: Progress | None = None, maker: Key | None = None) -> None:
        """maker: for which variant of which model things are made, as `Making` has it."""
        self._maker = maker or {}
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
            with suppress(OSError):  # a store that can't be written
                os.utime(folder / MANIFEST)
            return Artifact(folder, reused=True, note=f"{kind} reused from the cache", made_s=_made_s(folder))
        reason = f"; the cached one was damaged: {damage}" if damage else ""
        return Artifact(folder, reused=False, note=f"{kind} made in this run{reason}", made_s=_made_s(folder))

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
                    path.write_text(_manifest(key))
        except OSError as error:
            raise self._unwritable(error) from error
        return folder

    def remove_unfinished(self) -> None:
        """Remove what builds that were killed have left: their folders, whose locks nobody holds."""
        for scratch in self.root.glob("*/*-*"):
            with suppress(OSError):  # the build has ended meanwhile
                if SCRATCH.fullmatch(scratch.name) and is_ours(scratch):
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
        except LlmBenchError:
            raise
        except OSError as error:
            if is_of_file_in(error, self.root):
                raise self._unwritable(error) from error
            raise

    def _unwritable(self, error: OSError) -> UnwritableFile:
        return UnwritableFile(
            f"nothing can be kept in the cache {self.root}: {error.strerror or error}. "
            "Name a folder that can be written, and has room, with --llm-cache-dir"
        )

    def _build(self, folder: Path, key: Key, build: Callable[[Path], None]) -> None:
        with tempfile.TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent) as scratch:
            (Path(scratch) / MANIFEST).write_text(_manifest(key))
            made = Path(scratch) / "artifact"
            made.mkdir()
            started = time.perf_counter()
            build(made)
            made_s = time.perf_counter() - started
            files = {path.relative_to(made).as_posix(): file_digest(path) for path in _files(made)}
            (made / MANIFEST).write_text(_manifest(key, files, made_s, self._maker))
            made.replace(folder)


def _manifest(
    key: Key, files: Mapping[str, str] | None = None, made_s: float | None = None, maker: Key | None = None
) -> str:
    told = {"key": key, "files": files or {}, "made_s": made_s, "maker": maker or {}}
    return json.dumps(told, indent=1, sort_keys=True)


@dataclass(frozen=True)
class Making:
    """How an artifact came to be, for whoever wants to know how long another takes."""

    kind: str
    variant: str
    model: str
    """The model's `identity`."""
    weights: int
    seconds: float
    is_current: bool
    """Whether this version and the libraries that are installed use it."""


def makings_in(root: Path) -> Iterator[Making]:
    """Makings of the artifacts in a store whose manifests tell."""
    for manifest in root.glob("*/*/" + MANIFEST):
        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
            if KEY.fullmatch(manifest.parent.name) and is_ours(manifest.parent):
                told = json.loads(manifest.read_text())
                maker, seconds = told["maker"], float(told["made_s"])
                current = _is_current(told["key"])
                kind = manifest.parent.parent.name
                yield Making(kind, str(maker["variant"]), str(maker["model"]), int(maker["weights"]), seconds, current)


def _is_current(key: Key) -> bool:
    """Whether what the key says of versions is what is installed."""
    versions = {**installed_versions(key), "llm-bench-fixtures": __version__}
    return all(key[name] == version for name, version in versions.items() if name in key)


def is_ours(folder: Path) -> bool:
    """Whether a folder, whole or unfinished, has a manifest whose key its name is the digest of."""
    manifest = folder / MANIFEST
    try:
        if folder.is_symlink() or manifest.lstat().st_size > MOST_MANIFEST_BYTES or not manifest.is_file():
            return False
        return _digest(json.loads(manifest.read_text())["key"]) == folder.name[:DIGITS]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _made_s(folder: Path) -> float | None:
    """Seconds that the making took, from the manifest of a whole artifact."""
    made_s = json.loads((folder / MANIFEST).read_text()).get("made_s")
    return float(made_s) if isinstance(made_s, (int, float)) else None


def made_s_of(*artifacts: Artifact) -> float | None:
    """Seconds that making all of them took, each once. None where one doesn't say."""
    seconds = {artifact.folder: artifact.made_s for artifact in artifacts}.values()
    known = [each for each in seconds if each is not None]
    return sum(known) if len(known) == len(seconds) else None


def damage_of(folder: Path) -> str | None:
    """Damage of an artifact: None where there is none, an empty text where there is no artifact."""
    if not os.path.lexists(folder):
        return ""
    try:
        expected = dict(json.loads((folder / MANIFEST).read_text())["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return f"{MANIFEST} can't be read"
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
class Kept:
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


def kept_in(root: Path) -> list[Kept]:
    """Artifacts in the store, the least recently used first. What it didn't make is not among it."""
    return sorted(_kept_in(root), key=lambda one: one.used)


def _kept_in(root: Path) -> Iterator[Kept]:
    for folder in root.glob("*/*"):
        is_whole = bool(KEY.fullmatch(folder.name))
        with suppress(OSError):  # a build that goes on may have removed it
            if (is_whole or SCRATCH.fullmatch(folder.name)) and is_ours(folder):  # other programs name folders so, too
                used = max(path.lstat().st_mtime for path in (folder, folder / MANIFEST))
                yield Kept(folder.parent.name, folder, _size(folder), used, is_whole)


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # a build that goes on may have removed it
            total += path.lstat().st_size if path.is_file() else 0
    return total


def discard(kept: Kept) -> bool:
    """Remove it, and its lock file; False where a build holds the lock. Raises OSError."""
    lock = lock_of(kept.folder)
    return remove_unless_locked(lock, kept.folder, *([lock] if kept.is_whole else []))
