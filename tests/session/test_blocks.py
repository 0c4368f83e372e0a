"""Who runs when, and for how long: handles that only advance a clock, so that every figure can be told beforehand."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise, repeat
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from llm_bench_fixtures.answer.allocation import Allocation
from llm_bench_fixtures.errors import TimeUp, WorkerDied
from llm_bench_fixtures.measure.binding import TRIAL_TOKENS, settle_binding
from llm_bench_fixtures.measure.timing import BatchTimes, Round
from llm_bench_fixtures.measure.turns import take_turns, turns_of
from llm_bench_fixtures.measure.work import BRIEF_TOKENS, begin_observing, end_observing, observe
from llm_bench_fixtures.models.handle import ModelHandle
from llm_bench_fixtures.processes.calls import Preemptions
from llm_bench_fixtures.processes.calm import LONGEST_SERVER_FALL_S
from llm_bench_fixtures.progress import Left
from llm_bench_fixtures.session import blocks
from llm_bench_fixtures.session.blocks import (
    ENOUGH_ROUNDS,
    OBSERVED_LONGER,
    PREEMPTED_SLICE_S,
    PREEMPTED_STEP_S,
    SLICE_S,
    WARM_STEPS,
    Blocks,
    Step,
    measure_side_by_side,
)
from llm_bench_fixtures.session.case import Entry, Measured, Pace, Spent
from llm_bench_fixtures.statistics.shrinkage import NO_PRIOR, VarianceEstimate
from llm_bench_fixtures.workloads import CacheKind, Workload

if TYPE_CHECKING:
    from conftest import FakeClock

WORKLOAD = Workload(((1, 2, 3),), new_tokens=1, batch_size=1)
FAST = Pace(rounds=3, warmup_rounds=1, max_noise=0.0, share_s=60.0)
PATIENT = Pace(rounds=3, warmup_rounds=1, max_noise=0.01, share_s=0.0, patience_s=100.0)
NOISY = (1.0, 4.0, 1.5, 3.5, 2.0, 3.0, 2.5)  # so that the speed-up never gets sure


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

    def run(self, pace: Pace = FAST, coin: int = 0, step: Step = lambda *_: None) -> Outcome:
        coins = random.Random(coin)  # noqa: S311  # no secret
        found, spent = measure_side_by_side(self.entries, "fp32", pace, step, coins, self.clock)
        return Outcome(found, spent)

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


@pytest.fixture
def table(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Every core is free, and no look from core to core finds anything."""
    monkeypatch.setattr(blocks, "free_cores", lambda: 64)
    monkeypatch.setattr(blocks, "CoreLooks", lambda: SimpleNamespace(look=lambda: None))
    return Table(clock)


def counts(table: Table) -> dict[str, int]:
    return {name: len(entry.rounds) for name, entry in table.entries.items()}


def test_each_block_holds_one_round_of_each_variant(table: Table) -> None:
    for name in ("fp32", "bf16", "int8"):
        table.add(name)
    table.run(replace(FAST, rounds=5))
    assert len(table.turns) == 15
    for start in range(0, 15, 3):
        assert sorted(table.turns[start : start + 3]) == ["bf16", "fp32", "int8"]


def test_the_order_is_drawn_anew_for_each_block(table: Table) -> None:
    """Each of the six orders of three comes up among 60 blocks, but for one chance in 10,000."""
    for name in ("fp32", "bf16", "int8"):
        table.add(name)
    table.run(replace(FAST, rounds=60))
    orders = {tuple(table.turns[start : start + 3]) for start in range(0, 180, 3)}
    assert len(orders) == 6


def test_the_reference_rounds_are_those_of_the_same_blocks(table: Table) -> None:
    """The reference takes 1, 2, 3 s in turn, the variant a tenth of that."""
    table.add("fp32", 1.0, 2.0, 3.0)
    table.add("bf16", 0.1, 0.2, 0.3)
    outcome = table.run()
    assert outcome["bf16"].reference_s == (1.0, 2.0, 3.0)
    assert [done.latency_s for done in outcome["bf16"].rounds] == [0.1, 0.2, 0.3]
    assert outcome["bf16"].waited_s == pytest.approx((0.001, 0.002, 0.003))
    assert outcome["bf16"].reference_waited_s == pytest.approx((0.01, 0.02, 0.03))


def test_the_reference_beside_others_is_compared_with_itself(table: Table) -> None:
    table.add("fp32", 1.0, 2.0, 3.0)
    table.add("bf16")
    assert table.run()["fp32"].reference_s == (1.0, 2.0, 3.0)


@pytest.fixture(autouse=True)
def time_is_never_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of a second are easier to add up; their number alone is to be enough."""
    monkeypatch.setattr(blocks, "ENOUGH_S", 1e9)


def test_long_rounds_are_believed_after_fewer_blocks(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "ENOUGH_S", 2.5)
    table.add("fp32", 1.0)
    table.add("bf16", 1.0)
    table.run(replace(FAST, max_noise=0.01, share_s=1000.0))
    assert counts(table) == {"fp32": 3, "bf16": 3}


def test_nobody_begins_the_next_block_before_all_have_ended_this_one(table: Table) -> None:
    table.add("fp32", slices=4)
    table.add("bf16", slices=2)
    table.run(replace(FAST, rounds=40))
    assert counts(table) == {"fp32": 40, "bf16": 40}
    blocks_of_six = [tuple(sorted(table.slices[start : start + 6])) for start in range(0, 6 * 40, 6)]
    assert set(blocks_of_six) == {("bf16",) * 2 + ("fp32",) * 4}


def test_slices_are_spread_so_that_all_rounds_of_a_block_span_the_same_time(table: Table) -> None:
    """Rounds of 20 tokens in slices of 5, 5 and 10. Each round's slices begin somewhere in the middle half of its part
    of the block, so that one of two slices comes after one or two of four, and the other after three or four."""
    table.workload = Workload(((1, 2, 3),), new_tokens=20, batch_size=1)
    table.add("fp32", step_s=SLICE_S / 5, slices=0)
    table.add("bf16", step_s=SLICE_S / 5, slices=0)
    table.add("int8", step_s=SLICE_S / 10, slices=0)
    table.run(replace(FAST, rounds=41))
    first = 3 * 10  # the first block has no times yet: slices of two tokens
    orders = [table.slices[start : start + 10] for start in range(first, first + 40 * 10, 10)]
    assert {order.count("int8") for order in orders} == {2}
    before = {
        tuple(order[:place].count("fp32") for place, one in enumerate(order) if one == "int8") for order in orders
    }
    assert before <= {(0, 3), (1, 3), (1, 2), (0, 2)}
    assert len(before) > 1
    assert {order[0] for order in orders} == {"fp32", "bf16"}


def test_slices_of_several_rounds_in_a_row_are_spread_alike(table: Table) -> None:
    """Three rounds of 20 tokens are one slice of one variant, which comes in the middle of the other's."""
    table.workload = Workload(((1, 2, 3),), new_tokens=20, batch_size=1)
    table.add("fp32", 0.1, step_s=SLICE_S / 10, slices=0)
    table.add("bf16", 0.1, step_s=SLICE_S / 60, slices=0)
    table.run(replace(FAST, rounds=9, warmup_rounds=2))
    assert table.model("bf16").in_a_row[-1] == 3
    last = table.slices[-(turns_of((20,), 3, 10) + 1) :]
    assert last.count("bf16") == 1
    assert last.index("bf16") in (1, 2, 3)


