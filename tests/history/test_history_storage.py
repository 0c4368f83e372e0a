"""The folder of saved runs, and how one of them is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from run_factory import make_provenance, make_record, make_run
from saved_factory import store

from llm_bench_fixtures.errors import AmbiguousRun, InvalidSetting, RunNotFound, StorageNotFound, UnreadableResults
from llm_bench_fixtures.history.storage import find_storage, list_runs, run_files, select_run
from llm_bench_fixtures.results.storage import write_run

FIRST = "a" * 40
SECOND = "abc" + "d" * 37


def keep(folder: Path, name: str, day: int, **provenance: object) -> Path:
    """A complete run that started on that day of January."""
    where = make_provenance(started=f"2026-01-{day:02}T00:00:00+00:00", **provenance)
    return store(make_run([make_record()], provenance=where), folder / name)


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """Two machines; the numbers of the second began anew, and its last run is the oldest of all."""
    folder = tmp_path / ".benchmarks"
    keep(folder, "laptop/0001_before.json", 2, commit=FIRST, branch="main")
    keep(folder, "laptop/0002_before.json", 3, commit=FIRST, branch="main")
    keep(folder, "laptop/0010_after.json", 4, commit=SECOND, branch="topic/faster")
    keep(folder, "server/0001_there.json", 5, commit=SECOND, branch="main")
    keep(folder, "server/0002_old.json", 1, commit="0123456", branch="old")
    return folder


def test_the_nearest_storage_with_runs_is_found_from_below(storage: Path) -> None:
    """pytest-benchmark leaves an empty folder wherever pytest ran."""
    below = storage.parent / "benchmarks" / "deep"
    (below / ".benchmarks" / "laptop").mkdir(parents=True)
    assert find_storage(None, below) == storage


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_storage_can_be_named_as_pytest_benchmark_names_it(storage: Path, form: str) -> None:
    assert find_storage(form.format(storage), Path("/")) == storage


def test_without_runs_anywhere_it_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(StorageNotFound, match=rf"looked for a .benchmarks folder .* {tmp_path} and the folders above"):
        find_storage(None, tmp_path)


def test_a_storage_that_is_not_there_or_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageNotFound, match="there is no folder"):
        find_storage(str(tmp_path / "nowhere"), tmp_path)
    with pytest.raises(InvalidSetting, match="expected a folder"):
        find_storage("elasticsearch+http://host/index", tmp_path)


def test_files_are_in_order_of_their_numbers(storage: Path) -> None:
    """Also where there are more than pytest-benchmark's four digits foresee."""
    (storage / "laptop" / "10000_later.json").touch()
    (storage / "laptop" / "by-hand.json").touch()
    (storage / "laptop" / "0003_folder.json").mkdir()
    (storage / "laptop" / "note.txt").touch()
    assert [path.name for path in run_files(storage) if path.parent.name == "laptop"] == [
        "by-hand.json",
        "0001_before.json",
        "0002_before.json",
        "0010_after.json",
        "10000_later.json",
    ]


def test_what_would_block_a_reader_is_no_run(storage: Path) -> None:
    os.mkfifo(storage / "laptop" / "0011_pipe.json")
    assert "0011_pipe.json" not in [path.name for path in run_files(storage)]


def test_runs_are_in_order_of_their_time_not_of_their_numbers(storage: Path) -> None:
    names = [run.place.name for run in list_runs(storage, pytest.fail)]
    assert names == ["0002_old.json", "0001_before.json", "0002_before.json", "0010_after.json", "0001_there.json"]


@pytest.mark.parametrize("started", ["", "yesterday", "2026-13-01", "0001-01-01T00:00:00+23:59", "\x1b[2J"])
def test_a_run_with_no_time_is_before_all_others(storage: Path, started: str) -> None:
    provenance = make_provenance(started=started)
    store(make_run([make_record()], provenance=provenance), storage / "laptop" / "9999_timeless.json")
    assert list_runs(storage, pytest.fail)[0].place.name == "9999_timeless.json"


