"""A report is written into a folder that is ours or empty, and nothing in it is lost but the report before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from page_runs import chart_findings
from run_factory import make_record, make_run

from llm_bench_fixtures.errors import UnwritableFile
from llm_bench_fixtures.report.charts.pictures import pictures
from llm_bench_fixtures.results.folder import (
    EARLIER,
    IGNORE,
    MARKDOWN_FILE,
    MARKER,
    MOST_TRACEBACKS,
    OWN_FILES,
    PAGE_FILE,
    PICTURES,
    Tracebacks,
    begun,
    claim,
    forget_earlier,
    held,
    put_back,
    release,
    remove_pictures,
    set_aside,
    worth_of,
)
from llm_bench_fixtures.results.record import Status
from llm_bench_fixtures.results.storage import RESULTS_FILE, read_run, write_run

MARKS = {MARKER, IGNORE}
ALL_OF_ONE = (*OWN_FILES, "errors/0a1b2c3d.txt")


def fill(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_every_picture_that_is_drawn_is_known_as_ours() -> None:
    assert {one.name for one in pictures(chart_findings())} == set(PICTURES)


def test_only_our_own_pictures_are_removed(tmp_path: Path) -> None:
    fill(tmp_path, "batch.png", "batch.svg", "mine.png")
    remove_pictures(tmp_path)
    assert files(tmp_path) == {"mine.png"}


@pytest.mark.parametrize("there", [(), (".gitignore",)], ids=["empty", "a note to git"])
def test_what_is_empty_is_claimed(tmp_path: Path, there: tuple[str, ...]) -> None:
    fill(tmp_path, *there)
    claim(tmp_path)
    assert files(tmp_path) == MARKS


@pytest.mark.parametrize("version", [2, 3])
def test_a_report_without_a_mark_is_claimed(tmp_path: Path, version: int) -> None:
    fill(tmp_path, *ALL_OF_ONE)
    (tmp_path / "results.json").write_text(f'{{"schema": "llm-bench-fixtures/run", "version": {version}}}')
    claim(tmp_path)
    assert files(tmp_path) == MARKS | {*ALL_OF_ONE}


def test_a_folder_in_which_nothing_was_written_is_removed_again(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "report"
    assert claim(folder)
    release(folder)
    assert not folder.exists()


def test_a_folder_in_which_something_was_written_stays(tmp_path: Path) -> None:
    assert not claim(tmp_path)
    fill(tmp_path, "results.json")
    release(tmp_path)
    assert files(tmp_path) == MARKS | {"results.json"}


def test_the_report_before_waits_until_a_new_one_is_whole(tmp_path: Path) -> None:
    fill(tmp_path, *ALL_OF_ONE, "notes.txt")
    set_aside(tmp_path)
    assert files(tmp_path) == {"notes.txt", *(f"{EARLIER}/{name}" for name in ALL_OF_ONE)}
    forget_earlier(tmp_path)
    assert files(tmp_path) == {"notes.txt"}
    assert not (tmp_path / EARLIER).exists()


def test_the_report_before_can_be_put_back_where_it_was(tmp_path: Path) -> None:
    fill(tmp_path, *ALL_OF_ONE, "notes.txt")
    set_aside(tmp_path)
    assert put_back(tmp_path)
    assert files(tmp_path) == {"notes.txt", *ALL_OF_ONE}
    assert not (tmp_path / EARLIER).exists()
    assert not put_back(tmp_path)


@pytest.mark.parametrize("has_results", [False, True])
def test_ctrl_c_puts_the_report_before_back(tmp_path: Path, has_results: bool) -> None:
    """Bug: it stayed among the earlier ones, and a second Ctrl-C removed it there."""
    claim(tmp_path)
    fill(tmp_path, RESULTS_FILE, PAGE_FILE)
    before = files(tmp_path)

    def interrupted() -> None:
        with begun(tmp_path, has_results=has_results):
            for name in (PAGE_FILE, MARKDOWN_FILE):
                (tmp_path / name).write_text("half", encoding="utf-8")
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    assert files(tmp_path) == before
    assert (tmp_path / PAGE_FILE).read_text(encoding="utf-8") == PAGE_FILE


def test_ctrl_c_leaves_the_results_that_are_read_and_a_report_that_is_worth_more(tmp_path: Path) -> None:
    """The page of an interrupted run is made anew, next to the report of a whole run, which is no report of it."""
    claim(tmp_path)
    write_run(RUNS["whole"], tmp_path / RESULTS_FILE)
    set_aside(tmp_path)
    write_run(RUNS["interrupted"], tmp_path / RESULTS_FILE)
    with pytest.raises(KeyboardInterrupt), begun(tmp_path, has_results=True):
        raise KeyboardInterrupt
    assert read_run(tmp_path / RESULTS_FILE).interrupted
    assert not read_run(tmp_path / EARLIER / RESULTS_FILE).interrupted


def test_git_ignores_a_report_until_somebody_changes_that(tmp_path: Path) -> None:
    claim(tmp_path)
    assert (tmp_path / IGNORE).read_text(encoding="utf-8") == "*\n"
    (tmp_path / IGNORE).unlink()
    claim(tmp_path)
    assert files(tmp_path) == {MARKER}


ERROR = replace(make_record(), status=Status.ERROR, rounds_s=())
RUNS = {
    "whole": make_run([make_record(), ERROR], failed_tests=1),
    "interrupted": make_run([make_record()], interrupted=True),
    "interrupted later": make_run([make_record(), make_record("bf16")], interrupted=True),
    "all failed": make_run([ERROR], failed_tests=1),
    "stopped at once": make_run([], interrupted=True),
    "model only": make_run([]),
}


@pytest.mark.parametrize(
    ("runs", "kept"),
    [
        (("whole", "whole"), None),
        (("whole", "interrupted"), "whole"),
        (("whole", "interrupted", "interrupted"), "whole"),
        (("whole", "all failed", "stopped at once", "interrupted"), "whole"),
        (("interrupted", "all failed"), "interrupted"),
        (("interrupted later", "interrupted"), "interrupted later"),
        (("interrupted", "interrupted later"), None),
        (("whole", "model only"), "whole"),
        (("interrupted", "model only"), "interrupted"),
        (("whole", "interrupted", "whole"), None),
    ],
    ids=str,
)
def test_a_run_never_pushes_out_the_report_of_one_that_measured_more(
    tmp_path: Path, runs: tuple[str, ...], kept: str | None
) -> None:
    """Bugs: after two runs that were killed, what was left was the first one's report of one record; one record of a
    run that was interrupted pushed out many; a test that takes nothing but the model pushed out a whole run."""
    for name in runs:
        set_aside(tmp_path)
        write_run(RUNS[name], tmp_path / "results.json")
        assert forget_earlier(tmp_path, worth_of(RUNS[name])) is ((tmp_path / EARLIER).exists())
    found = read_run(tmp_path / EARLIER / "results.json") if kept else None
    assert found == (RUNS[kept] if kept else None)
    assert read_run(tmp_path / "results.json") == RUNS[runs[-1]]


ANOTHER = '{"schema": "llm-bench-fixtures/run", "version": 2, "records": {}}'


@pytest.mark.parametrize(
    ("before", "most", "stays"), [(ANOTHER, 99, True), (ANOTHER[:-1], 99, False), ("[1]", 2, True)]
)
def test_results_that_this_version_refuses_are_not_pushed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, most: int, stays: bool
) -> None:
    """Bug: after an upgrade, a run that was interrupted removed the report of a whole one."""
    monkeypatch.setattr("llm_bench_fixtures.results.storage.MOST_BYTES", most)
    fill(tmp_path, "results.json")
    (tmp_path / "results.json").write_text(before, encoding="utf-8")
    set_aside(tmp_path)
    assert forget_earlier(tmp_path, worth_of(RUNS["interrupted"])) is stays


def test_two_runs_do_not_write_into_one_folder_at_once(tmp_path: Path) -> None:
    """Bug: each overwrote the other's report without a word."""
    claim(tmp_path)
    with held(tmp_path), pytest.raises(UnwritableFile, match="another run is making its report there"), held(tmp_path):
        pass
    with held(tmp_path):
        pass
    assert files(tmp_path) == MARKS


