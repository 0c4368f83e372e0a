"""A case's variants, faked around one clock, and what is measured of them in turns."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from llm_bench_fixtures.errors import WorkerDied
from llm_bench_fixtures.measure.binding import TRIAL_TOKENS, settle_binding
from llm_bench_fixtures.measure.timing import BatchTimes, Round
from llm_bench_fixtures.measure.turns import take_turns, turns_of
from llm_bench_fixtures.measure.work import BRIEF_TOKENS, begin_observing, end_observing, observe
from llm_bench_fixtures.models.handle import ModelHandle
from llm_bench_fixtures.processes.calls import Preemptions
from llm_bench_fixtures.session import waits
from llm_bench_fixtures.session.blocks import Blocks, Step
from llm_bench_fixtures.session.case import Entry, Measured, Pace, Spent
from llm_bench_fixtures.session.rounds import CaseRounds
from llm_bench_fixtures.statistics.shrinkage import VarianceEstimate
from llm_bench_fixtures.workloads import Workload

if TYPE_CHECKING:
    from conftest import FakeClock


WORKLOAD = Workload(((1, 2, 3),), new_tokens=1, batch_size=1)
FAST = Pace(rounds=3, warmup_rounds=1, max_noise=0.0, share_s=60.0)
PATIENT = Pace(rounds=3, warmup_rounds=1, max_noise=0.01, share_s=0.0, patience_s=100.0)
NOISY = (1.0, 4.0, 1.5, 3.5, 2.0, 3.0, 2.5)  # so that the speed-up never gets sure
EXPECTED = VarianceEstimate(0.01**2, 1000.0)
LARGE = replace(FAST, is_large=True)
SHORT_OF_TIME = replace(FAST, max_noise=0.001, fewest_rounds=2, expected_variance=EXPECTED, share_s=0.0)


class Table:
    """The variants of a case around one clock, and the log of who was called."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.log: list[str] = []
        self.slices: list[str] = []  # whose they were, one after the other
        self.entries: dict[str, Entry] = {}
        self.workload = WORKLOAD
        self.spun_until_s = 0.0  # by a server
        self.disturbed: list[str] = []  # those whose turn began while a server spun

    def add(self, name: str, *rounds_s: float, asked: bool = True, fails_at: int | None = None, **more: Any) -> None:
        """A variant whose rounds take these times in turn, again and again; it fails in the round of that number."""
        model = FakeModel(name, self, rounds_s or (1.0,), fails_at, **more)
        self.entries[name] = Entry(cast(ModelHandle, model), self.workload, asked)

    def blocks(self, pace: Pace = FAST, coin: int = 0, step: Step = lambda *_: None, reference: str = "fp32") -> Blocks:
        coins = random.Random(coin)  # noqa: S311  # no secret
        return Blocks(CaseRounds(self.entries, reference, pace), step, coins, self.clock)

    def run(self, pace: Pace = FAST, coin: int = 0, step: Step = lambda *_: None) -> Outcome:
        blocks = self.blocks(pace, coin, step)
        return Outcome(blocks.measure(), blocks.spent)

    @property
    def turns(self) -> list[str]:
        """Whose turn it was, one after the other, those of the warm-up left out."""
        return [name for name in self.log if name in self.entries]

    def model(self, name: str) -> FakeModel:
        return cast(FakeModel, self.entries[name].model)


@dataclass(frozen=True)
class Outcome:
    found: dict[str, Measured | Exception]
    spent: Spent

    def __getitem__(self, name: str) -> Measured:
        measured = self.found[name]
        assert isinstance(measured, Measured)
        return measured