def test_times_with_and_without_a_zone_can_be_ordered(storage: Path) -> None:
    """In UTC where none is said: noon without one is after 11:00 in UTC, and before noon an hour to the west."""
    for name, started in (
        ("a", "2026-02-01T12:00:00-01:00"),
        ("b", "2026-02-01T12:00:00"),
        ("c", "2026-02-01T11:00:00Z"),
    ):
        store(make_run([make_record()], provenance=make_provenance(started=started)), storage / f"{name}.json")
    assert [Path(str(run.place)).stem for run in list_runs(storage, pytest.fail)][-3:] == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("10", "0010_after"),
        ("0010", "0010_after"),
        ("after", "0010_after"),
        ("0001_there", "0001_there"),
        ("0001_there.json", "0001_there"),
        ("server/0001", "0001_there"),
        ("ther", "0001_there"),
        ("latest", "0001_there"),
        ("main", "0001_there"),
        ("topic/faster", "0010_after"),
        ("old", "0002_old"),
        ("aaaaaaa", "0002_before"),
        (FIRST, "0002_before"),
        ("ABCDDDD", "0001_there"),
        ("laptop/1", "0001_before"),
        ("0123456", "0002_old"),
        ("server/0001_there.json", "0001_there"),
        ("server/ther", "0001_there"),
    ],
)
def test_a_run_is_found_by(storage: Path, text: str, name: str) -> None:
    assert select_run(storage, text).stem == name


@pytest.mark.parametrize("text", ["1", "0001", "before", "0001_", "laptop/befor"])
def test_a_name_of_several_is_refused_and_they_are_listed(storage: Path, text: str) -> None:
    with pytest.raises(AmbiguousRun) as caught:
        select_run(storage, text)
    assert "laptop/0001_before.json" in str(caught.value)
    assert "0002_old" not in str(caught.value)


def test_a_beginning_of_two_commits_is_refused(storage: Path) -> None:
    keep(storage, "server/0003_x.json", 6, commit="abcdddd" + "f" * 33)
    with pytest.raises(AmbiguousRun) as caught:
        select_run(storage, "abcdddd")
    assert all(name in str(caught.value) for name in ("server/0001_there", "server/0003_x"))
    assert select_run(storage, "abcddddf").stem == "0003_x"


def test_a_name_that_is_another_runs_branch_is_refused(storage: Path) -> None:
    keep(storage, "server/0003_main.json", 1, branch="topic")
    with pytest.raises(AmbiguousRun) as caught:
        select_run(storage, "main")
    assert all(name in str(caught.value) for name in ("server/0001_there", "server/0003_main"))


AUTOSAVED = f"laptop/0011_{'38abcde' + '0' * 33}_20260102_030405.json"


@pytest.mark.parametrize(
    "text", ["38", "3", "20260102", "38abc", "laptop/3", "laptop/38", "server/10", "abcde", "9" * 5000]
)
def test_a_number_or_a_few_digits_name_no_run_in_whose_file_they_stand(storage: Path, text: str) -> None:
    """Bug: 38 named run 0001, in whose commit's id it stands, and `bless 38` blessed it."""
    keep(storage, AUTOSAVED, 6, commit="38abcde" + "0" * 33)
    with pytest.raises(RunNotFound):
        select_run(storage, text)
    assert select_run(storage, "38abcde").name == AUTOSAVED.partition("/")[2]


def test_a_branch_may_look_like_a_machine_and_a_number(storage: Path) -> None:
    keep(storage, "server/0003_x.json", 6, branch="fix/42")
    assert select_run(storage, "fix/42").stem == "0003_x"


