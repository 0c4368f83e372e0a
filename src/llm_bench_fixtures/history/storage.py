"""Where runs are kept, and how one of them is named on a command line. The other kind of storage is a database.

A folder has pytest-benchmark's layout: `.benchmarks/MACHINE/NNNN_NAME.json`. The numbers count within a machine's
folder and start anew in another, so that only what a run says of itself tells which is the newest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import chain
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from llm_bench_fixtures import errors
from llm_bench_fixtures.history.headings import Heading, PassOver, Unreadable, headings, oldest_first, read_each
from llm_bench_fixtures.history.saved import SavedAt, read_run_of
from llm_bench_fixtures.options.parsers import parse_path
from llm_bench_fixtures.reading import listed, refusal
from llm_bench_fixtures.results.record import RecordHead
from llm_bench_fixtures.results.storage import RESULTS_FILE
from llm_bench_fixtures.text import encodable, first_few

if TYPE_CHECKING:
    from llm_bench_fixtures.history.database import Database
    from llm_bench_fixtures.history.steps import Floats

FOLDER = ".benchmarks"
UNSENT = "unsent"  # the storage's folder of runs that a database has yet to take
LATEST = "latest"
NUMBERED = re.compile(r"(\d+)_", re.ASCII)
NUMBER = re.compile(r"(?:(?P<machine>.+)/)?(?P<number>\d{1,18})", re.ASCII)
COMMIT = re.compile(r"[0-9a-f]{7,}", re.ASCII | re.IGNORECASE)  # with fewer digits too many words match
MOST_TRIED = 20  # files of a folder that is no run, to name the runs in it
HEXADECIMAL = re.compile(r"[0-9a-f]+", re.ASCII | re.IGNORECASE)
MADE_BY_AUTOSAVE = re.compile(r"_[0-9a-f]{7,40}_\d{8}_\d{6}", re.ASCII)  # the commit and the time in a file's name

RUN_HELP = (
    f"a saved run: a file, or the folder of a report; `{LATEST}`; its number (3 or 0003, or laptop/3 for one machine); "
    "its name, or a part of the file's name that no other has; or, for the newest run of it, a branch or a commit's id "
    "of at least seven digits. A short number is always a run's: write ./3 for a folder called 3"
)


Storage: TypeAlias = "RunFolder | Database"
"""Where saved runs are kept. Its text tells where that is. RunFolder says what both kinds do."""


@dataclass(frozen=True)
class Values:
    """Values of some metrics in one run: an array, since a long history has millions of values."""

    heading: Heading
    benchmarks: tuple[tuple[str, str], ...]
    """The test and the variant of each record."""
    values: Floats
    """(records, metrics), NaN where there is none."""


@dataclass(frozen=True)
class _Record(RecordHead):
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class RunFolder:
    """Runs in files."""

    folder: Path
    watch: Callable[[list[Path]], Iterable[Path]] = iter
    """Given all files when they are to be read; sees them go by."""

    def __str__(self) -> str:
        return str(self.folder)

    def places(self) -> list[Path]:
        """Places of all that may be runs, in the order of their names. None is read."""
        return run_files(self.folder)

    def name(self, place: SavedAt) -> str:
        """The name of a run among all runs."""
        return name_in(self.folder, Path(str(place)))

    def short_name(self, place: SavedAt) -> str:
        """The name without what all runs share: here the machine's folder, where it is the only one."""
        return place.name if self._has_one_machine else self.name(place)

    @cached_property
    def _has_one_machine(self) -> bool:
        return len({path.parent for path in self.places()}) < 2

    def newest(self, most: int, pass_over: PassOver) -> tuple[list[Heading], int]:
        """The newest runs that can be read, oldest first, and how many there are in all. most: 0 for all."""
        found = oldest_first(headings(self.watch(self.places()), pass_over))
        return found[-most:], len(found)

    def newest_first(
        self, pass_over: PassOver, before: datetime | None = None, commits: Collection[str] = ()
    ) -> Iterator[Heading]:
        """The runs that can be read, or those that started before that time. Who needs a few reads no more of them.

        commits: whose runs are wanted; empty: all.
        """
        found: Iterator[Heading] = reversed(list_runs(self.folder, pass_over))
        if commits:
            found = (run for run in found if run.provenance.commit in commits)
        return (run for run in found if before is None or run.started < before)

    def select(self, text: str, other_than: SavedAt | None = None) -> Path:
        """The run that `text` names; see select_run."""
        return select_run(self.folder, text, other_than)

    def values(self, metrics: Sequence[str], pass_over: PassOver) -> Iterator[Values]:
        """Values of the metrics in each run that can be read, in any order."""
        import numpy as np

        paths = self.watch(self.places())
        for path, run in read_each(paths, lambda path: read_run_of(path, _Record), pass_over):
            values = [[one.metrics.get(name, nan) for name in metrics] for one in run.records]
            shaped = np.array(values, dtype=np.float64).reshape(len(values), len(metrics))
            benchmarks = tuple((one.test, one.variant) for one in run.records)
            yield Values(Heading.of(path, run), benchmarks, shaped)


