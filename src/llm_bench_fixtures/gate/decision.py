"""The way from a comparison to an exit status. The gate fails closed: what should have been judged and was not,
fails."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from llm_bench_fixtures.gate.comparison import Comparison, compare_runs
from llm_bench_fixtures.gate.coverage import Coverage
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.gate.judgement import Judgement
from llm_bench_fixtures.gate.options import BY_SAVED_RUN, NOTHING, Allowance
from llm_bench_fixtures.gate.rules import Rules
from llm_bench_fixtures.gate.verdicts import Verdict
from llm_bench_fixtures.history.baseline import Baseline
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.results.metrics import Force, Kind, Metric
from llm_bench_fixtures.results.record import Run, RunState

LONGER = "A longer --llm-time reaches more. "
_ALLOWED_BY = {
    Coverage.NEW: Allowance.NEW,
    Coverage.VANISHED: Allowance.VANISHED,
    Coverage.SKIPPED: Allowance.SKIPPED,
    Coverage.ERRORED: Allowance.ERRORED,
    Coverage.NOT_MEASURED: Allowance.ERRORED,
    Coverage.NOT_REACHED: Allowance.UNREACHED,
}


@dataclass(frozen=True)
class Decision:
    """Result of the gate for a run."""

    status: ExitStatus
    comparison: Comparison | None
    """None where there was no baseline, or nothing to judge."""
    reason: str = ""
    """Why, in a clause; empty where it passed."""
    advice: str = ""
    """Advice in a sentence; empty where it passed."""


def decide_run(
    head: Run, baseline: Baseline, rules: Rules, metrics: Mapping[str, Metric], allowed: frozenset[Allowance]
) -> Decision:
    """The decision on a run: not measured (24), no baseline (21), or that on its comparison with the baseline.

    metrics: those that are known, by name.
    """
    if not head.measured():
        in_time = " within its --llm-time" if head.not_reached() else ""
        return nothing_measured(f"nothing was timed in this run{in_time}")
    if baseline.run is None:
        return no_baseline(baseline.reason, allowed)
    return decide(compare_runs(baseline.run, head, rules, metrics, baseline.notes), allowed)


def decide(comparison: Comparison, allowed: frozenset[Allowance] = NOTHING) -> Decision:
    """The first that applies: regressed (20), not comparable (22), other tests (23), passed (0)."""
    checks = (_regressed, _not_comparable, _nothing_judged, _not_complete, _vanished, _uncovered)
    failures = (check(comparison, allowed) for check in checks)
    return next(filter(None, failures), Decision(ExitStatus.PASSED, comparison))


def _regressed(comparison: Comparison, _: frozenset[Allowance]) -> Decision | None:
    regressed = comparison.with_verdict(Verdict.REGRESSED, Force.BLOCKING)
    if not regressed:
        return None
    subjects = count(len({one.subject for one in regressed}), "test or variant", "tests and variants")
    return Decision(
        ExitStatus.REGRESSED,
        comparison,
        f"{count(len(regressed), 'value')} of {subjects} regressed",
        "If intended: llm-bench bless RUN --reason WHY makes a saved run the baseline.",
    )


def _not_comparable(comparison: Comparison, allowed: frozenset[Allowance]) -> Decision | None:
    for allowance, advice in (
        (Allowance.FINGERPRINT, "Compare with a run of the same kind"),
        (Allowance.UNREACHED, "Give both runs as much time as they need (--llm-time)"),
    ):
        is_late = allowance is Allowance.UNREACHED
        every = comparison.with_verdict(Verdict.NOT_MEASURED, Force.BLOCKING)
        unjudged = [one for one in every if one.is_of_other_sample is is_late]
        if unjudged and allowance not in allowed:
            return Decision(
                ExitStatus.NOT_COMPARABLE,
                comparison,
                f"{count(len(unjudged), 'value')} could not be judged: {unjudged[0].reason}",
                f"{advice}, or allow it: --llm-gate-missing={allowance}.",
            )
    return None


def _nothing_judged(comparison: Comparison, _: frozenset[Allowance]) -> Decision | None:
    if comparison.judged_tests:
        return None
    return Decision(
        ExitStatus.COVERAGE,
        comparison,
        "no test of this run can be judged by the baseline",
        "Compare with a run of the same model, tests and workloads: --llm-baseline.",
    )


def _not_complete(comparison: Comparison, _: frozenset[Allowance]) -> Decision | None:
    state = comparison.head.state
    if state not in (RunState.INTERRUPTED, RunState.FAILED):
        return None
    advice = "Judge a run in which all tests pass."
    return Decision(ExitStatus.COVERAGE, comparison, f"this run is not complete: {state}", advice)


def _vanished(comparison: Comparison, allowed: frozenset[Allowance]) -> Decision | None:
    unscored = {variant.id for variant in comparison.head.variants if variant.unscored}
    values: dict[Allowance, list[Judgement]] = defaultdict(list)
    for one in comparison.with_verdict(Verdict.VANISHED, Force.BLOCKING):
        is_late = one.metric.kind is Kind.QUALITY and one.subject in unscored
        values[Allowance.UNREACHED if is_late else Allowance.VANISHED].append(one)
    what, lost = next(((what, found) for what, found in values.items() if what not in allowed), (None, []))
    if what is None:
        return None
    such_as = f"{lost[0].metric.name} of {lost[0].subject}"
    verb, longer = ("vanished", "") if what is Allowance.VANISHED else ("not reached", LONGER)
    reason = f"{count(len(lost), 'value')} of the baseline {verb}, such as {such_as}"
    return Decision(ExitStatus.COVERAGE, comparison, reason, longer + _allow(what))


def _uncovered(comparison: Comparison, allowed: frozenset[Allowance]) -> Decision | None:
    lacking = Counter(_ALLOWED_BY[one.coverage] for one in comparison.uncovered if one.coverage in _ALLOWED_BY)
    wrong = [what for what in BY_SAVED_RUN if what in lacking and what not in allowed]
    if not wrong:
        return None
    counts = ", ".join(f"{lacking[what]} {what}" for what in wrong)
    longer = LONGER if Allowance.UNREACHED in wrong else ""
    return Decision(ExitStatus.COVERAGE, comparison, f"not the baseline's tests: {counts}", longer + _allow(*wrong))


def _allow(*what: Allowance) -> str:
    return f"If intended: --llm-gate-missing={','.join(what)}."


def nothing_measured(reason: str) -> Decision:
    """The decision on a run without timings."""
    return Decision(ExitStatus.NOT_MEASURED, None, reason, "The gate judges only what was measured.")


def no_baseline(reason: str, allowed: frozenset[Allowance]) -> Decision:
    """The decision on a run that there is nothing to compare with. reason: why there is nothing."""
    status = ExitStatus.PASSED if Allowance.BASELINE in allowed else ExitStatus.NO_BASELINE
    advice = "Save one with --benchmark-autosave; --llm-gate-missing=pass lets a first run pass."
    return Decision(status, None, reason, advice)
