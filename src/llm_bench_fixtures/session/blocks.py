"""Measuring the variants of a case side by side: in blocks of one turn of each, in an order drawn anew.

Between two variants that take turns, all that comes and goes on a shared machine falls on both alike.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, TypeAlias

from llm_bench_fixtures.measure.observation import observe
from llm_bench_fixtures.measure.turns import take_turn
from llm_bench_fixtures.processes.calm import LONGEST_SERVER_FALL_S, free_cores
from llm_bench_fixtures.progress import Left
from llm_bench_fixtures.results.speedup import CONFIDENCE, log_ratio
from llm_bench_fixtures.results.spread import interval
from llm_bench_fixtures.session.case import Entry, Measured, Pace, Spent

if TYPE_CHECKING:
    from llm_bench_fixtures.measure.timing import Round

# A round after other processes' rounds takes 2 or 3 ms longer than one of a loop, which is nothing to a longer one.
WARMED_BELOW_S = 0.15
# A turn has more than one round where they are short: as many as fit into so many seconds, at most so many. Warming up
# and falling asleep take some 40 ms, about as long as a round of a small model.
TURN_S = 0.15
MOST_OF_A_TURN = 4
# Before an interval that happens to be narrow is believed: so many blocks, and so many rounds or seconds of rounds.
ENOUGH_BLOCKS = 3
ENOUGH_ROUNDS = 6
ENOUGH_S = 0.6
# Of a round's latency: one on whose cores threads waited longer, on average, says little, and another is run
# while there is patience. With both cores taken, single rounds of 35 ms took 7 s.
SPOILED_SHARE = 0.2
LOOK_EVERY_S = 0.005
MOST_REST_S = 20.0  # that a case waits for its servers: what still runs then may be other work

Turns: TypeAlias = "dict[int, tuple[Round, ...]]"
"""By the number of the block, the rounds."""

Step = Callable[[str, str, Left | None], None]
"""Takes what goes on, whose turn it is, and how long it still goes on where that can be told."""


def measure_side_by_side(
    entries: Mapping[str, Entry],
    reference: str,
    pace: Pace,
    step: Step = lambda *_: None,
    coin: random.Random | None = None,
    clock: Callable[[], float] = time.monotonic,
    on_cut: Callable[[Mapping[str, Measured], Spent], None] = lambda *_: None,
) -> tuple[dict[str, Measured | Exception], Spent]:
    """By variant, what was measured, or what failed; a failure ends the turns of its variant only. And the time spent.

    entries: by variant. reference: the id of the variant that the others are compared with, if it is among them.
    step: is called between turns. on_cut: takes what has its least rounds, and the time spent, where something else
    than a variant, as a test's time limit, ends the case before its time; that is raised on.
    """
    run = _Blocks(dict(entries), reference, pace, step, coin or random.Random(), clock)  # noqa: S311  # no secret
    try:
        run.warm_up()
        run.run()
    except BaseException:
        on_cut(run.complete(), run.spent)
        raise
    return {name: run.result(name) for name, entry in entries.items() if entry.is_asked_for}, run.spent


@dataclass
class _Blocks:
    entries: dict[str, Entry]
    reference: str
    pace: Pace
    step: Step
    coin: random.Random
    clock: Callable[[], float]
    first_core: int = field(init=False)
    """That the first block begins on."""
    blocks: int = 0
    rounds: int = 0
    """Of each variant that is still measured, in the blocks so far."""
    waited_s: float = 0.0
    waited_before_s: float = 0.0
    """Of it, before the first block."""
    rested_s: float = 0.0
    """Since the first block began, for servers to rest after their turns: neither of the share nor of the patience."""
    began_s: float | None = None
    """The first block; none before it."""
    were_calm: list[bool] = field(default_factory=list)
    """Whether each turn so far had the cores that it needs, and no round of it was spoiled."""
    turns_left: int = 0
    """Of the block that is run."""
    doing: str = ""

    def __post_init__(self) -> None:
        self.first_core = self.coin.randrange(os.cpu_count() or 1)

    def warm_up(self) -> None:
        """Observe memory and work in the first round of each, and run the rest that aren't timed."""
        for name, entry in self.entries.items():
            self.doing = "warming up"
            self.step(self.doing, name, None)
            self._await_calm()
            with self._resting(entry), self._failing(entry):
                if entry.is_asked_for:
                    began_s = self.clock()
                    entry.observation = entry.model.call(observe, entry.workload)
                    entry.last_s = self.clock() - began_s
                for _ in range(self.pace.warmup_rounds - entry.is_asked_for):
                    self._turn(entry, rounds=1)

    def run(self) -> None:
        self.began_s, self.waited_before_s, self.rested_s = self.clock(), self.waited_s, 0.0
        while names := self._open():
            rounds = self._rounds_of_a_turn(names)
            self.turns_left, self.doing = len(names), self._round
            for name in self.coin.sample(names, len(names)):
                self.step(self.doing, name, self._left(rounds, len(names)))
                entry = self.entries[name]
                is_calm = self._await_calm()
                with self._resting(entry), self._failing(entry):
                    entry.turns[self.blocks] = turn = self._turn(entry, rounds)
                    spoiled = [done.latency_s for done in turn if self._is_spoiled(done)]
                    self._lose(sum(spoiled))
                    self.were_calm.append(is_calm and not spoiled)
                self.turns_left -= 1
            self.blocks += 1
            self.rounds += rounds

    @property
    def spent(self) -> Spent:
        return Spent(self.elapsed_s, self.waited_s, any(self.were_calm) or not self.were_calm)

    @property
    def _round(self) -> str:
        """The number of the first in the block; and how many there are at least, until those are done."""
        number = self.rounds + 1
        return f"round {number}/{self.pace.rounds}" if number <= self.pace.rounds else f"round {number}"

    def _left(self, rounds: int, turns: int) -> Left | None:
        """Until the last round, if no other work takes any of it; None before the first block is done.

        rounds: of a turn. turns: of a block. The least rounds are sure to come; those after them end once the
        intervals are narrow, or the time is spent.
        """
        if not self.blocks:
            return None
        done = self.rounds + rounds * (1 - self.turns_left / turns)
        blocks = 0 if not self.pace.max_noise else min(self.pace.rounds, ENOUGH_BLOCKS) - self.blocks
        needed = max(self.pace.rounds, self.rounds + rounds * blocks)
        least_s = max((needed - done) * self.elapsed_s / done, 0.0)
        if not self.pace.max_noise:
            return Left(least_s)
        return Left(max(least_s, self.pace.share_s - self.elapsed_s), is_most=True)

    def _lose(self, seconds: float) -> None:
        """Count as lost to other work what there is patience for; the rest is of the case's share."""
        self.waited_s += min(seconds, max(self.pace.patience_s - self.waited_s, 0.0))

    @property
    def elapsed_s(self) -> float:
        """Since the first block began, without what was lost to other work and to the rest of servers."""
        if self.began_s is None:
            return 0.0
        return self.clock() - self.began_s - (self.waited_s - self.waited_before_s) - self.rested_s

    def _open(self) -> list[str]:
        """The variants of the next block; the reference is among them as long as any other is."""
        alive = [name for name, entry in self.entries.items() if entry.failure is None]
        others = [name for name in alive if name != self.reference and self._wants_more(name)]
        with_reference = [self.reference] if self.reference in alive else []
        if others:
            return [*with_reference, *others]
        is_alone = len(alive) == 1 and self.entries[alive[0]].is_asked_for
        return with_reference if is_alone and with_reference and self._wants_more(self.reference) else []

    def _wants_more(self, name: str) -> bool:
        entry = self.entries[name]
        if self._is_settled_by_death(entry):
            return False
        if not self._has_least(entry.turns):
            return True
        if not self.pace.max_noise:
            return False
        if self._unspoiled(name) < self.pace.rounds and self._is_patient:
            return True
        if self.elapsed_s >= self.pace.share_s:
            return False
        return not self._is_enough(name) or not self._is_narrow(name)

    def _is_enough(self, name: str) -> bool:
        """To believe an interval."""
        entry = self.entries[name]
        spent_s = sum(done.latency_s for done in entry.rounds)
        return len(entry.turns) >= ENOUGH_BLOCKS and (len(entry.rounds) >= ENOUGH_ROUNDS or spent_s >= ENOUGH_S)

    @property
    def _is_patient(self) -> bool:
        """Whether spoiled rounds are still run once more."""
        return self.elapsed_s + self.waited_s < self.pace.share_s + max(self.pace.patience_s, self.waited_before_s)

    def _unspoiled(self, name: str) -> int:
        """How many of the variant's rounds are worth something: neither it nor the reference's beside it is spoiled."""
        measured = self.result(name)
        if isinstance(measured, Exception):
            return len(self.entries[name].rounds)
        base = measured.reference_rounds or measured.rounds
        return sum(not any(map(self._is_spoiled, both)) for both in zip(measured.rounds, base, strict=True))

    def _is_spoiled(self, done: Round) -> bool:
        cores = self.pace.cores
        return cores > 0 and done.waited_s is not None and done.waited_s > SPOILED_SHARE * cores * done.latency_s

    def _is_narrow(self, name: str) -> bool:
        measured = self.result(name)
        if isinstance(measured, Exception):
            return True
        if measured.reference_rounds and name != self.reference:
            ratio = log_ratio(measured.reference_undisturbed_s(), measured.undisturbed_s())
            return ratio is not None and ratio.margin_by_rounds(CONFIDENCE) <= self.pace.max_noise
        found = interval([done.latency_s for done in measured.rounds])
        return found is not None and found.relative_half_width <= self.pace.max_noise

    def _await_calm(self) -> bool:
        """Wait while other work leaves too few cores free, as long as there is patience for it; whether it ended."""
        left_s = self.pace.patience_s - self.waited_s
        began_s = self.clock()
        try:
            return self._await_cores(self.pace.cores, left_s, "waiting for other work")
        finally:
            self.waited_s += self.clock() - began_s

    @contextmanager
    def _resting(self, entry: Entry) -> Iterator[None]:
        """Wait, after what is done within, until a server on this machine has left the cores to the next variant: as
        many as a round keeps busy, or as were free before."""
        are_others = any(other is not entry and other.failure is None for other in self.entries.values())
        before = free_cores() if are_others and entry.model.facts.is_beside else None
        yield
        if before is not None:
            cores, longest_s = min(before, self.pace.cores), min(LONGEST_SERVER_FALL_S, MOST_REST_S - self.rested_s)
            began_s = self.clock()
            try:
                self._await_cores(cores, longest_s, "waiting for the server to rest")
            finally:
                self.rested_s += self.clock() - began_s

    def _await_cores(self, cores: int, longest_s: float, why: str) -> bool:
        """Wait until so many are free, at most so long; whether they are."""
        began_s = self.clock()
        while not (are_free := _are_free(cores)) and self.clock() - began_s < longest_s:
            self.step(self.doing, why, None)
            time.sleep(LOOK_EVERY_S)
        return are_free

    @contextmanager
    def _failing(self, entry: Entry) -> Iterator[None]:
        """What fails within is the variant's failure, and ends its turns."""
        try:
            yield
        except Exception as error:  # whatever an engine raises
            entry.failure = error

    def _rounds_of_a_turn(self, names: list[str]) -> int:
        """The same for all of a block. One where exactly so many rounds are asked for, or nobody else takes turns."""
        if not self.pace.max_noise or self.pace.probes or len(self.entries) == 1:
            return 1
        mean_s = fmean(self.entries[name].last_s for name in names)  # a slow one counts, for it takes as many
        return min(max(int(TURN_S / mean_s), 1), MOST_OF_A_TURN) if mean_s else 1

    def _turn(self, entry: Entry, rounds: int) -> tuple[Round, ...]:
        are_others = len(self.entries) > 1
        warms = are_others and entry.last_s < WARMED_BELOW_S and not self.pace.probes
        # A process would stay for seconds where it happens to be, and cores differ. Here a server has its client only.
        core = self.first_core + self.blocks if are_others and not entry.model.facts.is_remote else None
        turn = entry.model.call(
            take_turn, entry.workload, rounds=rounds, core=core, warms=warms, probes=self.pace.probes
        )
        entry.last_s = turn[-1].latency_s
        return turn

    def complete(self) -> dict[str, Measured]:
        """What has its least rounds, of those that a test asks for."""
        return {
            name: measured
            for name, entry in self.entries.items()
            if entry.is_asked_for and self._has_least(self._counted(entry))
            if not isinstance(measured := self.result(name), Exception)
        }

    def result(self, name: str) -> Measured | Exception:
        entry = self.entries[name]
        if entry.failure is not None:
            return entry.failure
        counted, base = self._counted(entry), self._base_of(entry) or {}
        return Measured(
            entry.observation,
            tuple(done for turn in counted.values() for done in turn),
            tuple(done for number in counted for done in base.get(number, ())),
        )

    def _counted(self, entry: Entry) -> Turns:
        """The variant's turns; where they are paired, those in which the reference had its own."""
        base = self._base_of(entry)
        return entry.turns if base is None else _shared(entry.turns, base)

    def _base_of(self, entry: Entry) -> Turns | None:
        """The reference's turns that the variant's are paired with: of one that has died, if they are enough. None
        without a reference, or where it is alone."""
        reference = self.entries.get(self.reference)
        if reference is None or len(self.entries) == 1:
            return None
        is_too_few = reference.failure is not None and not self._has_least(_shared(entry.turns, reference.turns))
        return None if is_too_few else reference.turns

    def _has_least(self, turns: Turns) -> bool:
        """As many rounds and blocks as are run in any case."""
        blocks = min(self.pace.rounds, ENOUGH_BLOCKS)
        return len(turns) >= blocks and sum(map(len, turns.values())) >= self.pace.rounds

    def _is_settled_by_death(self, entry: Entry) -> bool:
        """Whether further turns would be beside no reference, where there are enough that were."""
        is_dead = self.reference in self.entries and self.entries[self.reference].failure is not None
        return is_dead and self._base_of(entry) is not None


def _are_free(cores: int) -> bool:
    """Whether so many are; also where the system doesn't tell."""
    free = free_cores()
    return free is None or free >= cores


def _shared(turns: Turns, base: Turns) -> Turns:
    """Those of the blocks that both have."""
    return {number: turn for number, turn in turns.items() if number in base}
