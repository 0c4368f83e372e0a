"""Which files from elsewhere are read."""

from __future__ import annotations

import glob
import os
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from llm_bench_fixtures.cli.cache import run
from llm_bench_fixtures.errors import LlmBenchError
from llm_bench_fixtures.history.storage import find_storage, select_run
from llm_bench_fixtures.models.files import check_files
from llm_bench_fixtures.models.source import local_folder
from llm_bench_fixtures.plugin.hooks import refuse_unreadable_storage
from llm_bench_fixtures.reading import listed, refusal
from llm_bench_fixtures.workloads import read_corpus
from llm_bench_fixtures.writing import check_folder, check_writable

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="has no such folders")


def test_files_and_links_to_them_are_read(tmp_path: Path) -> None:
    """As the hub's cache, DVC and git-annex have them."""
    (tmp_path / "blob").write_text("content")
    (tmp_path / "link").symlink_to("blob")
    (tmp_path / "link to a link").symlink_to(tmp_path / "link")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "itself").symlink_to("itself")
    assert [refusal(path) for path in (tmp_path, *tmp_path.iterdir())] == [""] * 6


@LINUX
@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("/proc/version", "is a link into /proc"),
        ("/sys/kernel/mm/transparent_hugepage/enabled", "is a link into /sys"),
        ("/dev/zero", "is a pipe, a device or a socket"),
    ],
)
def test_what_the_kernel_writes_is_not_read(target: str, why: str, tmp_path: Path) -> None:
    """Bug: /proc/kmsg, which never ends, is a regular file by its status."""
    if not Path(target).exists():
        pytest.skip(f"there is no {target}")
    (tmp_path / "config.json").symlink_to(target)
    assert refusal(tmp_path / "config.json") == why


@LINUX
def test_a_disk_in_memory_holds_files_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llm_bench_fixtures.reading.KERNELS", (str(tmp_path),))
    (tmp_path / "shm").mkdir()
    for path in (tmp_path / "file", tmp_path / "shm" / "file"):
        path.write_text("content")
    monkeypatch.setattr("llm_bench_fixtures.reading.IN_MEMORY", str(tmp_path / "shm"))
    assert refusal(tmp_path / "file") == f"is a link into {tmp_path}"
    assert refusal(tmp_path / "shm" / "file") == ""


def test_a_disk_that_does_not_answer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: pytest, and every command of llm-bench, waited for ever for a network's disk that was gone."""
    is_over = threading.Event()
    monkeypatch.setattr("llm_bench_fixtures.reading.WAIT_BUDGET_S", 0.25)
    monkeypatch.setattr("llm_bench_fixtures.reading.os.path.realpath", lambda path: is_over.wait() and str(path))
    try:
        (tmp_path / "file").touch()
        assert refusal(tmp_path / "file") == "gives nothing in 0.25 s: the disk that it is on doesn't answer"
    finally:
        is_over.set()


@pytest.fixture
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on a disk that doesn't answer: its status is remembered, and what is in it isn't."""
    folder, is_over = tmp_path / "silent", threading.Event()
    (folder / ".benchmarks").mkdir(parents=True)
    monkeypatch.setattr("llm_bench_fixtures.reading.WAIT_BUDGET_S", 0.25)

    def scandir(_: object) -> object:
        return is_over.wait() and nullcontext(iter(()))

    monkeypatch.setattr("llm_bench_fixtures.reading.os.scandir", scandir)
    if "scandir" in vars(getattr(glob, "_StringGlobber", object)):  # Python 3.13 keeps one of its own
        monkeypatch.setattr("glob._StringGlobber.scandir", staticmethod(scandir))
    yield folder
    is_over.set()


@pytest.mark.parametrize(
    "ask",
    [
        lambda folder: find_storage(str(folder), folder),
        lambda folder: find_storage(None, folder),
        lambda folder: select_run(None, str(folder)),
        lambda folder: local_folder(str(folder)),
        lambda folder: check_files(folder),
        lambda folder: read_corpus(folder),
        lambda folder: run(Namespace(cache_dir=folder, older_than=0, prune=False)),
        lambda folder: check_folder(folder),
        lambda folder: check_writable(folder / "report.md"),
    ],
    ids=["storage", "found storage", "report", "model", "files of a model", "corpus", "cache", "output", "new file"],
)
def test_a_folder_that_does_not_answer_is_not_waited_for(ask: Callable[[Path], object], silent: Path) -> None:
    """Bug: time was limited for each file, but a folder was listed first."""
    with pytest.raises(LlmBenchError, match=r"gives nothing in 0.25 s: the disk that it is on doesn't answer"):
        ask(silent)


def test_a_storage_that_does_not_answer_ends_pytest_at_once(silent: Path) -> None:
    """Bug: pytest-benchmark waited for it for ever while it was configured."""
    with pytest.raises(pytest.UsageError, match=r"--benchmark-storage: .*silent gives nothing in 0.25 s: the disk"):
        refuse_unreadable_storage(str(silent))


def test_a_listing_goes_on_while_it_gives_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk with many files takes longer than one that is gone is waited for."""
    monkeypatch.setattr("llm_bench_fixtures.reading.WAIT_BUDGET_S", 1.0)
    never = threading.Event()
    paths = [Path(str(number)) for number in range(4)]
    assert listed(path for path in paths if not never.wait(0.3)) == paths


def test_a_file_of_holes_is_not_read(tmp_path: Path) -> None:
    """Bug: 8 TB that take no room were read to their end."""
    path = tmp_path / "model.safetensors"
    path.touch()
    os.truncate(path, 8 * 10**12)
    assert refusal(path) == "has 8,000 GB, of which 0.0 GB are on the disk"
