"""Measuring the variants of a case side by side: in blocks of rounds of each, in short slices in turns.

Between two variants that take turns, all that comes and goes on a shared machine falls on both alike: within a round,
too, where each of them can pause. Else, next to a server or on an accelerator, a turn is a whole round.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, TypeAlias

from llm_bench_fixtures.measure.binding import TRIAL_TOKENS, settle_binding
from llm_bench_fixtures.measure.timing import COLD_S, without_preemptions
from llm_bench_fixtures.measure.turns import take_turns, turns_of
from llm_bench_fixtures.measure.work import BRIEF_TOKENS, begin_observing, end_observing, observe
from llm_bench_fixtures.processes.calls import NEVER, Preemptions
from llm_bench_fixtures.processes.calm import LONGEST_SERVER_FALL_S, free_cores
from llm_bench_fixtures.processes.core_to_core import CoreLooks
from llm_bench_fixtures.progress import Left
from llm_bench_fixtures.session.case import Entry, Measured, Pace, Spent
from llm_bench_fixtures.statistics.ratio import LogRatio, are_far_apart, log_ratio
from llm_bench_fixtures.statistics.spread import CONFIDENCE, interval
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
# Minimum evidence: an early interval may be narrow by luck. So many blocks of so many seconds, or of any so many
# rounds.
ENOUGH_BLOCKS = 3
ENOUGH_ROUNDS = 6
ENOUGH_S = 0.6
OPEN_LONGER = 1.5  # times as long as its least rounds, that a case may take while the answer is open
LONG_ROUND_S = 2.0  # longer rounds are as many as the interval needs
FREEDOM_FOR_FEW = 1.0  # of the expected variance: with it two pairs tell as much of their scatter as three without
# A block is crowded, and says little, if other work is found before more than this share of its turns. With both cores
# taken, single rounds of 35 ms took 7 s.
CROWDED_SHARE = 0.1
LOOK_EVERY_S = 0.001
LEAST_CORE_LOOKS = 3  # of which a block's mean is, or more: single ones scatter by 20 %
SHOWN_WAIT_S = 1.0  # shorter waits come before many turns, and would be all that is ever shown
LOOKS = 3  # before a turn: the process whose turn is over may need a moment to stop
MOST_REST_S = 20.0  # seconds that a case waits for its servers: what still runs then may be other work

Rounds: TypeAlias = "dict[int, Round]"
"""Rounds by number: those of a block follow each other, and have the same numbers for all variants."""

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
    on_end: Callable[[Blocks], None] = lambda _: None,
) -> tuple[dict[str, Measured | Exception], Spent]:
    """Measure a case's variants in turns, and return what was measured of each, or what failed, and the time spent. A
    failure ends the turns of its variant only.

    entries: by variant. reference: the id of the variant that the others are compared with, if it is among them.
    step: is called between turns. on_cut: takes what has its least rounds, and the time spent, where something else
    than a variant, as a test's time limit, ends the case before its time; that is raised on. on_end: takes the blocks
    of a case that was not cut, which can go on.
    """
    run = Blocks(dict(entries), reference, pace, step, coin or random.Random(), clock)  # noqa: S311  # no secret
    try:
        run.warm_up()
        run.run()
    except BaseException:
        on_cut(run.complete(), run.spent)
        raise
    on_end(run)
    return {name: run.result(name) for name, entry in entries.items() if entry.is_asked_for}, run.spent


@dataclass
class Blocks:
    """Blocks of rounds of a case's variants, one after the other."""

    entries: dict[str, Entry]
    reference: str
    pace: Pace
    step: Step
    coin: random.Random
    clock: Callable[[], float]
    first_draw: int = field(init=False)
    """The number of the way in which threads are bound in the first block."""
    in_a_row: int = 1
    """How many rounds each variant has in a block."""
    blocks: int = 0
    waited_s: float = 0.0
    waited_before_s: float = 0.0
    """Seconds waited before the first block."""
    rested_s: float = 0.0
    """Seconds rested since the first block began, for servers after their turns: neither of the share nor of the
    patience."""
    began_s: float | None = None
    """The first block; none before it."""
    least_s: float | None = None
    """How long the least blocks took, once they are done."""
    block_s: float = 0.0
    """How long the last block took."""
    is_open: bool = False
    """Whether the case goes on because the answer is open."""
    preempts: bool = False
    """Whether slices end wherever they are, and not between tokens."""
    is_further: bool = False
    """Whether the block comes after the case's first ones, with others between them."""
    crowded: list[float] = field(default_factory=list)
    """Share of each block's turns before which other work ran."""
    core_looks: CoreLooks = field(init=False)
    looked: list[list[float]] = field(default_factory=list)
    """What the looks of each block found, from core to core; that of the current one included."""
    share_done: float = 0.0
    """Share of the current block's slices that are done."""
    doing: str = ""

    def __post_init__(self) -> None:
        self.first_draw = self.coin.randrange(os.cpu_count() or 1)
        self.core_looks = CoreLooks()

    def warm_up(self) -> None:
        """Observe memory and work in the first round of each, run the rest that aren't timed, and find how threads are
        bound in those that are. Of a large model some tokens stand for the first, and the first timed one is
        observed."""
        for name, entry in self.entries.items():
            self.doing = "warming up"
            self._await_calm(entry)
            self.step(self.doing, name, None)
            with self._resting(entry), self._failing(entry):
                is_brief = self._warms_up_briefly(entry)
                if entry.is_asked_for and not is_brief:
                    self._observe(entry)
                for _ in range(self.pace.warmup_rounds - (entry.is_asked_for or is_brief)):
                    list(self._turns(entry, NEVER))
                if is_brief:
                    self._warm_up_briefly(entry)
                elif self._binds(entry):
                    entry.model.call(settle_binding, entry.workload, None if entry.is_asked_for else TRIAL_TOKENS)

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

    def run(self) -> None:
        self.in_a_row, self.preempts = self._rounds_in_a_row(), self._has_long_steps
        self.began_s, self.waited_before_s, self.rested_s = self.clock(), self.waited_s, 0.0
        while names := self._open():
            self._run_block(names)
            if self.least_s is None and self.blocks * self.in_a_row >= self.pace.rounds:
                self.least_s = self.elapsed_s

    @property
    def alive(self) -> dict[str, Entry]:
        """The variants that haven't failed."""
        return {name: entry for name, entry in self.entries.items() if entry.failure is None}

    @property
    def can_go_on(self) -> bool:
        """Whether further blocks are of use to any variant besides the reference."""
        return len(self.unsettled) > 1

    @property
    def unsettled(self) -> dict[str, Entry]:
        """The reference, and the variants that further blocks are of use to: of a large model all, else those whose
        interval isn't as narrow as asked. Empty once the reference has failed."""
        alive = self.alive
        if self.reference not in alive:
            return {}
        if self.pace.is_large:
            return alive
        measured = {name: self._measured(entry) for name, entry in alive.items()}
        widths = self._half_widths(measured, self._ratios(measured))
        wide = [name for name, one in measured.items() if not self._is_settled(name, one, widths[name])]
        return {name: entry for name, entry in alive.items() if name in (self.reference, *wide)}

    def go_on(self, step: Step) -> dict[str, Measured]:
        """Run one block more, once those that it is of use to are warmed up again, and return their figures, of the
        variants that a test asks for and that didn't fail; none where nothing was compared."""
        self.step, self.is_further, self.rested_s = step, True, 0.0
        unsettled = self.unsettled
        for name, entry in unsettled.items():
            self.doing = "warming up"
            self._await_calm(entry)
            self.step(self.doing, name, None)
            with self._resting(entry), self._failing(entry):
                if self._warms_up_briefly(entry):
                    entry.model.call(settle_binding, entry.workload, BRIEF_TOKENS)
                elif not _is_short(entry):  # short rounds begin with untimed tokens anyway
                    list(self._turns(entry, NEVER))
        names = [name for name in unsettled if name in self.alive]
        if self.reference not in names or len(names) == 1:
            return {}
        self._run_block(names)
        return {name: self._measured(one) for name, one in self.alive.items() if name in names and one.is_asked_for}

    def _run_block(self, names: list[str]) -> None:
        """Run the same number of rounds of each, in slices. Each variant's are spread evenly over the block, so that
        all rounds span the same time, and shifted by a share of a slice that is drawn anew."""
        self.doing, before_s = self._round, self.elapsed_s
        first = self.blocks * self.in_a_row
        calm: list[bool] = []
        self.looked.append([])
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
            calm.append(self._await_calm(entry) or is_next_to_server)
            if calm[-1] and self._has_shared_work and (found := self.core_looks.look()) is not None:
                self.looked[-1].append(found)
            self.step(self.doing, name, self._left)
            done = None
            with self._resting(entry), self._failing(entry):
                done = next(going[name])
                if done is not None:
                    entry.rounds.update(enumerate(done, first))
                    if entry.is_watched:
                        entry.is_watched = False
                        entry.observation = entry.model.call(end_observing, entry.workload, done[0].continuations)
            if done is not None or entry.failure:
                del going[name]
                taken[name] = slices[name]
            if len(going) == 1:  # nobody else waits for a turn
                preemptions[next(iter(going))].every_s = math.inf
        self.crowded.append(1 - fmean(calm) if calm else 0.0)
        self.blocks += 1
        self.block_s = self.elapsed_s - before_s

    @property
    def spent(self) -> Spent:
        rounds_s = self.elapsed_s - (self.waited_s - self.waited_before_s) if self.began_s is not None else 0.0
        found_calm = any(share <= CROWDED_SHARE for share in self.crowded) or not self.crowded
        return Spent(rounds_s, self.waited_s, found_calm)

    @property
    def _round(self) -> str:
        """The number of the first in the block; and how many there are at least, until those are done."""
        number = self.blocks * self.in_a_row + 1
        return f"round {number}/{self.pace.rounds}" if number <= self.pace.rounds else f"round {number}"

    @property
    def _left(self) -> Left | None:
        """Time until the last round, if no other work takes any of it; None before the first block is done.

        The least rounds are sure to come; those after them end once the intervals are narrow, or the time is spent; for
        those between which the answer is open that is longer.
        """
        if not self.blocks:
            return None
        if self.is_further:
            return Left((1 - self.share_done) * self.block_s)
        done = self.blocks + self.share_done
        least_s = max((self.pace.rounds / self.in_a_row - done) * self.elapsed_s / done, 0.0)
        if not self.pace.max_noise:
            return Left(least_s)
        most_s = max(self.pace.share_s, self._longest_s if self.is_open else 0.0)
        return Left(max(least_s, most_s - self.elapsed_s), is_most=True)

    @property
    def elapsed_s(self) -> float:
        """Since the first block began, waits for other work included, without the rest of servers."""
        return 0.0 if self.began_s is None else self.clock() - self.began_s - self.rested_s

    def _open(self) -> list[str]:
        """The variants of the next block; the reference is among them as long as any other is."""
        alive = {name: self._measured(entry) for name, entry in self.alive.items()}
        ratios = self._ratios(alive)
        widths = self._half_widths(alive, ratios)
        may_go_on = self.elapsed_s + self.block_s <= self._longest_s
        longer = self.pace.allocation.open_in(ratios) if may_go_on else frozenset()
        self.is_open = bool(longer)
        wanting = [
            name
            for name, measured in alive.items()
            if self._wants_more(name, measured, widths[name], goes_on=name in longer)
        ]
        others = [name for name in wanting if name != self.reference]
        with_reference = [self.reference] if self.reference in alive else []
        if others:
            return [*with_reference, *others]
        is_alone = len(alive) == 1 and all(self.entries[name].is_asked_for for name in alive)
        return with_reference if is_alone and self.reference in wanting else []

    def _ratios(self, alive: Mapping[str, Measured]) -> dict[str, LogRatio]:
        return {name: ratio for name, measured in alive.items() if (ratio := self._ratio(measured)) is not None}

    def _half_widths(self, alive: Iterable[str], ratios: Mapping[str, LogRatio]) -> dict[str, float]:
        """How wide half of each one's interval may be."""
        asked = self.pace.max_noise
        return dict.fromkeys(alive, asked) | self.pace.allocation.half_widths(ratios, asked)

    def _is_settled(self, name: str, measured: Measured, half_width: float) -> bool:
        """Whether its interval is as narrow as asked, by as many rounds as that takes."""
        return _is_enough(measured) and self._is_narrow(name, measured, half_width)

    def _ratio(self, measured: Measured) -> LogRatio | None:
        """Log ratio of the reference's rounds over the variant's next to them, so far; None where they are too few."""
        if not measured.reference_rounds:
            return None
        return log_ratio(measured.reference_s, measured.rounds_s, self.pace.expected_variance)

    @property
    def _longest_s(self) -> float:
        """Seconds that the case may take while it is open which variant is the fastest; 0 until it has its least
        rounds."""
        least_s = self.least_s or 0.0
        return least_s + min((OPEN_LONGER - 1) * least_s, self.pace.longer_s)

    def _wants_more(self, name: str, measured: Measured, half_width: float, *, goes_on: bool) -> bool:
        """half_width: how wide half its interval may be. goes_on: whether it has more time than the case's share."""
        entry = self.entries[name]
        if self._is_settled_by_death(entry):
            return False
        has_few = self._fewest <= len(self._calm(entry.rounds)) < self.pace.rounds
        is_over = self._may_be_few and self.spent.rounds_s >= self.pace.share_s
        if self.pace.max_noise and has_few and (is_over or self._is_narrow(name, measured, half_width)):
            # A third pair tells which of two that lie far apart is odd.
            return not self._has_least(entry.rounds) and are_far_apart(measured.pairs, self.pace.expected_variance)
        if not self._has_least(entry.rounds):
            return True
        if not self.pace.max_noise:
            return False
        if len(self._calm(entry.rounds)) < self.pace.rounds and self._is_patient:
            return True
        if self.elapsed_s >= self.pace.share_s and not goes_on:
            return False
        return not self._is_settled(name, measured, half_width)

    @property
    def _fewest(self) -> int:
        """Rounds that can be enough: fewer where a block has one that takes seconds, or the answer doesn't go by it."""
        is_long = any(not entry.failure and entry.last_s > LONG_ROUND_S for entry in self.entries.values())
        return ((is_long or self._may_be_few) and self.pace.fewest_rounds) or self.pace.rounds

    @property
    def _may_be_few(self) -> bool:
        """Whether few rounds are enough where they have taken the case's time, as those of many batches do: of a small
        model, in pairs, where the answer doesn't go by the case. One round of a large model takes longer than that."""
        reference, pace = self.entries.get(self.reference), self.pace
        has_pairs = len(self.entries) > 1 and reference is not None and reference.failure is None
        is_known = pace.max_noise > 0 and pace.expected_variance.freedom >= FREEDOM_FOR_FEW
        return has_pairs and is_known and not pace.is_large and not pace.allocation.decides

    @property
    def _is_patient(self) -> bool:
        """Whether another block is run in a crowded one's place."""
        return self.elapsed_s + self.waited_before_s < self.pace.share_s + self.pace.patience_s

    def _calm(self, rounds: Rounds) -> Rounds:
        """Rounds of blocks that weren't crowded."""
        return {number: done for number, done in rounds.items() if self._crowding(number) <= CROWDED_SHARE}

    def _crowding(self, number: int) -> float:
        """Share of the turns of that round's block before which other work ran; 0 of a block that is still going on."""
        block = number // self.in_a_row
        return self.crowded[block] if block < len(self.crowded) else 0.0

    def _core_to_core(self, rounds: Rounds) -> tuple[float, ...]:
        """Mean of the looks in each round's block; none where one had too few."""
        found = [self.looked[number // self.in_a_row] for number in rounds]
        return tuple(map(fmean, found)) if all(len(one) >= LEAST_CORE_LOOKS for one in found) else ()

    def _is_narrow(self, name: str, measured: Measured, half_width: float) -> bool:
        if measured.reference_rounds and name != self.reference:
            ratio = self._ratio(measured)
            return ratio is not None and ratio.margin_by_rounds(CONFIDENCE) <= half_width
        found = interval(measured.rounds_s)
        return found is not None and found.relative_half_width <= half_width

    def _await_calm(self, entry: Entry) -> bool:
        """Wait while other work leaves too few cores free for the variant, as long as there is patience for it; whether
        it ended."""
        cores = self.pace.cores if entry.cores is None else entry.cores
        for _ in range(LOOKS):
            if _are_free(cores):
                return True
            time.sleep(LOOK_EVERY_S / 4)
        left_s = self.pace.patience_s - self.waited_s
        began_s = self.clock()
        try:
            return self._await_cores(cores, left_s, "waiting for other programs")
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
            if self.clock() - began_s >= SHOWN_WAIT_S:
                self.step(self.doing, why, None)
            time.sleep(LOOK_EVERY_S)
        return are_free

    @contextmanager
    def _failing(self, entry: Entry) -> Iterator[None]:
        """Take a failure inside the block for the variant's, which ends its turns."""
        try:
            yield
        except Exception as error:  # whatever an engine raises
            entry.failure = error

    def _rounds_in_a_row(self) -> int:
        """Rounds in a block, of those that can be enough: several where all of them are short, as the last ones of the
        warm-up show."""
        alive = [entry for entry in self.entries.values() if not entry.failure]
        if self._is_whole or not all(map(_is_short, alive)):
            return 1
        return max(number for number in range(1, MOST_IN_A_ROW + 1) if self._fewest % number == 0)

    def _turns(
        self, entry: Entry, preemptions: Preemptions, slice_tokens: int = 0, *, is_bound: bool = False
    ) -> Iterator[tuple[Round, ...] | None]:
        """The turns of a block: None after each but the last. Long rounds are warmed up in the first one alone, since
        other variants were observed after their own warm-up, and not where they are preempted."""
        are_others, is_first = len(self.entries) > 1, self.began_s is not None and not self.blocks
        warms = _is_short(entry) or (is_first and self._binds(entry) and not self.pace.is_large)
        for done in entry.model.in_turns(
            preemptions,
            take_turns,
            entry.workload,
            rounds=self.in_a_row,
            slice_tokens=slice_tokens,
            draw=self.first_draw + self.blocks if is_bound else None,
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
        alive = [entry for entry in self.entries.values() if not entry.failure]
        return self.pace.is_large or all(one.last_s >= PREEMPTED_STEP_S * one.workload.steps for one in alive)

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
            new_tokens = {name: entry.workload.new_tokens_by_batch for name, entry in entries.items()}
            return {name: turns_of(new_tokens[name], self.in_a_row, tokens) for name, tokens in slice_tokens.items()}
        rounds_s = {name: entry.last_s or entry.expected_s for name, entry in entries.items()}
        longest_s = max(rounds_s.values())
        each_s = {name: self.in_a_row * (round_s or longest_s) for name, round_s in rounds_s.items()}
        return {name: max(seconds / PREEMPTED_SLICE_S, 1.0) for name, seconds in each_s.items()}

    def complete(self) -> dict[str, Measured]:
        """Results of variants that have their least rounds, of those that a test asks for."""
        return {
            name: measured
            for name, entry in self.entries.items()
            if entry.is_asked_for
            if isinstance(measured := self.result(name), Measured) and len(measured.rounds) >= self._fewest
        }

    def result(self, name: str) -> Measured | Exception:
        entry = self.entries[name]
        return self._measured(entry) if entry.failure is None else entry.failure

    def _measured(self, entry: Entry) -> Measured:
        base = self._base_of(entry)
        rounds = entry.rounds if base is None else _shared(entry.rounds, base)
        counted = self._counted(rounds)
        return Measured(
            entry.observation,
            tuple(counted.values()),
            tuple(base[number] for number in counted) if base else (),
            len(rounds) - len(counted),
            self._core_to_core(counted),
        )

    def _counted(self, rounds: Rounds) -> Rounds:
        """Rounds of the blocks that weren't crowded; if fewer than the least rounds are left, of the least crowded
        ones, and of all that are as crowded as these."""
        shares = sorted(map(self._crowding, rounds))
        most = max(shares[: self._fewest], default=0.0)
        return {number: done for number, done in rounds.items() if self._crowding(number) <= max(most, CROWDED_SHARE)}

    def _base_of(self, entry: Entry) -> Rounds | None:
        """Reference turns to pair with; None without another reference, or if it failed too early."""
        reference = self.entries.get(self.reference)
        if reference is None or len(self.entries) == 1:
            return None
        is_too_few = reference.failure is not None and not self._has_least(_shared(entry.rounds, reference.rounds))
        return None if is_too_few else reference.rounds

    def _has_least(self, rounds: Rounds) -> bool:
        """Whether there are as many rounds as are run in any case."""
        return len(rounds) >= self.pace.rounds

    def _is_settled_by_death(self, entry: Entry) -> bool:
        """Whether the reference failed, but late enough for its turns to be paired with."""
        is_dead = self.reference in self.entries and self.entries[self.reference].failure is not None
        return is_dead and self._base_of(entry) is not None


def _is_short(entry: Entry) -> bool:
    """Whether its rounds take so little that others before them matter; not while one is observed, which is alone."""
    return 0 < entry.last_s < WARMED_BELOW_S and not entry.is_watched


def _are_free(cores: int) -> bool:
    """Whether so many are; also where none is needed, or the system doesn't tell."""
    free = free_cores()
    return not cores or free is None or free >= cores


def _shared(rounds: Rounds, base: Rounds) -> Rounds:
    """Rounds of the blocks that both have."""
    return {number: done for number, done in rounds.items() if number in base}


def _is_enough(measured: Measured) -> bool:
    """Whether there are enough rounds to believe an interval."""
    return len(measured.rounds) >= (ENOUGH_BLOCKS if sum(measured.rounds_s) >= ENOUGH_S else ENOUGH_ROUNDS)
