"""The way from a comparison to an exit status. The gate fails closed: what should have been judged and was not,
fails."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from llm_bench_fixtures.gate.comparison import Comparison, compare_runs
from llm_bench_fixtures.gate.coverage import Coverage
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.gate.options import BY_SAVED_RUN, NOTHING, Allowance
from llm_bench_fixtures.gate.rules import Rules
from llm_bench_fixtures.gate.verdicts import Judgement, Verdict
from llm_bench_fixtures.history.baseline import Baseline
from llm_bench_fixtures.progress import about
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.results.metrics import Force, Kind, Metric
from llm_bench_fixtures.results.pooled import PooledRun
from llm_bench_fixtures.results.record import Run, RunState

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
    return next(_failures(comparison, allowed), Decision(ExitStatus.PASSED, comparison))


def _failures(comparison: Comparison, allowed: frozenset[Allowance]) -> Iterator[Decision]:
    """Every reason for which the gate fails, the gravest first."""
    if regressed := comparison.with_verdict(Verdict.REGRESSED, Force.BLOCKING):
        subjects = count(len({one.subject for one in regressed}), "test or variant", "tests and variants")
        reason = f"{count(len(regressed), 'value')} of {subjects} regressed"
        advice = "If intended: llm-bench bless RUN --reason WHY makes a saved run the baseline."
        yield Decision(ExitStatus.REGRESSED, comparison, reason, advice)
    for reason, advice in _not_comparable(comparison, allowed):
        yield Decision(ExitStatus.NOT_COMPARABLE, comparison, reason, advice)
    for reason, advice in _other_tests(comparison, allowed):
        yield Decision(ExitStatus.COVERAGE, comparison, reason, advice)


def _not_comparable(comparison: Comparison, allowed: frozenset[Allowance]) -> Iterator[tuple[str, str]]:
    """Values that could not be judged: the reason, and advice."""
    unjudged = comparison.with_verdict(Verdict.NOT_MEASURED, Force.BLOCKING)
    for allowance, advice in (
        (Allowance.FINGERPRINT, "Compare with a run of the same kind"),
        (Allowance.UNREACHED, "Give both runs as much time as they need (--llm-time)"),
    ):
        found = [one for one in unjudged if one.is_of_other_sample is (allowance is Allowance.UNREACHED)]
        if found and allowance not in allowed:
            reason = f"{count(len(found), 'value')} could not be judged: {found[0].reason}"
            yield reason, f"{advice}, or allow it: {_option(allowance)}."


def _other_tests(comparison: Comparison, allowed: frozenset[Allowance]) -> Iterator[tuple[str, str]]:
    """Tests and values that should have been judged and were not: the reason, and advice."""
    head = comparison.head
    if not comparison.judged_tests:
        advice = "Compare with a run of the same model, tests and workloads: --llm-baseline."
        yield "no test of this run can be judged by the baseline", advice
    if head.state in (RunState.INTERRUPTED, RunState.FAILED):
        yield f"this run is not complete: {head.state}", "Judge a run in which all tests pass."
    unscored = {variant.id for variant in head.variants if variant.unscored}
    values: dict[Allowance, list[Judgement]] = defaultdict(list)
    for one in comparison.with_verdict(Verdict.VANISHED, Force.BLOCKING):
        is_late = one.metric.kind is Kind.QUALITY and one.subject in unscored
        values[Allowance.UNREACHED if is_late else Allowance.VANISHED].append(one)
    for what, lost in values.items():
        if what not in allowed:
            verb = "vanished" if what is Allowance.VANISHED else "not reached"
            how_many = f"{count(len(lost), 'value')} of the baseline {verb}"
            yield f"{how_many}, such as {lost[0].metric.name} of {lost[0].subject}", _allow(comparison.base, what)
    tests = Counter(_ALLOWED_BY[one.coverage] for one in comparison.uncovered if one.coverage in _ALLOWED_BY)
    wrong = [what for what in BY_SAVED_RUN if what in tests and what not in allowed]
    if wrong:
        counts = ", ".join(f"{tests[what]} {what}" for what in wrong)
        yield f"not the baseline's tests: {counts}", _allow(comparison.base, *wrong)


def _allow(base: Run, *what: Allowance) -> str:
    took_s = max(run.session_s for run in (base.runs if isinstance(base, PooledRun) else (base,)))
    whose = "the longest run of the baseline" if isinstance(base, PooledRun) else "the baseline"
    took = f": {whose} took {about(took_s)}" if took_s else ""
    longer = f"A longer --llm-time reaches more{took}. " if Allowance.UNREACHED in what else ""
    return f"{longer}If intended: {_option(*what)}."


def nothing_measured(reason: str) -> Decision:
    """The decision on a run without timings."""
    return Decision(ExitStatus.NOT_MEASURED, None, reason, "The gate judges only what was measured.")


def no_baseline(reason: str, allowed: frozenset[Allowance]) -> Decision:
    """The decision on a run that there is nothing to compare with. reason: why there is nothing."""
    advice = "Save one with --benchmark-autosave"
    if Allowance.BASELINE in allowed:
        return Decision(ExitStatus.PASSED, None, reason, f"{advice}.")
    return Decision(ExitStatus.NO_BASELINE, None, reason, f"{advice}; {_option('pass')} lets a first run pass.")


def _option(*what: str) -> str:
    """The option that allows it, in pytest and in the command."""
    allowed = ",".join(what)
    return f"--llm-gate-missing={allowed} (llm-bench gate: --missing={allowed})"
