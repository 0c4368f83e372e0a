"""From a comparison to an exit status. It fails closed: what should have been judged and could not be is not green."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from llm_bench_fixtures.errors import UnknownName
from llm_bench_fixtures.gate.comparison import Comparison, Coverage
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.results.metrics import Force
from llm_bench_fixtures.results.record import RunState


class Missing(StrEnum):
    """What may be missing for a judgement."""

    BASELINE = "baseline"
    NEW = "new"
    VANISHED = "vanished"
    SKIPPED = "skipped"
    ERRORED = "errored"
    FINGERPRINT = "fingerprint"


FAIL, PASS = "fail", "pass"
ALLOWED_BY_PASS = frozenset({Missing.BASELINE, Missing.NEW})
_MISSING_OF = {
    Coverage.NEW: Missing.NEW,
    Coverage.VANISHED: Missing.VANISHED,
    Coverage.SKIPPED: Missing.SKIPPED,
    Coverage.ERRORED: Missing.ERRORED,
    Coverage.NOT_MEASURED: Missing.ERRORED,
}


def parse_missing(text: str) -> frozenset[Missing]:
    """`fail`, `pass` or what passes, by name. Raises UnknownName."""
    if text in (FAIL, PASS):
        return ALLOWED_BY_PASS if text == PASS else frozenset()
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in list(Missing):
            raise UnknownName("thing that may be missing", name, [FAIL, PASS, *Missing])
    return frozenset(map(Missing, names))


@dataclass(frozen=True)
class Outcome:
    """What the gate says. comparison: None where there was no baseline, or nothing to judge. reason: why, in a
    sentence. advice: what to do about it."""

    status: ExitStatus
    comparison: Comparison | None
    reason: str = ""
    advice: str = ""


def decide(comparison: Comparison, allowed: frozenset[Missing] = frozenset()) -> Outcome:
    """The worst that is true of the comparison."""
    if not comparison.head.measured():
        return nothing_measured("nothing was timed in this run")
    regressed = comparison.with_verdict(Verdict.REGRESSED, Force.BLOCKING)
    if regressed:
        subjects = count(len({one.subject for one in regressed}), "test or variant", "tests and variants")
        return Outcome(
            ExitStatus.REGRESSED,
            comparison,
            f"{count(len(regressed), 'value')} of {subjects} regressed",
            "Where that is meant: llm-bench bless RUN --reason WHY makes a saved run the baseline.",
        )
    unjudged = comparison.with_verdict(Verdict.NOT_MEASURED, Force.BLOCKING)
    if unjudged and Missing.FINGERPRINT not in allowed:
        return Outcome(
            ExitStatus.NOT_COMPARABLE,
            comparison,
            f"{count(len(unjudged), 'value')} could not be judged: {unjudged[0].reason}",
            "Compare with a run of the same kind, or allow it: --llm-gate-missing=fingerprint.",
        )
    if not comparison.judged_tests:
        return Outcome(
            ExitStatus.COVERAGE,
            comparison,
            "no test of this run can be judged by the baseline",
            "Compare with a run of the same model, tests and workloads: --llm-baseline.",
        )
    return _coverage(comparison, allowed)


def _coverage(comparison: Comparison, allowed: frozenset[Missing]) -> Outcome:
    lacking = Counter(_MISSING_OF[one.coverage] for one in comparison.uncovered if one.coverage in _MISSING_OF)
    if comparison.head.state in (RunState.INTERRUPTED, RunState.FAILED):
        reason = f"this run is no whole one: {comparison.head.state}"
        return Outcome(ExitStatus.COVERAGE, comparison, reason, "Have its tests pass, all of them, and judge that run.")
    vanished = comparison.with_verdict(Verdict.VANISHED, Force.BLOCKING)
    if vanished and Missing.VANISHED not in allowed:
        reason = f"{count(len(vanished), 'value')} of the baseline vanished, such as {vanished[0].metric.name} of "
        return Outcome(ExitStatus.COVERAGE, comparison, reason + vanished[0].subject, _allow(Missing.VANISHED))
    wrong = [what for what in Missing if what in lacking and what not in allowed]
    if wrong:
        counts = ", ".join(f"{lacking[what]} {what}" for what in wrong)
        return Outcome(ExitStatus.COVERAGE, comparison, f"not the baseline's tests: {counts}", _allow(*wrong))
    return Outcome(ExitStatus.PASSED, comparison)


def _allow(*what: Missing) -> str:
    return f"Where that is meant: --llm-gate-missing={','.join(what)}."


def nothing_measured(reason: str) -> Outcome:
    return Outcome(ExitStatus.NOT_MEASURED, None, reason, "The gate judges only what was measured.")


def no_baseline(reason: str, allowed: frozenset[Missing]) -> Outcome:
    status = ExitStatus.PASSED if Missing.BASELINE in allowed else ExitStatus.NO_BASELINE
    advice = "Save one with --benchmark-autosave; --llm-gate-missing=pass lets a first run pass."
    return Outcome(status, None, reason, advice)
