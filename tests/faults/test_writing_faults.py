"""What goes wrong before, while and after a report or another file is written.

Each table is one kind of fault; a row is an id that says it in words, what is planted, and what must come out. A new
fault is a new row.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fault_tools import command, fails, keep_two_runs
from run_factory import full_run, make_provenance, make_record, make_run
from saved_factory import store
from waiting import BACKSTOP_S

from llm_bench_fixtures.answer.need import DEFAULT_NEED
from llm_bench_fixtures.cli.main import main
from llm_bench_fixtures.errors import UnwritableFile
from llm_bench_fixtures.history.saved import read_saved_run
from llm_bench_fixtures.processes.scratch import remove_abandoned
from llm_bench_fixtures.report import files
from llm_bench_fixtures.report.charts import pictures
from llm_bench_fixtures.report.files import Published, publish
from llm_bench_fixtures.results.folder import IGNORE, MARKER, claim, set_aside
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.storage import read_run

Plant = Callable[[Path, pytest.MonkeyPatch], object]
REPORT = ("results.json", "results.csv", "report.md", "results.tex", "report.html")


# --- Before anything is measured: the folder of the report is refused, and nothing in or behind it changes ---


def link_out(folder: Path, name: str) -> None:
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "mine.png").write_text("mine", encoding="utf-8")
    folder.mkdir()
    (folder / name).symlink_to(outside if name == "plots" else outside / "mine.png")


def with_file(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text("mine", encoding="utf-8")


REFUSED: tuple[tuple[str, Plant, str], ...] = (
    ("the folder is a file", lambda folder, _: folder.write_text("mine"), "is no folder"),
    ("the folder is a link to nothing", lambda folder, _: folder.symlink_to("nowhere"), "is no folder"),
    (
        "what is above the folder is a file",
        lambda folder, patch: (folder.parent.rmdir(), folder.parent.write_text("mine")),
        "is no folder",
    ),
    ("nothing may be written there", lambda _, patch: patch.setattr(os, "access", lambda *_: False), "nothing can be"),
    (
        "the disk is full",
        lambda _, patch: patch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100)),
        "has 0 MB left",
    ),
    ("the folder is a project's", lambda folder, _: with_file(folder, "main.py"), "it holds main.py"),
    ("files of somebody else's have our names", lambda folder, _: with_file(folder, "report.md"), "it holds report.md"),
    ("the results are somebody else's", lambda folder, _: with_file(folder, "results.json"), "it holds results.json"),
    ("a picture of somebody else's is among the plots", lambda folder, _: with_file(folder, "plots/mine.png"), "mine"),
    ("the plots are a link out of the folder", lambda folder, _: link_out(folder, "plots"), "plots .*is a link"),
    ("the page is a link out of the folder", lambda folder, _: link_out(folder, "report.html"), "html .*is a link"),
    ("the results are a folder", lambda folder, _: (folder / "results.json").mkdir(parents=True), "it is no file"),
)


@pytest.mark.parametrize(("plant", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_folder_that_cannot_be_ours_is_refused(
    plant: Plant, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "above" / "report"
    folder.parent.mkdir()
    plant(folder, monkeypatch)
    before = tree(tmp_path)
    with pytest.raises(UnwritableFile, match=words):
        claim(folder)
    assert tree(tmp_path) == before


def tree(folder: Path) -> dict[str, str]:
    return {str(one): one.read_text(encoding="utf-8") if one.is_file() else "" for one in sorted(folder.rglob("*"))}


# --- While the report is written: each file fails alone and is named, and nothing that was measured is lost ---


def full_disk(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """On which the report's folder is; there is another for temporary files."""
    own = Path.replace

    def replaced(self: Path, target: Path) -> Path:
        if folder in Path(target).parents:
            raise OSError(28, "No space left on device")
        return own(self, target)

    patch.setattr(Path, "replace", replaced)


def folder_lost(folder: Path, _: pytest.MonkeyPatch) -> None:
    shutil.rmtree(folder)
    folder.write_text("somebody else's", encoding="utf-8")


def nowhere(folder: Path, patch: pytest.MonkeyPatch) -> None:
    folder_lost(folder, patch)
    patch.setattr("tempfile.mkdtemp", fails(PermissionError(13, "Permission denied")))


