"""Paired runs of fake workers: every way in which one can go."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from run_factory import make_record, make_run, make_variant

from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.paired import control
from llm_bench_fixtures.paired.differences import Measurand, pair_differences
from llm_bench_fixtures.paired.protocol import PROTOCOL, Times
from llm_bench_fixtures.paired.result import Absence, NotCompared, PairedResult
from llm_bench_fixtures.paired.tree import HypothesisGroup
from llm_bench_fixtures.paired.workers import Roster
from llm_bench_fixtures.report.judged.pair import pair_report
from llm_bench_fixtures.results.record import MemoryFacts
from llm_bench_fixtures.results.storage import run_to_json

RunPair = Callable[..., PairedResult]

TWO = {"a": 0.1, "b": 0.2}


def verdicts(result: PairedResult, test: str) -> set[Verdict]:
    return {found.verdict for key, found in result.findings.items() if key.test == test}


def test_equal_sides_are_unchanged(run_pair: RunPair) -> None:
    result = run_pair({"tests": TWO}, {"tests": TWO})
    assert verdicts(result, "a") == verdicts(result, "b") == {Verdict.UNCHANGED}
    assert len(result.findings) == 2 * 4  # tests x metrics
    assert len(result.groups) == 4  # of one variant
    assert result.pairs == 3
    assert result.status is ExitStatus.PASSED


def test_what_is_slower_regressed_and_what_is_faster_improved(run_pair: RunPair) -> None:
    result = run_pair({"tests": {"a": 0.1, "b": 0.2}}, {"tests": {"a": 0.15, "b": 0.1}})
    assert verdicts(result, "a") == {Verdict.REGRESSED}
    assert verdicts(result, "b") == {Verdict.IMPROVED}
    assert result.status is ExitStatus.REGRESSED


def test_only_what_is_open_goes_into_more_pairs(run_pair: RunPair) -> None:
    """Test a doesn't differ between the sides; b differs by 3 %, which is the threshold."""
    result = run_pair({"tests": TWO, "noise": 0.001}, {"tests": {"a": 0.1, "b": 0.206}}, time_limit_s=6.0)
    by_test = {key.test: found.estimate.pairs for key, found in result.findings.items() if found.estimate}
    assert by_test["a"] == 3
    assert [sorted(trial.rounds) for trial in result.trials[3:]] == [["b"]] * (len(result.trials) - 3)


def test_noise_that_hides_the_answer_until_the_time_is_up_is_inconclusive(run_pair: RunPair) -> None:
    noisy = {"tests": {"a": 0.1}, "noise": 0.5}
    result = run_pair(noisy, noisy, time_limit_s=5.0)
    assert result.pairs == 6  # each of a second, of which the last begins when the time isn't up yet
    assert result.status is ExitStatus.INCONCLUSIVE


def test_pairs_run_at_the_same_time_once_the_first_one_has_begun(run_pair: RunPair) -> None:
    result = run_pair({"tests": TWO}, {"tests": TWO}, lanes=2, pairs=4)
    assert (result.pairs, result.at_once) == (4, 2)
    assert len(result.differences[Measurand("a", "latency_s")]) == 4
    assert [len(trial.rounds) for trial in result.trials] == [2] * 4
    assert result.status is ExitStatus.PASSED


def test_no_second_pair_runs_where_memory_has_no_room(run_pair: RunPair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "has_room", lambda roster: False)
    assert run_pair({"tests": TWO}, {"tests": TWO}, lanes=2).at_once == 1


@pytest.mark.parametrize(("used", "room"), [(100, True), (500, True), (501, False)])
def test_a_lane_needs_twice_the_memory_of_the_others(monkeypatch: pytest.MonkeyPatch, used: int, *, room: bool) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 1000}))
    monkeypatch.setattr(Roster, "resident_bytes", used)
    assert control.has_room(Roster()) is room


def test_a_failure_of_one_pair_ends_the_other(run_pair: RunPair, tmp_path: Path) -> None:
    """A worker of the first pair dies once one of the second hangs, for which nobody waits."""
    told = {"tests": TWO, "hangs_in": "a", "hangs_only": "pair-2", "dies_in": "b"}
    result = run_pair(told, {"tests": TWO}, lanes=2)
    assert result.failure.startswith("BASE in b: was killed by SIGKILL")
    assert (tmp_path / "scratch" / "hangs").exists()
    assert not (tmp_path / "scratch" / "goes-on").exists()


