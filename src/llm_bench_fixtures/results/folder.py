"""The folder of a report: one that this package made or found empty, in which only files by these names are its own."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from llm_bench_fixtures.errors import DamagedResults, UnreadableResults, UnwritableFile
from llm_bench_fixtures.options.table import OPTIONS
from llm_bench_fixtures.results.record import RecordHead, Run
from llm_bench_fixtures.results.storage import RESULTS_FILE, decode, is_results, read_bytes
from llm_bench_fixtures.text import harmless_text
from llm_bench_fixtures.writing import check_folder, naming_unwritable, write_whole

TABLE_FILE = "results.csv"
AGREEMENT_FILE = "runs.json"
MARKDOWN_FILE = "report.md"
LATEX_FILE = "results.tex"
PAGE_FILE = "report.html"
PLOTS = "plots"
# Names in PLOTS, without the ending; those too that this version may not draw, but another one may have drawn.
PICTURES = ("tradeoff", "memory", "phases", "roofline", "precision", "quantization", "batch", "prompt_length")
ENDINGS = (".png", ".svg")
ERRORS = "errors"  # the folder of whole tracebacks
TRACEBACK = re.compile(r"[0-9a-f]{8}\.txt")  # named by its content: unique to what it holds
MOST_TRACEBACKS = 30  # tracebacks that a run keeps
EARLIER = "earlier"  # the folder in which the report before waits until a new one is whole
OWN_FILES = (
    *(RESULTS_FILE, AGREEMENT_FILE, TABLE_FILE, MARKDOWN_FILE, LATEX_FILE, PAGE_FILE),
    *(f"{PLOTS}/{name}{ending}" for name in PICTURES for ending in ENDINGS),
)  # and tracebacks
FOLDERS = (PLOTS, ERRORS)
MARKER = ".llm-bench-report"
LOCK = ".llm-bench-report.lock"
IGNORE = ".gitignore"  # a report makes nobody's working tree dirty
MARK = "llm-bench-fixtures writes its reports into this folder, and replaces the report that is in it.\n"
# What may lie in a folder that counts as empty: notes to programs, and the rests of files whose writing was killed.
OF_NO_ACCOUNT = re.compile(r"\.gitignore|\.gitkeep|\.DS_Store|\..+\.part|\.llm-bench-report\.lock")


def folder_name(path: Path) -> str:
    """What people call the folder that a results.json is in: its name, with that of the one around it where it is the
    usual one, of which there are many."""
    folder = path.absolute().parent
    return f"{folder.parent.name}/{folder.name}" if folder.name == OPTIONS["report"].default else folder.name


def tracebacks_in(folder: Path) -> tuple[str, ...]:
    """Names of the tracebacks that lie in a report's folder, within that folder."""
    return tuple(f"{ERRORS}/{path.name}" for path in folder.glob(f"{ERRORS}/*.txt") if TRACEBACK.fullmatch(path.name))


def _report_in(folder: Path) -> list[str]:
    """Names of the report's files that lie in the folder."""
    return [name for name in (*OWN_FILES, *tracebacks_in(folder)) if (folder / name).is_file()]


def _move(names: Iterable[str], source: Path, target: Path) -> None:
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).replace(target / name)


def claim(folder: Path) -> bool:
    """Make the folder, or take one that is ours or empty, and mark it. Returns whether it was made.

    A new mark comes with a .gitignore, which may be changed or removed: it isn't written again. A folder
    that was written before there were marks holds nothing but a report. Raises UnwritableFile where the folder
    can't be written to, or holds what isn't ours.
    """
    check_folder(folder)
    with naming_unwritable(folder):
        is_new = not folder.exists()
        _check_is_ours(folder)
        if not ((folder / MARKER).exists() or (folder / IGNORE).exists()):
            write_whole(folder / IGNORE, "*\n", follows=False)
        write_whole(folder / MARKER, MARK, follows=False)
        return is_new


def release(folder: Path) -> None:
    """Remove the folder again, which we made, if there is nothing in it but what `claim` and `held` wrote."""
    with suppress(OSError):
        if {path.name for path in folder.iterdir()} <= {MARKER, LOCK, IGNORE}:
            for name in (LOCK, IGNORE, MARKER):
                (folder / name).unlink(missing_ok=True)
            folder.rmdir()


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep others from writing a report into the claimed folder within. Raises UnwritableFile where somebody does."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise UnwritableFile(
            f"{folder} can't be written to: another run is making its report there. Name another folder, or wait for it"
        ) from error
    except (OSError, NotImplementedError):  # a file system without locks
        pass
    try:
        yield
    finally:
        if lock.is_locked:
            with suppress(OSError):  # the folder is gone
                (folder / LOCK).unlink()
            lock.release()


# How much was measured by the run that a report is of: one that has less never pushes out one that has more. Of a part
# it is the number of measured records, which may be 0.
NOTHING, WHOLE = -1.0, math.inf


def worth_of(run: Run[RecordHead]) -> float:
    """What a run measured: a part, where it was interrupted or has neither records nor loads; nothing, where all of its
    tests failed or were skipped."""
    has_figures = run.measured() or run.loads or any(variant.equivalence for variant in run.variants)
    if not has_figures and (run.records or run.interrupted):
        return NOTHING
    is_part = run.interrupted or not (run.records or run.loads)
    return len(run.measured()) if is_part else WHOLE


