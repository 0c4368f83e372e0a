"""`llm-bench sweep` as far as it needs no Ray: what is refused, and the report of cells that have run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from run_factory import make_block_record, make_provenance, make_run

from llm_bench_fixtures.cli.main import main
from llm_bench_fixtures.cli.sweep import _Progress
from llm_bench_fixtures.errors import HistoryUnavailable
from llm_bench_fixtures.history.database import Database
from llm_bench_fixtures.paired.display import Display
from llm_bench_fixtures.results.folder import NOTHING, WHOLE
from llm_bench_fixtures.results.record import Run
from llm_bench_fixtures.results.storage import run_to_json
from llm_bench_fixtures.sweep.kept import Commit, SweepFolder
from llm_bench_fixtures.sweep.node import CellOutcome
from llm_bench_fixtures.sweep.plan import read_plan

FILE = """
[[model]]
name = "small"
[[model]]
name = "large"
[[machine]]
name = "server"
[[machine]]
name = "laptop"
"""
SPEEDUPS = {"server": 2.0, "laptop": 0.5}  # of bf16


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "sweep.toml"
    path.write_text(FILE, encoding="utf-8")
    return path


def end_cells(file: Path, **failed: str) -> None:
    """Keep a run of each cell, but for those that failed."""
    kept = SweepFolder(file.parent / "fleet", file.parent / ".benchmarks", Commit())
    for place, cell in enumerate(read_plan(file, is_local=False).cells):
        model, machine = cell.name.split("/")
        origin: dict[str, Any] = {
            "model": model,
            "hardware": machine,
            "started": f"2026-01-0{place + 1}T00:00:00+00:00",
        }
        records = [make_block_record("fp32", 1.0, 0.0), make_block_record("bf16", SPEEDUPS[machine])]
        run = make_run(records, provenance=make_provenance(**origin))
        reason = failed.get(model, "")
        results = b"" if reason else json.dumps(run_to_json(run)).encode()
        kept.save(cell, CellOutcome(cell.name, reason, "host", 1.0, 0, results=results))


def sweep(file: Path, *more: str) -> int:
    return main(["sweep", str(file), "--address", "nowhere", "-o", "fleet", *more])


def test_cells_that_have_run_are_not_run_again_and_have_one_report(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file.parent / "fleet").mkdir()
    end_cells(file)
    (file.parent / "fleet" / ".llm-bench-report").touch()
    assert sweep(file) == 0
    out, err = capsys.readouterr()
    assert out.startswith("4 cells of 4 kept from fleet, 0 to measure\n")
    assert err == ""
    assert (file.parent / "fleet" / "report.html").is_file()
    text = (file.parent / "fleet" / "report.md").read_text(encoding="utf-8")
    assert "Machines have the variants in different orders for small, large." in text
    ranks = [row for row in text.splitlines() if row.startswith(("| small |", "| large |"))]
    assert [[cell.strip() for cell in row.split("|")[1:-1]] for row in ranks[:2]] == [
        ["small", "fp32", "2", "1", "no: bf16"],
        ["small", "bf16", "1", "2", "no: fp32"],
    ]


def test_a_cell_without_a_run_says_why_in_the_report(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle of measuring those that are missing."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    (file.parent / "fleet").mkdir()
    (file.parent / "fleet" / ".llm-bench-report").touch()
    end_cells(file, large="on host pytest ended with status 4")
    monkeypatch.setattr("llm_bench_fixtures.cli.sweep.connected", interrupted)
    assert sweep(file) == 2
    out, err = capsys.readouterr()
    assert out.startswith("2 cells of 4 kept from fleet, 2 to measure\n")
    assert "large/server: on host pytest ended with status 4" in " ".join(out.split())
    assert "interrupted; started again, it measures what is missing" in err
    assert "large/laptop: on host" in (file.parent / "fleet" / "report.html").read_text(encoding="utf-8")


def test_runs_of_earlier_cells_are_sent_to_a_database_once(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sqlalchemy")
    (file.parent / "fleet").mkdir()
    (file.parent / "fleet" / ".llm-bench-report").touch()
    end_cells(file)
    assert sweep(file, "--history", "sqlite:///runs.db") == 0
    assert capsys.readouterr().out.splitlines()[1] == "4 runs of earlier cells saved to the database"
    assert sweep(file, "--history", "sqlite:///runs.db") == 0
    assert "saved to the database" not in capsys.readouterr().out
    assert main(["history", "--history", "sqlite:///runs.db"]) == 0
    assert "4 runs in sqlite:" in capsys.readouterr().out


@pytest.mark.parametrize("is_stuck", [True, False])
def test_only_a_database_that_takes_no_run_at_all_ends_the_sending(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_stuck: bool
) -> None:
    pytest.importorskip("sqlalchemy")
    (file.parent / "fleet").mkdir()
    (file.parent / "fleet" / ".llm-bench-report").touch()
    end_cells(file)
    asked: list[str] = []

    def save(_: Database, run: Run, name: str) -> None:
        asked.append(name)
        raise HistoryUnavailable("the table is locked")

    def check(_: Database) -> None:
        if asked and is_stuck:
            raise HistoryUnavailable("nobody answers")

    monkeypatch.setattr(Database, "save", save)
    monkeypatch.setattr(Database, "check", check)
    assert sweep(file, "--history", "sqlite:///runs.db") == (4 if is_stuck else 1)
    assert len(asked) == (1 if is_stuck else 4)
    said = capsys.readouterr().err
    assert f"{asked[0]}: the table is locked; started again, the sweep sends its run" in said
    assert ("nobody answers" in said) is is_stuck


def test_the_line_of_a_cell_that_ended_says_how_much_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    shown = _Progress(5, Display(sys.stderr))
    for worth in (WHOLE, 3, 0, NOTHING):
        shown.ended(CellOutcome("tiny", "", "gpu1", 300.0, 0), worth)
    shown.ended(CellOutcome("tiny", "its node died"), WHOLE)
    lines = [line.split(": ", 1)[1].split(";")[0] for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "measured on gpu1 in 5 min",
        "gpu1 measured part of it in 5 min",
        "gpu1 measured no benchmark in 5 min",
        "gpu1 measured no benchmark in 5 min",
        "its node died",
    ]


def test_a_database_that_can_not_be_used_is_told_before_anything_is_measured(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sqlalchemy")
    (file.parent / "runs.db").write_text("no database at all, but a text that is longer than a hundred bytes" * 2)
    assert sweep(file, "--history", "sqlite:///runs.db") == 4
    assert "runs.db can't be used: file is not a database" in capsys.readouterr().err
    assert not (file.parent / "fleet").exists()


def test_a_typing_error_is_told_before_anything_is_written(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(FILE.replace('name = "large"', 'nmae = "large"'), encoding="utf-8")
    assert sweep(file) == 4
    assert "sweep.toml: unknown key in [[model]] 'nmae'. Did you mean name?" in capsys.readouterr().err
    assert not (file.parent / "fleet").exists()


def test_another_programs_folder_is_left_alone(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file.parent / "fleet").mkdir()
    (file.parent / "fleet" / "mine.txt").touch()
    assert sweep(file) == 4
    assert "fleet can't be written to: it holds mine.txt" in capsys.readouterr().err