def test_many_tests_share_the_time_of_the_suite(run_pair: RunPair) -> None:
    """0.4 x 3 s / 3 pairs / 8 tests are 0.05 s of rounds a test: one whole round, and the least of prefills."""
    tests = {f"t{number}": 0.1 for number in range(8)}
    result = run_pair({"tests": tests}, {"tests": tests}, suite_time_s=3.0, grows=False)
    assert {len(rows) for rows in result.trials[0].rounds.values()} == {1}
    assert {len(rows) for rows in result.trials[0].prefills.values()} == {3}


def test_a_slow_variant_is_told_once(run_pair: RunPair) -> None:
    """Its five tests are slower by 6 %, those of the other variant aren't."""
    variants = {f"{variant}{number}": variant for variant in ("nf4", "fp32") for number in range(5)}
    base = dict.fromkeys(variants, 0.1)
    head = {test: 0.1 * (1.06 if variant == "nf4" else 1.0) for test, variant in variants.items()}
    told = {"variants": variants, "noise": 0.01}
    result = run_pair({"tests": base, **told}, {"tests": head, **told}, pairs=5)
    assert result.groups[HypothesisGroup("nf4", "tpot_s")].verdict is Verdict.REGRESSED
    assert result.groups[HypothesisGroup("fp32", "tpot_s")].verdict is Verdict.UNCHANGED
    lines = [line for part in pair_report(result).parts for line in part.lines]
    (decode,) = [line for line in lines if line.startswith("nf4: time per output token ")]
    assert decode.endswith(" across 5 tests, 5 of them in the same direction")
    assert not [line for line in lines if line.startswith("fp32")]


def test_a_run_that_does_not_grow_stops_at_its_pairs(run_pair: RunPair) -> None:
    noisy = {"tests": {"a": 0.1}, "noise": 0.5}
    assert run_pair(noisy, noisy, grows=False, pairs=4).pairs == 4


def test_tests_of_one_side_are_told_and_not_compared(run_pair: RunPair) -> None:
    result = run_pair({"tests": {"a": 0.1, "old": 0.1}}, {"tests": {"new": 0.1, "a": 0.1}})
    assert result.not_compared == (
        NotCompared("old", Absence.VANISHED, "BASE"),
        NotCompared("new", Absence.NEW, "HEAD"),
    )
    assert {key.test for key in result.findings} == {"a"}
    assert result.status is ExitStatus.PASSED


def test_no_test_in_common_is_not_measured(run_pair: RunPair) -> None:
    assert run_pair({"tests": {"old": 0.1}}, {"tests": {"new": 0.1}}).status is ExitStatus.NOT_MEASURED


def test_a_skip_is_told_with_its_side_and_reason(run_pair: RunPair) -> None:
    result = run_pair({"tests": TWO}, {"tests": TWO, "skips": {"b": "no such backend"}})
    assert result.not_compared == (NotCompared("b", Absence.SKIPPED, "HEAD", "no such backend"),)
    assert {key.test for key in result.findings} == {"a"}


def test_a_skip_of_both_sides_names_neither(run_pair: RunPair) -> None:
    told = {"tests": TWO, "skips": {"b": "no such backend"}}
    assert run_pair(told, told).not_compared == (NotCompared("b", Absence.SKIPPED, "", "no such backend"),)


def test_a_failing_test_names_its_side_and_spares_the_others(run_pair: RunPair) -> None:
    result = run_pair({"tests": TWO}, {"tests": TWO, "errors": {"a": "ZeroDivisionError: division by zero"}})
    assert result.not_compared == (NotCompared("a", Absence.FAILED, "HEAD", "ZeroDivisionError: division by zero"),)
    assert verdicts(result, "b") == {Verdict.UNCHANGED}
    assert result.status is ExitStatus.WORKER_FAILED


@pytest.mark.parametrize("attempt", range(4))  # the order within a round is random
def test_a_test_that_fails_within_a_round_spares_the_side_that_waits(run_pair: RunPair, attempt: int) -> None:
    """Bug: the side that waited in the middle of its round got Next instead of Resume, and failed."""
    told = {"tests": TWO, "pauses": 3}
    result = run_pair(told, {**told, "errors": {"a": "boom"}})
    assert result.not_compared == (NotCompared("a", Absence.FAILED, "HEAD", "boom"),)
    assert verdicts(result, "b") == {Verdict.UNCHANGED}


