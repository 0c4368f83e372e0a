"""The folder in which runs are kept, and how one of them is named on a command line.

pytest-benchmark's layout: `.benchmarks/MACHINE/NNNN_NAME.json`. The numbers count within a machine's folder and start
anew in another, so that only what a run says of itself tells which is the newest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from llm_bench_fixtures.errors import AmbiguousRun, InvalidSetting, RunNotFound, StorageNotFound, indented
from llm_bench_fixtures.history.headings import Heading, PassOver, headings, oldest_first
from llm_bench_fixtures.results.storage import RESULTS_FILE

FOLDER = ".benchmarks"
LATEST = "latest"
LEAST_COMMIT = 4  # digits that name a commit, as git has it
NUMBERED = re.compile(r"(\d+)_", re.ASCII)

RUN_HELP = (
    f"a saved run: a file or the folder of a report; `{LATEST}`; a number (3 or 0003), a name, or a part of a file's "
    "name that only one has; a branch or the beginning of a commit's id, for its newest run"
)


def find_storage(given: str | None, start: Path) -> Path:
    """The folder that `--benchmark-storage` or `--storage` names; without one, the nearest `.benchmarks` with runs in
    it, in `start` or above. Raises StorageNotFound, and InvalidSetting for a storage that isn't a folder.
    """
    if given is not None:
        return _given_storage(given)
    for folder in (start, *start.parents):
        if run_files(folder / FOLDER):
            return folder / FOLDER
    raise StorageNotFound(
        f"no saved runs: looked for a {FOLDER} folder that holds some in {start} and the folders above it. "
        "Save one with pytest --benchmark-autosave, or name the folder with --storage."
    )


def _given_storage(given: str) -> Path:
    path = given.removeprefix("file://")
    if "://" in path:
        raise InvalidSetting(f"{given}: only runs in a folder can be read, given as a path or file://PATH")
    storage = Path(path).expanduser()
    if not storage.is_dir():
        raise StorageNotFound(f"there is no folder {storage}. Save a run there with pytest --benchmark-storage {given}")
    return storage


def run_files(storage: Path) -> list[Path]:
    """The files that runs may be in, sorted by machine, then by number. No file is opened."""
    found = (*storage.glob("*.json"), *storage.glob("*/*.json"))
    return sorted((path for path in found if path.is_file()), key=_order)


def _order(path: Path) -> tuple[str, int, str]:
    numbered = NUMBERED.match(path.name)
    return path.parent.as_posix(), int(numbered[1]) if numbered else -1, path.name


def select_run(storage: Path | None, text: str, pass_over: PassOver = lambda _: None) -> Path:
    """The file of the run that `text` names as RUN_HELP says.

    The ways to name a run are tried in order; the first that finds any decides. storage: None where there is none, so
    that only a file can be named. pass_over: called with each file that can't be read, where files have to be read.
    Raises RunNotFound, AmbiguousRun, and InvalidSetting for an empty name.
    """
    if not text:
        raise InvalidSetting("the name of a run can't be empty")
    given = _given_file(Path(text).expanduser())
    if given is not None:
        return given
    if storage is None:
        raise RunNotFound(f"no run {text!r}: it is no file, and there is no folder of saved runs to look in")
    files = run_files(storage)
    for find in (_numbered, _called, partial(_newest, pass_over), partial(_containing, storage)):
        found = find(files, text)
        if len(found) > 1:
            raise AmbiguousRun(text, storage, _names(found, storage))
        if found:
            return found[0]
    raise RunNotFound(
        f"no run {text!r}: it is no file, and no number, name, branch or commit of the {len(files)} runs in {storage}\n"
        f"{indented(_names(files, storage))}"
    )


def list_runs(storage: Path, pass_over: PassOver) -> list[Heading]:
    """The headings of the runs that can be read, oldest first."""
    return oldest_first(headings(run_files(storage), pass_over))


def _given_file(path: Path) -> Path | None:
    """The file itself, or the results in the folder of a report; None where there is neither."""
    return next((file for file in (path, path / RESULTS_FILE) if file.is_file()), None)


def _numbered(files: Sequence[Path], text: str) -> list[Path]:
    """The files of that number, which pytest-benchmark gives, with or without its zeros."""
    if not re.fullmatch(r"\d+", text, re.ASCII):
        return []
    numbers = ((path, NUMBERED.match(path.name)) for path in files)
    return [path for path, numbered in numbers if numbered and int(numbered[1]) == int(text)]


def _called(files: Sequence[Path], text: str) -> list[Path]:
    """The files of that name, or that --benchmark-save gave that name."""
    return [path for path in files if text in (path.name, path.stem, NUMBERED.sub("", path.stem, count=1))]


def _newest(pass_over: PassOver, files: Sequence[Path], text: str) -> list[Path]:
    """The newest run of all, of a branch, or else of each commit whose id begins so."""
    runs = oldest_first(headings(files, pass_over))
    on_branch = [run for run in runs if text in (LATEST, run.provenance.branch)]
    if on_branch:
        return [on_branch[-1].path]
    if len(text) < LEAST_COMMIT:
        return []
    return list(
        {run.provenance.commit: run.path for run in runs if run.provenance.commit.startswith(text.lower())}.values()
    )


def _containing(storage: Path, files: Sequence[Path], text: str) -> list[Path]:
    """The files whose name has the text in it."""
    return [path for path in files if text in name_in(storage, path)]


def _names(files: Sequence[Path], storage: Path) -> list[str]:
    return [name_in(storage, path) for path in files]


def name_in(storage: Path, path: Path) -> str:
    """MACHINE/FILE. Bytes of a file's name that are no text are replaced."""
    return path.relative_to(storage).as_posix().encode(errors="replace").decode()
