"""`llm-bench export`: the same long table in every format."""

from __future__ import annotations

import csv
import io
import math
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from run_factory import make_record, make_variant, skipped_record
from shell import HOSTILE, Shell

from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.history.export import COLUMNS, NUMBER_COLUMNS, TEXT_COLUMNS


@pytest.fixture
def kept(shell: Shell) -> Shell:
    """Two runs: two benchmarks of 48 metrics or so, and one that was skipped; then one benchmark."""
    records = [
        make_record("fp32", 1.0),
        make_record("bf16", 0.5),
        replace(skipped_record("fp16", "no float16"), workload=None),
    ]
    shell.keep(1, records, [make_variant(), make_variant("bf16"), make_variant("fp16")], branch="topic", dirty=True)
    shell.keep(2, [make_record("fp32", 2.0, extra={"mine": 0.125})])
    return shell


def exported(shell: Shell, *arguments: str) -> pd.DataFrame:
    output = shell("export", *arguments)
    assert output.status == 0, output.err
    return read_csv(io.StringIO(output.out))


def read_csv(source: Any) -> pd.DataFrame:
    texts = dict.fromkeys(TEXT_COLUMNS, str)
    return pd.read_csv(source, dtype=texts, keep_default_na=False, na_values={name: [""] for name in NUMBER_COLUMNS})


def test_a_row_is_a_run_a_benchmark_and_a_metric(kept: Shell) -> None:
    table = exported(kept)
    assert tuple(table.columns) == COLUMNS
    rows = table[table["metric"] == "latency_s"].to_dict("records")
    assert [(row["file"][:11], row["variant"], row["value"]) for row in rows] == [
        ("laptop/0001", "fp32", 1.0),
        ("laptop/0001", "bf16", 0.5),
        ("laptop/0002", "fp32", 2.0),
    ]
    first = rows[0]
    assert (first["unit"], first["direction"], first["kind"]) == ("s", "lower is better", "timing")
    assert (first["branch"], first["dirty"], first["model"], first["state"]) == ("topic", True, "tiny", "complete")
    assert first["commit"] == f"{1:040x}"
    assert len(first["fingerprint"]) == 8
    assert (first["cache"], first["padding_side"], first["prompts"], first["batch_size"]) == ("dynamic", "left", 1, 1)
    assert (first["prompt_length"], first["new_tokens"], first["padded_tokens"]) == (64, 16, 0)


def test_what_was_skipped_has_one_row_with_its_reason(kept: Shell) -> None:
    table = exported(kept)
    (row,) = table[table["variant"] == "fp16"].to_dict("records")
    assert (row["status"], row["reason"], row["metric"]) == ("skipped", "no float16", "")
    assert all(math.isnan(row[name]) for name in NUMBER_COLUMNS)
    assert (row["cache"], row["padding_side"]) == ("", "")


def test_a_metric_of_the_projects_own_has_no_unit(kept: Shell) -> None:
    table = exported(kept)
    (row,) = table[table["metric"] == "mine"].to_dict("records")
    assert (row["value"], row["unit"], row["direction"], row["kind"]) == (0.125, "", "", "")


def test_metrics_can_be_chosen(kept: Shell) -> None:
    table = exported(kept, "--metric", "latency_s,mine")
    assert sorted(table["metric"]) == ["", "latency_s", "latency_s", "latency_s", "mine"]


def test_the_formats_hold_the_same(kept: Shell, tmp_path: Path) -> None:
    plain = exported(kept)
    assert kept("export", "-o", str(tmp_path / "history.csv")).status == 0
    from_file = read_csv(tmp_path / "history.csv")
    assert kept("export", "-o", str(tmp_path / "history.sqlite")).status == 0
    with closing(sqlite3.connect(tmp_path / "history.sqlite")) as connection:
        from_sql = pd.read_sql("SELECT * FROM measurements", connection)
    assert from_file.equals(plain)
    assert tuple(from_sql.columns) == COLUMNS
    for name in ("file", "test", "metric", "reason"):
        assert from_sql[name].tolist() == plain[name].tolist()
    assert from_sql["value"].equals(plain["value"])


