"""Further rounds of cases that have been measured, in the time that a run has left after its last test.

A shared machine's state lasts for minutes and slows some variants more than others, so that all rounds of a case may
be off together. Further ones are run later, a block at a time, and spread over the time that is left.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import fmean

from llm_bench_fixtures.errors import TimeUp
from llm_bench_fixtures.models.needs import RoundSize
from llm_bench_fixtures.progress import Left, Phase
from llm_bench_fixtures.session.blocks import Blocks
from llm_bench_fixtures.session.budget import times_of_cases
from llm_bench_fixtures.session.case import CaseFigures, Measured
from llm_bench_fixtures.session.forecast import MARGIN, WorkKind
from llm_bench_fixtures.session.loader import VariantLoader
from llm_bench_fixtures.session.setup import Setup


@dataclass
class Visited:
    """A case that has its first rounds."""

    case: str
    blocks: Blocks
    first_s: float
    """Seconds of its first rounds."""
    found: CaseFigures
    """First figures."""
    further_s: float = 0.0
    """Seconds of its further rounds so far, and of warming up for them."""
    takers: dict[str, Callable[[Measured], None]] = field(default_factory=dict)
    """What takes a variant's figures after each further block; none of a variant whose test has failed."""

    @property
    def block_s(self) -> float:
        """Seconds of a further block, by the rounds so far and what went on between them; 0 before any."""
        done = {name: [one.latency_s for one in entry.rounds.values()] for name, entry in self.blocks.entries.items()}
        all_s = sum(map(sum, done.values()))
        each_s = sum(fmean(done[name]) for name in self.blocks.stopping.unsettled if done[name])
        return self.blocks.rounds.in_a_row * each_s * (self.first_s + self.further_s) / all_s if all_s else 0.0

    def left_s(self, most_times: float) -> float:
        """Seconds that its further rounds may still take; 0 where a further block would compare nothing that a test
        asked for, or be more than is of use."""
        left_s, block_s = (most_times - 1) * self.first_s - self.further_s, self.block_s
        is_useful = self.blocks.can_go_on and bool(self.takers) and 0 < block_s / 2 <= left_s
        return left_s if is_useful else 0.0


@dataclass(eq=False)
class FurtherRounds:
    """Gives each case its share of the time that is left, a block at a time."""

    _setup: Setup
    _loader: VariantLoader
    _most_times: Callable[[], float]
    """Tells how many times the time of its first rounds a case gets at most, when asked."""

    def __post_init__(self) -> None:
        self._visited: list[Visited] = []
        self.failures: dict[str, Exception] = {}
        """What ended a variant's further rounds, of all cases."""

    def add(self, visited: Visited) -> None:
        """Let a case have further rounds."""
        self._visited.append(visited)

    def hand_on(self, first: Measured, taker: Callable[[Measured], None]) -> None:
        """Hand a test its figures again after each further block, in place of these first ones. Where it is a test that
        is run again, what it got before is not kept up."""
        found = [(one, name) for one in self._visited for name, figures in one.found.items() if figures is first]
        for visited, variant in found:
            for other in self._visited:
                if other.case == visited.case:
                    other.takers.pop(variant, None)
            visited.takers[variant] = taker

    def expect(self, will_have_some: Callable[[str], bool] = lambda _: False) -> None:
        """Expect as many further rounds as there is time for besides all else that is to come. will_have_some: whether
        a case will whose first rounds are to come, by its name."""
        forecast, most_times = self._setup.forecast, self._most_times()
        to_come_s = (most_times - 1) * forecast.timed_s(will_have_some)
        most_s = to_come_s + sum(one.left_s(most_times) for one in self._visited)
        forecast.expect(WorkKind.FURTHER, "", min(self._spare_s(1.0), most_s))
        if forecast.expected_s(WorkKind.FURTHER, "") <= 0:
            self.forget()

    def forget(self) -> None:
        """Expect none."""
        self._setup.forecast.forget("", works=[WorkKind.FURTHER])

    def run(self, after_each: Callable[[], object] = lambda: None) -> None:
        """Run as many further rounds as there is time for. after_each: is called after each block."""
        with suppress(TimeUp):
            while (due := self._due()) is not None:
                self.expect()
                self._run_block(due)
                after_each()
        self.forget()

    def _spare_s(self, margin: float) -> float:
        """Seconds that are left besides what all else takes. margin: times as long as expected."""
        left = self._setup.forecast.left_by_work
        others = (seconds for work, seconds in left.items() if work is not WorkKind.FURTHER)
        return self._setup.deadline.left_s - margin * sum(others)

    def _due(self) -> Visited | None:
        """The case that has used up the least of its share of the time; None where none has time for a block."""
        spare_s = self._spare_s(MARGIN)
        if not self._visited:
            return None
        most = self._most_times()
        able = [one for one in self._visited if one.left_s(most) and one.block_s <= spare_s]
        own_s = spare_s + sum(one.further_s for one in able)
        times = times_of_cases([(one.first_s, len(one.blocks.stopping.unsettled)) for one in able], own_s, most)
        used = {  # in the middle of the next block
            number: (one.further_s + one.block_s / 2) / ((many - 1) * one.first_s)
            for number, (one, many) in enumerate(zip(able, times, strict=True))
            if many > 1
        }
        return able[min(used, key=used.__getitem__)] if used else None

    def _run_block(self, visited: Visited) -> None:
        """Run a block of a case; or drop it, where its variants aren't loaded or have no room for its rounds. They may
        be in other processes than those that ran the first rounds."""
        began_s, blocks = self._setup.deadline.clock(), visited.blocks
        for name, entry in [*blocks.entries.items()]:
            model = None if name in self.failures else self._loader.beside(entry.model.variant)
            if model is None:
                del blocks.entries[name]
            else:
                entry.model = model
        largest = {entry.model.variant: RoundSize.of(entry.workload) for entry in blocks.rounds.alive.values()}
        if not (blocks.can_go_on and self._loader.keeps_all(largest)):
            self._visited.remove(visited)
            return
        text = f"further rounds of {visited.case.rpartition('::')[2].removeprefix('test_')}"
        before = blocks.rounds.alive
        try:
            with self._setup.progress.stepped(Phase.GENERATING, text) as show:

                def step(doing: str, detail: str, left: Left | None) -> None:
                    self._setup.deadline.check()
                    show(doing, detail, left)

                found = blocks.go_on(step)
        finally:
            visited.further_s += self._setup.deadline.clock() - began_s
            self.failures |= {name: entry.failure for name, entry in before.items() if entry.failure}
        for variant in found.keys() & visited.takers.keys():
            visited.takers[variant](found[variant])
