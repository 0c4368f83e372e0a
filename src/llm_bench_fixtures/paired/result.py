"""The result of a paired run: verdicts, what couldn't be compared and why, and the raw rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from msgspec import structs

from llm_bench_fixtures.errors import UnreadableResults
from llm_bench_fixtures.gate.comparison import Comparison, compare_runs
from llm_bench_fixtures.gate.exit_status import ExitStatus
from llm_bench_fixtures.gate.options import NOTHING, Allowance
from llm_bench_fixtures.gate.rules import NamedRule, Rules
from llm_bench_fixtures.gate.verdicts import Judgement, Verdict
from llm_bench_fixtures.grouping import grouped
from llm_bench_fixtures.history.saved import judged_run_from_json
from llm_bench_fixtures.paired.differences import Finding, Measurand
from llm_bench_fixtures.paired.tree import HypothesisGroup
from llm_bench_fixtures.paired.trial import Row, Trial
from llm_bench_fixtures.results.metrics import Force, Kind, registry
from llm_bench_fixtures.statistics.spread import pooled_deviation

SCHEMA = "llm-bench-fixtures/pair"
VERSION = 2
BASE, HEAD = "BASE", "HEAD"
# Exact counts, memory and quality are measured once on each side, and judged with the default rules but these.
OBSERVED_RULES = Rules(
    (
        NamedRule(Kind.TIMING, Force.OFF),  # times have their own verdicts
        # The allocator of a worker keeps freed memory, so a peak depends on which pieces it happens to use again.
        NamedRule(Kind.MEMORY, Force.ADVISORY),
        NamedRule("weight_bytes", Force.BLOCKING),
    )
)


class Absence(StrEnum):
    """Why a test has no verdict."""

    NEW = "new"
    VANISHED = "vanished"
    SKIPPED = "skipped"
    FAILED = "failed"
    CHANGED = "changed"  # another workload than before
    NOT_TIMED = "not timed"


@dataclass(frozen=True)
class NotCompared:
    """A test that has no verdict."""

    test: str
    """Node id."""
    absence: Absence
    side: str = ""
    """The side that it holds for, BASE or HEAD; empty if it holds for both or for neither alone."""
    reason: str = ""


@dataclass(frozen=True)
class PairedResult:
    """The result of `llm-bench pair`."""

    base: str
    """Description of BASE."""
    head: str
    """Description of HEAD."""
    threshold: float
    """The share by which something may get worse."""
    threads: int
    """Number of threads of each process."""
    cores: tuple[int, ...]
    """Cores that the rounds ran on, those of each lane; empty if they weren't bound to any."""
    first_analysis: int
    """Pairs before the first analysis."""
    analyses: int
    """Analyses of the group sequential test."""
    findings: Mapping[Measurand, Finding]
    """Finding on each test and metric."""
    differences: Mapping[Measurand, tuple[float, ...]]
    """One of each pair, as differences.pair_difference returns it."""
    not_compared: tuple[NotCompared, ...]
    runs: tuple[Mapping[str, Any], ...]
    """BASE's and HEAD's run of the first pair, as results.storage.run_to_json returns it; empty if that pair never
    ended."""
    trials: tuple[Trial, ...]
    """The raw rounds, pair by pair; the last trial may be incomplete."""
    elapsed_s: float
    failure: str = ""
    """Failure that ended the run early."""
    interrupted: bool = False
    at_once: int = 1
    """The most pairs that ran at the same time."""
    groups: Mapping[HypothesisGroup, Finding] = field(default_factory=dict)
    """Findings on the tests of each variant, and of all variants, in each metric."""
    variants: Mapping[str, str] = field(default_factory=dict)
    """Id of the variant that runs each test, by test."""
    allowed: frozenset[Allowance] = NOTHING
    """Allowances: what doesn't make the status red."""

    @property
    def pairs(self) -> int:
        """Complete pairs."""
        return sum(trial.is_complete for trial in self.trials)

    def of(self, verdict: Verdict) -> list[tuple[Measurand, Finding]]:
        """The measurands with this verdict."""
        return [(key, finding) for key, finding in self.findings.items() if finding.verdict is verdict]

    def groups_of(self, verdict: Verdict) -> list[tuple[HypothesisGroup, Finding]]:
        """The groups with this verdict."""
        return [(group, finding) for group, finding in self.groups.items() if finding.verdict is verdict]

    def tests_of(self, group: HypothesisGroup) -> dict[Measurand, Finding]:
        """The findings on the tests of a group."""
        return {
            key: finding
            for key, finding in self.findings.items()
            if key.metric == group.metric and group.variant in ("", self.variants.get(key.test))
        }

    @property
    def status(self) -> ExitStatus:
        """The gravest that applies."""
        if self.interrupted:
            return ExitStatus.INTERRUPTED
        if self.failure or any(row.absence is Absence.FAILED for row in self.not_compared):
            return ExitStatus.WORKER_FAILED
        if not self.findings:
            return ExitStatus.NOT_MEASURED
        if self.of(Verdict.REGRESSED) or self.groups_of(Verdict.REGRESSED) or self.carried_regressions:
            return ExitStatus.REGRESSED
        lacking = {what: status for what, status in _LACKING.items() if what not in self.allowed and self.lacks(what)}
        return next(iter(lacking.values()), ExitStatus.PASSED)

    def lacks(self, what: Allowance) -> bool:
        """Whether there is any of it: a test that HEAD skips or changed, a value that it lost, a comparison that is
        open or slightly worse."""
        if what is Allowance.INCONCLUSIVE:  # a group that is open while its tests are settled lacks nothing
            return bool(self.of(Verdict.INCONCLUSIVE))
        if what is Allowance.SLIGHT:
            return bool(self.of(Verdict.SLIGHTLY_WORSE) or self.groups_of(Verdict.SLIGHTLY_WORSE))
        absences, verdict = _SIGNS[what]
        if any((row.absence, row.side) in absences for row in self.not_compared):
            return True
        if self.carried is None:
            return what is Allowance.CHANGED and bool(self.runs)
        return bool(verdict and self.carried.with_verdict(verdict, Force.BLOCKING))

    @cached_property
    def carried(self) -> Comparison | None:
        """Exact counts, memory and quality of the first pair, judged; None unless both sides' can be read."""
        if len(self.runs) != 2:
            return None
        try:
            base, head = (judged_run_from_json(run, side) for run, side in zip(self.runs, (BASE, HEAD), strict=True))
        except UnreadableResults:  # a run of another schema
            return None
        return compare_runs(base, head, OBSERVED_RULES, registry())

    @property
    def carried_regressions(self) -> list[Judgement]:
        return self.carried.with_verdict(Verdict.REGRESSED, Force.BLOCKING) if self.carried else []

    def deviations(self) -> dict[str, float]:
        """Standard deviation of the log ratio between pairs, by metric, pooled over the tests."""
        groups = grouped(self.differences, lambda one: one.metric)
        pooled = {metric: pooled_deviation([self.differences[one] for one in own]) for metric, own in groups.items()}
        return {metric: deviation for metric, deviation in pooled.items() if deviation is not None}

    def as_json(self) -> dict[str, Any]:
        """Everything, with the raw rounds."""
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "sides": {BASE: self.base, HEAD: self.head},
            "threshold": self.threshold,
            "threads": self.threads,
            "cores": self.cores,
            "at_once": self.at_once,
            "first_look": self.first_analysis,  # "look", as stored files have it
            "looks": self.analyses,
            "pairs": self.pairs,
            "elapsed_s": self.elapsed_s,
            "allowed": sorted(self.allowed),
            "status": self.status.name.lower(),
            "exit_status": int(self.status),
            "failure": self.failure,
            "interrupted": self.interrupted,
            "groups": [_comparison_json(group, finding) for group, finding in self.groups.items()],
            "comparisons": [_comparison_json(key, finding) for key, finding in self.findings.items()],
            "not_compared": [asdict(row) for row in self.not_compared],
            "runs": self.runs,
            "trials": [_trial_json(trial) for trial in self.trials],
        }


