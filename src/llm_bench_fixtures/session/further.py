"""Further rounds of cases that have been measured, in the time that a run has left.

A shared machine's state lasts for minutes and slows some variants more than others, so that all rounds of a case may
be off together. Further ones are run later, a block at a time, and spread over the time that is left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

from llm_bench_fixtures.errors import TimeUp
from llm_bench_fixtures.progress import Left, Phase
from llm_bench_fixtures.session.budget import MOST_TIMES, times_of_cases
from llm_bench_fixtures.session.case import Measured
from llm_bench_fixtures.session.forecast import MARGIN, Work

if TYPE_CHECKING:
    from llm_bench_fixtures.session.blocks import Blocks
    from llm_bench_fixtures.session.deadline import Deadline
    from llm_bench_fixtures.session.setup import Setup


@dataclass
class Visited:
    """A case that has its first rounds."""

    case: str
    blocks: Blocks
    first_s: float
    """Seconds of its first rounds."""
    found: Mapping[str, Measured | Exception]
    """First figures by variant."""
    further_s: float = 0.0
    """Seconds of its further rounds so far."""
    tests: dict[str, Callable[[Measured], None]] = field(default_factory=dict)
    """What takes a variant's figures with further rounds; none where its test has failed."""

    @property
    def block_s(self) -> float:
        """Seconds of a further block, by the rounds so far and what went on between them; 0 before any."""
        done = {name: [one.latency_s for one in entry.rounds.values()] for name, entry in self.blocks.entries.items()}
        all_s = sum(map(sum, done.values()))
        each_s = sum(fmean(done[name]) for name in self.blocks.alive if done[name])
        return self.blocks.in_a_row * each_s * (self.first_s + self.further_s) / all_s if all_s else 0.0

    @property
    def can_go_on(self) -> bool:
        """Whether a further block would compare anything, and not be more than is of use."""
        is_useful = self.further_s + self.block_s / 2 <= (MOST_TIMES - 1) * self.first_s
        return self.blocks.can_go_on and self.block_s > 0 and is_useful


class FurtherRounds:
    """Gives each case its share of the time that is left, a block at a time."""

    def __init__(self, setup: Setup, deadline: Deadline) -> None:
        self._setup = setup
        self._deadline = deadline
        self._visited: list[Visited] = []
        self.failures: dict[str, Exception] = {}
        """Why a variant has no more of them."""

    def add(self, visited: Visited) -> None:
        """Let a case have further rounds."""
        self._visited.append(visited)

    def tell(self, first: Measured, with_further: Callable[[Measured], None]) -> None:
        """Have the figures told that take the place of a case's first ones. with_further: takes them."""
        for visited in self._visited:
            for variant, found in visited.found.items():
                if found is first:
                    visited.tests[variant] = with_further

    def expect(self) -> None:
        """Expect as many as have time besides all else that is to come."""
        forecast = self._setup.forecast
        first_s = forecast.least_timed_s + sum(one.first_s for one in self._visited)
        most_s = (MOST_TIMES - 1) * first_s - sum(one.further_s for one in self._visited)
        forecast.expect(Work.FURTHER, "", min(self._spare_s(1.0), most_s))
        if forecast.expected_s(Work.FURTHER, "") <= 0:
            forecast.forget("", works=[Work.FURTHER])

    def run(self, after_each: Callable[[], object], leaving: Collection[str] = ()) -> None:
        """Run as many as have time, and let go of the cases. after_each: is called after each block.

        leaving: only cases that one of these variants takes part in, as it is about to be closed.
        """
        visited = [one for one in self._visited if not leaving or not one.blocks.entries.keys().isdisjoint(leaving)]
        with suppress(TimeUp):
            while (due := self._due(visited)) is not None:
                self.expect()
                self._run_block(due)
                after_each()
        self.let_go(leaving)

    def let_go(self, leaving: Collection[str] = ()) -> None:
        """No more of all cases, or of those that one of these variants takes part in."""
        self._visited = [one for one in self._visited if leaving and one.blocks.entries.keys().isdisjoint(leaving)]
        self._setup.forecast.forget("", works=[Work.FURTHER])

    def _spare_s(self, margin: float) -> float:
        """Seconds that are left besides what all else takes. margin: times as long as expected."""
        others = (seconds for work, seconds in self._setup.forecast.left_by_work.items() if work is not Work.FURTHER)
        return self._deadline.left_s - margin * sum(others)

    def _due(self, visited: Sequence[Visited]) -> Visited | None:
        """The case that has used up the least of its share of the time; None where none has time for a block."""
        first_s, further_s = sum(one.first_s for one in visited), sum(one.further_s for one in visited)
        own_part = first_s / ((first_s + self._setup.forecast.least_timed_s) or 1.0)
        spare_s = own_part * (self._spare_s(MARGIN) + further_s) - further_s
        able = [one for one in visited if one.can_go_on and one.block_s <= spare_s]
        own_s = spare_s + sum(one.further_s for one in able)
        times = times_of_cases([(one.first_s, len(one.found)) for one in able], own_s)
        used = {  # in the middle of the next block
            number: (one.further_s + one.block_s / 2) / ((many - 1) * one.first_s)
            for number, (one, many) in enumerate(zip(able, times, strict=True))
            if many > 1
        }
        return able[min(used, key=used.__getitem__)] if used else None

    def _run_block(self, visited: Visited) -> None:
        began_s = self._deadline.clock()
        text = f"further rounds of {visited.case.rpartition('::')[2].removeprefix('test_')}"
        with self._setup.progress.stepped(Phase.GENERATING, text) as show:

            def step(doing: str, detail: str, left: Left | None) -> None:
                self._deadline.check()
                show(doing, detail, left)

            found = visited.blocks.go_on(step)
        visited.further_s += self._deadline.clock() - began_s
        failed = {name: entry.failure for name, entry in visited.blocks.entries.items() if entry.failure}
        self.failures = {**failed, **self.failures}
        for variant in found.keys() & visited.tests.keys():
            visited.tests[variant](found[variant])