def find_storage(given: str | None, start: Path) -> Path:
    """The folder that `--benchmark-storage` or `--storage` names; without one, the nearest `.benchmarks` with runs in
    it, in `start` or above. Raises StorageNotFound, and InvalidSetting for a storage that isn't a folder.
    """
    if given is not None:
        return _given_storage(given)
    for folder in (start, *start.parents):
        if run_files(folder / FOLDER):
            return folder / FOLDER
    raise errors.StorageNotFound(
        f"no saved runs: looked for a {FOLDER} folder that holds some in {start} and the folders above it. "
        "Save one with pytest --benchmark-autosave, or name the folder with --storage."
    )


def _given_storage(given: str) -> Path:
    path = given.removeprefix("file://")
    if "://" in path:
        raise errors.InvalidSetting("--storage: expected a folder, as path or file://PATH; --history names a database")
    storage = parse_path(path)
    if why := refusal(storage):
        raise errors.InvalidSetting(f"the folder of saved runs {given!r} {why}")
    try:
        is_folder = storage.is_dir()
    except OSError as error:  # a name that is too long
        raise errors.InvalidSetting(f"the folder of saved runs {given!r}: {error}") from error
    if not is_folder:
        how = f"Save a run there with pytest --benchmark-storage {given}"
        raise errors.StorageNotFound(f"there is no folder {storage}. {how}")
    return storage


def run_files(storage: Path) -> list[Path]:
    """The files that runs may be in, sorted by machine, then by number. No file is opened.

    Raises UnreadableResults where the disk doesn't answer.
    """
    found = chain(storage.glob("*.json"), storage.glob("*/*.json"))
    try:
        files = (path for path in found if path.is_file() and path.parent != storage / UNSENT)
        return sorted(listed(files), key=_order)
    except TimeoutError as error:
        raise errors.UnreadableResults(f"{storage}: {error}") from error


def _order(path: Path) -> tuple[str, int, str]:
    numbered = NUMBERED.match(path.name)
    return path.parent.as_posix(), int(numbered[1]) if numbered else -1, path.name


def select_run(storage: Path | None, text: str, other_than: SavedAt | None = None) -> Path:
    """The file of the run that `text` names as RUN_HELP says. storage: None where only a file can be named.

    other_than: the run to compare with, which isn't what is meant by `latest`, a branch or a commit. Raises
    RunNotFound, AmbiguousRun, UnreadableResults where a newer file can't be read, and InvalidSetting for an empty name.
    """
    check_name(text)
    given = None if _is_number(text) else given_file(text)
    if given is not None:
        return given
    what = f"a folder without {RESULTS_FILE}" if _is_folder(text) else "no file"
    if storage is None:
        raise errors.RunNotFound(
            f"no run {text!r}: it is {what}{_runs_inside(text)}, and there is no {FOLDER} folder to look in for saved "
            "runs. Save one with pytest --benchmark-autosave, or name the folder with --storage"
        )
    files = run_files(storage)
    found = _find(files, text, other_than)
    if len(found) > 1:
        raise errors.AmbiguousRun(text, storage, [name_in(storage, path) for path in found])
    if found:
        return found[0]
    raise errors.RunNotFound(
        f"no run {text!r}: it is {what}{_runs_inside(text)}, and no number, name, branch or commit of the {len(files)} "
        f"runs in {storage}:\n{errors.indented([name_in(storage, path) for path in files])}"
    )


def check_name(text: str) -> None:
    """Raise InvalidSetting for what names no run. A URL may hold a password, so that no message repeats it."""
    if not text:
        raise errors.InvalidSetting("the name of a run can't be empty")
    if "://" in text:
        raise errors.InvalidSetting("a URL names no run: --history names a database, and URL#N its run N")


def list_runs(storage: Path, pass_over: PassOver) -> list[Heading]:
    """The headings of the runs that can be read, oldest first."""
    return oldest_first(headings(run_files(storage), pass_over))


def given_file(text: str) -> Path | None:
    """The file itself, or the results in the folder of a report; None where there is neither. Raises UnreadableResults
    where its disk doesn't answer."""
    try:
        path = parse_path(text)
        if why := refusal(path):
            raise errors.UnreadableResults(f"{path} {why}")
        return next((file for file in (path, path / RESULTS_FILE) if file.is_file()), None)
    except (OSError, errors.InvalidSetting):  # a name that is too long, or ~ of a user that there isn't
        return None


def _is_folder(text: str) -> bool:
    try:
        return parse_path(text).is_dir()
    except (OSError, errors.InvalidSetting):  # a name that is too long, or ~ of a user that there isn't
        return False


