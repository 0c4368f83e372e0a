from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import measure_repeatability
import pytest
from measure_repeatability import Planned
from repeatability_tables import COLLECTED_FILE, HIDDEN, NOISY, QUIET
from run_factory import make_record, make_run, make_variant

from llm_bench_fixtures.results.storage import RESULTS_FILE, write_run

REFERENCE_S = (0.99, 0.995, 1.0, 1.005, 1.01)  # of five blocks


def write(
    folder: Path, speedup: float, wall_s: float = 100.0, *, is_finished: bool = True, slower: str = "", **changes: Any
) -> None:
    """A run in which bf16 is so many times as fast, with an interval of 2 % to either side, and which worked 80 s."""
    stored = {"speedup": speedup, "speedup_low": speedup / 1.02, "speedup_high": speedup * 1.02}
    variants = [make_variant("fp32"), make_variant("bf16", **changes)]
    records = [
        make_record("fp32", rounds_s=REFERENCE_S, reference_s=REFERENCE_S),
        make_record("bf16", rounds_s=(1 / speedup,) * 5, reference_s=REFERENCE_S, extra=stored),
    ]
    write_run(make_run(records, variants, phase_s={"generating": 80.0}), folder / RESULTS_FILE)
    if is_finished:
        (folder / COLLECTED_FILE).write_text(json.dumps({"wall_s": wall_s, "slower": slower}), encoding="utf-8")


QUIET_RUN = Planned("quiet-1", QUIET, "")


def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    monkeypatch.setattr(sys, "argv", ["measure_repeatability.py", *arguments])
    measure_repeatability.main()
    return capsys.readouterr().out


def test_quiet_runs_are_planned_one_after_the_other() -> None:
    planned = measure_repeatability.plan(2, "", {QUIET: 1, NOISY: 1}, alternate=False)
    assert planned == [Planned("quiet-1", QUIET, ""), Planned("quiet-2", QUIET, "")]


def test_runs_beside_a_neighbour_have_a_schedule_each() -> None:
    planned = measure_repeatability.plan(2, "7", {QUIET: 1, NOISY: 3}, alternate=False)
    assert planned == [Planned("noisy-3", NOISY, "7/noisy-3"), Planned("noisy-4", NOISY, "7/noisy-4")]


def test_a_hidden_neighbour_has_runs_of_its_own() -> None:
    planned = measure_repeatability.plan(1, "7", {QUIET: 1, NOISY: 3, HIDDEN: 2}, alternate=True, beside=HIDDEN)
    assert planned == [Planned("quiet-1", QUIET, ""), Planned("hidden-2", HIDDEN, "7/hidden-2")]


def test_quiet_and_noisy_runs_take_turns() -> None:
    planned = measure_repeatability.plan(2, "7", {QUIET: 1, NOISY: 1}, alternate=True)
    assert [one.name for one in planned] == ["quiet-1", "noisy-1", "quiet-2", "noisy-2"]
    assert [bool(one.neighbour) for one in planned] == [False, True, False, True]


def test_runs_are_numbered_after_those_that_are_there(tmp_path: Path) -> None:
    for name in ("quiet-2", "quiet-10", "noisy-30"):
        (tmp_path / name).mkdir()
    assert measure_repeatability.next_number(tmp_path, QUIET) == 11
    assert measure_repeatability.next_number(tmp_path / "none", QUIET) == 1


