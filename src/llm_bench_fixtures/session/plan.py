"""The order in which a run measures its cases: those that the answer goes by first, as far as no variant is loaded a
third time for that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain, groupby

from llm_bench_fixtures.answer.headline import BATCHES, OWN, PROMPT_LENGTHS, SUPPORTING


class Stage(IntEnum):
    """The parts of a run, in their order."""

    LATENCY = 0
    """One prompt: the case whose latency and memory the report shows first."""
    THROUGHPUT = 1
    """The largest batch."""
    QUALITY = 2
    """Scoring, which has no tests of its own."""
    LENGTHS = 3
    """The other prompt lengths, which make the answer for one prompt surer."""
    OTHER = 4
    """All other cases."""


@dataclass(frozen=True)
class Case:
    """The tests that differ in the variant alone."""

    name: str
    scenario: str
    variants: frozenset[str]
    size: float | None = None
    """The batch size, or tokens of the prompt, where the scenario sweeps these, or has the user's own prompts; None of
    a cache that the answer doesn't go by."""


@dataclass(frozen=True)
class Visit:
    """A time for which a group of variants is loaded."""

    group: int
    stages: frozenset[Stage]
    """What is measured then."""


FIRST = frozenset({Stage.LATENCY})
ANSWER = frozenset({Stage.THROUGHPUT, Stage.QUALITY, Stage.LENGTHS})
REST = frozenset({Stage.OTHER})


@dataclass(frozen=True, order=True)
class Place:
    """When a case is measured: places are in ascending order."""

    visit: int
    """The visit's number in the plan."""
    stage: Stage
    group: int


class Plan:
    """Places the cases of a run, whose variants are loaded in groups.

    The run goes through its groups there, back, and there again: for the first stage, then for the others that the
    answer goes by, then for the rest. Each trip begins with the group that the one before it ended with, which is
    loaded then. A group that would be loaded a third time, for the rest, measures that on its way back. So none loads
    more than twice, and of two groups what the answer goes by comes before all else. Without cases, as where a plugin
    orders the tests, the groups come once, in their order.
    """

    def __init__(self, cases: Collection[Case], groups: Sequence[Collection[str]]) -> None:
        """groups: the ids of the variants that are loaded together; a variant belongs to the first that it is in."""
        lengths = [case.name for case in _alone(cases) or _of(PROMPT_LENGTHS, cases)]
        self._stages = {
            **dict.fromkeys(lengths, Stage.LENGTHS),  # what comes later wins
            **dict.fromkeys(throughput_cases(cases), Stage.THROUGHPUT),
            **dict.fromkeys(latency_cases(cases), Stage.LATENCY),
        }
        self._group = {variant: number for number, group in reversed([*enumerate(groups)]) for variant in group}
        self.visits = tuple(self._visits(cases, range(len(groups))))

    def _visits(self, cases: Collection[Case], groups: range) -> Iterator[Visit]:
        """Yield the visits of each trip, also where a group turns out to have nothing to measure."""
        if len(groups) < 2 or not cases:
            yield from (Visit(group, frozenset(Stage)) for group in groups)
            return
        first, answering = self._with(cases, FIRST), self._with(cases, ANSWER)
        last = max(first, default=0)
        back = [*groups[last::-1], *groups[:last:-1]]
        turn = next((group for group in reversed(back) if group in answering), last)
        thrice = first & (answering - {last, turn})
        yield from (Visit(group, FIRST) for group in groups)
        yield from (Visit(group, ANSWER | REST if group in thrice else ANSWER) for group in back)
        yield from (Visit(group, REST) for group in (*groups[turn:], *groups[:turn]))

    def _with(self, cases: Iterable[Case], stages: Collection[Stage]) -> set[int]:
        """The groups that have cases of these stages."""
        variants = chain.from_iterable(case.variants for case in cases if self.stage(case.name) in stages)
        return {self._group[variant] for variant in variants if variant in self._group}

    def stage(self, case: str) -> Stage:
        return self._stages.get(case, Stage.OTHER)

    def place(self, case: str, variant: str) -> Place:
        """Raises KeyError for a variant of no group."""
        stage, group = self.stage(case), self._group[variant]
        able = (number for number, one in enumerate(self.visits) if one.group == group and stage in one.stages)
        return Place(next(able), stage, group)


def loads_in(places: Iterable[Place]) -> Counter[int]:
    """How often each group is loaded, where cases are measured at these places, one after the other."""
    return Counter(group for group, _ in groupby(place.group for place in places))


def latency_cases(cases: Collection[Case]) -> frozenset[str]:
    """The middle prompt length, which the report shows: the others make its figures surer, once all variants have one.

    The user's own prompts stand in for these. Without either, the case that most variants share, rather of a scenario
    that decides.
    """
    if own := _alone(cases):
        return frozenset({own[(len(own) - 1) // 2].name})
    lengths = _of(PROMPT_LENGTHS, cases)
    sizes = sorted({case.size for case in lengths if case.size is not None})
    if lengths or not cases:
        return frozenset(case.name for case in lengths if not sizes or case.size == sizes[(len(sizes) - 1) // 2])
    shared = max(cases, key=lambda case: (len(case.variants) > 1, case.scenario not in SUPPORTING, len(case.variants)))
    return frozenset({shared.name})


def throughput_cases(cases: Collection[Case]) -> frozenset[str]:
    """The largest batch of the scenario that sweeps batch sizes, or of the user's own prompts."""
    own = [case for case in _of(OWN, cases) if case.size is not None and case.size > 1]
    sizes = {case.name: case.size for case in own or _of(BATCHES, cases) if case.size is not None}
    return frozenset(name for name, size in sizes.items() if size == max(sizes.values()))


def _of(scenario: str, cases: Collection[Case]) -> list[Case]:
    return [case for case in cases if case.scenario == scenario]


def _alone(cases: Collection[Case]) -> list[Case]:
    """The user's own prompts one at a time, the shortest first."""
    return [case for case in _of(OWN, cases) if case.size == 1]