def test_a_limit_of_no_time_leaves_one_pair(run_pair: RunPair) -> None:
    assert run_pair({"tests": TWO}, {"tests": TWO}, time_limit_s=0.0).pairs == 1


def test_a_test_that_head_no_longer_times_is_told(run_pair: RunPair) -> None:
    result = run_pair({"tests": TWO}, {"tests": TWO, "untimed": ["a"]})
    assert [(row.test, row.absence, row.side) for row in result.not_compared] == [("a", Absence.NOT_TIMED, "HEAD")]
    assert result.status is ExitStatus.COVERAGE


def test_another_workload_is_not_compared(run_pair: RunPair) -> None:
    result = run_pair({"tests": TWO}, {"tests": TWO, "workloads": {"a": "longer"}})
    assert [(row.test, row.absence) for row in result.not_compared] == [("a", Absence.CHANGED)]


def test_a_worker_that_dies_is_told_with_its_test_side_and_last_words(run_pair: RunPair) -> None:
    result = run_pair({"tests": TWO, "dies_in": "b"}, {"tests": TWO})
    assert result.status is ExitStatus.WORKER_FAILED
    assert result.failure.startswith("BASE in b: was killed by SIGKILL")
    assert "| working on b" in result.failure
    assert len(result.trials[0].rounds["a"]) == 4  # what was measured before stays


def test_a_worker_that_hangs_is_told_within_the_time_limit(run_pair: RunPair) -> None:
    result = run_pair({"tests": TWO}, {"tests": TWO, "hangs_in": "a"}, timeout_s=1.0)
    assert result.failure.startswith("HEAD in a: no answer for 1 s (--timeout)")
    assert result.status is ExitStatus.WORKER_FAILED


def test_a_worker_that_goes_on_talking_does_not_hang(run_pair: RunPair) -> None:
    """Each of its tests takes less than the time limit, and all together take more; no message reaches it meanwhile."""
    names = "abcdefgh"
    told = {
        "tests": {**dict.fromkeys(names, 0.1), "z": 0.1},
        "skips": dict.fromkeys(names, "none"),
        "skips_after_s": 0.3,
    }
    result = run_pair(told, told, timeout_s=2.0, time_limit_s=0.0)
    assert (result.failure, result.pairs) == ("", 1)


def test_another_protocol_is_an_error_that_names_both_versions(run_pair: RunPair) -> None:
    result = run_pair({"tests": TWO, "protocol": 7}, {"tests": TWO})
    assert "BASE: its llm-bench-fixtures 9.9 speaks version 7 of the paired protocol" in result.failure
    assert f"version {PROTOCOL}" in result.failure
    assert result.status is ExitStatus.WORKER_FAILED


def test_a_side_that_ends_before_it_answers_is_told_what_it_needs(run_pair: RunPair) -> None:
    result = run_pair({"tests": TWO, "mute": 'No module named "llm_bench_fixtures"'}, {"tests": TWO})
    assert result.failure.startswith("BASE: ended with status 1, before it was ready. It needs an llm-bench-fixtures")
    assert '| No module named "llm_bench_fixtures"' in result.failure


def test_a_worker_that_ends_early_is_told_with_its_output(run_pair: RunPair) -> None:
    result = run_pair({"tests": TWO}, {"tests": TWO, "refuses": True})
    assert result.failure.startswith("HEAD: ended with status 1")
    assert "no tests today" in result.failure


def test_a_worker_whose_pytest_ends_before_it_collects_is_told_with_its_status(run_pair: RunPair) -> None:
    """As pytest does for a file of tests that isn't there. Bug: it was not waited for what pytest says afterwards."""
    result = run_pair({"tests": TWO}, {"tests": TWO, "finishes": 4})
    assert result.failure.startswith("HEAD: pytest ended with status 4")
    assert "no such file" in result.failure