@pytest.mark.parametrize("switch", ["--alternate", "--kind=hidden"])
def test_what_needs_a_neighbour_asks_for_one(switch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["collect", str(tmp_path / "runs"), "--runs", "1", switch]
    monkeypatch.setattr(sys, "argv", ["measure_repeatability.py", *arguments])
    with pytest.raises(SystemExit, match="--neighbour"):
        measure_repeatability.main()
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for a suite that is run in place of the project's."""
    monkeypatch.setattr("suites.ROOT", tmp_path)
    (tmp_path / "benchmarks").mkdir()
    return tmp_path / "benchmarks" / "test_suite.py"


def test_a_run_that_passes_is_kept_with_its_seconds(suite: Path, tmp_path: Path) -> None:
    suite.write_text("def test_one(): pass\ndef test_two(): assert False\n", encoding="utf-8")
    measure_repeatability.collect_run(tmp_path / "quiet-1", QUIET_RUN, tmp_path / "cache", ["-k", "one"])
    kept = json.loads((tmp_path / "quiet-1" / COLLECTED_FILE).read_text(encoding="utf-8"))
    assert kept["wall_s"] > 0
    assert kept["arguments"] == ["-k", "one"]
    assert "1 passed, 1 deselected" in (tmp_path / "quiet-1" / "output.txt").read_text(encoding="utf-8")


def test_a_run_that_fails_ends_the_collecting_and_does_not_count(suite: Path, tmp_path: Path) -> None:
    suite.write_text("def test_two(): assert False\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="pytest ended with 1"):
        measure_repeatability.collect_run(tmp_path / "quiet-1", QUIET_RUN, tmp_path / "cache", [])
    assert not (tmp_path / "quiet-1" / COLLECTED_FILE).exists()


def test_the_cache_is_filled_once_also_by_a_suite_that_exports_nothing(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.write_text("def test_one(): pass\n", encoding="utf-8")
    arguments = ("collect", str(tmp_path / "runs"), "--runs", "1")
    first, second = (re.findall(r"^\S+(?=:)", printed(capsys, monkeypatch, *arguments), re.MULTILINE) for _ in range(2))
    assert first == ["preparation", "quiet-1"]
    assert second == ["quiet-2"]


def test_the_figures_stand_beside_their_targets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.10 over 1.00 is 10 %. No interval of 2 % holds the other's value, and 1.00 claims nothing."""
    folder = tmp_path / "runs"
    write(folder / "quiet-1", 1.0)
    write(folder / "quiet-2", 1.1, wall_s=60.0)
    write(folder / "noisy-1", 1.2)
    write(folder / "quiet-3", 9.0, is_finished=False)
    text = printed(capsys, monkeypatch, "figures", str(folder))
    assert "|  | runs quiet | target | runs noisy | target |" in text
    assert "median / 90th percentile | – / – of 1 | ≤ 4 % / 10 % | – / – | ≤ 5 % / 12 % |" in text
    assert "pooled over the other runs | 0.0% of 2 | 83.4% ± 2 | – | 100.0% ± 3 |" in text
    assert "contradicts | 1 of 1 | 0 | 0 of 0 | 0 |" in text
    assert "| 80 s (60 to 100) | ≤ 240 s | 100 s (100 to 100) | ≤ 300 s |" in text
    assert "scoring and loading | 100% |  | 80% |  |" in text
    assert "- runs quiet: 2 runs, speed-ups in each: 1, as the runs store them." in text
    assert "- runs quiet: pooled values are of 1 other run, fewer than 6; exact" in text
    assert "quiet-2 claims bf16 1.100 times as fast; pooled: 1.000." in text


def test_three_runs_have_a_median_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.00, 1.10 and 1.21 differ by 10, 10 and 21 %."""
    for number, speedup in enumerate((1.0, 1.1, 1.21), start=1):
        write(tmp_path / f"quiet-{number}", speedup)
    text = printed(capsys, monkeypatch, "figures", str(tmp_path), "--by", "variant")
    assert "90th percentile | 10.00 % / – of 3 | ≤ 4 % / 10 % |" in text
    assert "| bf16 | 10.00 % | – | 33.3% of 3 |" in text


def test_the_false_alarms_of_the_gate_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        write(tmp_path / f"quiet-{number}", 1.0)
    text = printed(capsys, monkeypatch, "figures", str(tmp_path), "--gate")
    assert "the stored gate is red in 0 of 2 ordered pairs (passed 2)." in text


def test_runs_with_a_slower_variant_are_judged_by_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half as fast is found by both clean runs. Where fp32 was slowed, what ran the same at full speed is claimed."""
    clean, slower, reference = (tmp_path / name for name in ("clean", "slower", "reference"))
    for number in (1, 2):
        write(clean / f"quiet-{number}", 1.0)
    write(slower / "quiet-1", 0.5, slower="bf16:1.0")
    write(reference / "quiet-1", 1.3, slower="fp32:0.3", configuration="configuration of fp32")
    text = printed(capsys, monkeypatch, "figures", str(clean), "--slower", str(slower), str(reference))
    assert "slower quiet: the stored gate finds the slower variant in 100.0% of 2; asked for: 90%." in text
    assert "reference quiet: a variant that is as fast as a slowed reference was is claimed in 100.0% of 1." in text


def test_folders_without_a_finished_run_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "quiet-1", 1.0, is_finished=False)
    monkeypatch.setattr(sys, "argv", ["measure_repeatability.py", "figures", str(tmp_path)])
    with pytest.raises(SystemExit, match="no finished run"):
        measure_repeatability.main()
