"""One trial: a fresh worker of each side, the same tests in lockstep, their rounds alternating in random order."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from llm_bench_fixtures.errors import SideFailed
from llm_bench_fixtures.paired.protocol import (
    Collected,
    Ended,
    Finished,
    Go,
    Next,
    Pause,
    Ready,
    Resume,
    Selected,
    Times,
)
from llm_bench_fixtures.paired.sides import Side
from llm_bench_fixtures.paired.workers import Command, Worker, started

Row: TypeAlias = tuple[Times, ...]  # of one round: each side's, in the order of the sides


@dataclass(frozen=True)
class Pace:
    """How many rounds a test gets in one trial.

    rounds: at most. time_s: of all sides' rounds together, after which there are no more than `least_rounds`.
    warmup_s: for so long each side runs rounds that are not counted, the one that it is ready with among them: the
    first ones after a load scatter several times as much as the later ones. turn_s: about the time that a side works on
    a round before it is the next one's turn; 0: its whole round.
    """

    rounds: int = 24
    least_rounds: int = 2
    time_s: float = 4.0
    warmup_s: float = 0.3
    turn_s: float = 0.002

    def rounds_of(self, row_s: float) -> int:
        """Rounds for a test of which one round of all sides takes `row_s` seconds."""
        return max(min(self.rounds, int(self.time_s / row_s)), min(self.least_rounds, self.rounds))

    def tokens_per_turn(self, row: Row) -> int:
        """The same for all sides, so that they pause at the same places. 0 where there is but one token."""
        slowest_s = max(times.tpot_s or math.inf for times in row)
        if not self.turn_s or slowest_s == math.inf:
            return 0
        return max(round(self.turn_s / slowest_s), 1)


@dataclass
class Trial:
    """What one trial gave; it is filled while the trial goes on, so that an interrupted one keeps what it has.

    collected: each side's tests that can be compared. rounds: by test; each row holds one round of each side, run next
    to each other. outcomes: by test, of each side. workloads: by test, of each side, the digest of what it times.
    runs: each side's run as JSON, from a trial that observed. total_s: with starting and loading.
    """

    collected: list[tuple[str, ...]] = field(default_factory=list)
    rounds: dict[str, list[Row]] = field(default_factory=dict)
    outcomes: dict[str, list[Ended]] = field(default_factory=dict)
    workloads: dict[str, list[str]] = field(default_factory=dict)
    runs: list[Mapping[str, Any] | None] = field(default_factory=list)
    total_s: float = 0.0
    is_complete: bool = False


Choose: TypeAlias = Callable[[Sequence[tuple[str, ...]]], Sequence[str]]
Tell: TypeAlias = Callable[[str], None]


@dataclass
class Coordinator:
    """Leads the workers of one trial through their tests.

    coin: decides the order of the sides within each round. tell: is told the test in hand.
    """

    workers: Sequence[Worker]
    pace: Pace
    coin: random.Random
    tell: Tell
    trial: Trial

    def run(self, choose: Choose, *, observes: bool, cores: tuple[int, ...]) -> None:
        """Raises SideFailed; the trial keeps what was measured before."""
        for worker in self.workers:
            worker.greet(observes=observes, cores=cores)
        self.trial.collected += [worker.expect(Collected).tests for worker in self.workers]
        tests = choose(self.trial.collected)
        self._tell_all(Selected(tuple(tests)))
        for test in tests:
            self.tell(test)
            self._run_test(test)
        self.trial.runs += [worker.expect(Finished).run for worker in self.workers]
        self.trial.is_complete = True

    def _run_test(self, test: str) -> None:
        for worker in self.workers:
            worker.test = test
        answers = [self._answer(worker, Ready, Ended) for worker in self.workers]
        ready = [answer for answer in answers if isinstance(answer, Ready)]
        outcomes = [answer if isinstance(answer, Ended) else None for answer in answers]
        self.trial.workloads[test] = [answer.workload if isinstance(answer, Ready) else "" for answer in answers]
        if len(ready) == len(self.workers):
            outcomes = self._run_rounds(test, tuple(answer.times for answer in ready))
        for index, worker in enumerate(self.workers):
            if outcomes[index] is None:
                worker.tell(Next())
        self.trial.outcomes[test] = [
            outcome or worker.expect(Ended) for worker, outcome in zip(self.workers, outcomes, strict=True)
        ]

    def _run_rounds(self, test: str, first: Row) -> list[Ended | None]:
        """The rounds of a test that every side is ready for; the outcomes of those that failed in one, and None of
        the others. first: the round that each side is ready with."""
        rows = self.trial.rounds.setdefault(test, [])
        try:
            last, tokens_per_turn = self._warm_up(first)
            for _ in range(self.pace.rounds_of(sum(times.latency_s for times in last))):
                rows.append(self._row(Go(is_counted=True, tokens_per_turn=tokens_per_turn)))
        except _RoundFailed as failed:
            return [failed.outcomes.get(index) for index in range(len(self.workers))]
        return [None] * len(self.workers)

    def _warm_up(self, row: Row) -> tuple[Row, int]:
        """Run rounds that don't count, after those of `row`; the last one's times, and the tokens of a turn."""
        tokens_per_turn = self.pace.tokens_per_turn(row)
        spent_s = [times.latency_s for times in row]
        while min(spent_s) < self.pace.warmup_s:
            row = self._row(Go(is_counted=False, tokens_per_turn=tokens_per_turn))
            tokens_per_turn = self.pace.tokens_per_turn(row)
            spent_s = [spent + times.latency_s for spent, times in zip(spent_s, row, strict=True)]
        return row, tokens_per_turn

    def _row(self, go: Go) -> Row:
        """One round of each side, in random order, turn by turn; while one works the others wait.

        Where a test ends in the middle of its round the others finish theirs, and wait for no turn any more.
        """
        order = self.coin.sample(range(len(self.workers)), len(self.workers))
        ended: dict[int, Times | Ended] = {}
        message: Go | Resume = go
        while waiting := [index for index in order if index not in ended]:
            for index in waiting:
                answer = self._turn(self.workers[index], message)
                if not isinstance(answer, Pause):
                    ended[index] = answer
            message = Resume()
        times = {index: answer for index, answer in ended.items() if isinstance(answer, Times)}
        if len(times) < len(order):
            raise _RoundFailed({index: answer for index, answer in ended.items() if isinstance(answer, Ended)})
        return tuple(times[index] for index in range(len(order)))

    def _turn(self, worker: Worker, message: Go | Resume) -> Times | Pause | Ended:
        worker.tell(message)
        answer: Times | Pause | Ended = self._answer(worker, Times, Pause, Ended)
        return answer

    def _answer(self, worker: Worker, *kinds: type) -> Any:
        answer = worker.expect(*kinds, Finished)
        if isinstance(answer, Finished):
            raise SideFailed(
                worker.label, f"pytest ended with status {answer.exit_status}", worker.test, worker.last_words
            )
        return answer

    def _tell_all(self, message: Selected) -> None:
        for worker in self.workers:
            worker.tell(message)


class _RoundFailed(Exception):
    """A test ended in the middle of its rounds, on the sides with these numbers; never leaves this module."""

    def __init__(self, outcomes: Mapping[int, Ended]) -> None:
        self.outcomes = outcomes


def run_trial(
    sides: Mapping[str, Side],
    command: Command,
    folder: Path,
    pace: Pace,
    coin: random.Random,
    choose: Choose,
    *,
    observes: bool,
    into: Trial,
    tell: Tell,
) -> None:
    """Start a worker of each side, by label, and lead them through the tests that `choose` takes of those collected.

    Fills `into`. Raises SideFailed. folder: for what the workers write; made here.
    """
    began = time.monotonic()
    with started(sides, command, folder, coin) as workers:
        Coordinator(workers, pace, coin, tell, into).run(choose, observes=observes, cores=command.cores)
        for worker in workers:
            worker.part()
    into.total_s = time.monotonic() - began
