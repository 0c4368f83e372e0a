"""Files are written whole, keep their modes, and nothing that is no file is replaced by one."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from llm_bench_fixtures import writing
from llm_bench_fixtures.errors import NoRoom, UnwritableFile
from llm_bench_fixtures.writing import (
    append_text,
    check_writable,
    naming_full_disks,
    replacing,
    write_or_keep,
    write_whole,
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("wanted", [0o600, 0o640, 0o755])
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path: Path, wanted: int) -> None:
    path = tmp_path / "file"
    path.write_text("before", encoding="utf-8")
    path.chmod(wanted)
    write_whole(path, "after")
    assert (path.read_text(encoding="utf-8"), mode(path)) == ("after", wanted)


def test_a_new_file_has_the_mode_that_the_umask_gives(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    write_whole(tmp_path / "new" / "file", "text")
    assert mode(tmp_path / "new" / "file") == mode(tmp_path / "usual")


def write_half(path: Path) -> None:
    with replacing(path) as scratch:
        scratch.write_text("half", encoding="utf-8")
        raise ZeroDivisionError


def test_where_writing_fails_the_file_stays_as_it_was_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before", encoding="utf-8")
    with pytest.raises(ZeroDivisionError):
        write_half(path)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    assert path.read_text(encoding="utf-8") == "before"


@pytest.mark.parametrize("follows", [True, False])
def test_a_link_is_followed_or_replaced_as_asked(tmp_path: Path, follows: bool) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("before", encoding="utf-8")
    link.symlink_to(target)
    write_whole(link, "after", follows=follows)
    assert link.read_text(encoding="utf-8") == "after"
    assert link.is_symlink() is follows
    assert target.read_text(encoding="utf-8") == ("after" if follows else "before")


def test_a_link_to_nothing_makes_what_it_leads_to(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "new" / "target")
    write_whole(link, "text")
    assert link.is_symlink()
    assert (tmp_path / "new" / "target").read_text(encoding="utf-8") == "text"


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text(encoding="utf-8")))
    reader.start()
    write_whole(pipe, "text")
    reader.join()
    assert read == ["text"]
    assert pipe.is_fifo()


def test_a_device_is_written_to() -> None:
    """A terminal of our own, so that the machine's devices are left alone."""
    ours, theirs = os.openpty()
    path = Path(os.ttyname(theirs))
    write_whole(path, "text")
    assert os.read(ours, 10) == b"text"
    assert path.is_char_device()
    os.close(ours)
    os.close(theirs)


def test_text_is_added_to_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "new" / "summary.md"
    append_text(path, "one\n")
    append_text(path, "two\n")
    assert path.read_text(encoding="utf-8") == "one\ntwo\n"


@pytest.mark.parametrize("write", [append_text, write_whole, lambda path, _: check_writable(path)])
def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, write: object) -> None:
    """A folder, and a place below a file."""
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "below"):
        with pytest.raises(UnwritableFile, match=f"{path} can't be written"):
            write(path, "text")  # type: ignore[operator]


def test_what_can_be_written_passes_the_check_and_leaves_no_trace(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_known_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000_000))
    with pytest.raises(UnwritableFile, match="has 1 MB left"):
        check_writable(tmp_path / "file")


def test_a_folder_that_takes_no_file_is_known_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing.os, "access", lambda *_: False)
    with pytest.raises(UnwritableFile, match=f"nothing can be written in {tmp_path}"):
        check_writable(tmp_path / "file")


def test_what_has_no_place_is_kept_in_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "file").touch()
    kept, reason = write_or_keep(tmp_path / "file" / "result.json", "text")
    assert reason.startswith(f"{tmp_path / 'file' / 'result.json'} can't be written: ")
    assert (kept.name, kept.read_text(encoding="utf-8")) == ("result.json", "text")
    assert kept.parent.parent == tmp_path


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, "No space left on device", Path("/of/the/cache/file")), "/of/the/cache"),
        (OSError(errno.EDQUOT, "Disk quota exceeded", "/temporary/file"), "/temporary"),
        (OSError(errno.ENOSPC, "No space left on device", "/of/the/cache-2/file"), "/temporary"),  # of neither
        (OSError(errno.ENOSPC, "No space left on device"), "/temporary"),  # which has the least room
        (Exception("No space left on device (os error 28)"), "/temporary"),  # as libraries in Rust say it
        (OSError(errno.ENOENT, "No such file", "/temporary/file"), None),
        (ValueError("28"), None),
    ],
)
def test_the_folder_that_is_full_is_named(error: Exception, full: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: the cache was blamed for a full folder of temporary files, and for one whose name only begins like its own;
    a tokenizer's own words were shown raw."""
    monkeypatch.setattr(writing, "_free_bytes", {Path("/of/the/cache"): 10**9, Path("/temporary"): 0}.__getitem__)
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/temporary")
    how = {"/temporary": "TMPDIR", "/of/the/cache": "--llm-cache-dir"}
    expected = rf"^there is no room left in {full}: .* with .*{how[full]}" if full else "."
    with pytest.raises(NoRoom if full else type(error), match=expected), naming_full_disks(Path("/of/the/cache")):
        raise error