def in_files(name: str, error: BaseException) -> Plant:
    return lambda _, patch: patch.setattr(files, name, fails(error))


@pytest.fixture(autouse=True)
def one_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others take their time, and fail alike."""
    all_of_them = pictures.pictures
    monkeypatch.setattr(
        pictures, "pictures", lambda findings: (one for one in all_of_them(findings) if one.name == "precision")
    )


BROKEN = RuntimeError("broken\nbadly")
# What is planted, the files that are missing, and what the problems say of them.
UNWRITTEN: tuple[tuple[str, Plant, set[str], str], ...] = (
    ("nothing", lambda *_: None, set(), ""),
    (
        "matplotlib can't draw",
        in_files("write_plots", BROKEN),
        {"plots"},
        "plots was not written: Runt",
    ),
    (
        "the page can't be rendered",
        in_files("render_report", BROKEN),
        {"report.html"},
        "html was not written: Runt",
    ),
    (
        "the Markdown can't be",
        in_files("render_markdown", BROKEN),
        {"report.md"},
        "md was not written: Runtime",
    ),
    (
        "the LaTeX can't be",
        in_files("render_latex", BROKEN),
        {"results.tex"},
        "tex was not written: Runtime",
    ),
    (
        "the table can't be made",
        in_files("run_table", BROKEN),
        {"results.csv"},
        "csv was not written: Runtime",
    ),
    (
        "no memory is left",
        in_files("render_report", MemoryError()),
        {"report.html"},
        "html was not written: Memory",
    ),
    (
        "nothing can be said of the run",
        in_files("findings_of", BROKEN),
        {"report.md", "results.tex", "plots", "report.html"},
        "no report but results.json: RuntimeError: broken",
    ),
    (
        "Ctrl-C while it draws",
        in_files("write_plots", KeyboardInterrupt()),
        {"plots", "report.html"},
        "report.html was not written: interrupted",
    ),
    ("the disk fills up", full_disk, {*REPORT, "plots"}, "results.json can't be written: No space left on device"),
    ("the folder has become a file", folder_lost, {*REPORT, "plots"}, "results.json can't be written"),
    ("there is no other place either", nowhere, {*REPORT, "plots"}, "Nor is there another place"),
)


@pytest.mark.parametrize(
    ("plant", "missing", "words"), [row[1:] for row in UNWRITTEN], ids=[row[0] for row in UNWRITTEN]
)
def test_what_cannot_be_written_is_told_and_leaves_the_rest_alone(
    plant: Plant, missing: set[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "report"
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    claim(folder)
    plant(folder, monkeypatch)
    published = publish(make_run([make_record()]), registry(), folder, DEFAULT_NEED)
    assert words in "\n".join(published.problems)
    assert bool(published.problems) is bool(missing)
    there = [one.name for one in (*folder.glob("*.*"), *folder.glob("plots/*.png"))]
    assert {name for name in REPORT if name not in there} == missing - {"plots"}
    assert ("precision.png" in there) is ("plots" not in missing)
    assert published.was_interrupted is ("interrupted" in words)
    assert (published.findings is None) is ("no report but" in words)
    check_whereabouts(published, folder, missing)


def test_results_that_nobody_will_read_again_are_told_and_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a run of more tokens than are read was written without a word, and refused ever after."""
    folder = tmp_path / "report"
    claim(folder)
    monkeypatch.setattr("llm_bench_fixtures.results.storage.MOST_VALUES", 20)
    published = publish(make_run([make_record()]), registry(), folder, DEFAULT_NEED)
    (told,) = published.problems
    assert told.startswith(f"{folder / 'results.json'} has ")
    assert "values, and no run has more than 20: it is whole, but llm-bench and read_run will refuse it. " in told
    assert {one.name for one in folder.glob("*.*")} >= {*REPORT}
    monkeypatch.undo()
    assert read_run(folder / "results.json").records