def test_what_lies_beside_an_earlier_report_is_not_removed_with_it(tmp_path: Path) -> None:
    fill(tmp_path, *ALL_OF_ONE)
    set_aside(tmp_path)
    fill(tmp_path / EARLIER, "plots/mine.png", "mine")
    forget_earlier(tmp_path)
    assert files(tmp_path) == {f"{EARLIER}/plots/mine.png", f"{EARLIER}/mine"}


@pytest.mark.parametrize("name", ["notes.txt", "src/main.py", "plots/mine.png", "errors/mine.txt"])
def test_what_holds_something_else_is_refused_and_left_as_it_was(tmp_path: Path, name: str) -> None:
    fill(tmp_path, "results.json", name)
    with pytest.raises(UnwritableFile, match=f"it holds {name.split('/')[0]}.*Name a new or an empty folder"):
        claim(tmp_path)
    assert files(tmp_path) == {"results.json", name}


def test_a_traceback_is_kept_once_and_no_more_of_them_than_thirty(tmp_path: Path) -> None:
    tracebacks = Tracebacks(tmp_path)
    first = tracebacks.keep("Traceback\x1b\nError: one")
    (name,) = files(tmp_path)
    assert first == f" (traceback: {tmp_path / name})"
    assert (tmp_path / name).read_text(encoding="utf-8") == "Traceback\ufffd\nError: one\n"
    assert tracebacks.keep("Traceback\x1b\nError: one") == first
    kept = [tracebacks.keep(f"{number}") for number in range(50)]
    assert len(files(tmp_path)) == MOST_TRACEBACKS == 30
    assert kept[-1] == ""


def test_a_reason_never_names_the_traceback_of_another_run(tmp_path: Path) -> None:
    """Bug: each run's first was errors/1.txt, which the reasons of saved runs named, too."""
    first = Tracebacks(tmp_path).keep("Error: one")
    set_aside(tmp_path)
    assert all(name.startswith(f"{EARLIER}/errors/") for name in files(tmp_path))
    assert Tracebacks(tmp_path).keep("Error: two") != first
    assert Tracebacks(tmp_path).keep("Error: one") == first


@pytest.mark.parametrize("folder", [None, "not there"])
def test_without_a_report_no_traceback_is_kept(tmp_path: Path, folder: str | None) -> None:
    assert Tracebacks(tmp_path / folder if folder else None).keep("one") == ""
    assert not files(tmp_path)


def test_a_mark_of_the_users_own_lets_us_in(tmp_path: Path) -> None:
    fill(tmp_path, "notes.txt", MARKER)
    claim(tmp_path)
    assert files(tmp_path) == {MARKER, "notes.txt"}
