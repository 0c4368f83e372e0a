"""A paired run: one pair of fresh workers after the other, until every test is settled or the time is spent."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from llm_bench_fixtures.errors import SideFailed
from llm_bench_fixtures.gate.allowances import NOTHING, Allowance
from llm_bench_fixtures.paired.display import Display
from llm_bench_fixtures.paired.protocol import Ended
from llm_bench_fixtures.paired.result import BASE, HEAD, Absence, NotCompared, PairedResult
from llm_bench_fixtures.paired.sequential import SequentialTests
from llm_bench_fixtures.paired.sides import Side
from llm_bench_fixtures.paired.statistics import JUDGED, Measurand, pair_difference
from llm_bench_fixtures.paired.trial import Pace, Trial, run_trial
from llm_bench_fixtures.paired.wording import difference_text, duration_text, short_name
from llm_bench_fixtures.paired.workers import Command
from llm_bench_fixtures.results.record import Status

LABELS = (BASE, HEAD)


@dataclass(frozen=True)
class Plan:
    """What a paired run is to do."""

    command: Command
    threads: int
    """Of each process."""
    threshold: float
    """The share by which something may get worse."""
    pairs: int
    """Before the first analysis."""
    pace: Pace
    max_time_per_test_s: float
    """Gives the maximum time, multiplied by the number of tests that both sides have, unless `max_time_s` does."""
    max_time_s: float | None = None
    """No pair begins that isn't expected to end within this time."""
    grows: bool = True
    """Whether more pairs follow the first analysis while something is inconclusive."""
    allowed: frozenset[Allowance] = NOTHING
    """What doesn't make the status red."""


