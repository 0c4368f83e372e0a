"""One trial: a fresh worker of each side, which run the same tests in lockstep and take turns within each round."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from llm_bench_fixtures.paired.protocol import (
    Collected,
    Ended,
    Go,
    Next,
    Pause,
    Ready,
    Resume,
    Selected,
    Times,
)
from llm_bench_fixtures.paired.sides import PairSide
from llm_bench_fixtures.paired.workers import Command, Roster, Worker

Row: TypeAlias = tuple[Times, ...]  # one round of each side, in the order of the sides


@dataclass(frozen=True)
class TrialPace:
    """How many rounds a test gets in one trial, and how long the turns are."""

    rounds: int = 24
    """The most that are counted, of each kind."""
    time_s: float = 2.5
    """Seconds for the counted rounds of a test, of all sides together; the least number is counted however long it
    takes."""
    prefill_share: float = 0.25
    """The part of `time_s` for rounds of one token each."""
    least_prefills: int = 3
    """A time to the first token is one value of a round, and one in a hundred is far off."""
    warmup_s: float = 0.3
    """Seconds for rounds of each side that are not counted, before the first test of each variant: the first rounds
    after a load vary several times as much as the later ones."""
    turn_s: float = 0.002
    """About how long a side works on a round before the other side's turn; 0: for the whole round."""

    def rounds_of(self, row_s: float, *, is_prefill: bool = False) -> int:
        """Counted rounds of one kind; row_s: seconds that one round of all sides takes."""
        share = self.prefill_share if is_prefill else 1 - self.prefill_share
        least = min(self.least_prefills if is_prefill else 1, self.rounds)
        return max(min(self.rounds, int(self.time_s * share / row_s)), least)

    def tokens_per_turn(self, row: Row) -> int:
        """Tokens per turn, equal for all sides, so that they pause at the same places. 0 if there is only one token."""
        slowest_s = max(times.tpot_s or math.inf for times in row)
        if not self.turn_s or slowest_s == math.inf:
            return 0
        return max(round(self.turn_s / slowest_s), 1)


@dataclass
class Trial:
    """Measurements of one trial. It is filled as the trial goes on, so that an interrupted one keeps what it has."""

    number: int = 1
    """Place among the run's trials, from 1."""
    collected: list[tuple[str, ...]] = field(default_factory=list)
    """Tests that can be compared, one tuple per side."""
    rounds: dict[str, list[Row]] = field(default_factory=dict)
    """Rounds of the whole workload by test, in order; those of one row ran in turns."""
    prefills: dict[str, list[Row]] = field(default_factory=dict)
    """Rounds of one token each by test, in order; empty if the workload has no more tokens."""
    variants: dict[str, str] = field(default_factory=dict)
    """Id of the variant that runs each test, by test."""
    is_on_cpu: bool = True
    """Whether all its models run on the CPU."""
    endings: dict[str, list[Ended]] = field(default_factory=dict)
    """Endings by test, one per side."""
    workloads: dict[str, list[str]] = field(default_factory=dict)
    """Digests by test of what each side times; empty if the side times nothing."""
    runs: list[Mapping[str, Any] | None] = field(default_factory=list)
    """Runs as results.storage.run_to_json returns them, one per side; None if the trial didn't observe."""
    total_s: float = 0.0
    """Seconds in all, with starting the workers and loading the models."""
    is_complete: bool = False


Choose: TypeAlias = Callable[[Sequence[tuple[str, ...]]], tuple[Sequence[str], TrialPace]]