def test_what_is_left_shrinks_within_a_block_of_slices(table: Table) -> None:
    """Two variants of one block of 2 s each: told are two blocks more after the first, and less after each slice."""
    table.workload = Workload(((1, 2, 3),), new_tokens=20, batch_size=1)
    table.add("fp32", step_s=SLICE_S / 5, slices=0)
    table.add("bf16", step_s=SLICE_S / 5, slices=0)
    told = [left.seconds for _, left in left_in(table, FAST) if left is not None]
    assert told == sorted(told, reverse=True)
    assert told[0] == pytest.approx(4.0, abs=0.01)


def test_a_round_that_fails_in_a_slice_counts_for_nothing_and_the_others_go_on(table: Table) -> None:
    table.add("fp32", slices=4)
    table.add("bf16", slices=4)
    table.add("int8", slices=4, fails_at=1, fails_in=2)
    outcome = table.run()
    assert isinstance(outcome.found["int8"], WorkerDied)
    assert len(outcome["bf16"].rounds) == len(outcome["bf16"].reference_s) == 3
    assert table.slices.count("int8") == 6


@pytest.mark.parametrize(
    ("step_s", "tokens"),
    [(0.003, 7), (0.011, 3), (0.02, 3), (0.14, 3), (0.15, 1), (2.0, 1)],
    ids=["short steps", "a cold one and two", "the least", "still the least", "long", "very long"],
)
def test_a_slice_is_so_many_tokens(step_s: float, tokens: int, table: Table) -> None:
    """Each variant's follow from the steps of its round before: 20 ms, at least two steps besides the cold ones."""
    table.add("fp32", step_s=SLICE_S / 8)
    table.add("bf16", step_s=step_s)
    table.run()
    assert table.model("fp32").slice_tokens == [WARM_STEPS, 8, 8]
    assert table.model("bf16").slice_tokens == [WARM_STEPS, tokens, tokens]


@pytest.mark.parametrize(("rounds", "round_s", "in_a_row"), [(3, 0.1, 3), (4, 0.1, 2), (5, 0.1, 1), (3, 0.2, 1)])
def test_short_rounds_are_run_several_in_a_row(rounds: int, round_s: float, in_a_row: int, table: Table) -> None:
    """As many as divide the number of rounds that are asked for, at most three."""
    table.add("fp32", 0.1)
    table.add("bf16", round_s)
    table.run(replace(FAST, rounds=rounds, warmup_rounds=2))
    assert table.turns.count("bf16") == 1 + rounds / in_a_row
    assert counts(table) == {"fp32": rounds, "bf16": rounds}


def test_no_more_are_in_a_row_than_can_be_enough(table: Table) -> None:
    """Two, where the answer doesn't go by the case and its time is over by then."""
    table.add("fp32", 0.1)
    table.add("bf16", 0.1, 0.1 * math.exp(0.01))
    table.run(replace(SHORT_OF_TIME, warmup_rounds=2))
    assert table.model("bf16").in_a_row[1:] == [2]
    assert counts(table) == {"fp32": 2, "bf16": 2}


def test_in_the_warm_up_a_round_is_whole(table: Table) -> None:
    table.add("fp32")
    table.add("bf16")
    table.run(replace(FAST, warmup_rounds=3, may_preempt=False))
    assert table.model("bf16").slice_tokens[:2] == [0, 0]
    assert table.model("bf16").draws[:2] == [None, None]
    assert 0 not in table.model("bf16").slice_tokens[2:]


@pytest.mark.parametrize(
    ("others", "pace"),
    [((), FAST), (("endpoint",), FAST), (("bf16",), replace(FAST, probes=True))],
    ids=["alone", "next to one that can't pause", "with probes"],
)
def test_a_turn_is_a_whole_round(others: tuple[str, ...], pace: Pace, table: Table) -> None:
    table.add("fp32")
    for name in others:
        table.add(name, is_beside=name == "endpoint")
    table.run(pace)
    assert {tokens for name in table.entries for tokens in table.model(name).slice_tokens} == {0}


def test_all_of_a_block_are_bound_alike_and_in_the_next_block_otherwise(table: Table) -> None:
    for name in ("fp32", "bf16", "int8"):
        table.add(name, fails_at=1 if name == "int8" else None)
    table.run()
    first = table.model("fp32").draws[0]
    assert first is not None
    assert [table.model(name).draws for name in table.entries] == [
        [first, first + 1, first + 2],
        [first, first + 1, first + 2],
        [first],
    ]


def test_whether_threads_may_be_bound_is_settled_once_and_before_any_round(table: Table) -> None:
    table.add("fp32")
    table.add("endpoint", is_beside=True)
    table.run(replace(FAST, warmup_rounds=2))
    assert table.log[:5] == ["observe fp32", "fp32", "bind fp32", "observe endpoint", "endpoint"]
    assert table.log.count("bind fp32") == 1
    assert set(table.model("endpoint").draws) == {None}


def test_alone_a_variants_threads_are_free(table: Table) -> None:
    table.add("fp32")
    table.run()
    assert table.log[0] == "observe fp32"
    assert "bind fp32" not in table.log
    assert table.model("fp32").draws == [None] * 3


def test_alone_there_is_nothing_to_compare_with(table: Table) -> None:
    table.add("fp32", 1.0, 2.0, 3.0)
    alone = table.run()["fp32"]
    assert (alone.reference_s, len(alone.rounds)) == ((), 3)


def test_without_the_reference_the_others_take_turns_all_the_same(table: Table) -> None:
    table.add("bf16")
    table.add("int8")
    outcome = table.run()
    assert outcome["bf16"].reference_s == ()
    assert counts(table) == {"bf16": 3, "int8": 3}


def test_what_nobody_asked_for_runs_and_is_not_told(table: Table) -> None:
    table.add("fp32", asked=False)
    table.add("bf16")
    outcome = table.run()
    assert set(outcome.found) == {"bf16"}
    assert outcome["bf16"].reference_s == (1.0, 1.0, 1.0)
    assert "observe fp32" not in table.log


@pytest.mark.parametrize("warmup_rounds", [1, 3])
def test_the_observed_round_is_one_of_those_that_warm_up(warmup_rounds: int, table: Table) -> None:
    """Each variant has run as often before its first timed round, observed or not. One that isn't has to be asked anew
    which of its threads compute."""
    table.add("fp32", asked=False)
    table.add("bf16")
    outcome = table.run(replace(FAST, warmup_rounds=warmup_rounds))
    assert table.log[: 2 * warmup_rounds + 2] == [
        *["fp32"] * warmup_rounds,
        "bind fp32 anew",
        "observe bf16",
        *["bf16"] * (warmup_rounds - 1),
        "bind bf16",
    ]
    assert outcome["bf16"].observation == "observation of bf16"
    assert len(outcome["bf16"].rounds) == 3


@pytest.mark.parametrize("probes", [False, True])
def test_probes_are_asked_for(probes: bool, table: Table) -> None:
    table.add("fp32")
    table.run(replace(FAST, probes=probes))
    assert table.model("fp32").probes == [probes] * 3


def test_a_variant_that_fails_ends_its_own_turns_only(table: Table) -> None:
    table.add("fp32")
    table.add("bf16", fails_at=1)
    table.add("int8")
    outcome = table.run()
    assert isinstance(outcome.found["bf16"], WorkerDied)
    assert table.turns.count("bf16") == 1
    assert outcome["int8"].reference_s == (1.0, 1.0, 1.0)
    assert len(outcome["fp32"].rounds) == 3


def test_a_variant_that_fails_while_it_warms_up_has_no_turn(table: Table) -> None:
    table.add("fp32")
    table.add("bf16", fails_at=0)
    outcome = table.run(replace(FAST, warmup_rounds=2))
    assert isinstance(outcome.found["bf16"], WorkerDied)
    assert len(outcome["fp32"].rounds) == 3