def check_whereabouts(published: Published, folder: Path, missing: set[str]) -> None:
    """The page is in the folder, or where the last sentences say, or nowhere."""
    elsewhere = re.search(r"The report is in (\S+) instead of", "\n".join(published.problems))
    assert bool(elsewhere) is (missing == {*REPORT, "plots"} and published.folder is not None)
    if elsewhere:
        assert published.folder == Path(elsewhere[1])
        assert all((published.folder / name).is_file() for name in REPORT)
        assert read_run(published.folder / "results.json").records
    elif "report.html" in missing:
        assert published.folder is None
    else:
        assert published.folder == folder


def test_the_report_before_is_kept_until_the_new_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run([make_record()])
    claim(tmp_path)
    publish(run, registry(), tmp_path, DEFAULT_NEED)
    set_aside(tmp_path)
    assert {one.name for one in tmp_path.iterdir()} == {MARKER, IGNORE, "earlier", "plots"}
    with monkeypatch.context() as patch:
        patch.setattr(files, "render_report", fails(BROKEN))
        publish(run, registry(), tmp_path, DEFAULT_NEED)
    assert (tmp_path / "earlier" / "report.html").is_file()
    publish(run, registry(), tmp_path, DEFAULT_NEED)
    assert not (tmp_path / "earlier").exists()
    set_aside(tmp_path)
    published = publish(replace(run, interrupted=True), registry(), tmp_path, DEFAULT_NEED)
    note = f"The report of an earlier run, which measured more, stays in {tmp_path / 'earlier'}."
    assert (published.problems, published.notes) == ((), (note,))


# --- `llm-bench report`: another run's results in the folder are kept, and nothing older is beside the page ---


def reported(folder: Path, hardware: str) -> Path:
    """A run's report in the folder."""
    claim(folder)
    run = make_run([make_record()], provenance=make_provenance(hardware=hardware))
    publish(run, registry(), folder, DEFAULT_NEED)
    return folder


def test_a_report_made_again_keeps_the_results_of_another_run(storage: Path, tmp_path: Path, capsys: Any) -> None:
    """Bug: it overwrote the results.json of a run that was saved nowhere else."""
    folder = reported(tmp_path / "report", "laptop")
    before = (folder / "results.json").read_bytes()
    assert command(storage, "report", "1", "-o", str(folder)) == 0
    assert (folder / "earlier" / "results.json").read_bytes() == before
    assert f"is in {folder / 'earlier'}" in capsys.readouterr().out
    assert command(storage, "report", "1", "-o", str(folder), "--against", str(folder / "earlier")) == 4
    assert (folder / "earlier" / "results.json").read_bytes() == before


def test_beside_the_page_of_several_runs_lies_nothing_older(storage: Path, tmp_path: Path) -> None:
    """Bug: the plots and results.json of another run lay there. Where it is one of those, its results.json stays."""
    folder = reported(tmp_path / "report", "laptop")
    before = (folder / "results.json").read_bytes()
    assert command(storage, "report", str(folder), "1", "-o", str(folder)) == 0
    assert (folder / "results.json").read_bytes() == before
    assert {one.name for one in folder.rglob("*") if one.is_file()} == {MARKER, IGNORE, *REPORT}
    assert command(storage, "report", "1", "2", "-o", str(folder)) == 0
    assert {one.name for one in folder.glob("*.*")} == {MARKER, IGNORE, *REPORT} - {"results.json"}
    assert (folder / "earlier" / "results.json").read_bytes() == before


