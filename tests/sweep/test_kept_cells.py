"""What a sweep keeps where it was started: what is missing, and where each run goes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from run_factory import make_provenance, make_record, make_run
from saved_factory import store

from llm_bench_fixtures.cli.main import main
from llm_bench_fixtures.errors import HistoryUnavailable, StorageNotFound
from llm_bench_fixtures.history.database import Database
from llm_bench_fixtures.history.saved import Address, read_saved_run
from llm_bench_fixtures.results.folder import WHOLE
from llm_bench_fixtures.results.record import Run
from llm_bench_fixtures.results.storage import read_run, run_to_json
from llm_bench_fixtures.sweep.kept import Commit, SweepFolder, commit_in
from llm_bench_fixtures.sweep.node import CellOutcome
from llm_bench_fixtures.sweep.plan import ANY_MACHINE, SweepCell

CELL = SweepCell("tiny/laptop", ANY_MACHINE, (), ("-k", "batch"), {})
HERE = Commit("f" * 40, "main", dirty=True, changes="0a")


def kept(folder: Path, commit: Commit = HERE, database: str = "") -> SweepFolder:
    return SweepFolder(folder / "sweep", folder / "history", commit, database)


def as_bytes(run: Run) -> bytes:
    return json.dumps(run_to_json(run)).encode()


def outcome(run: Run | None = None, reason: str = "", saved: tuple[tuple[str, bytes], ...] = ()) -> CellOutcome:
    results = b"" if reason else as_bytes(run or make_run([make_record()]))
    return CellOutcome(CELL.name, reason, "host", 3.0, 0, "what pytest wrote", results, saved)


def test_a_cell_is_missing_until_its_run_is_whole(tmp_path: Path) -> None:
    folder = kept(tmp_path)
    assert folder.missing([CELL]) == [CELL]
    folder.save(CELL, outcome(reason="its node died"))
    assert folder.missing([CELL]) == [CELL]
    assert folder.note(CELL) is not None
    folder.save(CELL, outcome(make_run([make_record()], interrupted=True)))
    assert folder.missing([CELL]) == [CELL]
    assert folder.save(CELL, outcome()) == []
    assert folder.missing([CELL]) == []
    assert (folder.results(CELL).parent / "output.txt").read_text(encoding="utf-8") == "what pytest wrote"


def test_with_other_options_or_at_another_commit_it_is_missing_again(tmp_path: Path) -> None:
    kept(tmp_path).save(CELL, outcome())
    assert kept(tmp_path).missing([replace(CELL, arguments=())])
    assert kept(tmp_path, replace(HERE, changes="0b")).missing([CELL])
    assert not kept(tmp_path).missing([CELL])


def test_a_run_without_a_commit_has_that_of_the_folder_that_was_sent(tmp_path: Path) -> None:
    folder = kept(tmp_path)
    run = make_run([make_record()], provenance=make_provenance(commit="", branch=""))
    stored = store(run, tmp_path / "Linux" / "0001_tiny-laptop.json").read_bytes()
    for _ in range(2):
        folder.save(CELL, outcome(run, saved=(("Linux/0001_tiny-laptop.json", stored),)))
    files = sorted((tmp_path / "history").rglob("*.json"))
    assert [one.relative_to(tmp_path / "history").as_posix() for one in files] == [
        "Linux/0001_tiny-laptop.json",
        "Linux/0002_tiny-laptop.json",
    ]
    for found in (read_run(folder.results(CELL)), *map(read_saved_run, files)):
        origin = found.provenance
        assert Commit(origin.commit, origin.branch, origin.dirty, origin.changes) == HERE


def test_a_run_with_a_commit_keeps_it(tmp_path: Path) -> None:
    kept(tmp_path).save(CELL, outcome())
    assert read_run(kept(tmp_path).results(CELL)).provenance == make_provenance()


def test_a_failure_leaves_an_older_run_where_it_is_and_the_cell_is_missing(tmp_path: Path) -> None:
    kept(tmp_path).save(CELL, outcome())
    kept(tmp_path).save(CELL, outcome(reason="no node fits"))
    assert kept(tmp_path).results(CELL).exists()
    assert kept(tmp_path).missing([CELL]) == [CELL]


@pytest.mark.parametrize(("status", "is_missing"), [(0, False), (1, False), (20, False), (-9, True), (3, True)])
def test_a_session_that_was_killed_is_begun_again_and_one_with_a_failed_test_is_not(
    tmp_path: Path, status: int, is_missing: bool
) -> None:
    kept(tmp_path).save(CELL, replace(outcome(), status=status))
    assert (kept(tmp_path).missing([CELL]) == [CELL]) is is_missing


def test_a_history_that_can_not_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "history").write_text("a file, and no folder")
    saved = outcome(saved=(("laptop/0001_run.json", outcome().results or b""),))
    said = kept(tmp_path).save(CELL, saved)
    assert said[0].startswith("tiny/laptop: ")
    assert kept(tmp_path).missing([CELL]) == []


@pytest.fixture
def url(tmp_path: Path) -> str:
    pytest.importorskip("sqlalchemy")
    return f"sqlite:///{tmp_path / 'history.db'}"


def test_a_run_is_in_the_database_as_soon_as_its_cell_ends(tmp_path: Path, url: str) -> None:
    """With the commit of the folder that was sent, and only once."""
    folder, run = kept(tmp_path, database=url), make_run([make_record()], provenance=make_provenance(commit=""))
    assert folder.save(CELL, outcome(run)) == folder.send(CELL) == []
    assert Database(url).places() == [Address(url, 1)]
    found = read_saved_run(Database(url).select(CELL.name))
    assert found.provenance.commit == HERE.commit
    assert found.records == read_saved_run(folder.results(CELL)).records
    assert folder.is_sent(CELL)
    assert folder.missing([CELL]) == []


@pytest.mark.parametrize("error", [HistoryUnavailable("nobody answers"), TypeError("a bug")])
def test_a_run_that_a_database_does_not_take_is_kept_and_sent_later(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*_: object) -> None:
        raise error

    folder = kept(tmp_path, database=url)
    with monkeypatch.context() as patch:
        patch.setattr(Database, "save", refuse)
        (said,) = folder.save(CELL, outcome())
    assert said.startswith("tiny/laptop: ")
    assert said.endswith(f"{error}; started again, the sweep sends its run")
    assert folder.missing([CELL]) == []
    assert not folder.is_sent(CELL)
    assert folder.send(CELL) == []
    assert folder.is_sent(CELL)
    assert kept(tmp_path).is_sent(CELL), "without a database there is nothing to send"
    assert not kept(tmp_path, database=f"{url}2").is_sent(CELL), "another database has none of it"


def test_a_part_of_a_run_is_not_in_the_database(tmp_path: Path, url: str) -> None:
    folder = kept(tmp_path, database=url)
    assert folder.save(CELL, outcome(make_run([make_record()], interrupted=True))) == folder.send(CELL) == []
    assert folder.worth(CELL) == 1
    assert folder.save(CELL, replace(outcome(), status=-9)) == []
    assert not folder.is_sent(CELL)
    with pytest.raises(StorageNotFound):
        Database(url).places()


@pytest.fixture
def full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The sweep's; the folder for temporary files is on another one."""
    own, elsewhere = Path.replace, tmp_path / "temporary"
    elsewhere.mkdir()

    def replaced(self: Path, target: Path) -> Path:
        if tmp_path / "sweep" in Path(target).parents:
            raise OSError(28, "No space left on device")
        return own(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replaced)
        patch.setattr("tempfile.tempdir", str(elsewhere))
        yield elsewhere