def test_when_the_reference_fails_the_others_go_on_without_it(table: Table) -> None:
    table.add("fp32", fails_at=1)
    table.add("bf16", 1.0, 2.0, 3.0)
    table.add("int8")
    outcome = table.run()
    assert isinstance(outcome.found["fp32"], WorkerDied)
    assert [done.latency_s for done in outcome["bf16"].rounds] == [1.0, 2.0, 3.0]
    assert outcome["bf16"].reference_s == ()


def test_what_was_measured_beside_a_reference_that_then_dies_is_kept_with_its_speedup(table: Table) -> None:
    """Bug: four blocks were left out for the fifth. Nothing more can come of further ones."""
    table.add("fp32", *NOISY, fails_at=4)
    table.add("bf16", *NOISY[1:])
    outcome = table.run(replace(FAST, max_noise=0.01))
    assert isinstance(outcome.found["fp32"], WorkerDied)
    assert len(outcome["bf16"].rounds) == len(outcome["bf16"].reference_s) == 4
    assert table.turns.count("bf16") <= 5


def test_a_reference_that_nobody_asked_for_ends_with_the_last_that_it_was_for(table: Table) -> None:
    """It went on by itself until its own interval was narrow, for figures that nobody reads."""
    table.add("fp32", *NOISY, asked=False)
    table.add("bf16", fails_at=1)
    table.run(replace(FAST, warmup_rounds=1, max_noise=0.01))
    assert table.turns.count("fp32") <= 3  # one of them to warm up


def test_what_no_variant_has_is_not_caught(table: Table) -> None:
    """Ctrl-C ends the run, and so does another plugin's time limit."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    table.add("fp32")
    with pytest.raises(KeyboardInterrupt):
        table.run(step=interrupt)


@pytest.mark.parametrize(
    ("turns", "longest_s", "kept"),
    [
        (4, 4.0, {}),
        (8, 4.0, {"fp32": 4, "bf16": 4}),
        (2, 2.0, {}),
        (4, 2.0, {"fp32": 2, "bf16": 2}),
    ],
    ids=["too few", "enough", "too few long ones", "enough long ones"],
)
def test_what_has_its_least_rounds_is_kept_where_a_case_is_cut_short(
    turns: int, longest_s: float, kept: dict[str, int], table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a test's time limit, after one block, two or four. A long round takes longer than `longest_s`."""
    monkeypatch.setattr(blocks, "LONG_ROUND_S", longest_s)

    def cut(*_: object) -> None:
        if len(table.turns) == turns:
            raise KeyboardInterrupt

    table.add("fp32", *NOISY)
    table.add("bf16", *NOISY[1:])
    found: dict[str, Measured] = {}
    pace = replace(FAST, max_noise=0.01, fewest_rounds=2)
    with pytest.raises(KeyboardInterrupt):
        measure_side_by_side(
            table.entries, "fp32", pace, cut, clock=table.clock, on_cut=lambda kept, _: found.update(kept)
        )
    assert {name: len(measured.rounds) for name, measured in found.items()} == kept
    assert all(len(measured.reference_rounds) == len(measured.rounds) for measured in found.values())


@pytest.mark.parametrize(
    ("at", "turns", "spent_s"),
    [("warming up", 1, 0.0), ("round", 2, 0.0), ("round", 5, 3.0)],
    ids=["in the warm-up", "before the first block", "among the blocks"],
)
def test_the_time_of_a_case_that_is_cut_short_is_told(at: str, turns: int, spent_s: float, table: Table) -> None:
    """What warms up is nobody's share: here a second of each, after the observed one."""

    def cut(doing: str, *_: object) -> None:
        if doing.startswith(at) and len(table.turns) == turns:
            raise KeyboardInterrupt

    table.clock.advance(1000.0)
    table.add("fp32")
    table.add("bf16")
    pace = replace(FAST, warmup_rounds=2, may_preempt=False)
    assert spent_until(cut, pace, table) == Spent(spent_s, 0.0, True)


def spent_until(cut: Step, pace: Pace, table: Table) -> Spent:
    """What is told of a case that is cut short."""
    told: list[Spent] = []
    with pytest.raises(KeyboardInterrupt):
        measure_side_by_side(
            table.entries, "fp32", pace, cut, clock=table.clock, on_cut=lambda _, spent: told.append(spent)
        )
    (spent,) = told
    return spent