def test_parquet_holds_the_same(kept: Shell, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert kept("export", "-o", str(tmp_path / "history.parquet")).status == 0
    table = parquet.read_table(tmp_path / "history.parquet").to_pandas()
    plain = exported(kept)
    assert tuple(table.columns) == COLUMNS
    assert table["metric"].tolist() == plain["metric"].tolist()
    assert table["value"].equals(plain["value"])


def test_without_pyarrow_it_says_what_to_install(kept: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    output = kept("export", "--format", "parquet", "-o", str(tmp_path / "history"))
    assert output.status == 4
    assert "pip install 'llm-bench-fixtures[parquet]'" in output.err
    assert not list(tmp_path.glob("history*"))


@pytest.mark.parametrize("kind", ["parquet", "sqlite"])
def test_what_is_no_text_needs_a_file(kept: Shell, kind: str) -> None:
    output = kept("export", "--format", kind)
    assert output.status == 4
    assert "-o FILE" in output.err


def test_the_format_wins_over_the_files_ending(kept: Shell, tmp_path: Path) -> None:
    kept("export", "--format", "sqlite", "-o", str(tmp_path / "history.csv"))
    assert (tmp_path / "history.csv").read_bytes().startswith(b"SQLite format 3")


@pytest.mark.parametrize("name", ["history.csv", "history.sqlite"])
def test_an_export_that_is_stopped_leaves_the_one_before(
    kept: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / name
    kept("export", "-o", str(path))
    before = path.read_bytes()
    kept.keep(3)
    from llm_bench_fixtures.history import export

    read = export.read_saved_run

    def stop(file: Path) -> object:
        if file.name.startswith("0003"):
            raise KeyboardInterrupt
        return read(file)

    monkeypatch.setattr(export, "read_saved_run", stop)
    assert kept("export", "-o", str(path)).status == ExitStatus.INTERRUPTED
    assert path.read_bytes() == before
    assert sorted(item.name for item in tmp_path.iterdir()) == [".benchmarks", name]


def test_a_file_that_cannot_be_read_is_passed_over(kept: Shell) -> None:
    path = kept.damage()
    output = kept("export")
    assert output.status == 0
    assert output.err.startswith(f"passed over: {path} can't be read")
    assert "laptop/0002" in output.out


def test_with_nothing_to_read_it_fails(shell: Shell, tmp_path: Path) -> None:
    shell.damage()
    output = shell("export", "-o", str(tmp_path / "history.csv"))
    assert output.status == 4
    assert "none of the runs" in output.err
    assert not (tmp_path / "history.csv").exists()


def test_hostile_text_has_no_power(shell: Shell, tmp_path: Path) -> None:
    """In CSV it is disarmed; in a database it is a value like any other."""
    names = ("=cmd|' /C calc'!A0", f"x'); DROP TABLE measurements; --{HOSTILE}")
    for number, text in enumerate(names, 1):
        texts = dict.fromkeys(("model", "hardware", "branch", "commit"), text)
        shell.keep(number, [make_record(text, case=text, scenario=text)], **texts)
    output = shell("export")
    rows = list(csv.reader(io.StringIO(output.out)))
    assert all(len(row) == len(COLUMNS) for row in rows)
    assert not any(cell.startswith(("=", "+", "@")) for row in rows for cell in row)
    assert not set(output.out) & {"\x1b", "\u202e"}
    shell("export", "-o", str(tmp_path / "history.sqlite"))
    with closing(sqlite3.connect(tmp_path / "history.sqlite")) as connection:
        assert set(connection.execute("SELECT DISTINCT branch FROM measurements")) == {(name,) for name in names}


@pytest.mark.parametrize("command", ["history", "export", "trend"])
def test_a_file_whose_name_is_no_text_is_a_run_too(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = shell.keep(1)
    path.rename(path.with_name("0001_\udcff.json"))
    assert shell(command).status == 0
    assert shell("export", "-o", "history.sqlite").status == 0


def test_a_record_without_the_chosen_metric_keeps_a_row(kept: Shell) -> None:
    everything, mine = (
        set(table[["file", "test"]].itertuples(index=False, name=None))
        for table in (exported(kept), exported(kept, "--metric", "mine"))
    )
    assert mine == everything


def test_a_metric_that_no_run_has_is_an_error_and_leaves_the_file_before(kept: Shell, tmp_path: Path) -> None:
    path = tmp_path / "history.csv"
    path.write_text("before", encoding="utf-8")
    output = kept("export", "--metric", "latency_s,latncy", "-o", str(path))
    assert output.status == ExitStatus.USAGE
    assert "unknown metric 'latncy'" in output.err
    assert path.read_text(encoding="utf-8") == "before"
