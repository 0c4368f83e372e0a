"""Measuring the variants of a case side by side: in blocks of rounds of each, in short slices in turns.

Between two variants that take turns, all that comes and goes on a shared machine falls on both alike: within a round,
too, where each of them can pause. Else, next to a server or on an accelerator, a turn is a whole round.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import fmean
from time import monotonic
from typing import TYPE_CHECKING

from llm_bench_fixtures.measure.binding import TRIAL_TOKENS, settle_binding
from llm_bench_fixtures.measure.timing import COLD_S, without_preemptions
from llm_bench_fixtures.measure.turns import take_turns, turns_of
from llm_bench_fixtures.measure.work import BRIEF_TOKENS, begin_observing, end_observing, observe
from llm_bench_fixtures.processes.calls import NEVER, Preemptions
from llm_bench_fixtures.processes.core_to_core import CoreLooks
from llm_bench_fixtures.progress import Left
from llm_bench_fixtures.session.case import CaseFigures, Entry, Measured, Pace, Spent
from llm_bench_fixtures.session.rounds import CROWDED_SHARE, CaseRounds
from llm_bench_fixtures.session.stopping import Stopping
from llm_bench_fixtures.session.waits import CaseTime
from llm_bench_fixtures.workloads import CacheKind

if TYPE_CHECKING:
    from llm_bench_fixtures.measure.timing import Round

# A round after other processes' rounds takes 2 or 3 ms longer than one of a loop, which is nothing to a longer one.
# Shorter ones are run several in a row, so that what warms the first warms all.
WARMED_BELOW_S = 0.15
MOST_IN_A_ROW = 3
OBSERVED_LONGER = 2.0  # times as long as another: a round whose memory is watched, more or less
# A slice is so long, much shorter than what disturbs machines, but has at least so many steps besides the cold ones,
# which count as these do. A step that is longer than the last of these is a slice of its own: being cold adds 2 ms.
# Pairs of the embedded model's rounds under torch and bitsandbytes scattered by 2.8 % with 20 ms, and by 3.7 % with 30,
# in as much time, on an Intel Xeon. With 14 ms their steps were less warm: ONNX Runtime's rounds took 2 to 3 % longer.
SLICE_S = 0.02
WARM_STEPS = 2
LONG_STEP_S = 0.15
# Where every variant's tokens take so long, or the model is large, a slice ends after PREEMPTED_SLICE_S wherever it is,
# so that each variant has one in each second. Pairs of five variants of 0.5B parameters scattered by 2.1 to 4.8 % with
# it and by 2.9 to 8.0 % without, in 15 blocks each, in turn, on an AMD EPYC; rounds took 0.4 to 2.6 % longer.
PREEMPTED_STEP_S = 0.02
PREEMPTED_SLICE_S = 0.05
LEAST_SHIFT = 0.25  # share of a slice by which a variant's are shifted within the block; at most 1 less this

Step = Callable[[str, str, Left | None], None]
"""Takes what goes on, whose turn it is, and how long it still goes on where that can be told."""


@dataclass
class Blocks:
    """Blocks of rounds of a case's variants, one after the other. A failure ends the turns of its variant only."""

    rounds: CaseRounds
    step: Step = lambda *_: None
    """Is called between turns."""
    coin: random.Random = field(default_factory=random.Random)
    clock: Callable[[], float] = monotonic
    first_draw: int = field(init=False)
    """The number of the way in which threads are bound in the first block."""
    time: CaseTime = field(init=False)
    stopping: Stopping = field(init=False)
    core_looks: CoreLooks = field(init=False)
    block_s: float = 0.0
    """How long the last block took."""
    preempts: bool = False
    """Whether slices end wherever they are, and not between tokens."""
    is_further: bool = False
    """Whether the block comes after the case's first ones, with others between them."""
    share_done: float = 0.0
    """Share of the current block's slices that are done."""
    doing: str = ""

    def __post_init__(self) -> None:
        self.first_draw = self.coin.randrange(os.cpu_count() or 1)
        self.time = CaseTime(self.pace, self.clock, lambda why: self.step(self.doing, why, None))
        self.stopping = Stopping(self.rounds, self.time)
        self.core_looks = CoreLooks()

    @property
    def pace(self) -> Pace:
        return self.rounds.pace

    @property
    def entries(self) -> dict[str, Entry]:
        """The variants, by id."""
        return self.rounds.entries

    def measure(self) -> CaseFigures:
        """Run blocks until there are enough, and return what was measured of each variant that a test asks for, or what
        failed. Where something else than a variant, as a test's time limit, ends that before its time, it is raised on,
        and `rounds.complete` has what was measured."""
        self._warm_up()
        self.rounds.in_a_row, self.preempts = self._rounds_in_a_row(), self._has_long_steps
        self.time.begin()
        while names := self.stopping.next_block(self.block_s):
            self._run_block(names)
            self.stopping.note_block()
        return {name: self.rounds.result(name) for name, entry in self.entries.items() if entry.is_asked_for}

    def _warm_up(self) -> None:
        """Observe memory and work in the first round of each, run the rest that aren't timed, and find how threads are
        bound in those that are. Of a large model some tokens stand for the first, and the first timed one is
        observed."""
        for name, entry in self.entries.items():
            self._begin_warming(name)
            with self._turn_of(entry):
                is_brief = self._warms_up_briefly(entry)
                if entry.is_asked_for and not is_brief:
                    self._observe(entry)
                for _ in range(self.pace.warmup_rounds - (entry.is_asked_for or is_brief)):
                    list(self._turns(entry, NEVER))
                if is_brief:
                    self._warm_up_briefly(entry)
                elif self._binds(entry):
                    entry.model.call(settle_binding, entry.workload, None if entry.is_asked_for else TRIAL_TOKENS)

    def _begin_warming(self, name: str) -> None:
        self.doing = "warming up"
        self.time.await_calm(self.entries[name])
        self.step(self.doing, name, None)

    def _observe(self, entry: Entry) -> None:
        """Observe the work of a round of its own."""
        began_s = self.clock()
        entry.observation = entry.model.call(observe, entry.workload)
        entry.last_s = (self.clock() - began_s) / OBSERVED_LONGER
        entry.step_s = entry.last_s / entry.workload.steps

    def _warms_up_briefly(self, entry: Entry) -> bool:
        """Whether fewer tokens do. Not of what is compiled or has a static cache, which they would leave too small."""
        if not self.pace.is_large or not entry.model.can_pause:
            return False
        return entry.workload.cache is not CacheKind.STATIC and entry.model.facts.compile_s is None

    def _warm_up_briefly(self, entry: Entry) -> None:
        entry.is_watched = entry.is_asked_for and entry.model.call(begin_observing, entry.workload)
        if entry.is_asked_for and not entry.is_watched:
            self._observe(entry)
        if not entry.is_watched:
            entry.model.call(settle_binding, entry.workload, BRIEF_TOKENS)

    @property
    def can_go_on(self) -> bool:
        """Whether further blocks are of use to any variant besides the reference."""
        return len(self.stopping.unsettled) > 1

    def go_on(self, step: Step) -> dict[str, Measured]:
        """Run one block more, once those that it is of use to are warmed up again, and return their figures, of the
        variants that a test asks for and that didn't fail; none where nothing was compared."""
        self.step, self.is_further, self.time.rested_s = step, True, 0.0
        rounds, unsettled = self.rounds, self.stopping.unsettled
        for name, entry in unsettled.items():
            self._begin_warming(name)
            with self._turn_of(entry):
                if self._warms_up_briefly(entry):
                    entry.model.call(settle_binding, entry.workload, BRIEF_TOKENS)
                elif not _is_short(entry):  # short rounds begin with untimed tokens anyway
                    list(self._turns(entry, NEVER))
        names = [name for name in unsettled if name in rounds.alive]
        if rounds.reference not in names or len(names) == 1:
            return {}
        self._run_block(names)
        return {name: rounds.measured(one) for name, one in rounds.alive.items() if name in names and one.is_asked_for}

    def _run_block(self, names: list[str]) -> None:
        """Run the same number of rounds of each, in slices. Each variant's are spread evenly over the block, so that
        all rounds span the same time, and shifted by a share of a slice that is drawn anew."""
        self.doing, before_s = self._round, self.time.elapsed_s
        first = self.rounds.blocks * self.rounds.in_a_row
        calm: list[bool] = []
        looked: list[float] = []
        self.rounds.looked.append(looked)
        is_next_to_server = any(entry.model.facts.is_beside for entry in self.entries.values())  # maybe their work
        slice_tokens = {name: 0 if self.preempts else self._slice_tokens(self.entries[name]) for name in names}
        preemptions = {name: Preemptions(PREEMPTED_SLICE_S if self.preempts else math.inf) for name in names}
        going = {
            name: self._turns(self.entries[name], preemptions[name], tokens, is_bound=self._binds(self.entries[name]))
            for name, tokens in slice_tokens.items()
        }
        slices = self._slices(slice_tokens)
        drawn = self.coin.sample(names, len(names))
        shifts = {name: LEAST_SHIFT + (1 - 2 * LEAST_SHIFT) * place / len(drawn) for place, name in enumerate(drawn)}
        taken = dict.fromkeys(names, 0.0)
        while going:
            name = min(going, key=lambda one: (taken[one] + shifts[one]) / slices[one])
            self.share_done = sum(map(min, taken.values(), slices.values())) / sum(slices.values())
            entry, taken[name] = self.entries[name], taken[name] + 1
            calm.append(self.time.await_calm(entry) or is_next_to_server)
            if calm[-1] and self._has_shared_work and (found := self.core_looks.look()) is not None:
                looked.append(found)
            self.step(self.doing, name, self._left)
            if self._take_slice(entry, going[name], first):
                del going[name]
                taken[name] = slices[name]
            if len(going) == 1:  # nobody else waits for a turn
                preemptions[next(iter(going))].every_s = math.inf
        self.rounds.crowded.append(1 - fmean(calm) if calm else 0.0)
        self.block_s = self.time.elapsed_s - before_s

    def _take_slice(self, entry: Entry, turns: Iterator[tuple[Round, ...] | None], first: int) -> bool:
        """Run a variant's next slice, and keep its rounds of the block once they are over; whether they are, or it
        failed. first: the number of the first of them."""
        with self._turn_of(entry):
            done = next(turns)
            if done is None:
                return False
            entry.rounds.update(enumerate(done, first))
            if entry.is_watched:
                entry.is_watched = False
                entry.observation = entry.model.call(end_observing, entry.workload, done[0].continuations)
        return True

    @property
    def spent(self) -> Spent:
        found_calm = any(share <= CROWDED_SHARE for share in self.rounds.crowded) or not self.rounds.crowded
        return Spent(self.time.rounds_s, self.time.waited_s, found_calm)

    @property
    def _round(self) -> str:
        """The number of the first in the block; and how many there are at least, until those are done."""
        number = self.rounds.blocks * self.rounds.in_a_row + 1
        return f"round {number}/{self.pace.rounds}" if number <= self.pace.rounds else f"round {number}"

    @property
    def _left(self) -> Left | None:
        """Time until the last round, if no other work takes any of it; None before the first block is done.

        The least rounds are sure to come; those after them end once the intervals are narrow, or the time is spent; for
        those between which the answer is open that is longer.
        """
        if not self.rounds.blocks:
            return None
        if self.is_further:
            return Left((1 - self.share_done) * self.block_s)
        done, elapsed_s = self.rounds.blocks + self.share_done, self.time.elapsed_s
        least_s = max((self.pace.rounds / self.rounds.in_a_row - done) * elapsed_s / done, 0.0)
        if not self.pace.max_noise:
            return Left(least_s)
        most_s = max(self.pace.share_s, self.stopping.longest_s if self.stopping.is_open else 0.0)
        return Left(max(least_s, most_s - elapsed_s), is_most=True)

    @contextmanager
    def _turn_of(self, entry: Entry) -> Iterator[None]:
        """Take a failure inside the block for the variant's, which ends its turns; and have its server leave the cores
        to the next variant afterwards."""
        has_others = any(other is not entry for other in self.rounds.alive.values())
        with self.time.resting(entry, has_others=has_others):
            try:
                yield
            except Exception as error:  # whatever an engine raises
                entry.failure = error

    def _rounds_in_a_row(self) -> int:
        """Rounds in a block, of those that can be enough: several where all of them are short, as the last ones of the
        warm-up show."""
        if self._is_whole or not all(map(_is_short, self.rounds.alive.values())):
            return 1
        return max(number for number in range(1, MOST_IN_A_ROW + 1) if self.rounds.fewest % number == 0)

    def _turns(
        self, entry: Entry, preemptions: Preemptions, slice_tokens: int = 0, *, is_bound: bool = False
    ) -> Iterator[tuple[Round, ...] | None]:
        """The turns of a block: None after each but the last. Long rounds are warmed up in the first one alone, since
        other variants were observed after their own warm-up, and not where they are preempted."""
        are_others, is_first = len(self.entries) > 1, self.time.began_s is not None and not self.rounds.blocks
        warms = _is_short(entry) or (is_first and self._binds(entry) and not self.pace.is_large)
        for done in entry.model.in_turns(
            preemptions,
            take_turns,
            entry.workload,
            rounds=self.rounds.in_a_row,
            slice_tokens=slice_tokens,
            draw=self.first_draw + self.rounds.blocks if is_bound else None,
            warms=are_others and warms and not self.preempts and not self.pace.probes,
            probes=self.pace.probes,
            is_preempted=self.preempts,
        ):
            if done is None:
                yield None
                continue
            own = tuple(without_preemptions(one, preemptions.intervals) for one in done)
            entry.last_s = own[-1].latency_s
            entry.step_s = fmean(own[-1].decode_steps_s or (own[-1].latency_s,))
            yield own

    @property
    def _has_shared_work(self) -> bool:
        """Whether threads of a variant share its work on cores of this machine, while all others stand still."""
        return self.pace.cores > 1 and not self._is_whole

    def _binds(self, entry: Entry) -> bool:
        """Whether its threads are bound where that changes nothing: next to others, on this machine's CPU."""
        return len(self.entries) > 1 and entry.model.can_pause

    @property
    def _is_whole(self) -> bool:
        """Whether a turn is a whole round: where somebody can't pause, nobody else takes turns, or each round has a
        probe before it."""
        can_pause = all(each.model.can_pause for each in self.entries.values())
        return len(self.entries) == 1 or self.pace.probes or not can_pause

    @property
    def _has_long_steps(self) -> bool:
        """Whether slices should end in the middle of tokens: those of a large model, or where each variant's take long
        in its last round, prefill included."""
        if self._is_whole or not self.pace.may_preempt:
            return False
        return self.pace.is_large or all(
            one.last_s >= PREEMPTED_STEP_S * one.workload.steps for one in self.rounds.alive.values()
        )

    def _slice_tokens(self, entry: Entry) -> int:
        """Tokens of a turn; 0: the whole round."""
        if self._is_whole:
            return 0
        if not entry.step_s:
            return WARM_STEPS
        if entry.step_s >= LONG_STEP_S:
            return 1
        return max(round(SLICE_S / entry.step_s), math.ceil(COLD_S / entry.step_s) + WARM_STEPS)

    def _slices(self, slice_tokens: Mapping[str, int]) -> dict[str, float]:
        """How many slices each one's rounds have in a block. slice_tokens: tokens of one; unless slices are preempted.
        Then a round is taken to last as long as its last one, or as expected; else as the longest of the others."""
        entries = {name: self.entries[name] for name in slice_tokens}
        if not self.preempts:
            return {
                name: turns_of(entries[name].workload.new_tokens_by_batch, self.rounds.in_a_row, tokens)
                for name, tokens in slice_tokens.items()
            }
        rounds_s = {name: entry.last_s or entry.expected_s for name, entry in entries.items()}
        longest_s = max(rounds_s.values())
        each_s = {name: self.rounds.in_a_row * (round_s or longest_s) for name, round_s in rounds_s.items()}
        return {name: max(seconds / PREEMPTED_SLICE_S, 1.0) for name, seconds in each_s.items()}


def _is_short(entry: Entry) -> bool:
    """Whether its rounds take so little that others before them matter; not while one is observed, which is alone."""
    return 0 < entry.last_s < WARMED_BELOW_S and not entry.is_watched