def test_a_wait_that_is_cut_short_is_patience_lost(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: it was charged as rounds."""
    monkeypatch.setattr(blocks, "SHOWN_WAIT_S", 0.0)
    waits = busy(table, monkeypatch, [*[64] * 2, *[0] * 100])

    def cut(_: str, what: str, __: object) -> None:
        if what == "waiting for other programs" and len(waits) == 8:
            raise KeyboardInterrupt

    table.add("fp32")
    table.add("bf16")
    spent = spent_until(cut, replace(FAST, patience_s=10.0), table)
    assert (spent.rounds_s, spent.found_calm) == (0.0, True)
    assert spent.waited_s == pytest.approx(8 * blocks.LOOK_EVERY_S)


def test_where_nothing_ran_there_was_nothing_to_disturb(table: Table) -> None:
    """Bug: a variant that failed in each case halved the patience each time."""
    table.add("fp32", fails_at=0)
    table.add("bf16", fails_at=0)
    assert table.run().spent.found_calm


def test_without_a_limit_of_noise_there_are_just_the_least_rounds(table: Table) -> None:
    table.add("fp32", *NOISY)
    table.add("bf16")
    table.run(replace(FAST, rounds=4))
    assert counts(table) == {"fp32": 4, "bf16": 4}


def test_the_least_rounds_are_run_whatever_the_time(table: Table) -> None:
    table.add("fp32", 10.0)
    table.add("bf16", 10.0)
    table.run(replace(FAST, rounds=4, max_noise=0.01, share_s=0.0))
    assert counts(table) == {"fp32": 4, "bf16": 4}


def test_equal_rounds_are_believed_once_there_are_enough(table: Table) -> None:
    """The interval of equal ratios is a point from the third block on."""
    table.add("fp32", 2.0)
    table.add("bf16", 1.0)
    table.run(replace(FAST, max_noise=0.01, share_s=1000.0))
    assert counts(table) == {"fp32": ENOUGH_ROUNDS, "bf16": ENOUGH_ROUNDS}


def test_a_settled_variant_drops_out_and_the_reference_stays_for_the_others(table: Table) -> None:
    """One ratio is 2 in each block; the other is as wide after 100 s as it was."""
    table.add("fp32", 1.0)
    table.add("bf16", 0.5)
    table.add("int8", *NOISY)
    outcome = table.run(replace(FAST, max_noise=0.01, share_s=100.0))
    assert len(outcome["bf16"].rounds) == ENOUGH_ROUNDS
    assert len(outcome["int8"].rounds) > 2 * ENOUGH_ROUNDS
    assert len(outcome["int8"].reference_s) == len(outcome["int8"].rounds) == len(outcome["fp32"].rounds)
    assert len(outcome["bf16"].reference_s) == ENOUGH_ROUNDS
    tail = table.turns[-10:]
    assert tail.count("fp32") == tail.count("int8") == 5


def test_further_blocks_of_a_large_model_run_all_variants_that_have_not_failed(table: Table) -> None:
    """The second ends at its sixth round, as it is steady; the third fails in its further one."""
    table.add("fp32", 1.0)
    table.add("bf16", 0.5)
    table.add("int8", *NOISY, fails_at=9)
    ended: list[Blocks] = []
    pace = replace(FAST, max_noise=0.01, share_s=30.0, is_large=True)
    measure_side_by_side(table.entries, "fp32", pace, clock=table.clock, on_end=ended.append)
    (run,), first = ended, counts(table)
    assert first == {"fp32": 9, "bf16": 6, "int8": 9}
    told: list[tuple[str, str, Left | None]] = []
    before_s = table.clock()
    found = run.go_on(lambda *step: told.append(step))
    assert found.keys() == {"fp32", "bf16"}
    assert counts(table) == {"fp32": 10, "bf16": 7, "int8": 9}
    assert len(found["bf16"].rounds) == len(found["bf16"].reference_rounds) == 7
    assert run.block_s == pytest.approx(table.clock() - before_s)
    assert (run.can_go_on, [*run.alive]) == (True, ["fp32", "bf16"])
    assert [doing for doing, *_ in told[:4]] == ["warming up"] * 3 + ["round 10"]
    assert told[-1][2] is not None


def test_further_blocks_of_a_small_model_leave_out_those_whose_interval_is_narrow(table: Table) -> None:
    """The second ends at its sixth round, as it is steady; without the third no further block is of use."""
    table.add("fp32", 1.0)
    table.add("bf16", 0.5)
    table.add("int8", *NOISY, fails_at=11)
    ended: list[Blocks] = []
    measure_side_by_side(
        table.entries, "fp32", replace(FAST, max_noise=0.01, share_s=30.0), clock=table.clock, on_end=ended.append
    )
    (run,) = ended
    told: list[tuple[str, str, Left | None]] = []
    assert run.can_go_on
    found = run.go_on(lambda *step: told.append(step))
    assert {name: len(one.rounds) for name, one in found.items()} == {"fp32": 10, "int8": 10}
    assert counts(table) == {"fp32": 10, "bf16": 6, "int8": 10}
    assert {detail for _, detail, _ in told} == {"fp32", "int8"}
    assert run.go_on(lambda *_: None) == {}
    assert not run.can_go_on


def test_short_rounds_are_not_warmed_up_by_whole_ones_before_further_blocks(table: Table) -> None:
    """Some untimed tokens stand for these. Bug: as many more rounds were run as the block has."""
    table.add("fp32", 0.1)
    table.add("int8", *(seconds / 20 for seconds in NOISY))
    ended: list[Blocks] = []
    pace = replace(FAST, max_noise=0.01, share_s=3.0)
    measure_side_by_side(table.entries, "fp32", pace, clock=table.clock, on_end=ended.append)
    before_s = table.clock()
    ended[0].go_on(lambda *_: None)
    assert table.clock() - before_s == pytest.approx(ended[0].block_s)


def test_without_the_reference_no_further_block_compares_anything(table: Table) -> None:
    table.add("fp32", 1.0, fails_at=3)
    table.add("bf16", *NOISY)
    ended: list[Blocks] = []
    measure_side_by_side(
        table.entries, "fp32", replace(FAST, max_noise=0.01, share_s=0.0), clock=table.clock, on_end=ended.append
    )
    assert ended[0].can_go_on
    assert ended[0].go_on(lambda *_: None) == {}
    assert not ended[0].can_go_on
    assert counts(table) == {"fp32": 3, "bf16": 3}


def test_no_block_begins_once_the_time_is_spent(table: Table) -> None:
    """A block takes 1 s and that of the noisy one: after 8 of them 26.5 s are over, after 9 of them 31.5."""
    table.add("fp32", 1.0)
    table.add("bf16", *NOISY)
    outcome = table.run(replace(FAST, max_noise=0.01, share_s=31.0))
    assert counts(table) == {"fp32": 9, "bf16": 9}
    assert outcome.spent == Spent(31.5, 0.0, True)


def test_alone_a_variant_goes_on_until_its_own_interval_is_narrow(table: Table) -> None:
    table.add("fp32", 1.0)
    table.run(replace(FAST, max_noise=0.01, share_s=1000.0))
    assert counts(table) == {"fp32": ENOUGH_ROUNDS}
    table.add("fp32", *NOISY)
    table.run(replace(FAST, max_noise=0.01, share_s=20.0))
    assert counts(table) == {"fp32": 9}  # 18.5 s for the first eight


def test_what_other_cases_lead_to_expect_makes_an_interval_narrow_sooner(table: Table) -> None:
    """Logarithms of 0 and 0.05 in turn: of six, trimmed at either end, the standard error is 1.77 % and Student's t of
    three degrees of freedom 3.18, so that it takes two more. Where 1.66 % are expected, t is 1.96: 3.3 % to a side."""
    for prior, rounds in ((NO_PRIOR, 8), (VarianceEstimate(0.00166, 1000.0), ENOUGH_ROUNDS)):
        table.add("fp32", 1.0)
        table.add("bf16", 1.0, math.exp(0.05))
        table.run(replace(FAST, max_noise=0.034, share_s=1000.0, expected_variance=prior))
        assert counts(table)["bf16"] == rounds


LARGE = replace(FAST, is_large=True)


@pytest.mark.parametrize(
    ("pace", "observed_s", "preempted"),
    [
        pytest.param(FAST, (PREEMPTED_STEP_S, 2 * PREEMPTED_STEP_S), True, id="long steps"),
        pytest.param(FAST, (PREEMPTED_STEP_S / 2, 2 * PREEMPTED_STEP_S), False, id="short steps of one"),
        pytest.param(LARGE, (0.0, 0.0), True, id="a large model"),
        pytest.param(replace(LARGE, may_preempt=False), (0.0, 0.0), False, id="energy is counted"),
        pytest.param(replace(LARGE, probes=True), (0.0, 0.0), False, id="a probe before each round"),
    ],
)
def test_slices_end_within_long_steps(
    pace: Pace, observed_s: tuple[float, float], preempted: bool, table: Table
) -> None:
    """All blocks are alike, whatever later steps take. observed_s: for each token of the round that warms up."""
    table.workload = replace(WORKLOAD, new_tokens=20)
    for name, step_s in zip(("fp32", "bf16"), observed_s, strict=True):
        table.add(name, 2.0, observed_s=20 * step_s * OBSERVED_LONGER)
    table.run(replace(pace, rounds=3))
    for name in table.entries:
        assert table.model(name).preempted == [preempted] * 3


def test_what_others_take_meanwhile_is_not_in_a_round_that_is_preempted(table: Table) -> None:
    table.add("fp32", 2.0)
    table.add("bf16", 1.0)
    outcome = table.run(LARGE)
    assert outcome["fp32"].rounds_s == pytest.approx((2.0,) * 3)
    assert outcome["bf16"].rounds_s == pytest.approx((1.0,) * 3)


def test_slices_by_the_clock_are_spread_by_how_long_rounds_take(table: Table) -> None:
    """fp32 has 40 slices, bf16 20, which lie between two each of the others; but for the first block, in which both are
    expected to take as long."""
    for name, round_s in (("fp32", 40 * PREEMPTED_SLICE_S), ("bf16", 20 * PREEMPTED_SLICE_S)):
        table.add(name, round_s)
        table.entries[name].expected_s = 2.0
    table.run(replace(LARGE, rounds=2))
    first, second = table.slices[:60], table.slices[60:]
    assert first[:40].count("bf16") == 20
    places = [place for place, name in enumerate(second) if name == "bf16"]
    assert len(places) == 20
    assert {later - earlier for earlier, later in pairwise(places)} == {3}


def test_a_round_of_which_nothing_is_known_is_taken_for_the_longest(table: Table) -> None:
    """Bug: one of which nothing was expected had its slices within the others' first second."""
    for name in ("fp32", "bf16", "int8"):
        table.add(name, 40 * PREEMPTED_SLICE_S)
    table.entries["bf16"].expected_s = 40 * PREEMPTED_SLICE_S
    table.run(replace(LARGE, rounds=1))
    for start in range(0, 117, 3):
        assert sorted(table.slices[start : start + 3]) == ["bf16", "fp32", "int8"]


def test_one_alone_is_not_preempted(table: Table) -> None:
    table.add("bf16", 3.0)
    table.run(LARGE)
    assert not any(table.model("bf16").preempted)


def test_one_that_is_left_alone_before_its_first_slice_is_measured_as_in_other_blocks(table: Table) -> None:
    """Bug: it was warmed up, and waited for its threads, where its partner had ended first, by chance."""
    table.add("fp32", PREEMPTED_SLICE_S / 2)
    table.add("bf16", 2.0)
    table.run(replace(LARGE, rounds=20))
    assert table.model("bf16").preempted == [True] * 20
    assert not any(table.model("bf16").warms)


def test_the_last_one_in_a_block_is_not_preempted_any_more(table: Table) -> None:
    limits: list[float] = []
    table.add("fp32", 2.0)
    table.add("bf16", 1.0)
    in_turns = FakeModel.in_turns

    def noting(model: FakeModel, preemptions: Preemptions, *args: Any, **how: Any) -> Iterator[Any]:
        for done in in_turns(model, preemptions, *args, **how):
            if done is not None:
                limits.append(preemptions.every_s)
            yield done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeModel, "in_turns", noting)
        table.run(replace(LARGE, rounds=1))
    assert limits == [PREEMPTED_SLICE_S, math.inf]


