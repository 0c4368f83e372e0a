"""A paired run: pairs of fresh workers, one after the other, until everything is settled or the time is spent."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from llm_bench_fixtures.errors import SideFailed
from llm_bench_fixtures.gate.allowances import NOTHING, Allowance
from llm_bench_fixtures.paired.display import Display
from llm_bench_fixtures.paired.protocol import Outcome
from llm_bench_fixtures.paired.result import BASE, HEAD, Absence, NotCompared, PairedResult
from llm_bench_fixtures.paired.sequential import Looks
from llm_bench_fixtures.paired.sides import Side
from llm_bench_fixtures.paired.statistics import JUDGED, Measurand, pair_difference
from llm_bench_fixtures.paired.trial import Pace, Trial, run_trial
from llm_bench_fixtures.paired.wording import change_text, duration_text, short_name
from llm_bench_fixtures.paired.workers import Command
from llm_bench_fixtures.results.record import Status

LABELS = (BASE, HEAD)


@dataclass(frozen=True)
class Plan:
    """What a paired run is to do.

    pairs: before the first look. max_time_s: after which no pair begins that isn't expected to end in time. grows:
    whether more pairs follow while something is inconclusive. allowed: what needn't make it red.
    """

    command: Command
    threads: int
    threshold: float
    pairs: int
    pace: Pace
    max_time_per_test_s: float
    max_time_s: float | None = None
    grows: bool = True
    allowed: frozenset[Allowance] = NOTHING


@dataclass
class PairedRun:
    """Its state; `run` goes through it once. scratch: a folder for what the workers write."""

    sides: tuple[Side, Side]
    plan: Plan
    display: Display
    scratch: Path
    coin: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self._looks = Looks(self.plan.threshold, self.plan.pairs)
        self._trials: list[Trial] = []
        self._absent: dict[str, NotCompared] = {}
        self._tests: tuple[str, ...] = ()
        self._started = time.monotonic()
        self._failure = ""
        self._interrupted = False

    def run(self) -> PairedResult:
        """Every way in which it ends gives a result: with what the complete pairs say, and why there are no more."""
        try:
            while self._wants_another():
                self._run_pair()
                if self._looks.is_due:
                    self._looks.look()
            if self._looks.pairs > self._looks.looked_at:
                self._looks.look()  # the time is spent
        except SideFailed as error:
            self._failure = str(error)
        except KeyboardInterrupt:
            self._interrupted = True
        self.display.clear()
        return self._result()

    def _wants_another(self) -> bool:
        if not self._trials:
            return True
        if not self._looks.open_tests or (not self.plan.grows and self._looks.pairs >= self.plan.pairs):
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
                tell=lambda test: self.display.now(lambda: self._doing(test, trial)),
            )
        finally:
            self._note_absences(trial)
        self._looks.add(self._differences(trial))
        self.display.done(f"{self._position}, {trial.total_s:.0f} s{self._so_far}")

    def _choose(self, collected: Sequence[tuple[str, ...]]) -> Sequence[str]:
        """Of the first pair all tests that both sides have, in BASE's order; later those that are still open."""
        base, head = collected
        if len(self._trials) == 1:
            self._note(NotCompared(test, Absence.VANISHED, BASE) for test in base if test not in head)
            self._note(NotCompared(test, Absence.NEW, HEAD) for test in head if test not in base)
            self._tests = tuple(test for test in base if test in head)
            return self._tests
        for label, tests in zip(LABELS, collected, strict=True):
            lost = [test for test in self._looks.open_tests if test not in tests]
            why = "it was collected in the first pair only"
            self._note(NotCompared(test, Absence.NOT_TIMED, label, why) for test in lost)
        return self._looks.open_tests

    def _note(self, rows: Iterable[NotCompared]) -> None:
        for row in rows:
            self._absent[row.test] = row
            self._looks.forget(row.test)

    def _note_absences(self, trial: Trial) -> None:
        found = (absence(test, outcomes, trial) for test, outcomes in trial.outcomes.items())
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
        return f"pair {len(self._trials)} of {self._looks.next_look}"

    def _doing(self, test: str, trial: Trial) -> str:
        all_tests = self._tests if len(self._trials) == 1 else self._looks.open_tests
        number = f"test {len(trial.outcomes) + 1} of {len(all_tests)}"
        return f"{self._position}, {number}: {short_name(test)}{self._so_far}"

    @property
    def _so_far(self) -> str:
        """The worst that is known, and the time that is left."""
        left = self._time_left
        known = [(key, found.estimate) for key, found in self._looks.findings().items() if found.estimate]
        worst = max(known, key=lambda item: item[1].mean, default=None)
        text = f"; worst: {short_name(worst[0].test)} {worst[0].metric} {change_text(*worst)}" if worst else ""
        return text + (f"; verdicts in about {duration_text(left)}" if left is not None else "")

    @property
    def _time_left(self) -> float | None:
        """Seconds to the next look."""
        done = [trial.total_s for trial in self._trials if trial.is_complete]
        if not done:
            return None
        to_look_s = (self._looks.next_look - self._looks.pairs) * done[-1]
        return max(min(to_look_s, self._max_time_s - self._elapsed_s), 0.0)

    def _result(self) -> PairedResult:
        observed = self._trials[0].runs if self._trials else []
        return PairedResult(
            base=self.sides[0].description,
            head=self.sides[1].description,
            threshold=self.plan.threshold,
            threads=self.plan.threads,
            cores=self.plan.command.cores,
            first_look=self.plan.pairs,
            looks=self._looks.done,
            findings=self._looks.findings(),
            differences={key: tuple(values) for key, values in self._looks.differences.items()},
            not_compared=tuple(self._absent.values()),
            runs=tuple(run for run in observed if run is not None),
            trials=tuple(self._trials),
            elapsed_s=self._elapsed_s,
            failure=self._failure,
            interrupted=self._interrupted,
            allowed=self.plan.allowed,
        )


def absence(test: str, outcomes: Sequence[Outcome], trial: Trial) -> NotCompared | None:
    """Why the test can't be compared after this trial; None where it can."""
    for status, kind in ((Status.ERROR, Absence.FAILED), (Status.SKIPPED, Absence.SKIPPED)):
        of_status = [(label, one) for label, one in zip(LABELS, outcomes, strict=True) if one.status is status]
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
