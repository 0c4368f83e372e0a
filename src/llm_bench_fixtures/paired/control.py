"""A paired run: pairs of fresh workers, several at once, until every test is settled or the time is spent."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path

from llm_bench_fixtures.errors import SideFailed
from llm_bench_fixtures.gate.options import NOTHING, Allowance
from llm_bench_fixtures.paired.differences import Measurand, pair_differences
from llm_bench_fixtures.paired.display import Display, short_name
from llm_bench_fixtures.paired.protocol import Ended
from llm_bench_fixtures.paired.result import BASE, HEAD, Absence, NotCompared, PairedResult
from llm_bench_fixtures.paired.sequential import SequentialTests
from llm_bench_fixtures.paired.sides import PairSide
from llm_bench_fixtures.paired.tree import HypothesisGroup
from llm_bench_fixtures.paired.trial import Trial, TrialPace, run_trial
from llm_bench_fixtures.paired.workers import Command, Roster
from llm_bench_fixtures.processes.memory import free_memory_bytes
from llm_bench_fixtures.progress import about
from llm_bench_fixtures.results.record import Status

LABELS = (BASE, HEAD)
ROUNDS_SHARE = 0.4  # share of a pair's time for its rounds; the rest starts processes, loads models and passes turns
SUITE_PAIRS = 5  # pairs that a large suite of a slow model gets, however long they take
MARGIN = 1.1  # expected time of a pair over that of the pair before
LEAST_SHARE = 0.25  # expected time of a pair with few tests over that of one with all tests, at least
POLL_S = 0.5  # between two looks at whether another lane can be opened
ROOM = 2.0  # a lane is opened if so many times the memory of all workers is free


@dataclass(frozen=True)
class PairPlan:
    """Plan of a paired run."""

    commands: tuple[Command, ...]
    """How the workers of each lane are started; as many pairs run at once, as far as there is memory."""
    threads: int
    """Number of threads of each process."""
    threshold: float
    """The share by which something may get worse."""
    pairs: int
    """Number of pairs before the first analysis."""
    pace: TrialPace
    """Slowest pace, used where there are few tests."""
    test_time_s: float = 60.0
    """Seconds for each test that both sides have, unless `time_limit_s` is given."""
    suite_time_s: float = 900.0
    """The most for all tests together, unless SUITE_PAIRS pairs take longer or `time_limit_s` is given."""
    time_limit_s: float | None = None
    """No pair begins that isn't expected to end within this time."""
    grows: bool = True
    """Whether more pairs follow the first analysis while something is inconclusive."""
    allowed: frozenset[Allowance] = NOTHING
    """Allowances: what doesn't make the status red."""

    def time_s(self, tests: int) -> float:
        """Seconds for the whole run, before it is known what a pair takes."""
        if self.time_limit_s is not None:
            return self.time_limit_s
        return min(self.test_time_s * tests, self.suite_time_s)

    def pace_of(self, tests: int, all_tests: int) -> TrialPace:
        """The pace of a pair with so many tests, of `all_tests` that the run has."""
        of_pair_s = ROUNDS_SHARE * self.time_s(all_tests) * len(self.commands) / self.pairs
        return replace(self.pace, time_s=min(self.pace.time_s, of_pair_s / max(tests, 1)))