def test_no_round_of_a_large_model_is_spent_to_warm_up_and_the_first_timed_one_is_observed(table: Table) -> None:
    table.add("fp32", 3.0, asked=False)
    table.add("bf16", 3.0)
    outcome = table.run(LARGE)
    assert table.log[:2] == ["bind fp32 briefly", "begin bf16"]
    assert table.log[2:5].count("end bf16") == 1
    assert table.log.count("end bf16") == 1
    assert counts(table) == {"fp32": 3, "bf16": 3}
    assert len(table.turns) == 6
    assert outcome["bf16"].observation == "observation of round 1 of bf16"


def test_a_round_that_is_observed_is_alone(table: Table) -> None:
    """Bug: tokens that warm up a short round, and rounds in a row with it, were taken for its own."""
    for name in ("fp32", "bf16"):
        table.add(name, 0.1)
    table.run(replace(LARGE, warmup_rounds=2, may_preempt=False))
    for model in (entry.model for entry in table.entries.values()):
        assert (model.warms[:2], model.in_a_row[:2]) == ([False, False], [1, 1])
        assert model.warms[2:] == [True, True]


def test_some_tokens_warm_up_long_rounds_once(table: Table) -> None:
    """Other variants were observed since its own warm-up. Short rounds are warmed up in each block."""
    for name in ("fp32", "bf16"):
        table.add(name, 3.0)
    table.run(FAST)
    for model in (entry.model for entry in table.entries.values()):
        assert model.warms == [True, False, False]


def test_further_warmup_rounds_are_run_where_they_are_asked_for(table: Table) -> None:
    table.add("fp32", 3.0)
    table.run(replace(LARGE, warmup_rounds=2))
    assert table.log[:3] == ["fp32", "begin fp32", "fp32"]


@pytest.mark.parametrize(
    ("pace", "more", "changed"),
    [
        pytest.param(FAST, {}, {}, id="a small model"),
        pytest.param(LARGE, {"compile_s": 9.0}, {}, id="it is compiled"),
        pytest.param(LARGE, {"is_beside": True}, {}, id="a server"),
        pytest.param(LARGE, {}, {"cache": CacheKind.STATIC}, id="a static cache"),
    ],
)
def test_else_a_round_of_its_own_warms_up_and_is_observed(
    pace: Pace, more: dict[str, Any], changed: dict[str, Any], table: Table
) -> None:
    table.workload = replace(WORKLOAD, **changed)
    table.add("bf16", 3.0, **more)
    assert table.run(pace)["bf16"].observation == "observation of bf16"
    assert table.log[:2] == ["observe bf16", "bf16"]


def test_where_watching_would_take_time_a_round_of_its_own_is_observed(table: Table) -> None:
    table.add("bf16", 3.0, can_be_watched=False)
    assert table.run(LARGE)["bf16"].observation == "observation of bf16"
    assert table.log[:4] == ["begin bf16", "observe bf16", "bind bf16 briefly", "bf16"]


EXPECTED = VarianceEstimate(0.01**2, 1000.0)


def test_long_rounds_are_two_where_the_interval_is_narrow_by_then(table: Table) -> None:
    """Of two pairs that differ by 1 % as expected, the standard error is 1 % / sqrt(2): 1.39 % to either side."""
    table.add("fp32", 3.0)
    table.add("bf16", 1.0, math.exp(0.01))
    table.run(replace(FAST, max_noise=0.03, fewest_rounds=2, expected_variance=EXPECTED))
    assert counts(table) == {"fp32": 2, "bf16": 2}


@pytest.mark.parametrize(
    ("round_s", "changed"),
    [
        pytest.param(1.9, {}, id="short rounds"),
        pytest.param(3.0, {"fewest_rounds": None}, id="so many are asked for"),
        pytest.param(3.0, {"max_noise": 0.0}, id="no interval is asked for"),
        pytest.param(3.0, {"max_noise": 0.013}, id="the interval is too wide"),
        pytest.param(3.0, {"expected_variance": NO_PRIOR}, id="nothing is known of the scatter"),
        pytest.param(3.0, {"expected_variance": replace(EXPECTED, freedom=0.1)}, id="too little is known of it"),
    ],
)
def test_else_they_are_as_many_as_others(round_s: float, changed: dict[str, Any], table: Table) -> None:
    table.add("fp32", round_s)
    table.add("bf16", round_s, round_s * math.exp(0.01))
    pace = replace(LARGE, max_noise=0.03, fewest_rounds=2, expected_variance=EXPECTED, share_s=0.0)
    table.run(replace(pace, **changed))
    assert counts(table) == {"fp32": 3, "bf16": 3}


@pytest.mark.parametrize(
    ("share_s", "changed", "rounds"),
    [
        pytest.param(1.5, {}, 2, id="by then"),
        pytest.param(2.1, {}, 3, id="later"),
        pytest.param(1.5, {"is_large": True}, 3, id="of a large model"),
        pytest.param(1.5, {"fewest_rounds": None}, 3, id="so many are asked for"),
        pytest.param(1.5, {"max_noise": 0.0}, 3, id="no interval is asked for"),
        pytest.param(1.5, {"expected_variance": replace(EXPECTED, freedom=0.9)}, 3, id="little is known"),
        pytest.param(1.5, {"allocation": Allocation(decides=True)}, 3, id="the answer goes by it"),
    ],
)
def test_rounds_are_two_where_the_time_of_a_case_is_over(
    share_s: float, changed: dict[str, Any], rounds: int, table: Table
) -> None:
    """Two of both take 2 s; the interval is too wide."""
    table.add("fp32", 0.5)
    table.add("bf16", 0.5, 0.5 * math.exp(0.01))
    pace = replace(FAST, max_noise=0.001, fewest_rounds=2, expected_variance=EXPECTED, share_s=share_s)
    table.run(replace(pace, **changed))
    assert counts(table) == {"fp32": rounds, "bf16": rounds}


