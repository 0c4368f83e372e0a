"""Which case gets a further block, and when: against a clock, with blocks that take as long as they are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from llm_bench_fixtures.errors import WorkerDied
from llm_bench_fixtures.measure.timing import Round
from llm_bench_fixtures.progress import Progress
from llm_bench_fixtures.session import further
from llm_bench_fixtures.session.blocks import Blocks
from llm_bench_fixtures.session.budget import MOST_TIMES
from llm_bench_fixtures.session.case import Measured
from llm_bench_fixtures.session.deadline import RESERVE_S, RESERVE_SHARE, Deadline
from llm_bench_fixtures.session.forecast import Forecast, Phases, WorkKind
from llm_bench_fixtures.session.further import FurtherRounds, Visited
from llm_bench_fixtures.session.loader import VariantLoader
from llm_bench_fixtures.session.setup import Setup
from llm_bench_fixtures.workloads import Workload

if TYPE_CHECKING:
    from conftest import FakeClock

FIRST_ROUNDS = 2
WORKLOAD = Workload(((1, 2, 3),), new_tokens=1, batch_size=1)


@dataclass
class FakeBlocks:
    """A case of two variants, whose rounds take a second or so each."""

    clock: FakeClock
    round_s: float = 1.0
    names: Collection[str] = ("fp32", "int8")
    dies: str = ""
    """The variant that fails in its next round."""
    longer: float = 1.0
    """How many times as long further blocks take."""
    settled: Collection[str] = ()
    """The variants whose interval is as narrow as asked."""
    at_s: list[float] = field(default_factory=list)
    """When each block began."""
    in_a_row: int = 1

    def __post_init__(self) -> None:
        rounds = dict.fromkeys(range(FIRST_ROUNDS), self._round)
        self.entries = {name: self._entry(name, rounds) for name in self.names}
        self.rounds = self.stopping = self  # as far as they are asked

    def _entry(self, name: str, rounds: dict[int, Round]) -> SimpleNamespace:
        model = SimpleNamespace(variant=name, is_anew=False)
        return SimpleNamespace(rounds=dict(rounds), failure=None, model=model, workload=WORKLOAD)

    @property
    def _round(self) -> Round:
        return Round(self.round_s, (), ())

    @property
    def alive(self) -> dict[str, Any]:
        return {name: entry for name, entry in self.entries.items() if entry.failure is None}

    @property
    def unsettled(self) -> dict[str, Any]:
        return {name: entry for name, entry in self.alive.items() if name not in self.settled}

    @property
    def can_go_on(self) -> bool:
        return "fp32" in self.alive and len(self.unsettled) > 1

    def go_on(self, step: Callable[..., None]) -> dict[str, Measured]:
        self.at_s.append(self.clock())
        step("round", "fp32", None)
        if self.dies in self.entries:
            self.entries[self.dies].failure = WorkerDied(f"{self.dies} died")
        for entry in self.unsettled.values():
            self.clock.advance(self.longer * self.round_s)
            entry.rounds[len(entry.rounds)] = self._round
        return {name: Measured(None, tuple(entry.rounds.values())) for name, entry in self.alive.items()}

    def visited(self, case: str) -> Visited:
        found = {name: Measured(None, tuple(entry.rounds.values())) for name, entry in self.entries.items()}
        return Visited(case, cast(Blocks, self), FIRST_ROUNDS * len(self.names) * self.round_s, found)


@dataclass
class Bench:
    clock: FakeClock
    rounds: FurtherRounds
    forecast: Forecast
    loader: FakeLoader

    def add(self, case: str, *more: Any, wanted: bool = True, **how: Any) -> FakeBlocks:
        """A case. wanted: whether a test takes its further rounds."""
        blocks = FakeBlocks(self.clock, *more, **how)
        visited = blocks.visited(case)
        self.rounds.add(visited)
        for first in visited.found.values() if wanted else ():
            self.rounds.hand_on(cast(Measured, first), lambda _: None)
        return blocks

    def run(self) -> None:
        self.rounds.run()


class FakeLoader:
    """What is loaded, but for what is gone."""

    def __init__(self) -> None:
        self.gone: set[str] = set()
        self.has_room = True

    def beside(self, variant: str) -> SimpleNamespace | None:
        return None if variant in self.gone else SimpleNamespace(variant=variant, is_anew=True)

    def keeps_all(self, largest: object) -> bool:
        return self.has_room


@pytest.fixture
def make(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Bench]:
    """Makes further rounds for a run that has so many seconds left. All is expected to take as long as it does."""
    monkeypatch.setattr(further, "MARGIN", 1.0)

    def made(left_s: float) -> Bench:
        deadline = Deadline((left_s + RESERVE_S) / (1 - RESERVE_SHARE), clock(), clock)
        forecast = Forecast(clock)
        setup, loader = SimpleNamespace(forecast=forecast, progress=Progress(), deadline=deadline), FakeLoader()
        rounds = FurtherRounds(cast(Setup, setup), cast(VariantLoader, loader), lambda: MOST_TIMES)
        return Bench(clock, rounds, forecast, loader)

    return made


def test_the_time_that_is_left_is_filled_with_blocks(make: Callable[[float], Bench]) -> None:
    """Five of 2 s each in 11 s."""
    bench = make(11.0)
    blocks = bench.add("a")
    began_s = bench.clock()
    bench.run()
    assert blocks.at_s == [began_s + 2.0 * number for number in range(5)]
    assert bench.forecast.left_s is None


def test_no_case_gets_over_five_times_the_time_of_its_first_rounds(make: Callable[[float], Bench]) -> None:
    """Two blocks, and eight further ones."""
    bench = make(1000.0)
    blocks = bench.add("a")
    bench.run()
    assert len(blocks.at_s) == 8


def test_the_blocks_of_a_case_are_spread_over_the_time(make: Callable[[float], Bench]) -> None:
    """Of one whose rounds take an eighth as long as the other's: by cube roots it gets half as much time, so that it
    has four blocks for one of the other."""
    bench = make(42.0)
    short, long = bench.add("short", 0.5), bench.add("long", 4.0)
    began_s = bench.clock()
    bench.run()
    assert len(long.at_s) in (3, 4)
    assert len(short.at_s) == 8
    middle_s = began_s + 21.0
    assert sum(at_s < middle_s for at_s in short.at_s) in (3, 4, 5)
    assert max(b - a for a, b in zip(short.at_s, short.at_s[1:], strict=False)) <= 9.0


def test_a_case_that_takes_longer_than_before_gets_fewer_blocks(make: Callable[[float], Bench]) -> None:
    bench = make(30.0)
    slower, other = bench.add("slower", longer=3.0), bench.add("other")
    bench.run()
    assert len(slower.at_s) < len(other.at_s)
    assert bench.rounds._setup.deadline.left_s < 6.0


def test_what_is_still_to_come_keeps_its_time(make: Callable[[float], Bench]) -> None:
    """5 s of quality leave 6 for three blocks."""
    bench = make(11.0)
    blocks = bench.add("a")
    bench.forecast.expect(WorkKind.QUALITY, "int8", 5.0)
    bench.run()
    assert len(blocks.at_s) == 3
    assert bench.forecast.left_s == 5.0


def test_what_is_no_longer_loaded_takes_no_part(make: Callable[[float], Bench]) -> None:
    """A case that compares nothing then has no more, and takes no time."""
    bench = make(100.0)
    closed, other = bench.add("a"), bench.add("b", names=("fp32", "bf16", "int8"))
    bench.loader.gone.add("int8")
    bench.run()
    assert (len(closed.at_s), len(other.at_s)) == (0, 12)  # of two variants, in the time of three
    assert [*other.entries] == ["fp32", "bf16"]


def test_a_variant_goes_on_as_it_is_loaded_now(make: Callable[[float], Bench]) -> None:
    bench = make(3.0)
    blocks = bench.add("a")
    bench.run()
    assert all(entry.model.is_anew for entry in blocks.entries.values())


def test_a_case_whose_rounds_have_no_room_has_no_more(make: Callable[[float], Bench]) -> None:
    bench = make(100.0)
    bench.loader.has_room = False
    blocks = bench.add("a")
    bench.run()
    assert blocks.at_s == []


def test_without_the_reference_no_case_goes_on(make: Callable[[float], Bench]) -> None:
    bench = make(100.0)
    first, second = bench.add("a", dies="fp32"), bench.add("b")
    bench.run()
    assert (len(first.at_s), len(second.at_s)) == (1, 0)


def test_a_case_that_no_test_wants_has_no_more(make: Callable[[float], Bench]) -> None:
    """As where all of them have failed."""
    bench = make(100.0)
    blocks = bench.add("a", wanted=False)
    bench.run()
    assert blocks.at_s == []


def test_a_test_that_is_run_again_gets_the_figures_of_its_last_run(make: Callable[[float], Bench]) -> None:
    bench = make(100.0)
    first, second = bench.add("a", wanted=False), bench.add("a", wanted=False)
    told: list[str] = []
    for run, visited in zip(("first", "second"), bench.rounds._visited, strict=True):
        bench.rounds.hand_on(cast(Measured, visited.found["int8"]), lambda _, run=run: told.append(run))
    bench.run()
    assert first.at_s == []
    assert told == ["second"] * len(second.at_s)


def test_one_that_dies_leaves_its_first_figures_alone(make: Callable[[float], Bench]) -> None:
    """The case goes on without it, as long as anything is compared."""
    bench = make(100.0)
    blocks = bench.add("a", names=("fp32", "bf16", "int8"), dies="int8")
    told: Counter[str] = Counter()
    for visited in bench.rounds._visited:
        for name, first in visited.found.items():
            bench.rounds.hand_on(cast(Measured, first), lambda _, name=name: told.update([name]))
    bench.run()
    assert told["fp32"] == told["bf16"] == len(blocks.at_s) > 1
    assert "int8" not in told
    assert [str(error) for error in bench.rounds.failures.values()] == ["int8 died"]


def test_the_end_of_the_time_within_a_block_ends_it(make: Callable[[float], Bench]) -> None:
    """The second begins where none was expected to fit."""
    bench = make(5.0)
    blocks = bench.add("a", longer=3.0)
    bench.run()
    assert len(blocks.at_s) == 1


def test_a_block_takes_as_long_as_the_variants_that_are_not_settled(make: Callable[[float], Bench]) -> None:
    """Two of six, a second each. Bug: it was expected to take all six's time, for which there was no room."""
    bench = make(3.0)
    names = ("fp32", "wide", "a", "b", "c", "d")
    blocks = bench.add("a", names=names, settled=("a", "b", "c", "d"))
    assert bench.rounds._visited[0].block_s == 2.0
    bench.run()
    assert len(blocks.at_s) == 1


def test_what_is_settled_is_expected_to_take_no_time(make: Callable[[float], Bench]) -> None:
    bench = make(100.0)
    bench.add("a", settled=("int8",))
    bench.rounds.expect()
    assert bench.forecast.left_s is None


@pytest.mark.parametrize(("left_s", "expected_s"), [(10.0, 7.0), (1000.0, 4 * (4.0 + 3.0)), (2.0, None)])
def test_what_is_expected_is_what_the_run_has_time_for(
    make: Callable[[float], Bench], left_s: float, expected_s: float | None
) -> None:
    """At most four times the first rounds, 4 s of a case that has them and 3 s of one to come."""
    bench = make(left_s)
    bench.add("a")
    bench.forecast.expect_rounds("fp32", "b", Phases(), Phases(3.0))
    for _ in range(2):
        bench.rounds.expect(lambda _: True)
        assert bench.forecast.left_by_work.get(WorkKind.FURTHER) == pytest.approx(expected_s)
