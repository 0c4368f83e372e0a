"""The gate's decision: every exit status once, and which comes before which."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from run_factory import make_provenance, make_record, make_run, make_variant, make_workload, skipped_record
from saved_factory import store

from llm_bench_fixtures.gate.decision import Decision, decide_run, no_baseline
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.gate.options import parse_missing
from llm_bench_fixtures.gate.rules import Rules, parse_rules
from llm_bench_fixtures.history.baseline import Baseline, Likeness, find_baseline
from llm_bench_fixtures.history.saved import judged_run
from llm_bench_fixtures.history.storage import RunFolder
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import Run, Status

OFF = make_workload("without a cache", cache="off")
BASE = make_run([make_record(), make_record(scenario="cache", case="off", workload=OFF)])
ONE_TEST = replace(BASE, records=BASE.records[:1])
TOO_LONG = skipped_record("fp32", "too long", scenario="cache", case="off")
TOO_LATE = replace(TOO_LONG, status=Status.NOT_REACHED, reason="20 min were over")
UNREACHED = replace(BASE, records=(BASE.records[0], TOO_LATE))
ELSEWHERE = replace(BASE, provenance=make_provenance(hardware="another"))
HEAVIER = replace(BASE, variants=(make_variant(weight_bytes=5_000_000),))
SLOWER = replace(BASE, records=(make_record(median_s=2.0), BASE.records[1]))
IDLE = replace(BASE, records=tuple(replace(one, status=Status.NOT_MEASURED, rounds_s=()) for one in BASE.records))


def decision(head: Run, base: Run = BASE, rules: str = "", missing: str = "fail") -> Decision:
    return decide_by(Baseline(judged_run(base)), head, rules, missing)


def decide_by(baseline: Baseline, head: Run, rules: str = "", missing: str = "fail") -> Decision:
    return decide_run(judged_run(head), baseline, Rules(parse_rules(rules)), registry(), parse_missing(missing))


@pytest.mark.parametrize(
    ("head", "base", "rules", "status", "reason"),
    [
        (BASE, BASE, "", ExitStatus.PASSED, ""),
        (SLOWER, BASE, "", ExitStatus.PASSED, ""),
        (SLOWER, BASE, "latency_s:10%", ExitStatus.REGRESSED, "1 value of 1 test or variant regressed"),
        (HEAVIER, BASE, "", ExitStatus.REGRESSED, "1 value of 1 test or variant regressed"),
        (BASE, HEAVIER, "", ExitStatus.PASSED, ""),
        (ELSEWHERE, BASE, "", ExitStatus.PASSED, ""),
        (ELSEWHERE, BASE, "timing:10%", ExitStatus.NOT_COMPARABLE, "another machine"),
        (BASE, ONE_TEST, "", ExitStatus.COVERAGE, "not the baseline's tests: 1 new"),
        (ONE_TEST, BASE, "", ExitStatus.COVERAGE, "not the baseline's tests: 1 vanished"),
        (replace(ONE_TEST, selection=("-k precision",)), BASE, "", ExitStatus.PASSED, ""),
        (replace(BASE, records=(BASE.records[0], TOO_LONG)), BASE, "", ExitStatus.COVERAGE, "1 skipped"),
        (UNREACHED, BASE, "", ExitStatus.COVERAGE, "not the baseline's tests: 1 unreached"),
        (BASE, UNREACHED, "", ExitStatus.PASSED, ""),
        (UNREACHED, UNREACHED, "", ExitStatus.PASSED, ""),
        (replace(UNREACHED, variants=HEAVIER.variants), BASE, "", ExitStatus.REGRESSED, "1 value of 1 test"),
        (replace(BASE, interrupted=True), BASE, "", ExitStatus.COVERAGE, "this run is not complete: interrupted"),
        (replace(BASE, failed_tests=1), BASE, "", ExitStatus.COVERAGE, "this run is not complete: failed"),
        (IDLE, BASE, "", ExitStatus.NOT_MEASURED, "nothing was timed in this run"),
    ],
)
def test_every_decision(head: Run, base: Run, rules: str, status: ExitStatus, reason: str) -> None:
    found = decision(head, base, rules)
    assert found.status is status
    assert reason in found.reason
    assert bool(found.advice) == (status is not ExitStatus.PASSED)


def test_a_run_of_which_nothing_can_be_judged_is_not_green() -> None:
    renamed = tuple(replace(one, test=one.test.replace("benchmarks/", "bench/")) for one in BASE.records)
    assert decision(replace(BASE, records=renamed, selection=("bench",)), missing="pass").status is ExitStatus.COVERAGE
    other_model = replace(BASE, provenance=make_provenance(model="gpt2"))
    assert decision(other_model).status is ExitStatus.NOT_COMPARABLE
    assert decision(other_model, missing="fingerprint").status is ExitStatus.COVERAGE


def test_a_regression_outweighs_what_could_not_be_judged() -> None:
    both = replace(HEAVIER, records=ONE_TEST.records, provenance=ELSEWHERE.provenance)
    assert decision(both, rules="timing:10%").status is ExitStatus.REGRESSED


@pytest.mark.parametrize(
    ("head", "status"),
    [(IDLE, ExitStatus.NOT_MEASURED), (HEAVIER, ExitStatus.NO_BASELINE), (ONE_TEST, ExitStatus.NO_BASELINE)],
)
def test_that_nothing_was_timed_outweighs_that_there_is_no_baseline(head: Run, status: ExitStatus) -> None:
    assert decide_by(Baseline(None, "no run is saved"), head).status is status
    allowing = ExitStatus.NOT_MEASURED if head is IDLE else ExitStatus.PASSED
    assert decide_by(Baseline(None, "no run is saved"), head, missing="pass").status is allowing


def test_a_run_that_was_too_short_names_a_longer_time() -> None:
    """A slower commit reaches fewer tests, which must not pass for none that got slower."""
    found = decision(UNREACHED, base=replace(BASE, session_s=732.0))
    assert found.advice.startswith("A longer --llm-time reaches more: the baseline took 12 min. ")
    unknown = decision(UNREACHED, base=replace(BASE, session_s=0.0))
    assert unknown.advice.startswith("A longer --llm-time reaches more. ")
    nothing = replace(BASE, records=(replace(TOO_LATE, test=BASE.records[0].test),))
    assert decision(nothing).reason == "nothing was timed in this run within its --llm-time"


def test_a_run_that_was_too_short_hides_no_loss_from_the_next(tmp_path: Path) -> None:
    """Bug: the second run left no time for a test that got slower, and passed with --llm-gate-missing=unreached. As the
    baseline of the third it made that test "newly reached", which passes."""
    slower = replace(BASE.records[1], rounds_s=tuple(2 * seconds for seconds in BASE.records[1].rounds_s))
    third = replace(BASE, records=(BASE.records[0], slower))
    for number, one in enumerate((BASE, UNREACHED)):
        dated = replace(one, provenance=make_provenance(started=f"2026-01-02T0{number}:00:00+00:00"))
        store(dated, tmp_path / "machine" / f"000{number}_run.json")
    baseline = find_baseline(RunFolder(tmp_path), "", Likeness(("tiny",), random_weights=False, selection=()), tmp_path)
    assert baseline.run is not None
    assert baseline.run.source.endswith("0001_run.json")
    found = decide_by(baseline, third, "latency_s:20%", "unreached")
    assert found.status is ExitStatus.REGRESSED
    assert found.comparison is not None
    assert found.comparison.notes == ("The baseline had no time for 1 test or variant: judged by 0000_run.json",)
    assert decide_by(baseline, UNREACHED).reason == "not the baseline's tests: 1 unreached"


def test_samples_of_unlike_sizes_are_allowed_as_unreached_and_not_with_every_other_difference() -> None:
    """Bug: the advice was to allow another fingerprint, which lets other machines, models and libraries pass, too."""

    def sampled(tokens: float) -> Run:
        quality = {"perplexity": 20.0, "scored_tokens": tokens, "scored_share": tokens / 6864}
        return replace(BASE, variants=(make_variant(quality=quality),))

    found = decision(sampled(2016.0), sampled(1008.0))
    assert found.status is ExitStatus.NOT_COMPARABLE
    assert found.advice.endswith(
        "(--llm-time), or allow it: --llm-gate-missing=unreached (llm-bench gate: --missing=unreached)."
    )
    assert decision(sampled(2016.0), sampled(1008.0), missing="unreached").status is ExitStatus.PASSED
    elsewhere = replace(sampled(2016.0), provenance=make_provenance(hardware="another"))
    assert decision(elsewhere, sampled(1008.0), "timing:10%", missing="unreached").status is ExitStatus.NOT_COMPARABLE


def test_a_lost_quality_is_not_green() -> None:
    lost = replace(BASE, variants=(make_variant(quality={}),))
    found = decision(lost)
    assert found.status is ExitStatus.COVERAGE
    assert found.reason == "1 value of the baseline vanished, such as perplexity of fp32"


def test_a_quality_that_there_was_no_time_for_is_unreached() -> None:
    lost = replace(BASE, variants=(make_variant(quality={}, unscored=True),))
    found = decision(lost)
    assert found.reason == "1 value of the baseline not reached, such as perplexity of fp32"
    assert found.advice == (
        "A longer --llm-time reaches more: the baseline took 12 s. If intended: --llm-gate-missing=unreached "
        "(llm-bench gate: --missing=unreached)."
    )
    assert decision(lost, missing="vanished").status is ExitStatus.COVERAGE
    assert decision(lost, missing="unreached").status is ExitStatus.PASSED


@pytest.mark.parametrize(
    ("head", "base", "rules", "missing"),
    [
        (BASE, ONE_TEST, "", "new"),
        (BASE, ONE_TEST, "", "pass"),
        (ONE_TEST, BASE, "", "vanished"),
        (replace(BASE, records=(BASE.records[0], TOO_LONG)), BASE, "", "skipped"),
        (UNREACHED, BASE, "", "unreached"),
        (ELSEWHERE, BASE, "timing:10%", "fingerprint"),
    ],
)
def test_what_may_be_missing_passes(head: Run, base: Run, rules: str, missing: str) -> None:
    assert decision(head, base, rules, missing).status is ExitStatus.PASSED


def test_without_a_baseline_it_fails_unless_that_is_allowed() -> None:
    assert no_baseline("no run is saved", parse_missing("fail")).status is ExitStatus.NO_BASELINE
    for missing in ("pass", "baseline", "new,baseline"):
        assert no_baseline("no run is saved", parse_missing(missing)).status is ExitStatus.PASSED
    assert no_baseline("no run is saved", parse_missing("new")).status is ExitStatus.NO_BASELINE


def test_each_exit_status_is_a_number_of_its_own_beside_pytests() -> None:
    own = [status for status in ExitStatus if status not in (0, 2, 4)]
    assert len(set(own)) == len(own) == 8
    assert min(own) > int(max(pytest.ExitCode))
    assert all(status.words for status in ExitStatus)