@dataclass
class PairedRun:
    """One run and its state; call `run` once."""

    sides: tuple[Side, Side]
    """BASE and HEAD."""
    plan: Plan
    display: Display
    scratch: Path
    """A folder for what the workers write."""
    coin: random.Random = field(default_factory=random.Random)
    """Draws the order of the sides."""

    def __post_init__(self) -> None:
        self._sequential = SequentialTests(self.plan.threshold, self.plan.pairs)
        self._trials: list[Trial] = []
        self._absent: dict[str, NotCompared] = {}
        self._tests: tuple[str, ...] = ()
        self._started = time.monotonic()
        self._failure = ""
        self._interrupted = False

    def run(self) -> PairedResult:
        """However the run ends, the result has the verdicts of the complete pairs and why there are no more."""
        try:
            while self._wants_another():
                self._run_pair()
                if self._sequential.is_due:
                    self._sequential.analyze()
            if self._sequential.pairs > self._sequential.analyzed_pairs:
                self._sequential.analyze()  # the time is spent
        except SideFailed as error:
            self._failure = str(error)
        except KeyboardInterrupt:
            self._interrupted = True
        self.display.clear()
        return self._result()

    def _wants_another(self) -> bool:
        if not self._trials:
            return True
        if not self._sequential.open_tests or (not self.plan.grows and self._sequential.pairs >= self.plan.pairs):
            return False
        return self._elapsed_s + self._trials[-1].total_s <= self._max_time_s

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started

    @property
    def _max_time_s(self) -> float:
        given = self.plan.max_time_s
        if given is not None:
            return given
        return self.plan.max_time_per_test_s * sum(test not in self._absent for test in self._tests)

    def _run_pair(self) -> None:
        is_first = not self._trials
        self._trials.append(Trial())
        trial = self._trials[-1]
        self.display.now(lambda: f"{self._position}: starting both sides")
        try:
            run_trial(
                dict(zip(LABELS, self.sides, strict=True)),
                self.plan.command,
                self.scratch / f"pair-{len(self._trials)}",
                self.plan.pace,
                self.coin,
                self._choose,
                observes=is_first,
                into=trial,
                announce=lambda test: self.display.now(lambda: self._doing(test, trial)),
            )
        finally:
            self._note_absences(trial)
        self._sequential.add(self._differences(trial))
        self.display.done(f"{self._position}, {trial.total_s:.0f} s{self._so_far}")

    def _choose(self, collected: Sequence[tuple[str, ...]]) -> Sequence[str]:
        """In the first pair all tests that both sides have, in BASE's order; in later pairs those that are open."""
        base, head = collected
        if len(self._trials) == 1:
            self._note(NotCompared(test, Absence.VANISHED, BASE) for test in base if test not in head)
            self._note(NotCompared(test, Absence.NEW, HEAD) for test in head if test not in base)
            self._tests = tuple(test for test in base if test in head)
            return self._tests
        for label, tests in zip(LABELS, collected, strict=True):
            lost = [test for test in self._sequential.open_tests if test not in tests]
            why = "it was collected in the first pair only"
            self._note(NotCompared(test, Absence.NOT_TIMED, label, why) for test in lost)
        return self._sequential.open_tests

    def _note(self, rows: Iterable[NotCompared]) -> None:
        for row in rows:
            self._absent[row.test] = row
            self._sequential.forget(row.test)

    def _note_absences(self, trial: Trial) -> None:
        found = (absence(test, endings, trial) for test, endings in trial.endings.items())
        self._note(row for row in found if row is not None)

    def _differences(self, trial: Trial) -> dict[Measurand, float]:
        return {
            Measurand(test, metric.name): difference
            for test, rows in trial.rounds.items()
            if test not in self._absent
            for metric in JUDGED
            if (difference := pair_difference(metric, [(base, head) for base, head in rows])) is not None
        }

    @property
    def _position(self) -> str:
        return f"pair {len(self._trials)} of {self._sequential.next_analysis}"

    def _doing(self, test: str, trial: Trial) -> str:
        all_tests = self._tests if len(self._trials) == 1 else self._sequential.open_tests
        number = f"test {len(trial.endings) + 1} of {len(all_tests)}"
        return f"{self._position}, {number}: {short_name(test)}{self._so_far}"

    @property
    def _so_far(self) -> str:
        """The worst difference so far, and the time to the next analysis."""
        left = self._time_left
        known = [(key, found.estimate) for key, found in self._sequential.findings().items() if found.estimate]
        worst = max(known, key=lambda item: item[1].mean, default=None)
        text = f"; worst: {short_name(worst[0].test)} {worst[0].metric} {difference_text(*worst)}" if worst else ""
        return text + (f"; verdicts in about {duration_text(left)}" if left is not None else "")

    @property
    def _time_left(self) -> float | None:
        """Seconds to the next analysis."""
        done = [trial.total_s for trial in self._trials if trial.is_complete]
        if not done:
            return None
        to_analysis_s = (self._sequential.next_analysis - self._sequential.pairs) * done[-1]
        return max(min(to_analysis_s, self._max_time_s - self._elapsed_s), 0.0)

    def _result(self) -> PairedResult:
        observed = self._trials[0].runs if self._trials else []
        return PairedResult(
            base=self.sides[0].description,
            head=self.sides[1].description,
            threshold=self.plan.threshold,
            threads=self.plan.threads,
            cores=self.plan.command.cores,
            first_analysis=self.plan.pairs,
            analyses=self._sequential.analyses,
            findings=self._sequential.findings(),
            differences={key: tuple(values) for key, values in self._sequential.differences.items()},
            not_compared=tuple(self._absent.values()),
            runs=tuple(run for run in observed if run is not None),
            trials=tuple(self._trials),
            elapsed_s=self._elapsed_s,
            failure=self._failure,
            interrupted=self._interrupted,
            allowed=self.plan.allowed,
        )


def absence(test: str, endings: Sequence[Ended], trial: Trial) -> NotCompared | None:
    """Why this trial can't compare the test; None if it can."""
    for status, kind in ((Status.ERROR, Absence.FAILED), (Status.SKIPPED, Absence.SKIPPED)):
        of_status = [(label, one) for label, one in zip(LABELS, endings, strict=True) if one.status is status]
        if of_status:
            label, one = of_status[0]
            return NotCompared(test, kind, label if len(of_status) == 1 else "", one.reason)
    workloads = trial.workloads.get(test, [""] * len(LABELS))
    untimed = [label for label, workload in zip(LABELS, workloads, strict=True) if not workload]
    if untimed:
        side = untimed[0] if len(untimed) == 1 else ""
        return NotCompared(test, Absence.NOT_TIMED, side, "nothing runs through llm_benchmark")
    if len(set(workloads)) > 1:
        return NotCompared(test, Absence.CHANGED, "", "the sides time different prompts or settings")
    return None