def test_on_a_full_disk_the_run_is_kept_elsewhere_and_measured_again(tmp_path: Path, full_disk: Path) -> None:
    said = kept(tmp_path).save(CELL, outcome())
    assert "results.json can't be written: No space left on device" in said[0]
    assert "output.txt can't be written: No space left on device" in said[1]
    (copy,) = full_disk.rglob("results.json")
    assert said[0].endswith(str(copy))
    assert read_run(copy).records
    assert kept(tmp_path).missing([CELL]) == [CELL]


def test_a_whole_run_that_is_kept_elsewhere_can_be_imported(tmp_path: Path, url: str, full_disk: Path) -> None:
    folder = kept(tmp_path, database=url)
    said = folder.save(CELL, outcome())
    (copy,) = full_disk.rglob("results.json")
    hint = f"llm-bench history import {copy.parent} --history URL"
    assert said[0].endswith(f"it is in {copy}; {hint} saves it to the database")
    assert not folder.is_sent(CELL)
    assert folder.worth(CELL) == WHOLE
    assert main([*hint.replace("URL", url).split()[1:]]) == 0
    assert Database(url).places() == [Address(url, 1)]
    part = make_run([make_record()], interrupted=True)
    assert not any("import" in problem for problem in folder.save(CELL, outcome(part)))
    assert folder.worth(CELL) == 1


def test_outside_of_a_repository_there_is_no_commit(tmp_path: Path) -> None:
    assert commit_in(None) == commit_in(tmp_path) == Commit()