@dataclass
class PairedRun:
    """One run and its state; call `run` once."""

    sides: tuple[PairSide, PairSide]
    """BASE and HEAD."""
    plan: PairPlan
    display: Display
    scratch: Path
    """A folder for what the workers write."""
    coin: random.Random = field(default_factory=random.Random)
    """Draws the order of the sides."""
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._sequential = SequentialTests(self.plan.threshold, self.plan.pairs)
        self._roster = Roster()
        self._trials: list[Trial] = []
        self._ended: list[Trial] = []
        self._at_once = 0
        self._absent: dict[str, NotCompared] = {}
        self._tests: tuple[str, ...] = ()
        self._started = self.clock()

    def run(self) -> PairedResult:
        """However the run ends, the result has the verdicts of the complete pairs and why there are no more."""
        failure, interrupted = "", False
        try:
            self._run_pairs()
            if self._sequential.pairs > self._sequential.analyzed_pairs:
                self._sequential.analyze()  # the time is spent
        except SideFailed as error:
            failure = str(error)
            if not self._ended:  # a side that could run nothing lacks no test
                self._absent.clear()
        except KeyboardInterrupt:
            interrupted = True
        self.display.clear()
        return self._result(failure, interrupted=interrupted)

    def _run_pairs(self) -> None:
        """Run pairs in threads, one in each lane at a time, until no more is wanted.

        If anything raises, the workers are dismissed, and what was raised is raised here once the pairs are over.
        """
        running: dict[Future[None], tuple[Command, Trial]] = {}
        free = list(self.plan.commands)
        with ThreadPoolExecutor(len(free)) as pool:
            try:
                while True:
                    while free and self._wants_another(len(running)):
                        trial = Trial(len(self._trials) + 1)
                        self._trials.append(trial)
                        command = free.pop(0)
                        running[pool.submit(self._run_pair, command, trial)] = command, trial
                        self._at_once = max(self._at_once, len(running))
                    if not running:
                        return
                    done, _ = wait(running, POLL_S if free else None, FIRST_COMPLETED)
                    for future in done:
                        command, trial = running.pop(future)
                        free.insert(0, command)
                        future.result()
                        self._end_pair(trial)
            except BaseException:
                self._roster.dismiss()
                raise

    def _wants_another(self, running: int) -> bool:
        """Whether another pair is to begin while so many run."""
        if not self._trials:
            return True
        if self._sequential.pairs + running >= self._sequential.next_analysis:
            return False  # the analysis that is due may settle what the pair would measure
        if not self._sequential.pairs:  # the first pair goes alone until it is known what a lane takes
            first = self._trials[0]
            has_begun = bool(first.endings) and first.is_on_cpu and self._elapsed_s < self._time_s / 2
            return not running or (has_begun and has_room(self._roster))
        if not self._sequential.open_tests or (not self.plan.grows and self._sequential.pairs >= self.plan.pairs):
            return False
        if running and not (self._trials[0].is_on_cpu and has_room(self._roster)):
            return False
        return self._elapsed_s + self._expected_s <= self._time_s

    @property
    def _elapsed_s(self) -> float:
        return self.clock() - self._started

    @property
    def _pair_s(self) -> float:
        """Seconds that a pair takes."""
        return statistics.median(trial.total_s for trial in self._ended)

    @property
    def _expected_s(self) -> float:
        """Seconds that the next pair will take: as the last complete one, with the tests that are open by now."""
        last = self._ended[-1]
        share = len(self._sequential.open_tests) / max(len(last.rounds), 1)
        return MARGIN * last.total_s * min(max(share, LEAST_SHARE), 1.0)

    @property
    def _time_s(self) -> float:
        tests = sum(test not in self._absent for test in self._tests)
        given_s = self.plan.time_s(tests)
        if self.plan.time_limit_s is not None or not self._ended:
            return given_s
        turns = math.ceil(min(self.plan.pairs, SUITE_PAIRS) / max(self._at_once, 1))
        return min(self.plan.test_time_s * tests, max(given_s, turns * self._pair_s))

    def _run_pair(self, command: Command, trial: Trial) -> None:
        """Run a pair, in a thread of its own."""
        self.display.now(lambda: f"{self._position(trial)}: starting both sides")
        run_trial(
            dict(zip(LABELS, self.sides, strict=True)),
            command,
            self.scratch / f"pair-{trial.number}",
            self.coin,
            lambda collected: self._choose(collected, is_first=trial.number == 1),
            trial,
            self._roster,
            observes=trial.number == 1,
            announce=lambda test: self.display.now(lambda: self._doing(test, trial)),
            clock=self.clock,
        )

    def _end_pair(self, trial: Trial) -> None:
        self._ended.append(trial)
        self._note_absences(trial)
        found = pair_differences(trial.rounds, trial.prefills)
        self._sequential.add({one: found[one] for one in found if one.test not in self._absent}, trial.variants)
        if self._sequential.is_due:
            self._sequential.analyze()
        self.display.done(f"{self._position(trial)}, {trial.total_s:.0f} s{self._left}")

    def _choose(self, collected: Sequence[tuple[str, ...]], *, is_first: bool) -> tuple[Sequence[str], TrialPace]:
        """Choose a pair's tests, and their pace: in the first pair all that both sides have, in BASE's order; in later
        ones those that are open."""
        base, head = collected
        if is_first:
            self._note(NotCompared(test, Absence.VANISHED, BASE) for test in base if test not in head)
            self._note(NotCompared(test, Absence.NEW, HEAD) for test in head if test not in base)
            tests = self._tests = tuple(test for test in base if test in head)
        else:
            for label, found in zip(LABELS, collected, strict=True):
                lost = [test for test in self._open_tests if test not in found]
                why = "it was collected in the first pair only"
                self._note(NotCompared(test, Absence.NOT_TIMED, label, why) for test in lost)
            tests = self._open_tests
        return tests, self.plan.pace_of(len(tests), len(self._tests))

    @property
    def _open_tests(self) -> tuple[str, ...]:
        """Tests that are open; before any pair is complete, all that aren't known to be absent."""
        if not self._sequential.pairs:
            return tuple(test for test in self._tests if test not in self._absent)
        return self._sequential.open_tests

    def _note(self, rows: Iterable[NotCompared]) -> None:
        for row in rows:
            self._absent[row.test] = row
            self._sequential.forget(row.test)

    def _note_absences(self, trial: Trial) -> None:
        found = (absence(test, endings, trial) for test, endings in trial.endings.items())
        self._note(row for row in found if row is not None)

    def _position(self, trial: Trial) -> str:
        return f"pair {trial.number} of {self._sequential.next_analysis}"

    def _doing(self, test: str, trial: Trial) -> str:
        all_tests = self._tests if trial.number == 1 else self._open_tests
        position = f"test {len(trial.endings) + 1} of {len(all_tests)}"
        return f"{self._position(trial)}, {position}: {short_name(test)}{self._left}"

    @property
    def _left(self) -> str:
        """The time to the next analysis, once it is known what a pair takes."""
        if not self._ended:
            return ""
        missing = self._sequential.next_analysis - self._sequential.pairs
        to_analysis_s = missing * self._pair_s / max(self._at_once, 1)
        left_s = max(min(to_analysis_s, self._time_s - self._elapsed_s), 0.0)
        return f"; verdicts in about {about(left_s)}"

    def _result(self, failure: str, *, interrupted: bool) -> PairedResult:
        for trial in self._trials:
            self._note_absences(trial)
        findings = self._sequential.findings()
        return PairedResult(
            base=self.sides[0].description,
            head=self.sides[1].description,
            threshold=self.plan.threshold,
            threads=self.plan.threads,
            cores=tuple(core for command in self.plan.commands for core in command.cores),
            at_once=self._at_once,
            first_analysis=self.plan.pairs,
            analyses=self._sequential.analyses,
            findings={one: finding for one, finding in findings.items() if isinstance(one, Measurand)},
            groups={one: finding for one, finding in findings.items() if isinstance(one, HypothesisGroup)},
            variants={test: variant for trial in self._trials for test, variant in trial.variants.items()},
            differences=self._sequential.differences,
            not_compared=tuple(self._absent.values()),
            runs=tuple(run for trial in self._trials[:1] for run in trial.runs if run is not None),
            trials=tuple(self._trials),
            elapsed_s=self._elapsed_s,
            failure=failure,
            interrupted=interrupted,
            allowed=self.plan.allowed,
        )


def has_room(roster: Roster) -> bool:
    """Whether the machine's memory has room for one more lane like those that run."""
    return free_memory_bytes() >= ROOM * roster.resident_bytes


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
