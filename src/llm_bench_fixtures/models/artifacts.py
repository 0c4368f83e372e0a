"""What export, quantization and dummy weights make, kept on disk and keyed by everything that went into it."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from llm_bench_fixtures.progress import Phase, Progress
from llm_bench_fixtures.version import __version__

MANIFEST = "manifest.json"

KeyValue: TypeAlias = "str | int | float | bool | None"
Key: TypeAlias = Mapping[str, KeyValue]


@dataclass(frozen=True)
class Artifact:
    """A folder of files made once."""

    folder: Path
    reused: bool

    note: str
    """Whether it was made now or found, in words for the report."""


class ArtifactStore:
    """Folders below `root` (default: this user's cache folder), one for each kind and key.

    A folder is built beside its place and moved there whole; a lock file keeps two sessions from building the same
    one; a manifest with the hash of every file tells a damaged one, which is built again.
    """

    def __init__(self, root: Path | None = None, progress: Progress | None = None) -> None:
        self.root = root or default_root()
        self._progress = progress or Progress()

    def get(self, kind: str, key: Key, build: Callable[[Path], None]) -> Artifact:
        """The artifact for `key`; where it isn't there or is damaged, `build(folder)` fills a new folder."""
        from filelock import FileLock

        key = {**key, "llm-bench-fixtures": __version__}
        folder = self.root / kind / _digest(key)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            with self._progress.activity(Phase.CHECKING, f"checking the cached {kind}"):
                damage = self._damage(folder)
            if damage is None:
                return Artifact(folder, reused=True, note=f"{kind} reused from the cache")
            shutil.rmtree(folder, ignore_errors=True)
            self._build(folder, key, build)
        reason = f"; the cached one was damaged: {damage}" if damage else ""
        return Artifact(folder, reused=False, note=f"{kind} made in this run{reason}")

    @staticmethod
    def _build(folder: Path, key: Key, build: Callable[[Path], None]) -> None:
        with tempfile.TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent) as scratch:
            made = Path(scratch) / "artifact"
            made.mkdir()
            build(made)
            files = {path.relative_to(made).as_posix(): file_digest(path) for path in _files(made)}
            (made / MANIFEST).write_text(json.dumps({"key": key, "files": files}, indent=1, sort_keys=True))
            made.replace(folder)

    @staticmethod
    def _damage(folder: Path) -> str | None:
        """What is wrong with the folder: None where nothing is, an empty text where there is no folder."""
        if not folder.exists():
            return ""
        try:
            expected = json.loads((folder / MANIFEST).read_text())["files"].items()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return f"{MANIFEST} can't be read"
        for name, digest in expected:
            path = folder / name
            if not path.is_file():
                return f"{name} is missing"
            if file_digest(path) != digest:
                return f"{name} has changed"
        return None


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
