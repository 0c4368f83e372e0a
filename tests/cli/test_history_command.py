"""`llm-bench history`: what was saved, whatever state it is in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_factory import make_record, skipped_record
from shell import HOSTILE, Shell

from llm_bench_fixtures.cli.main import main
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.report.history import run_name


def test_a_run_is_a_row_with_what_tells_it_from_others(shell: Shell) -> None:
    shell.keep(1, branch="topic", dirty=True, model="gpt2", random_weights=True)
    header, _, row, _, total = shell("history").lines
    assert header.split() == [
        "run",
        "started",
        "(UTC)",
        "branch",
        "commit",
        "model",
        "machine",
        "fingerprint",
        "state",
        "measured",
    ]
    start, fingerprint, end = row.split("  a processor, 2 cores  ")[0], row.split()[-3], row.split()[-2:]
    assert start == "0001  2026-01-01 00:00  topic   00000000*  gpt2 (random weights)"
    assert len(fingerprint) == 8
    assert end == ["complete", "1"]
    assert total == f"1 run in {shell.storage}"


def test_the_newest_is_last_whatever_its_number(shell: Shell) -> None:
    shell.keep(2)
    shell.keep(3)
    shell.keep(4, started="2025-12-31T00:00:00+00:00")
    assert [line.split()[0] for line in shell("history").lines[2:5]] == ["0004", "0002", "0003"]


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"failed_tests": 2}, "failed"),
        ({"interrupted": True}, "interrupted"),
        ({"regressed": True}, "regressed"),
        ({"records": ()}, "not measured"),
    ],
)
def test_the_state_of_a_run_is_told(shell: Shell, changes: dict[str, Any], state: str) -> None:
    records = changes.pop("records", None)
    shell.keep(1, records, changes=changes)
    assert f"  {state} " in shell("history").lines[2]


def test_a_blessed_run_tells_why(shell: Shell) -> None:
    path = shell.keep(1, changes={"regressed": True})
    data = json.loads(path.read_text())
    data["llm_bench"]["blessing"] = {"reason": "slower on purpose", "when": "2026-01-02T00:00:00+00:00"}
    path.write_text(json.dumps(data))
    assert "  regressed, blessed: slower on purpose" in shell("history").lines[2]
    assert json.loads(shell("history", "--json").out)["runs"][0]["blessed"] == "slower on purpose"


def test_what_was_skipped_is_not_measured(shell: Shell) -> None:
    shell.keep(1, [make_record(), skipped_record("fp16", "no float16")])
    assert shell("history").lines[2].endswith("  1 of 2")


def test_only_the_newest_are_shown_unless_all_are_asked_for(shell: Shell) -> None:
    for number in range(1, 25):
        shell.keep(number)
    shown = shell("history").lines
    assert [line[:4] for line in shown[2:22]] == [f"{number:04}" for number in range(5, 25)]
    assert shown[-1].endswith("24 runs in " + str(shell.storage) + "; the newest 20 are shown")
    assert len(shell("history", "--limit", "0").lines) == 2 + 24 + 2
    assert len(json.loads(shell("history", "--limit", "1", "--json").out)["runs"]) == 1


def test_a_file_that_cannot_be_read_is_named_with_its_reason(shell: Shell) -> None:
    """And neither hides the others nor is touched."""
    shell.keep(1)
    path = shell.damage()
    before = path.read_bytes()
    output = shell("history")
    assert output.status == 0
    assert output.lines[2].startswith("0001 ")
    assert output.lines[-1].startswith(f"Can't be read: {path} can't be read as JSON")
    (item,) = json.loads(shell("history", "--json").out)["unreadable"]
    assert item["file"] == "laptop/0099_cut.json"
    assert path.read_bytes() == before


def test_a_storage_of_damaged_files_alone_is_listed_too(shell: Shell) -> None:
    shell.damage()
    assert shell("history").lines[1].startswith("0 runs")


def test_hostile_text_is_shown_without_its_power(shell: Shell) -> None:
    shell.keep(
        1, branch=HOSTILE, model=HOSTILE, hardware=HOSTILE, started=HOSTILE, commit=HOSTILE, name="a\x1b]0;x\x07"
    )
    for arguments in ((), ("--json",)):
        output = shell("history", *arguments)
        assert output.status == 0
        assert not set(output.out) & {"\x1b", "\x07", "\u202e", "\r"}
    (run,) = json.loads(output.out)["runs"]
    assert run["branch"] == HOSTILE


@pytest.mark.parametrize(
    ("file", "name"),
    [
        (f"0003_{'a' * 40}_20260102_030405.json", "0003"),
        (f"0003_{'a' * 40}_20260102_030405_uncommitted-changes.json", "0003"),
        ("0003_unversioned_20260102_030405.json", "0003"),
        ("laptop/0003_unversioned_20260102_030405.json", "laptop/0003"),
        ("0003_before.json", "0003_before"),
        ("mine.json", "mine"),
    ],
)
def test_the_name_of_a_run_is_short_and_can_be_typed(file: str, name: str) -> None:
    assert run_name(file) == name


def test_two_machines_are_told_apart(shell: Shell) -> None:
    path = shell.keep(1)
    other = shell.storage / "server" / path.name
    other.parent.mkdir()
    other.write_bytes(path.read_bytes())
    assert {line.split()[0] for line in shell("history").lines[2:4]} == {"laptop/0001", "server/0001"}
    assert shell("history", "--limit", "1").lines[2].split()[0] in {"laptop/0001", "server/0001"}


def test_no_storage_is_an_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["history"]) == 4
    assert "pytest --benchmark-autosave" in capsys.readouterr().err


def test_ctrl_c_is_a_line_and_a_status(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    shell.keep(1)
    monkeypatch.setattr("llm_bench_fixtures.history.headings.read_heading", interrupt)
    output = shell("history")
    assert (output.status, output.err) == (ExitStatus.INTERRUPTED, "llm-bench history: interrupted\n")
