"""The order in which a run measures its cases: those that the answer goes by first."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import groupby

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
    """The batch size, or tokens of the prompt, where the scenario sweeps these, or has the user's own prompts."""


class Trip(IntEnum):
    """The times that a run goes through its groups of variants: there, back, and there again."""

    FIRST = 0
    """Stage.LATENCY; with one group, everything."""
    ANSWER = 1
    """What else the answer goes by."""
    REST = 2


@dataclass(frozen=True, order=True)
class Place:
    """When a case is measured: places are in ascending order."""

    trip: Trip
    turn: int
    """Of the group, in the trip."""
    stage: Stage
    group: int = field(default=0, compare=False)


class Plan:
    """Places the cases of a run, whose variants are loaded in groups.

    Each trip begins with the group that the one before it ended with, which is loaded then. So of two groups none loads
    more than twice, and what the answer goes by comes before all else for every variant.
    """

    def __init__(self, cases: Collection[Case], groups: Sequence[Collection[str]]) -> None:
        """groups: the ids of the variants that are loaded together; a variant belongs to the first that it is in."""
        self._cases = cases
        self._first = latency_cases(cases)
        self._second = throughput_cases(cases)
        self._lengths = frozenset(case.name for case in _alone(cases) or _of(PROMPT_LENGTHS, cases))
        self._groups = len(groups)
        self._group = {variant: number for number, group in reversed([*enumerate(groups)]) for variant in group}
        tested = {variant for case in cases if case.name in self._first for variant in case.variants}
        self._last = max((self._group[variant] for variant in tested & self._group.keys()), default=0)

    def stage(self, case: str) -> Stage:
        if case in self._first:
            return Stage.LATENCY
        if case in self._second:
            return Stage.THROUGHPUT
        return Stage.LENGTHS if case in self._lengths else Stage.OTHER

    def place(self, case: str, variant: str) -> Place:
        """Raises KeyError for a variant of no group."""
        stage, group = self.stage(case), self._group[variant]
        if self._groups < 2 or stage is Stage.LATENCY:
            return Place(Trip.FIRST, group, stage, group)
        back = (self._last - group) % self._groups
        if stage is Stage.OTHER:
            return Place(Trip.REST, self._groups - 1 - back, stage, group)
        return Place(Trip.ANSWER, back, stage, group)

    def loads(self, variant: str) -> int:
        """How often the variant is loaded: each time that the run comes to its group."""
        own, each = self._group[variant], ((case.name, one) for case in self._cases for one in case.variants)
        places = sorted({self.place(*one) for one in each if one[1] in self._group})
        return [group for group, _ in groupby(place.group for place in places)].count(own)


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
