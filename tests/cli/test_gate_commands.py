"""`llm-bench compare`, `gate` and `bless` on saved files: nothing runs, and only `bless` changes a file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from run_factory import make_record, make_variant
from shell import HOSTILE, Shell

from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.results.record import MemoryFacts, Status

HEAVIER = [make_variant(weight_bytes=5_000_000)]


def contents(shell: Shell) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in shell.storage.rglob("*.json")}


def test_the_newest_run_is_judged_by_the_one_before_it(shell: Shell) -> None:
    shell.keep(1)
    shell.keep(2)
    before = contents(shell)
    output = shell("gate")
    assert output.status == 0
    assert "llm-gate: passed" in output.out
    assert "Judged 1 of 1 tests" in output.out
    assert contents(shell) == before


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("gate", "2"), ExitStatus.REGRESSED),
        (("gate", "1"), ExitStatus.NO_BASELINE),
        (("gate", "1", "--missing", "pass"), ExitStatus.PASSED),
        (("gate", "1", "--baseline", "2"), ExitStatus.PASSED),
        (("gate", "2", "--rules", "weight_bytes:50%"), ExitStatus.PASSED),
        (("gate", "2", "--rules", "speed:50%"), ExitStatus.USAGE),
        (("gate", "9"), ExitStatus.USAGE),
        (("compare", "1", "2"), ExitStatus.PASSED),
        (("compare", "1", "9"), ExitStatus.USAGE),
        (("bless", "9", "--reason", "meant"), ExitStatus.USAGE),
        (("bless", "1", "--reason", " "), ExitStatus.USAGE),
    ],
)
def test_the_exit_status(shell: Shell, arguments: tuple[str, ...], status: ExitStatus) -> None:
    shell.keep(1)
    shell.keep(2, variants=HEAVIER)
    before = contents(shell)
    output = shell(*arguments)
    assert output.status == status
    assert bool(output.err) == (status is ExitStatus.USAGE)
    assert contents(shell) == before


@pytest.mark.parametrize("baselines", [0, 1])
def test_a_run_without_timings_is_not_measured_with_and_without_a_baseline(shell: Shell, baselines: int) -> None:
    if baselines:
        shell.keep(1)
    shell.keep(2, [replace(make_record(), status=Status.NOT_MEASURED, rounds_s=())])
    assert shell("gate", "2").status == ExitStatus.NOT_MEASURED
    assert shell("gate", "2", "--missing", "pass").status == ExitStatus.NOT_MEASURED


def test_a_comparison_names_what_moved_either_way(shell: Shell) -> None:
    shell.keep(1)
    shell.keep(2, variants=HEAVIER)
    assert "fp32: weights 4.00 MB → 5.00 MB, +25.0 %" in " ".join(shell("compare", "1", "2").out.split())
    assert "Improved (1 value)" in shell("compare", "2", "1").out


def test_every_value_is_shown_on_request_and_written_as_json(shell: Shell, tmp_path: Path) -> None:
    records = [make_record(scenario=name, memory=MemoryFacts(10**8)) for name in ("precision", "cache")]
    shell.keep(1, records)
    shell.keep(2, [replace(one, memory=MemoryFacts(2 * 10**8)) for one in records])
    for command, status in (("compare", 0), ("gate", ExitStatus.REGRESSED)):
        file = tmp_path / f"{command}.json"
        runs = ("1", "2") if command == "compare" else ("2",)
        assert "KV cache" not in shell(command, *runs).out
        output = shell(command, *runs, "--verbose", "--json", str(file))
        assert (output.status, "KV cache" in output.out) == (status, True)
        data = json.loads(file.read_text(encoding="utf-8"))
        assert [cause["text"] for cause in data["causes"]] == ["fp32: peak memory +100 MB in 2 tests"]
        assert data.get("exit_status", 0) == status


def test_the_gate_annotates_on_github_alone(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.keep(1)
    shell.keep(2, variants=HEAVIER)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert "::error" not in shell("gate", "2").out
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    (line,) = [line for line in shell("gate", "2").lines if line.startswith("::")]
    assert line == (
        "::error title=llm-gate%3A regressed::fp32: weights 4.00 MB → 5.00 MB, +25.0 %25 (allowed: no change)"
    )


def test_a_blessed_run_is_a_baseline_and_says_why(shell: Shell) -> None:
    shell.keep(1)
    shell.keep(2, variants=HEAVIER, changes={"regressed": True})
    shell.keep(3, variants=HEAVIER)
    assert shell("gate", "3").status == ExitStatus.REGRESSED
    assert "regressed" in shell("bless", "2", "--reason", "heavier on purpose").out
    output = shell("gate", "3")
    assert output.status == 0
    assert "Accepted as a baseline: heavier on purpose." in " ".join(output.out.split())


def test_the_summary_is_added_to_a_file(shell: Shell, tmp_path: Path) -> None:
    shell.keep(1)
    shell.keep(2)
    path = tmp_path / "new" / "summary.md"
    for _ in range(2):
        assert shell("gate", "--summary", str(path)).status == 0
    assert path.read_text(encoding="utf-8").count("## llm-gate: passed") == 2


def test_a_damaged_file_is_named_and_left_as_it_is(shell: Shell) -> None:
    shell.keep(1)
    broken = shell.damage()
    before = contents(shell)
    for arguments in (("gate", str(broken)), ("compare", "1", str(broken)), ("bless", str(broken), "--reason", "x")):
        output = shell(*arguments)
        assert output.status == ExitStatus.USAGE
        assert str(broken) in output.err
    assert contents(shell) == before


def test_nothing_in_a_saved_run_is_obeyed(shell: Shell, tmp_path: Path) -> None:
    shell.keep(1, branch=HOSTILE, hardware=HOSTILE)
    shell.keep(2, [make_record(case=HOSTILE)], variants=[make_variant(label=HOSTILE)])
    summary = tmp_path / "summary.md"
    output = shell("gate", "--summary", str(summary))
    markdown = summary.read_text(encoding="utf-8")
    assert "\x1b" not in output.out + markdown
    assert "\u202e" not in output.out + markdown
    assert "<img" not in markdown


def test_the_message_about_a_damaged_run_is_not_obeyed_either(shell: Shell) -> None:
    shell.keep(1)
    path = shell.keep(2, [replace(make_record(), test="x\n::stop-commands::z\x1b[31m")])
    stored = json.loads(path.read_text(encoding="utf-8"))
    stored["benchmarks"][0]["extra_info"]["llm_bench"]["rounds_s"] = []
    path.write_text(json.dumps(stored), encoding="utf-8")
    output = shell("gate", str(path))
    assert output.status == ExitStatus.USAGE
    assert "was measured in no rounds" in output.err
    assert "\x1b" not in output.err
    assert not any(line.lstrip().startswith("::") for line in output.err.splitlines())


def test_a_complete_run_can_be_blessed_too(shell: Shell) -> None:
    path = shell.keep(1)
    assert shell("bless", "1", "--reason", "it is meant").out == f"{path} is a baseline now: it is meant\n"


def test_a_summary_that_cannot_be_written_is_named(shell: Shell, tmp_path: Path) -> None:
    shell.keep(1)
    shell.keep(2)
    output = shell("gate", "--summary", str(tmp_path))
    assert output.status == ExitStatus.USAGE
    assert f"{tmp_path} can't be written" in output.err