@pytest.mark.parametrize(("apart", "rounds"), [(3.9, 2), (4.1, 3)])
def test_two_pairs_that_lie_too_far_apart_have_a_third(apart: float, rounds: int, table: Table) -> None:
    """Four times as far as one is expected to scatter. It tells which of them is odd, so that no fourth is needed."""
    table.add("fp32", 0.5)
    table.add("bf16", 0.5, 0.5 * math.exp(0.01 * apart), 0.5)
    table.add("int8", 0.5)
    table.run(SHORT_OF_TIME)
    assert counts(table) == {"fp32": rounds, "bf16": rounds, "int8": 2}


def test_two_pairs_that_lie_too_far_apart_have_no_more_than_a_third(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: where all blocks after them were crowded, so that none counted, others were run without end."""
    crowd(table, monkeypatch, *range(2, 50))
    table.add("fp32", 0.5)
    table.add("bf16", 0.5, 0.5 * math.exp(0.041), 0.5)
    table.run(SHORT_OF_TIME)
    assert counts(table) == {"fp32": 3, "bf16": 3}


SHORT_OF_TIME = replace(FAST, max_noise=0.001, fewest_rounds=2, expected_variance=EXPECTED, share_s=0.0)


def test_a_variant_without_a_pair_has_all_rounds(table: Table) -> None:
    """Two latencies have no interval."""
    table.add("bf16", 0.5)
    table.run(SHORT_OF_TIME)
    assert counts(table) == {"bf16": 3}


def test_after_two_rounds_of_a_reference_that_dies_the_others_have_all(table: Table) -> None:
    table.add("fp32", 0.5, fails_at=1)
    table.add("bf16", 0.5)
    outcome = table.run(SHORT_OF_TIME)
    assert len(outcome["bf16"].rounds) == 3
    assert outcome["bf16"].reference_rounds == ()


def test_two_rounds_are_of_blocks_that_are_not_crowded(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd(table, monkeypatch, 0)
    table.add("fp32", 0.5)
    table.add("bf16", 0.5, 0.5 * math.exp(0.01))
    outcome = table.run(SHORT_OF_TIME)
    assert (len(outcome["bf16"].rounds), outcome["bf16"].crowded_rounds) == (2, 1)


def test_of_long_rounds_those_of_crowded_blocks_are_not_enough(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two others are, and the crowded one is left out."""
    crowd(table, monkeypatch, 0)
    table.add("fp32", 4.0, 3.0, 3.0)
    table.add("bf16", 1.0)
    outcome = table.run(replace(FAST, max_noise=0.03, fewest_rounds=2, expected_variance=EXPECTED))
    assert outcome["bf16"].reference_s == (3.0, 3.0)
    assert outcome["bf16"].crowded_rounds == 1


def test_a_variant_whose_interval_is_wide_has_a_third_long_round_with_the_reference(table: Table) -> None:
    table.add("fp32", 3.0)
    table.add("bf16", 1.0)
    table.add("int8", 1.0, 1.2)
    table.run(replace(FAST, max_noise=0.03, fewest_rounds=2, expected_variance=EXPECTED))
    assert counts(table)["bf16"] == 2
    assert counts(table)["int8"] == counts(table)["fp32"] > 2


def test_what_can_not_win_is_settled_by_an_interval_of_twice_the_width(table: Table) -> None:
    """The logarithms of bf16 alternate as above, around half the reference's speed."""
    table.add("fp32", 1.0)
    table.add("bf16", 2.0, 2 * math.exp(0.05))
    table.add("int8", 0.5)
    table.run(replace(FAST, max_noise=0.017, share_s=1000.0))
    assert counts(table) == {"fp32": 8, "bf16": 8, "int8": ENOUGH_ROUNDS}


@pytest.mark.parametrize(("decides", "rounds"), [(False, ENOUGH_ROUNDS), (True, 8)])
def test_where_the_answer_is_decided_rivals_need_intervals_of_half_the_width(
    table: Table, decides: bool, rounds: int
) -> None:
    table.add("fp32", 1.0)
    for name in ("bf16", "int8"):
        table.add(name, 0.5, 0.5 * math.exp(0.05))
    table.run(replace(FAST, max_noise=0.068, share_s=1000.0, allocation=Allocation(decides=decides)))
    assert counts(table) == {"fp32": rounds, "bf16": rounds, "int8": rounds}


@pytest.mark.parametrize("unit_s", [1.0, 4.0])  # 2 rounds of 4 s may be enough
@pytest.mark.parametrize(("allowed", "rounds"), [({}, 4), ({"longer_s": 1.0}, 3), ({"allocation": Allocation()}, 3)])
def test_an_open_contest_goes_on_for_half_as_long_again(
    table: Table, allowed: dict[str, Any], rounds: int, unit_s: float
) -> None:
    """Three blocks take 2, 2.5 and 2 units. 9.75 are 1.5 times as long: the fourth block ends at 9, the fifth would end
    after it."""
    table.add("fp32", unit_s)
    for name in ("bf16", "int8"):
        table.add(name, 0.5 * unit_s, 0.75 * unit_s)
    pace = replace(FAST, max_noise=0.03, share_s=0.0, fewest_rounds=2, allocation=Allocation(decides=True))
    table.run(replace(pace, **{key: value * unit_s if key == "longer_s" else value for key, value in allowed.items()}))
    assert counts(table) == {"fp32": rounds, "bf16": rounds, "int8": rounds}


def test_how_long_an_open_contest_goes_on_is_told(table: Table) -> None:
    """After three blocks 9.75 s are the most, of which 6.5 s are over."""
    told: list[Left | None] = []
    table.add("fp32", 1.0)
    for name in ("bf16", "int8"):
        table.add(name, 0.5, 0.75)
    pace = replace(FAST, max_noise=0.03, share_s=0.0, allocation=Allocation(decides=True))
    table.run(pace, step=lambda step, _, left: told.append(left) if step == "round 4" else None)
    assert told[0] == Left(pytest.approx(3.25), is_most=True)


def test_common_weather_widens_no_speed_up(table: Table) -> None:
    """Both take four times as long in every second block, and the ratio is 2 in each."""
    table.add("fp32", 2.0, 8.0)
    table.add("bf16", 1.0, 4.0)
    table.run(replace(FAST, max_noise=0.01, share_s=1000.0))
    assert counts(table) == {"fp32": ENOUGH_ROUNDS, "bf16": ENOUGH_ROUNDS}


def busy(table: Table, monkeypatch: pytest.MonkeyPatch, cores: Sequence[int]) -> list[float]:
    """Have so many cores free each time it is looked, all at the end, and note the waits."""
    looks = chain(cores, repeat(64))
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        if seconds >= blocks.LOOK_EVERY_S:  # else it looks once more whether the last process has stopped
            waits.append(seconds)
            table.clock.advance(seconds)

    monkeypatch.setattr(blocks, "free_cores", lambda: next(looks))
    monkeypatch.setattr(blocks.time, "sleep", sleep)
    return waits


def test_a_turn_waits_while_other_work_keeps_too_many_cores_busy(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round needs two cores. What was waited is no time of the rounds."""
    waits = busy(table, monkeypatch, [*[0] * blocks.LOOKS, 0, 1, 1, 2])
    table.add("fp32", 1.0)
    outcome = table.run(replace(FAST, patience_s=10.0, cores=2))
    assert len(waits) == 3
    assert outcome.spent.rounds_s == pytest.approx(3.0)
    assert outcome.spent.waited_s == pytest.approx(3 * blocks.LOOK_EVERY_S)


def test_only_a_wait_that_lasts_is_shown(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a log said "waiting for other programs" of cases that had waited for 0.2 s in all."""
    shown: list[str] = []
    for looks in (4, 1100):  # of 1 ms each
        waits = busy(table, monkeypatch, [0] * looks)
        table.entries.clear()
        table.add("fp32")
        table.run(replace(FAST, rounds=1, patience_s=10.0), step=lambda _, what, __: shown.append(what))
        assert len(waits) == looks - blocks.LOOKS
        assert ("waiting for other programs" in shown) == (looks > 1000)


@pytest.mark.parametrize(("threads", "looked"), [(1, 0), (None, 2)])
def test_a_variant_waits_for_as_many_cores_as_it_has_threads(
    threads: int | None, looked: int, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One core is free, which is enough for one thread, and not for the usual two."""
    waits = busy(table, monkeypatch, [1] * 1000)
    table.add("fp32", 1.0)
    table.entries["fp32"].cores = threads
    table.run(replace(FAST, patience_s=2 * blocks.LOOK_EVERY_S, cores=2))
    assert len(waits) == looked


def test_patience_is_one_for_the_whole_case(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cores are never free again: it waits before the first rounds, and not before those after them."""
    busy(table, monkeypatch, [0] * 1000)
    table.add("fp32", 1.0)
    table.add("bf16", 1.0)
    outcome = table.run(replace(FAST, patience_s=0.1))
    assert counts(table) == {"fp32": 3, "bf16": 3}
    assert outcome.spent.waited_s == pytest.approx(0.1, abs=2 * blocks.LOOK_EVERY_S)
    assert outcome.spent.rounds_s == pytest.approx(6.0)


@pytest.mark.parametrize(
    ("free", "found_calm"), [([], True), ([0] * 24, True), ([0] * 1000, False)], ids=["at once", "later", "never"]
)
def test_a_case_tells_whether_other_work_left_it_alone(
    free: list[int], found_calm: bool, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks each 5 ms, so that 0.1 s of patience are twenty looks; then once before each turn."""
    busy(table, monkeypatch, free)
    table.add("fp32", 1.0)
    table.add("bf16", 1.0)
    assert table.run(replace(FAST, patience_s=0.1)).spent.found_calm == found_calm


def test_without_patience_nothing_waits(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    assert busy(table, monkeypatch, [0] * 100) == []
    table.add("fp32")
    assert table.run().spent.waited_s == 0


def test_where_the_system_does_not_tell_nothing_waits(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "free_cores", lambda: None)
    table.add("fp32")
    assert table.run(replace(FAST, patience_s=100.0)).spent.waited_s == 0


def spinning(table: Table, monkeypatch: pytest.MonkeyPatch, cores: int) -> list[float]:
    """Have so many cores free, one less while a server spins, and note the waits."""
    waits = busy(table, monkeypatch, [])
    monkeypatch.setattr(blocks, "free_cores", lambda: cores - (table.clock() < table.spun_until_s))
    return waits


def test_after_its_turn_a_server_on_this_machine_is_waited_for(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's worker spins for a second after each turn, on a core of the variant whose turn comes next."""
    waits = spinning(table, monkeypatch, cores=2)
    table.add("fp32", 1.0)
    table.add("endpoint", 1.0, is_beside=True, spins_s=1.0)
    outcome = table.run(replace(FAST, cores=2, patience_s=60.0))
    assert counts(table) == {"fp32": 3, "endpoint": 3}
    assert table.disturbed == []
    assert sum(waits) == pytest.approx(3.0, abs=4 * blocks.LOOK_EVERY_S)
    assert (outcome.spent.rounds_s, outcome.spent.waited_s) == (pytest.approx(6.0), 0.0)


def test_a_servers_rest_leaves_the_share_to_the_rounds(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: it was of the share. A block takes 1 s and that of the noisy one: after 9 of them 31.5 s are over."""
    spinning(table, monkeypatch, cores=2)
    table.add("fp32", 1.0)
    table.add("endpoint", *NOISY, is_beside=True, spins_s=1.0)
    outcome = table.run(replace(FAST, max_noise=0.01, share_s=31.0, cores=2))
    assert counts(table) == {"fp32": 9, "endpoint": 9}
    assert outcome.spent.rounds_s == pytest.approx(31.5)


def test_a_server_that_never_rests_is_not_waited_for_long(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, after it has warmed up: later as many cores are free as before its turns."""
    waits = spinning(table, monkeypatch, cores=2)
    table.add("fp32", 1.0)
    table.add("endpoint", 1.0, is_beside=True, spins_s=1e9)
    outcome = table.run(replace(FAST, warmup_rounds=2, cores=2))
    assert sum(waits) == pytest.approx(LONGEST_SERVER_FALL_S, abs=2 * blocks.LOOK_EVERY_S)
    assert outcome.spent.rounds_s == pytest.approx(6.0)


def test_a_case_waits_for_its_servers_so_long_and_no_longer(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rest is 1.2 s of the 1.5 that it spins, after each turn that doesn't follow its own: after some 45 of 60."""
    waits = spinning(table, monkeypatch, cores=2)
    table.add("fp32", 1.0)
    table.add("endpoint", 1.0, is_beside=True, spins_s=1.5)
    table.run(replace(FAST, rounds=60, share_s=1000.0, cores=2))
    assert counts(table) == {"fp32": 60, "endpoint": 60}
    assert sum(waits) == pytest.approx(blocks.MOST_REST_S, abs=2 * blocks.LOOK_EVERY_S)


@pytest.mark.parametrize(
    ("cores", "names", "is_beside"),
    [
        pytest.param(64, ("fp32", "endpoint"), True, id="the next round needs two of 64 cores"),
        pytest.param(2, ("endpoint",), True, id="nobody else takes turns"),
        pytest.param(2, ("fp32", "endpoint"), False, id="it runs elsewhere"),
    ],
)
def test_a_server_that_takes_no_core_of_others_is_not_waited_for(
    cores: int, names: tuple[str, ...], is_beside: bool, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: all cores of the machine had to be free, also where the server was alone."""
    waits = spinning(table, monkeypatch, cores)
    for name in names:
        table.add(name, 1.0, is_beside=is_beside and name == "endpoint", spins_s=1.0 * (name == "endpoint"))
    measure_side_by_side(table.entries, names[0], replace(FAST, cores=2), clock=table.clock)
    assert counts(table) == dict.fromkeys(names, 3)
    assert waits == []


def test_what_was_busy_before_a_servers_turn_is_not_waited_for(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two cores is another program's all the time."""
    waits = spinning(table, monkeypatch, cores=1)
    table.add("fp32", 1.0)
    table.add("endpoint", 1.0, is_beside=True)
    table.run(replace(FAST, cores=2))
    assert waits == []


def crowd(table: Table, monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    """Have other work take all cores in the blocks of these numbers."""
    busy(table, monkeypatch, [])

    def free() -> int:
        return 0 if min(table.model(name).rounds for name in table.entries) in numbers else 64

    monkeypatch.setattr(blocks, "free_cores", free)


def test_a_crowded_block_is_run_once_more_and_left_out_for_all(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd(table, monkeypatch, 1)
    table.add("fp32", 1.0, 2.0, 3.0, 4.0)
    table.add("bf16", 0.1, 0.2, 0.3, 0.4)
    outcome = table.run(replace(FAST, max_noise=10.0, share_s=7.0))
    assert outcome["bf16"].reference_s == (1.0, 3.0, 4.0)
    assert outcome["bf16"].rounds_s == (0.1, 0.3, 0.4)
    assert outcome["fp32"].rounds_s == (1.0, 3.0, 4.0)
    assert outcome["bf16"].crowded_rounds == outcome["fp32"].crowded_rounds == 1


def test_where_just_the_least_rounds_are_asked_for_a_crowded_block_counts(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd(table, monkeypatch, 1)
    table.add("fp32", 1.0, 2.0, 3.0)
    table.add("bf16")
    assert table.run()["bf16"].reference_s == (1.0, 2.0, 3.0)


def test_where_too_few_blocks_are_left_the_least_crowded_ones_count(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 9 s the first four blocks take 10, so that no fifth is run. The first and the third of them are crowded alike,
    so that both count where one is needed."""
    crowd(table, monkeypatch, 0, 2)
    table.add("fp32", 1.0, 1.5, 2.0, 1.5)
    table.add("bf16", 1.0)
    outcome = table.run(replace(FAST, max_noise=10.0, share_s=9.0))
    assert outcome["bf16"].reference_s == (1.0, 1.5, 2.0, 1.5)
    assert outcome["bf16"].crowded_rounds == 0


def test_crowded_rounds_are_not_enough_to_believe_an_interval(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal rounds would be believed once there are six; three of these are crowded."""
    crowd(table, monkeypatch, 0, 1, 2)
    table.add("fp32")
    table.add("bf16")
    table.run(replace(FAST, max_noise=0.01, share_s=1000.0))
    assert counts(table) == {"fp32": ENOUGH_ROUNDS + 3, "bf16": ENOUGH_ROUNDS + 3}


def test_patience_lasts_for_waits_and_for_blocks_in_place_of_crowded_ones(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it is waited before the first block, and blocks of 2 s have their share of 10 s after it."""
    crowd(table, monkeypatch, *range(100))
    table.add("fp32")
    table.add("bf16")
    outcome = table.run(replace(PATIENT, share_s=10.0, patience_s=10.0))
    assert counts(table) == {"fp32": 5, "bf16": 5}
    assert outcome.spent.waited_s == pytest.approx(10.0, abs=2 * blocks.LOOK_EVERY_S)
    assert not outcome.spent.found_calm


def test_threads_that_wait_for_each_other_crowd_nothing(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: with more threads than cores each round was run again, as long as there was time."""
    crowd(table, monkeypatch, *range(100))
    monkeypatch.setattr(blocks, "free_cores", lambda: -3)
    table.add("fp32")
    table.add("bf16")
    table.run(replace(FAST, max_noise=0.01, share_s=5000.0, cores=0))
    assert counts(table) == {"fp32": ENOUGH_ROUNDS, "bf16": ENOUGH_ROUNDS}


def test_it_is_told_what_goes_on(table: Table) -> None:
    told: list[tuple[str, str]] = []
    table.add("fp32")
    table.add("bf16")
    table.run(replace(FAST, rounds=1), step=lambda step, name, _: told.append((step, name)))
    assert told[:2] == [("warming up", "fp32"), ("warming up", "bf16")]
    assert sorted(told[2:]) == [("round 1/1", "bf16"), ("round 1/1", "fp32")]


def left_in(table: Table, pace: Pace) -> list[tuple[str, Left | None]]:
    """What is told of the rounds of two variants, one second each."""
    told: list[tuple[str, Left | None]] = []
    table.add("fp32")
    table.add("bf16")
    table.run(pace, step=lambda step, _, left: told.append((step, left)))
    return told[2:]


def test_how_long_it_goes_on_is_told_from_the_blocks_that_are_done(table: Table) -> None:
    """Two seconds a block: nothing is known in the first, and of three there are 4 s left after it."""
    assert left_in(table, FAST) == [
        ("round 1/3", None),
        ("round 1/3", None),
        ("round 2/3", Left(4.0)),
        ("round 2/3", Left(3.0)),
        ("round 3/3", Left(2.0)),
        ("round 3/3", Left(1.0)),
    ]


def test_where_noise_decides_how_long_it_goes_on_it_may_end_before(table: Table) -> None:
    """Of 60 s two are spent after the first block, and one more before the second one's last turn."""
    told = left_in(table, replace(FAST, rounds=1, max_noise=0.01))
    assert told[1:4] == [
        ("round 1/1", None),
        ("round 2", Left(58.0, is_most=True)),
        ("round 2", Left(57.0, is_most=True)),
    ]


def test_a_round_of_unknown_waiting_makes_all_unknown() -> None:
    """A time for each round or none: they are paired one by one."""
    known = Round(1.0, (), (), waited_s=0.5)
    assert Measured(None, (known, known)).waited_s == (0.5, 0.5)
    assert Measured(None, (known, replace(known, waited_s=None))).waited_s == ()


Look = Callable[..., "list[float]"]


@pytest.fixture
def look(table: Table, monkeypatch: pytest.MonkeyPatch) -> Look:
    """Lets looks find these one after the other, and then the last of them; gives when there was one."""
    for name in ("fp32", "bf16", "int8", "nf4"):
        table.add(name, 1.0)

    def made(*found: float | None) -> list[float]:
        coming, at_s = [*found], list[float]()

        def one() -> float | None:
            at_s.append(table.clock())
            return coming.pop(0) if len(coming) > 1 else coming[0]

        monkeypatch.setattr(blocks, "CoreLooks", lambda: SimpleNamespace(look=one))
        return at_s

    return made


TWO_CORES = replace(FAST, cores=2)


def test_a_round_has_the_mean_of_the_looks_in_its_block(table: Table, look: Look) -> None:
    """There is one before each turn of four variants, of which one tells nothing."""
    at_s = look(1.0, 2.0, 3.0, 2.0, 4.0, None, 4.0, 4.0, 2.0)
    assert table.run(TWO_CORES)["bf16"].core_to_core == (2.0, 4.0, 2.0)
    assert at_s == [float(second) for second in range(12)]


def test_a_block_with_too_few_looks_tells_nothing_of_any(table: Table, look: Look) -> None:
    """Single looks scatter."""
    look(2.0, 2.0, None, None, 2.0)
    assert table.run(TWO_CORES)["bf16"].core_to_core == ()


@pytest.mark.parametrize("cores", [0, 1])
def test_what_runs_on_one_core_shares_nothing(cores: int, table: Table, look: Look) -> None:
    at_s = look(2.0)
    assert table.run(replace(FAST, cores=cores))["bf16"].core_to_core == ()
    assert at_s == []


def test_beside_a_server_there_are_no_looks(table: Table, look: Look) -> None:
    """It works meanwhile."""
    table.add("endpoint", 1.0, is_beside=True)
    at_s = look(2.0)
    assert table.run(TWO_CORES)["bf16"].core_to_core == ()
    assert at_s == []


def test_there_is_no_look_while_other_work_runs(table: Table, look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_are_free", lambda _: False)
    at_s = look(2.0)
    assert table.run(TWO_CORES)["bf16"].core_to_core == ()
    assert at_s == []


def test_where_a_block_is_cut_its_rounds_have_their_looks(table: Table, look: Look) -> None:
    """The third block is cut before its last turn, which isn't the reference's: three variants have three rounds."""
    look(2.0)
    cut: dict[str, Measured] = {}
    turns = iter(range(4 + 11))  # those that warm up, and the timed ones

    def step(*_: object) -> None:
        if next(turns, None) is None:
            raise TimeUp

    def keep(found: Mapping[str, Measured], _: Spent) -> None:
        cut.update(found)

    coin = random.Random(1)  # noqa: S311  # no secret
    with pytest.raises(TimeUp):
        measure_side_by_side(table.entries, "fp32", TWO_CORES, step, coin, table.clock, on_cut=keep)
    assert len(cut) == 3
    assert {one.core_to_core for one in cut.values()} == {(2.0,) * 3}