def set_aside(folder: Path, *, but: Container[str] = ()) -> bool:
    """Move the report that is in the claimed folder into one for earlier ones, so that nobody takes it for the report
    of a run that is beginning, however that ends. It is removed where the report there is worth more.

    but: files that stay. Returns whether a report was moved, which is then the only one there. Raises UnwritableFile.
    """
    with naming_unwritable(folder):
        found = [name for name in _report_in(folder) if name not in but]
        if found and (NOTHING if RESULTS_FILE in but else worth_in(folder)) < worth_in(folder / EARLIER):
            _remove(folder, found)
            return False
        if found:
            _remove(folder / EARLIER)
            _move(found, folder, folder / EARLIER)
        return bool(found)


@contextmanager
def begun(folder: Path, *, has_results: bool) -> Iterator[None]:
    """Claim the folder, set the report aside that is in it, and keep others out of it within. Ctrl-C there puts that
    report back. has_results: its results.json is one that was read, and stays. Raises UnwritableFile."""
    claim(folder)
    with held(folder):
        stays = (RESULTS_FILE, *tracebacks_in(folder)) if has_results else ()
        was_moved = set_aside(folder, but=stays)
        try:
            yield
        except KeyboardInterrupt:
            if was_moved:
                _remove(folder, [name for name in _report_in(folder) if name not in stays])
                put_back(folder)
            raise


def put_back(folder: Path) -> bool:
    """Undo `set_aside`, where no whole report was written. Returns whether there was anything to put back."""
    earlier = folder / EARLIER
    names = _report_in(earlier)
    with suppress(OSError):
        _move(names, earlier, folder)
        _remove(earlier)
    return bool(names)


def worth_in(folder: Path) -> float:
    """The worth of the report in the folder; nothing where its results are missing or cut off. Results that this
    version refuses, as too large or of another shape, count as a whole run's."""
    path = folder / RESULTS_FILE
    if not path.is_file():
        return NOTHING
    try:
        data = read_bytes(path)
    except UnreadableResults:
        return WHOLE
    try:
        return worth_of(decode(data, Run[RecordHead], path))
    except DamagedResults:
        return WHOLE if is_results(path) else NOTHING
    except UnreadableResults:
        return NOTHING


class Tracebacks:
    """Keeps whole tracebacks among the files of a report that is being made."""

    def __init__(self, folder: Path | None) -> None:
        """folder: the claimed one of the report; None where no report is written."""
        self._folder = folder
        self._kept: dict[str, Path] = {}

    def keep(self, traceback: str) -> str:
        """Write it, once; returns where it is, as the end of a sentence, and nothing where it couldn't be kept."""
        if self._folder is None or not self._folder.is_dir():
            return ""
        if traceback not in self._kept and len(self._kept) < MOST_TRACEBACKS:
            text = harmless_text(traceback) + "\n"
            digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:8]
            path = self._folder / ERRORS / f"{digest}.txt"
            with suppress(UnwritableFile):
                write_whole(path, text, follows=False)
                self._kept[traceback] = path
        path_of_it = self._kept.get(traceback)
        return f" (traceback: {path_of_it})" if path_of_it else ""


def remove_pictures(plots: Path) -> None:
    """Remove our pictures from the folder of plots, and no others."""
    for name in PICTURES:
        for ending in ENDINGS:
            (plots / f"{name}{ending}").unlink(missing_ok=True)


def forget_earlier(folder: Path, worth: float = WHOLE) -> bool:
    """Remove the report that was set aside, unless it is worth more. Returns whether it is."""
    stays = worth < worth_in(folder / EARLIER)
    if not stays:
        with suppress(OSError):
            _remove(folder / EARLIER)
    return stays


def _check_is_ours(folder: Path) -> None:
    """Raise UnwritableFile for what isn't ours, and for links where our files are to be."""
    if not folder.exists():
        return
    folders = (*FOLDERS, EARLIER, *(f"{EARLIER}/{name}" for name in FOLDERS))
    own_files = (*OWN_FILES, *tracebacks_in(folder))
    for name in (MARKER, LOCK, *folders, *own_files):
        _check_kind(folder / name, is_folder=name in folders)
    content = () if (folder / MARKER).exists() else tuple(_content(folder))
    foreign = [name for name in content if name not in (*own_files, *FOLDERS)]
    # a version that set no marks left a report: results of ours, and nothing but files by our names
    if foreign or (content and not is_results(folder / RESULTS_FILE)):
        raise UnwritableFile(
            f"{folder} can't be written to: it holds {(foreign or content)[0]}, which is no report's. Name a new or an "
            f"empty folder, or put an empty file {MARKER} into this one, so that a report's files may be replaced in it"
        )


def _check_kind(path: Path, *, is_folder: bool) -> None:
    """Raise UnwritableFile unless nothing lies there yet, or what is expected."""
    if path.is_symlink() or (path.exists() and (not path.is_dir() if is_folder else not path.is_file())):
        expected = "folder" if is_folder else "file"
        raise UnwritableFile(f"{path} can't be written: it is {'a link' if path.is_symlink() else f'no {expected}'}")


def _content(folder: Path) -> Iterator[str]:
    """Names of the files in the folder and in its own subfolders, relative to it."""
    found = sorted(path.name for path in folder.iterdir())
    for inner in filter(found.__contains__, FOLDERS):
        found += [f"{inner}/{path.name}" for path in (folder / inner).iterdir()]
    return (name for name in found if not OF_NO_ACCOUNT.fullmatch(name))


def _remove(folder: Path, names: Iterable[str] | None = None) -> None:
    """Remove files of a report, by default all; the folder, too, unless there is more in it."""
    for name in (*OWN_FILES, *tracebacks_in(folder)) if names is None else names:
        (folder / name).unlink(missing_ok=True)
    for emptied in (*(folder / name for name in FOLDERS), folder):
        with suppress(OSError):
            emptied.rmdir()