def _runs_inside(text: str) -> str:
    """The runs in the folder, to stand behind what the text is; empty where it is no folder, or has none."""
    files = run_files(parse_path(text))[:MOST_TRIED] if _is_folder(text) else []
    found = [encodable(str(one.place)) for one in headings(files, lambda _: None)]
    return f" (give one of: {', '.join(first_few(found))})" if found else ""


def _is_number(text: str) -> bool:
    """Whether the text can be nothing but a number: not the beginning of a commit's id."""
    return bool(re.fullmatch(r"\d+", text, re.ASCII)) and not COMMIT.fullmatch(text)


def _find(files: Sequence[Path], text: str, other_than: SavedAt | None) -> list[Path]:
    """The runs of that number or file; else those of that name, branch and commit; else those with it in their name."""
    if (of_number := _numbered(files, text)) is not None:
        return of_number
    if of_file := [path for path in files if text in (path.name, path.stem)]:
        return of_file
    named = [path for path in files if text == NUMBERED.sub("", path.stem, count=1)]
    found = [*named, *_newest(files, text, other_than)]
    return list(dict.fromkeys(found)) or _containing(files, text)


def _numbered(files: Iterable[Path], text: str) -> list[Path] | None:
    """The files of that number, which pytest-benchmark gives, with or without its zeros, of all machines or of one.

    None where the text is something else: `fix/42` with no machine called fix, or a commit's id of digits only.
    """
    wanted = NUMBER.fullmatch(text)
    of_machine = [path for path in files if wanted and wanted["machine"] in (None, path.parent.name)]
    if not wanted or (wanted["machine"] and not of_machine):
        return None
    numbers = ((path, NUMBERED.match(path.name)) for path in of_machine)
    found = [path for path, number in numbers if number and int(number[1]) == int(wanted["number"])]
    return None if not found and COMMIT.fullmatch(text) else found


def _newest(files: Iterable[Path], text: str, other_than: SavedAt | None) -> list[Path]:
    """The newest run of all, or of the branch, and that of each commit whose id begins so.

    Raises UnreadableResults where a newer file can't be read: it may be the one that is meant.
    """
    unreadable: list[Unreadable] = []
    not_meant = other_than.resolve() if isinstance(other_than, Path) else None
    runs = oldest_first(headings((path for path in files if path.resolve() != not_meant), unreadable.append))
    found = [_file(run) for run in runs if text in (LATEST, run.provenance.branch)][-1:]
    if COMMIT.fullmatch(text):
        of_commit = [run for run in runs if run.provenance.commit.lower().startswith(text.lower())]
        found += {run.provenance.commit: _file(run) for run in of_commit}.values()
    if found or text == LATEST:
        _refuse_newer(text, found, [one for one in unreadable if one.may_be_ours])
    return found


def _file(found: Heading | Unreadable) -> Path:
    return cast("Path", found.place)


def _refuse_newer(text: str, found: Sequence[Path], unreadable: Iterable[Unreadable]) -> None:
    newer = [one.reason for one in unreadable if not any(_is_older(_file(one), path) for path in found)]
    if newer:
        raise errors.UnreadableResults(
            f"can't tell which run is {text!r}: {'newer files' if len(newer) > 1 else 'a newer file'} can't be read:\n"
            f"{errors.indented(first_few(newer))}\nName a run by its file or number, or remove what is damaged."
        )


def _is_older(path: Path, run: Path) -> bool:
    """Whether a file was saved before a run, as far as files show it: by their numbers within a machine's folder."""
    first, second = _order(path), _order(run)
    if first[0] == second[0] and min(first[1], second[1]) >= 0:
        return first < second
    return path.stat().st_mtime < run.stat().st_mtime


def _containing(files: Sequence[Path], text: str) -> list[Path]:
    """The files with the text in their own name, or with what follows `MACHINE/` in it, of that machine. A few
    hexadecimal digits aren't sought: they stand in most names."""
    machine, _, part = text.rpartition("/")
    if not part or (HEXADECIMAL.fullmatch(part) and not COMMIT.fullmatch(part)):
        return []
    of_machine = [path for path in files if machine in ("", path.parent.name)]
    return [path for path in of_machine if part == path.name or part in _sought(path, part)]


def _sought(path: Path, part: str) -> str:
    """The file's name as far as the text is sought in it: hexadecimal digits aren't in what --benchmark-autosave made
    of the commit and the time."""
    return MADE_BY_AUTOSAVE.sub("", path.stem) if HEXADECIMAL.fullmatch(part) else path.stem


def name_in(storage: Path, path: Path) -> str:
    """MACHINE/FILE. Bytes of a file's name that are no text are replaced."""
    return encodable(path.relative_to(storage).as_posix())
