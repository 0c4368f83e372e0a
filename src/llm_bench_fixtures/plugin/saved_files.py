"""The files in which pytest-benchmark saves a run: written whole or not at all, and never over another run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

from llm_bench_fixtures.errors import UnwritableFile
from llm_bench_fixtures.writing import write_or_keep


def reserve(folder: Path, number: int, name: str) -> Path:
    """Make an empty file NUMBER_NAME.json, with the first number from this one on of which there is none yet: two runs
    that end at once must not take the same. Where none can be made, nothing is: the attempt to write will say why."""
    for free in count(number):
        path = folder / f"{free:04}_{name}.json"
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            continue
        except OSError:
            pass
        return path
    raise AssertionError("numbers don't end")


def save(path: Path, text: str, failed: Callable[[str], object]) -> Path | None:
    """Write the file; returns where it is, None where it could be written nowhere.

    failed: called with what was not written where it should be, and where it is instead.
    """
    try:
        kept, reason = write_or_keep(path, text)
    except UnwritableFile as error:
        kept, reason = None, str(error)
        failed(f"this run was not saved: {reason}")
    else:
        if reason:
            failed(f"{reason}; this run was saved in {kept} instead")
    if reason:
        _remove_reserved(path)
    return kept


def _remove_reserved(path: Path) -> None:
    with suppress(OSError):
        if path.is_file() and not path.stat().st_size:
            path.unlink()