# What shows that there is any of it: absences of tests, with the side that they hold for, and a verdict on the values
# that are measured once. A test that only one side has makes nothing red.
_SIGNS: Mapping[Allowance, tuple[Sequence[tuple[Absence, str]], Verdict | None]] = {
    Allowance.CHANGED: ([(Absence.CHANGED, "")], Verdict.NOT_MEASURED),
    Allowance.SKIPPED: ([(Absence.SKIPPED, HEAD), (Absence.NOT_TIMED, HEAD)], None),
    Allowance.VANISHED: ([], Verdict.VANISHED),
}
_LACKING = {  # the gravest first
    Allowance.SLIGHT: ExitStatus.SLIGHTLY_WORSE,
    Allowance.CHANGED: ExitStatus.NOT_COMPARABLE,
    Allowance.SKIPPED: ExitStatus.COVERAGE,
    Allowance.VANISHED: ExitStatus.COVERAGE,
    Allowance.INCONCLUSIVE: ExitStatus.INCONCLUSIVE,
}


def _comparison_json(compared: Measurand | HypothesisGroup, finding: Finding) -> dict[str, Any]:
    found = finding.estimate
    of_group = {"is_of_group": finding.is_of_group} if isinstance(compared, Measurand) else {}
    estimate = asdict(found) if found else None
    return {**asdict(compared), "verdict": finding.verdict.value, **of_group, "estimate": estimate}


def _trial_json(trial: Trial) -> dict[str, Any]:
    """Trial as JSON, without the runs, which stand in the result."""
    return {
        "collected": trial.collected,
        "variants": trial.variants,
        "rounds": _rounds_json(trial.rounds),
        "prefills": _rounds_json(trial.prefills),
        "outcomes": {test: list(map(structs.asdict, sides)) for test, sides in trial.endings.items()},
        "workloads": trial.workloads,
        "total_s": trial.total_s,
        "is_complete": trial.is_complete,
    }


def _rounds_json(rounds: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    return {test: [list(map(structs.asdict, row)) for row in rows] for test, rows in rounds.items()}