@pytest.mark.parametrize(("ends", "failure"), [(1, ""), (5, ""), (2, "HEAD: pytest ended with status 2")])
def test_a_session_that_was_broken_off_is_a_failure_and_no_lack_of_tests(
    run_pair: RunPair, ends: int, failure: str
) -> None:
    """Bug: the tests of a side that could import none of them were said to have vanished."""
    result = run_pair({"tests": TWO}, {"tests": {}, "ends": ends})
    assert result.failure[: len(failure) or None] == failure
    assert len(result.not_compared) == (0 if failure else len(TWO))


def test_rounds_with_pauses_are_whole_rounds(run_pair: RunPair) -> None:
    told = {"tests": {"a": 0.1}, "pauses": 3}
    result = run_pair(told, told)
    assert [len(trial.rounds["a"]) for trial in result.trials] == [4, 4, 4]
    assert result.status is ExitStatus.PASSED


@pytest.mark.parametrize(
    ("weight_bytes", "status", "worse"),
    [(4_000_000, ExitStatus.PASSED, []), (5_000_000, ExitStatus.REGRESSED, ["weight_bytes"])],
)
def test_what_the_first_pair_carries_along_is_judged(
    run_pair: RunPair, weight_bytes: int, status: ExitStatus, worse: list[str]
) -> None:
    """Exact counts, memory and quality; the times in it are not, whatever they are."""
    base = run_to_json(make_run([make_record()]))
    head = run_to_json(make_run([make_record(median_s=9.0)], [make_variant(weight_bytes=weight_bytes)]))
    result = run_pair({"tests": {"a": 0.1}, "run": base}, {"tests": {"a": 0.1}, "run": head})
    assert [one.metric.name for one in result.carried_regressions] == worse
    assert result.status is status
    assert all(trial.runs == [None, None] for trial in result.trials[1:])


def test_ctrl_c_keeps_the_complete_pairs(run_pair: RunPair, monkeypatch: pytest.MonkeyPatch) -> None:
    run_trial = control.run_trial
    calls = []

    def interrupted(*args: object, **kwargs: object) -> None:
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        run_trial(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(control, "run_trial", interrupted)
    result = run_pair({"tests": {"a": 0.1}}, {"tests": {"a": 0.15}}, pairs=8)
    assert result.interrupted
    assert result.pairs == 3
    assert result.findings[Measurand("a", "latency_s")].verdict is Verdict.REGRESSED
    assert result.status is ExitStatus.INTERRUPTED


def test_a_higher_peak_of_memory_is_only_reported(run_pair: RunPair) -> None:
    """The allocator of a worker keeps freed memory, so the peak depends on which pieces it happens to use again."""
    base, head = (run_to_json(make_run([make_record(memory=MemoryFacts(peak))])) for peak in (600_000_000, 900_000_000))
    result = run_pair({"tests": {"a": 0.1}, "run": base}, {"tests": {"a": 0.1}, "run": head})
    assert result.status is ExitStatus.PASSED
    (note,) = [note for note in pair_report(result).notes if note.startswith("Worse, advisory")]
    assert "peak memory 600 MB → 900 MB, +50.0 %" in note


def test_the_json_holds_every_round_and_outcome(run_pair: RunPair) -> None:
    told = {"tests": TWO, "skips": {"b": "no such backend"}}
    trials = json.loads(json.dumps(run_pair(told, told).as_json()))["trials"]
    assert len(trials) == 3
    assert list(trials[0]) == [
        *("collected", "variants", "rounds", "prefills"),
        *("outcomes", "workloads", "total_s", "is_complete"),
    ]
    (base, head) = trials[0]["rounds"]["a"][3]
    assert list(base) == list(head) == list(Times.__struct_fields__)
    assert len(trials[0]["prefills"]["a"]) == 3  # of 0.2 s in a quarter of 2.5 s
    assert trials[0]["outcomes"]["b"] == [{"test": "b", "status": "skipped", "reason": "no such backend"}] * 2


def test_swapping_the_sides_of_the_same_rounds_mirrors_the_differences(run_pair: RunPair) -> None:
    result = run_pair({"tests": {"a": 0.1}}, {"tests": {"a": 0.11}})
    mirrored = [
        pair_differences(*({"a": [row[::-1] for row in rows["a"]]} for rows in (trial.rounds, trial.prefills)))
        for trial in result.trials
    ]
    assert set(result.differences) == set(mirrored[0])
    for one, values in result.differences.items():
        assert [found[one] for found in mirrored] == [-value for value in values]
