"""The one way to write a file for a user: whole or not at all, with the mode that it had, and nothing beside it.

A regular file is replaced in one step. To a device or a pipe is written, since to replace it would remove it.
"""

from __future__ import annotations

import errno
import math
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from llm_bench_fixtures.errors import LlmBenchError, NoRoom, UnwritableFile
from llm_bench_fixtures.reading import refusal

LEAST_FREE_BYTES = 20_000_000  # more than a report takes
OPEN_ALREADY = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/")  # names of files that somebody else has open
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
NO_ROOM_WORDS = re.compile(r"No space left on device|Disk quota exceeded|\(os error (?:28|122)\)", re.I)
PRIVATE, USUAL = 0o600, 0o666  # modes; of the second the umask takes its part


def write_whole(path: Path, text: str, *, follows: bool = True) -> None:
    """Write the file as `replacing` does, in UTF-8. Raises UnwritableFile."""
    with replacing(path, follows=follows) as scratch:
        scratch.write_bytes(text.encode(errors="replace"))  # the name of a file may be no text at all


def append_text(path: Path, text: str) -> None:
    """Add to the file, because others write to a CI step's summary too. Raises UnwritableFile."""
    with naming_unwritable(path):
        _is_stream(path)  # refuses a disk
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(text)


def write_or_keep(path: Path, text: str) -> tuple[Path, str]:
    """Write the file; where that can't be done, a new one in a folder for temporary files. Returns which was written,
    and why it is another one; "" where it isn't.

    Raises UnwritableFile where neither can be.
    """
    try:
        write_whole(path, text)
    except UnwritableFile as error:
        kept = new_folder() / path.name
        write_whole(kept, text)
        return kept, str(error)
    return path, ""


def new_folder() -> Path:
    """A new folder among the temporary ones, which nobody removes. Raises UnwritableFile."""
    with naming_unwritable(Path(tempfile.gettempprefix())):
        return Path(tempfile.mkdtemp(prefix="llm-bench-"))


@contextmanager
def replacing(path: Path, *, follows: bool = True) -> Iterator[Path]:
    """Yields the path of an empty file, whose content is that of `path` after the block.

    Where the block raises, `path` stays as it was. follows: where `path` is a link, write the file that it leads to;
    otherwise the link itself is replaced. Raises UnwritableFile.
    """
    with naming_unwritable(path):
        if follows and _is_stream(path):
            receiver = _poured_into(path)
        else:
            receiver = _moved_to(path.resolve() if follows and path.is_symlink() else path)
        with receiver as scratch:
            yield scratch


@contextmanager
def _poured_into(stream: Path) -> Iterator[Path]:
    """Yields a file of its own, whose content is written to the device or the pipe after the block."""
    from llm_bench_fixtures.processes.scratch import ScratchFolder

    with ScratchFolder("output") as folder:
        scratch = folder.path / "content"
        scratch.touch()
        yield scratch
        with scratch.open("rb") as content, stream.open("ab") as output:
            shutil.copyfileobj(content, output)


@contextmanager
def _moved_to(path: Path) -> Iterator[Path]:
    """Yields a file beside `path`, which takes its place after the block.

    Its name is random, so that no link that others made and no rest of an earlier file lies there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    before = _stat(path, follows=False)
    _check_may_be_replaced(path, before)
    scratch = path.with_name(f".llm-bench-{secrets.token_hex(8)}.part")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        os.close(os.open(scratch, flags, USUAL if before is None else PRIVATE))
        if before is not None and stat.S_ISREG(before.st_mode):
            _take_after(scratch, before)
        yield scratch
        scratch.replace(path)
    finally:
        with suppress(OSError):  # renamed, or never there
            scratch.unlink()


def _take_after(scratch: Path, before: os.stat_result) -> None:
    """Give the file the owner, as far as may be, and the mode of the one that it will replace."""
    if hasattr(os, "chown") and (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
        with suppress(PermissionError):
            os.chown(scratch, before.st_uid, before.st_gid)
    scratch.chmod(stat.S_IMODE(before.st_mode))


def _check_may_be_replaced(path: Path, found: os.stat_result | None) -> None:
    """Raises OSError for a folder, and for a file that is protected from writing."""
    if found is not None and stat.S_ISDIR(found.st_mode):
        raise _error(errno.EISDIR)
    if found is not None and stat.S_ISREG(found.st_mode) and not os.access(path, os.W_OK):
        raise _error(errno.EACCES)


def check_writable(*paths: Path | None) -> None:
    """Raise UnwritableFile where a file of one of the paths can't be written, as far as that is known without writing
    it. None: a file that nobody asked for."""
    for path in filter(None, paths):
        with naming_unwritable(path):
            _check_answers(path.parent)
            if not _is_stream(path):
                target = path.resolve()
                _check_may_be_replaced(target, _stat(target))
                check_folder(target.parent)
            elif not os.access(path, os.W_OK):
                raise _error(errno.EACCES)


def check_folder(folder: Path) -> None:
    """Raise UnwritableFile unless files can be made in the folder, or in the nearest one above it that exists."""
    with naming_unwritable(folder):
        _check_answers(folder)
        there = next(one for one in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(one))
        if not there.is_dir():
            raise OSError(errno.ENOTDIR, f"{there} is no folder")
        if not os.access(there, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, f"nothing can be written in {there}")
        free = shutil.disk_usage(there).free
        if free < LEAST_FREE_BYTES:
            least = f"less than {LEAST_FREE_BYTES / 1e6:.0f}"
            raise OSError(errno.ENOSPC, f"{there} has {free / 1e6:.0f} MB left, {least}")


def _check_answers(folder: Path) -> None:
    """Raises OSError for a folder on a disk that doesn't answer."""
    if why := refusal(folder):
        raise OSError(errno.EIO, f"{folder} {why}")