def test_each_file_of_the_page_of_several_runs_fails_alone(
    storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(files, "render_runs_latex", fails(BROKEN))
    assert command(storage, "report", "1", "2", "-o", str(tmp_path / "report")) == 4
    assert "results.tex was not written: RuntimeError: broken" in capsys.readouterr().err
    assert {one.name for one in (tmp_path / "report").iterdir()} == {MARKER, IGNORE, *REPORT} - {
        "results.json",
        "results.tex",
    }


@pytest.mark.parametrize(
    ("module", "name", "runs"),
    [(files, "write_plots", ("1",)), (files, "render_runs_latex", ("1", "2"))],
    ids=["of one run", "of several"],
)
def test_an_interrupted_report_ends_as_interrupted(
    module: Any, name: str, runs: tuple[str, ...], storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: Ctrl-C ended it with status 4. The report before is back."""
    folder = reported(tmp_path / "report", "laptop")
    before = {one: (folder / one).read_bytes() for one in REPORT}
    monkeypatch.setattr(module, name, fails(KeyboardInterrupt()))
    assert command(storage, "report", *runs, "-o", str(folder)) == 2
    assert {one: (folder / one).read_bytes() for one in REPORT} == before
    assert not (folder / "earlier").exists()


def test_a_plotting_backend_that_is_not_there_is_not_asked_for() -> None:
    """Bug: with $MPLBACKEND=nonsense the import of matplotlib raised, and the report was lost."""
    program = "from llm_bench_fixtures.report.charts.pictures import drawing\nwith drawing():\n    pass\n"
    environment = {**os.environ, "MPLBACKEND": "nonsense"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True)


def test_a_report_without_pictures_says_how_to_draw_them(tmp_path: Path) -> None:
    """Bug: an interrupted run took as long for its pictures as for the rest of its end."""
    claim(tmp_path)
    published = publish(make_run([make_record()]), registry(), tmp_path, DEFAULT_NEED, draws=False)
    (problem,) = published.problems
    assert f"`llm-bench report {tmp_path}` draws them" in problem
    assert {path.name for path in tmp_path.glob("*.*")} >= set(REPORT)
    assert not list(tmp_path.glob("plots/*"))


def test_a_surrogate_in_a_name_or_a_reason_costs_no_file(tmp_path: Path) -> None:
    """Bug: no reader took what was saved in a folder whose name isn't UTF-8."""
    surrogate = "\udcff"
    record = replace(make_record(case=surrogate, reason=surrogate, outputs=(surrogate,)), test=f"a[{surrogate}]")
    run = make_run([record], provenance=make_provenance(model=surrogate, command=surrogate, branch=surrogate))
    claim(tmp_path)
    assert publish(run, registry(), tmp_path, DEFAULT_NEED).problems == ()
    assert read_run(tmp_path / "results.json").records[0].case == "\ufffd"
    stored = read_saved_run(store(run, tmp_path / "stored" / "0001_a.json"))
    assert (stored.records[0].test, stored.provenance.model) == ("a[\ufffd]", "\ufffd")


# --- Commands: what they write to stays what it was, and what they can't write to is known before they begin ---


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    return keep_two_runs(tmp_path)


OUTPUTS = (("trend", "-o"), ("export", "-o"), ("export", "--format", "sqlite", "-o"))


@pytest.mark.parametrize("arguments", OUTPUTS, ids=" ".join)
@pytest.mark.parametrize("kind", ["a pipe", "a device", "a link"])
def test_a_command_replaces_nothing_that_is_no_file(
    arguments: tuple[str, ...], kind: str, storage: Path, tmp_path: Path
) -> None:
    with receiver(kind, tmp_path) as (path, received):
        assert command(storage, *arguments, str(path)) == 0
        assert stat.S_IFMT(path.lstat().st_mode) == {"a pipe": stat.S_IFIFO, "a device": stat.S_IFCHR}.get(
            kind, stat.S_IFLNK
        )
    assert received()


class receiver:  # noqa: N801  # it is called like a function
    """A pipe, a terminal or a link to a file, and what was written to it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.read: list[bytes] = []
        self.path = folder / "output"
        self.ends = os.openpty() if kind == "a device" else ()
        self.target = folder / "target"
        if kind == "a pipe":
            os.mkfifo(self.path)
        elif kind == "a link":
            self.path.symlink_to(self.target)
        else:
            self.path = Path(os.ttyname(self.ends[1]))
        self.reader = threading.Thread(target=self._read, args=(kind,), daemon=True)

    def _read(self, kind: str) -> None:
        if kind == "a pipe":
            self.read.append(self.path.read_bytes())
        elif kind == "a device":
            while not self.read or self.read[-1]:
                self.read.append(self._from_terminal())

    def _from_terminal(self) -> bytes:
        try:
            return os.read(self.ends[0], 65536)
        except OSError:  # the other end is closed
            return b""

    def __enter__(self) -> tuple[Path, Callable[[], object]]:
        self.reader.start()
        return self.path, lambda: any(self.read) or self.target.read_bytes()

    def __exit__(self, *_: object) -> None:
        for end in self.ends[1:]:
            os.close(end)
        self.reader.join(BACKSTOP_S)
        for end in self.ends[:1]:
            os.close(end)


POURED = """
import os, pathlib, signal, sys
from llm_bench_fixtures.writing import replacing

with replacing(pathlib.Path(sys.argv[1])) as scratch:
    scratch.write_text("half of it")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_to_go_to_a_pipe_does_not_outlast_its_killed_process_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: it stayed for good."""
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    subprocess.run([sys.executable, "-c", POURED, tmp_path / "pipe"], check=False)
    assert [path.read_text() for path in tmp_path.glob("llm-bench-*/content")] == ["half of it"]
    remove_abandoned(young_s=0)
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_blessing_keeps_who_may_read_the_run(storage: Path) -> None:
    """Bug: a file of mode 600 was 644 afterwards."""
    path = storage / "laptop" / "0001_run.json"
    path.chmod(0o600)
    assert command(storage, "bless", "1", "--reason", "meant") == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


UNWRITABLE = ("below a file", "a folder")
BEFOREHAND = (
    ("trend", "-o"),
    ("export", "-o"),
    ("pair", "HEAD", "--json"),
    ("pair", "HEAD", "--summary"),
    ("aa", "--json"),
    ("gate", "--summary"),
    ("compare", "1", "2", "--summary"),
)


@pytest.mark.parametrize("place", UNWRITABLE)
@pytest.mark.parametrize("arguments", BEFOREHAND, ids=" ".join)
def test_a_file_that_cannot_be_written_is_told_before_the_work(
    arguments: tuple[str, ...], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "file").touch()
    path = tmp_path if place == "a folder" else tmp_path / "file" / "x"
    works = (
        "pair.run_sides",
        "trend.storage_in",
        "export.storage_in",
        "gate.select_in",
        "compare.select_in",
    )
    for work in (f"cli.{name}" for name in works):
        monkeypatch.setattr(f"llm_bench_fixtures.{work}", fails(AssertionError("it began to work")))
    assert main([*arguments, str(path)]) == 4
    assert f"{path} can't be written" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="elsewhere no device is full")
@pytest.mark.parametrize(("arguments", "status"), [(("gate", "2", "--baseline", "1"), 20), (("compare", "1", "2"), 0)])
def test_a_summary_that_cannot_be_written_changes_no_status(
    arguments: tuple[str, ...], status: int, storage: Path, capsys: Any
) -> None:
    """Bug: a run that regressed ended with status 4."""
    assert command(storage, *arguments, "--summary", "/dev/full") == status
    assert "/dev/full can't be written: No space left on device" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [("trend", "-o", "~nosuchuser/x"), ("export", "-o", "~nosuchuser/x"), ("report", "1", "-o", "~nosuchuser/x")],
    ids=" ".join,
)
def test_the_home_of_a_user_that_there_is_not_is_no_folder(
    arguments: tuple[str, ...], storage: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Bug: a folder called `~nosuchuser` was made."""
    monkeypatch.chdir(storage.parent)
    with pytest.raises(SystemExit) as ended:
        command(storage, *arguments)
    assert ended.value.code == 4
    assert command(Path("~nosuchuser"), "history") == 4
    told = capsys.readouterr().err
    assert "~nosuchuser/x: no user of that name has a home folder here; give the whole path" in told
    assert "~nosuchuser: no user of that name" in told
    assert {one.name for one in storage.parent.iterdir()} == {storage.name}


def test_a_damaged_run_is_named_and_passed_over(storage: Path, capsys: Any) -> None:
    (storage / "laptop" / "0003_cut.json").write_text('{"benchmarks": [', encoding="utf-8")
    assert command(storage, "history") == 0
    assert "0003_cut.json can't be read as JSON" in capsys.readouterr().out


def test_a_full_run_has_a_whole_report(tmp_path: Path) -> None:
    """What every row above differs from."""
    claim(tmp_path)
    published = publish(full_run(), registry(), tmp_path, DEFAULT_NEED)
    assert (published.problems, published.folder, published.was_interrupted) == ((), tmp_path, False)