def test_a_number_is_no_folder(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (storage.parent / "10").mkdir()
    write_run(make_run([make_record()]), storage.parent / "10" / "results.json")
    monkeypatch.chdir(storage.parent)
    assert select_run(storage, "10").stem == "0010_after"
    assert select_run(storage, "./10") == Path("10/results.json")


@pytest.mark.parametrize("text", ["~nosuchuser/run.json", "x" * 5000, "a\0b"])
def test_a_name_that_the_system_refuses_is_not_found(storage: Path, text: str) -> None:
    with pytest.raises(RunNotFound):
        select_run(storage, text)


@pytest.mark.parametrize("text", ["64b", "b", "on", "bit", "3.11", "json", "Linux-CPython-3.11-64bit", "/", "be"])
def test_neither_a_machine_nor_an_ending_nor_a_few_digits_name_a_run(tmp_path: Path, text: str) -> None:
    """Bug: with one run of a machine stored, `bless 64b` blessed it, in whose folder's name that stands."""
    keep(tmp_path, "Linux-CPython-3.11-64bit/0001_cafebee.json", 1)
    with pytest.raises(RunNotFound):
        select_run(tmp_path, text)


@pytest.mark.parametrize("text", ["99", "nothing", "aaa ", "abc ", "aaaa"])
def test_what_is_not_there_is_refused_and_what_is_there_listed(storage: Path, text: str) -> None:
    with pytest.raises(RunNotFound) as caught:
        select_run(storage, text)
    assert repr(text) in str(caught.value)
    assert "5 runs" in str(caught.value)
    assert "server/0001_there.json" in str(caught.value)


def test_of_many_the_last_are_listed(storage: Path) -> None:
    for number in range(20):
        (storage / "server" / f"{number + 100:04}_x.json").touch()
    with pytest.raises(RunNotFound) as caught:
        select_run(storage, "nothing")
    assert "0119_x" in str(caught.value)
    assert "0100_x" not in str(caught.value)
    assert "(13 others)" in str(caught.value)


def test_a_file_or_a_report_is_named_by_its_path(storage: Path, tmp_path: Path) -> None:
    """Also where there is no storage."""
    report = tmp_path / "report"
    report.mkdir()
    write_run(make_run([make_record()]), report / "results.json")
    stored = storage / "laptop" / "0001_before.json"
    for given, path in ((report, report / "results.json"), (report / "results.json", None), (stored, None)):
        assert select_run(None, str(given)) == (path or given)
    with pytest.raises(RunNotFound, match="folder to look in for saved runs"):
        select_run(None, "3")


def test_an_empty_name_is_no_name(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(storage)
    with pytest.raises(InvalidSetting, match="can't be empty"):
        select_run(storage, "")


@pytest.mark.parametrize("text", ["latest", "main", "abcdddd"])
def test_the_newest_run_is_not_an_older_one_where_a_newer_file_can_not_be_read(storage: Path, text: str) -> None:
    """Bug: a gate judged the run before the one that was cut short, and passed."""
    for number in range(3, 8):
        (storage / "server" / f"{number:04}_cut.json").write_text('{"benchmarks": [', encoding="utf-8")
    with pytest.raises(UnreadableResults) as raised:
        select_run(storage, text)
    assert "0003_cut.json can't be read as JSON" in str(raised.value)
    assert "... and 2 more" in str(raised.value)
    assert select_run(storage, "server/1").stem == "0001_there"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("server/0000_cut.json", '{"benchmarks": ['),
        ("server/0009_other.json", '{"benchmarks": []}'),
        ("x/y.json", "[]"),
    ],
    ids=["older", "other tests", "another program's"],
)
def test_a_file_that_is_no_newer_run_of_ours_stops_nothing(storage: Path, name: str, content: str) -> None:
    (storage / name).parent.mkdir(exist_ok=True)
    (storage / name).write_text(content, encoding="utf-8")
    assert select_run(storage, "latest").stem == "0001_there"


def test_a_run_is_compared_with_another_of_its_branch(storage: Path) -> None:
    """Bug: on main, `report latest --against main` ended with an error, and `compare main latest` compared nothing."""
    latest = select_run(storage, "latest")
    assert select_run(storage, "main", latest).stem == "0002_before"
    assert select_run(storage, "server/1", latest) == latest


def test_a_name_cannot_leave_the_storage(storage: Path) -> None:
    """Only an existing file's own path can."""
    keep(storage.parent, "secret.json", 9)
    with pytest.raises(RunNotFound):
        select_run(storage, "../secret")
    with pytest.raises(RunNotFound):
        select_run(storage, "laptop/../../secret.json")