@dataclass
class FakeModel:
    name: str
    table: Table
    rounds_s: Sequence[float]
    fails_at: int | None
    is_beside: bool = False
    spins_s: float = 0.0
    """After a turn, on one core."""
    slices: int = 1
    """Of a round that may be in slices; 0: as many as the workload has."""
    fails_in: int | None = None
    """The number of the slice in which the round of that number fails; before the round, if none."""
    step_s: float = 0.004
    """A decode step of a round in the figures; the round's time needn't fit."""
    observed_s: float = 0.0
    """The round in which it is observed."""
    compile_s: float | None = None
    can_be_watched: bool = True
    """While its rounds are timed."""
    rounds: int = 0
    probes: list[bool] = field(default_factory=list)
    draws: list[int | None] = field(default_factory=list)
    slice_tokens: list[int] = field(default_factory=list)
    warms: list[bool] = field(default_factory=list)
    in_a_row: list[int] = field(default_factory=list)
    preempted: list[bool] = field(default_factory=list)
    """Whether its turns might end wherever it was."""

    @property
    def facts(self) -> SimpleNamespace:
        return SimpleNamespace(is_beside=self.is_beside, is_remote=self.is_beside, compile_s=self.compile_s)

    @property
    def can_pause(self) -> bool:
        return not self.is_beside

    def call(self, function: object, workload: Workload, *more: object) -> object:
        if function is settle_binding:
            how = {None: "", TRIAL_TOKENS: " anew", BRIEF_TOKENS: " briefly"}[more[0]]
            self.table.log.append(f"bind {self.name}{how}")
            return None
        if function is begin_observing:
            self.table.log.append(f"begin {self.name}")
            return self.can_be_watched
        if function is end_observing:
            self.table.log.append(f"end {self.name}")
            return f"observation of round {self.rounds} of {self.name}"
        assert function is observe
        self.table.clock.advance(self.observed_s)
        self.table.log.append(f"observe {self.name}")
        return f"observation of {self.name}"

    def in_turns(self, preemptions: Preemptions, function: object, workload: Workload, **how: Any) -> Iterator[Any]:
        assert function is take_turns
        assert workload is self.table.workload
        is_failing = self.rounds == self.fails_at
        if is_failing and self.fails_in is None:
            raise WorkerDied(f"{self.name} died")
        self.table.log.append(self.name)
        self.probes.append(how["probes"])
        self.draws.append(how["draw"])
        self.slice_tokens.append(how["slice_tokens"])
        self.warms.append(how["warms"])
        self.in_a_row.append(how["rounds"])
        if self.table.clock() < self.table.spun_until_s:
            self.table.disturbed.append(self.name)
        seconds = self.rounds_s[self.rounds % len(self.rounds_s)]
        tokens, is_preempted = how["slice_tokens"], how["is_preempted"]
        self.preempted.append(is_preempted)
        slices = (self.slices or turns_of(workload.new_tokens_by_batch, how["rounds"], tokens)) if tokens else 1
        if is_preempted:
            slices = math.ceil(seconds / preemptions.every_s)
        began_s = self.table.clock()
        for number in range(slices):
            if is_failing and number == self.fails_in:
                raise WorkerDied(f"{self.name} died")
            self.table.slices.append(self.name)
            self.table.clock.advance(seconds / slices)
            if number < slices - 1:
                since_s = self.table.clock()
                yield None
                if is_preempted:
                    preemptions.intervals.append((since_s, self.table.clock()))
        self.rounds += 1
        self.table.spun_until_s = max(self.table.spun_until_s, self.table.clock() + self.spins_s)
        taken_s = self.table.clock() - began_s if is_preempted else seconds
        times = BatchTimes((0.1, 0.1 + self.step_s), taken_s)
        done = Round(taken_s, (times,), (), waited_s=seconds / 100, began_s=began_s)
        yield (done,) * how["rounds"]


def counts(table: Table) -> dict[str, int]:
    return {name: len(entry.rounds) for name, entry in table.entries.items()}


def busy(table: Table, monkeypatch: pytest.MonkeyPatch, cores: Sequence[int]) -> list[float]:
    """Have so many cores free each time it is looked, all at the end, and note the waits."""
    looks = chain(cores, repeat(64))
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        if seconds >= waits.LOOK_EVERY_S:  # else it looks once more whether the last process has stopped
            waited.append(seconds)
            table.clock.advance(seconds)

    monkeypatch.setattr(waits, "free_cores", lambda: next(looks))
    monkeypatch.setattr(waits.time, "sleep", sleep)
    return waited


def crowd(table: Table, monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    """Have other work take all cores in the blocks of these numbers."""
    busy(table, monkeypatch, [])

    def free() -> int:
        return 0 if min(table.model(name).rounds for name in table.entries) in numbers else 64

    monkeypatch.setattr(waits, "free_cores", free)


def spent_until(cut: Step, pace: Pace, table: Table) -> Spent:
    """What is told of a case that is cut short."""
    blocks = table.blocks(pace, step=cut)
    with pytest.raises(KeyboardInterrupt):
        blocks.measure()
    return blocks.spent