def full_folder(error: BaseException, folders: Sequence[Path]) -> Path | None:
    """Which of the folders has no room, where the error says that one has none, in whatever library's words: the one of
    the file that it names, else the one with the least room. None for another error."""
    number = getattr(error, "errno", None)
    if number not in NO_ROOM and not NO_ROOM_WORDS.search(str(error)):
        return None
    below = next((folder for folder in folders if is_of_file_in(error, folder)), None)
    return below or min(folders, key=_free_bytes)


def is_of_file_in(error: BaseException, folder: Path) -> bool:
    """Whether the error names a file in the folder, at whatever depth, or the folder itself."""
    named = getattr(error, "filename", None)
    return isinstance(named, (str, bytes, os.PathLike)) and Path(os.fsdecode(named)).is_relative_to(folder)


def _free_bytes(folder: Path) -> float:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return math.inf


@contextmanager
def naming_full_disks(cache: Path) -> Iterator[None]:
    """Raise NoRoom, which names the folder, for each library's way to say that a disk is full."""
    try:
        yield
    except LlmBenchError:
        raise
    except Exception as error:  # a library in Rust or C++ has errors of its own
        temporary = Path(tempfile.gettempdir())
        folder = full_folder(error, (cache, temporary))
        if folder is None:
            raise
        option = "--llm-cache-dir" if folder == cache else "the variable TMPDIR"
        raise NoRoom(f"there is no room left in {folder}: make some, or name another folder with {option}") from error


@contextmanager
def naming_unwritable(path: Path) -> Iterator[None]:
    """Raise UnwritableFile, which names the path and says why it can't be written, for what the system refuses."""
    try:
        yield
    except UnwritableFile:
        raise
    except OSError as error:
        raise UnwritableFile(f"{path} can't be written: {error.strerror or error}") from error


def _is_stream(path: Path) -> bool:
    """Whether to write to what lies there: a device or a pipe, or a file that is open already.

    Raises UnwritableFile for a disk and for a socket.
    """
    found = _stat(path)
    if found is None or stat.S_ISDIR(found.st_mode):
        return False
    if stat.S_ISBLK(found.st_mode) or stat.S_ISSOCK(found.st_mode):
        raise UnwritableFile(f"{path} can't be written: it is a {'disk' if stat.S_ISBLK(found.st_mode) else 'socket'}")
    return not stat.S_ISREG(found.st_mode) or str(path.absolute()).startswith(OPEN_ALREADY)


def _stat(path: Path, *, follows: bool = True) -> os.stat_result | None:
    """None where there is nothing, or a link to nothing."""
    try:
        return path.stat(follow_symlinks=follows)
    except FileNotFoundError:
        return None


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


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


def save_or_keep(path: Path, text: str, failed: Callable[[str], object]) -> Path | None:
    """Write the file; returns where it is, None where it could be written nowhere.

    failed: called with what was not written where it should be, and where it is instead.
    """
    kept: Path | None = None
    try:
        kept, reason = write_or_keep(path, text)
    except UnwritableFile as error:
        failed(f"this run was not saved: {error}")
    else:
        if not reason:
            return kept
        failed(f"{reason}; this run was saved in {kept} instead")
    with suppress(OSError):
        if path.is_file() and not path.stat().st_size:  # reserved
            path.unlink()
    return kept