@dataclass
class _Coordinator:
    """Leads the workers of one trial through a test."""

    workers: Sequence[Worker]
    pace: TrialPace
    coin: random.Random
    """Draws the order of the sides within each round."""
    trial: Trial
    """Is filled."""
    warm_variant: str = ""

    def run_test(self, test: str) -> None:
        for worker in self.workers:
            worker.test = test
        answers = [worker.expect(Ready, Ended) for worker in self.workers]
        ready = [answer for answer in answers if isinstance(answer, Ready)]
        endings = [answer if isinstance(answer, Ended) else None for answer in answers]
        self.trial.workloads[test] = [answer.workload if isinstance(answer, Ready) else "" for answer in answers]
        if len(ready) == len(self.workers):
            endings = self._run_rounds(test, ready)
        for index, worker in enumerate(self.workers):
            if endings[index] is None:
                worker.send(Next())
        self.trial.endings[test] = [
            ending or worker.expect(Ended) for worker, ending in zip(self.workers, endings, strict=True)
        ]

    def _run_rounds(self, test: str, first: Sequence[Ready]) -> list[Ended | None]:
        """Run the rounds of a test that every side is ready for. first: what each side sent.

        Returns how the test ended on each side where it ended within a round, and None for the other sides.
        """
        rows = self.trial.rounds.setdefault(test, [])
        prefills = self.trial.prefills.setdefault(test, [])
        self.trial.variants[test] = first[0].variant
        self.trial.is_on_cpu &= all(answer.is_on_cpu for answer in first)
        warm = tuple(answer.times for answer in first)
        try:
            tokens_per_turn = self._warm_up(first[0].variant, warm)
            if all(times.tpot_s is not None for times in warm):  # without a decode every round is a prefill
                self._fill(prefills, Go(is_counted=True, is_prefill=True))
            self._fill(rows, Go(is_counted=True, tokens_per_turn=tokens_per_turn))
        except _RoundFailed as failed:
            return [failed.endings.get(index) for index in range(len(self.workers))]
        return [None] * len(self.workers)

    def _fill(self, rows: list[Row], go: Go) -> None:
        """Add as many rounds of each side as the pace has time for, by what the first one takes."""
        rows.append(self._row(go))
        row_s = sum(times.latency_s for times in rows[0])
        rows.extend(self._row(go) for _ in range(self.pace.rounds_of(row_s, is_prefill=go.is_prefill) - 1))

    def _warm_up(self, variant: str, row: Row) -> int:
        """Run rounds that don't count if the variant was just loaded. row: the first tokens' times.

        Returns the number of tokens in a turn.
        """
        tokens_per_turn = self.pace.tokens_per_turn(row)
        spent_s = [times.latency_s for times in row]
        while variant != self.warm_variant and min(spent_s) < self.pace.warmup_s:
            row = self._row(Go(is_counted=False, tokens_per_turn=tokens_per_turn))
            tokens_per_turn = self.pace.tokens_per_turn(row)
            spent_s = [spent + times.latency_s for spent, times in zip(spent_s, row, strict=True)]
        self.warm_variant = variant
        return tokens_per_turn

    def _row(self, go: Go) -> Row:
        """One round of each side, in turns of random order; while one side works the others wait.

        If a test ends in the middle of a side's round, the other sides finish theirs.
        """
        order = self.coin.sample(range(len(self.workers)), len(self.workers))
        ended: dict[int, Times | Ended] = {}
        message: Go | Resume = go
        while waiting := [index for index in order if index not in ended]:
            for index in waiting:
                self.workers[index].send(message)
                answer = self.workers[index].expect(Times, Pause, Ended)
                if isinstance(answer, (Times, Ended)):
                    ended[index] = answer
            message = Resume()
        times = {index: answer for index, answer in ended.items() if isinstance(answer, Times)}
        if len(times) < len(order):
            raise _RoundFailed({index: answer for index, answer in ended.items() if isinstance(answer, Ended)})
        return tuple(times[index] for index in range(len(order)))


class _RoundFailed(Exception):
    """A test ended in the middle of a round, on the sides with these indices. It is caught in this module."""

    def __init__(self, endings: Mapping[int, Ended]) -> None:
        self.endings = endings


def run_trial(
    sides: Mapping[str, PairSide],
    command: Command,
    folder: Path,
    coin: random.Random,
    choose: Choose,
    trial: Trial,
    roster: Roster,
    *,
    observes: bool = False,
    announce: Callable[[str], object] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Start a worker of each side, and lead them through their tests.

    sides: by label. folder: for what the workers write; it is made here. choose: gives the tests to run, of those that
    each side collected, and their pace. trial: is filled. roster: knows the workers while they are alive. observes:
    whether the workers measure memory, work and quality too. announce: is called with each test before it runs. Raises
    SideFailed; the trial keeps its rounds.
    """
    began = clock()
    with roster.started(sides, command, folder, coin) as workers:
        for worker in workers:
            worker.greet(observes=observes, cores=command.cores)
        trial.collected += [worker.expect(Collected).tests for worker in workers]
        tests, pace = choose(trial.collected)
        for worker in workers:
            worker.send(Selected(tuple(tests)))
        coordinator = _Coordinator(workers, pace, coin, trial)
        for test in tests:
            announce(test)
            coordinator.run_test(test)
        trial.runs += [worker.finish(has_tests=bool(tests)) for worker in workers]
        trial.is_complete = True
        for worker in workers:
            worker.process.close()
    trial.total_s = clock() - began
