"""What runs of the same suite answer, and how far they agree; computed from what measure_repeatability.py collected."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

from llm_bench_fixtures.answer.evidence import Evidence, evidence_of
from llm_bench_fixtures.answer.need import DEFAULT_NEED, Reader
from llm_bench_fixtures.answer.picks import picks_of
from llm_bench_fixtures.answer.standings import standings_for
from llm_bench_fixtures.results.record import Record, Run

AHEAD = math.log(1.1)  # a variant that is so far ahead of the second must win alone
READERS = (Reader.LATENCY, Reader.THROUGHPUT)

Headlines: TypeAlias = Mapping[tuple[Reader, str], float]
"""Log of the speed-up that the answer goes by, by reader and variant."""


@dataclass(frozen=True)
class RunAnswer:
    """Answer of one run."""

    reference: str
    headlines: Headlines
    """Headlines of the variants that ran something else than the reference."""
    winners: Mapping[Reader, frozenset[str]]
    """The best, and all that the run can't tell from it."""
    kept: frozenset[str]
    """The variants that the run shows to keep the default limits."""
    identical: Mapping[Reader, tuple[bool, ...]]
    """Whether the speed-up of each variant that ran the same as the reference is shown to be above 1."""


def answer_of(run: Run) -> RunAnswer:
    seen = evidence_of(run)
    records = {Reader.LATENCY: seen.common, Reader.THROUGHPUT: seen.largest_batch}
    return RunAnswer(
        run.reference,
        {(reader, name): value for reader, found in records.items() for name, value in _speedups(seen, found)},
        {pick.reader: frozenset(one.variant for one in pick.choices) for pick in picks_of(seen, DEFAULT_NEED)},
        standings_for(Reader.LATENCY, seen, DEFAULT_NEED).kept,
        {reader: tuple(_identical_claims(seen, found)) for reader, found in records.items()},
    )


def _speedups(seen: Evidence, records: Mapping[str, Record]) -> Iterator[tuple[str, float]]:
    for name, record in records.items():
        found = None if seen.ran_the_reference(name) else seen.speedup(record)
        if found is not None:
            yield name, math.log(found.ratio)


def _identical_claims(seen: Evidence, records: Mapping[str, Record]) -> Iterator[bool]:
    """Whether each identical variant is claimed to be faster, by the interval that is widened for all comparisons of
    the report."""
    for name, record in records.items():
        if seen.ran_the_reference(name) and name != seen.run.reference:
            found = seen.speedup(record, seen.confidence)
            yield found is not None and found.is_faster


def headline_differences(answers: Sequence[RunAnswer], variants: Collection[str] | None = None) -> Iterator[float]:
    """Absolute log ratio of each headline speed-up, for every pair of runs. variants: None for all."""
    for one, other in combinations(answers, 2):
        for place in one.headlines.keys() & other.headlines.keys():
            if variants is None or place[1] in variants:
                yield abs(one.headlines[place] - other.headlines[place])


def shared_winners(answers: Sequence[RunAnswer]) -> Iterator[bool]:
    """Whether a winner of one run, or what is tied to it, is one of the other's, too, for every pair of runs and each
    reader of times that either serves."""
    for one, other in combinations(answers, 2):
        for reader in READERS:
            if one.winners[reader] or other.winners[reader]:
                yield bool(one.winners[reader] & other.winners[reader])


def lone_winners(answers: Sequence[RunAnswer]) -> Iterator[bool]:
    """Whether a variant that is 10 % ahead by the values pooled over the other runs wins alone, for every run and
    reader with one. Of the variants that the run shows to keep the limits; the reference is one of them."""
    for index, answer in enumerate(answers):
        others = [*answers[:index], *answers[index + 1 :]]
        for reader in READERS:
            values = {answer.reference: 0.0, **_pooled(others, reader, answer.kept)}
            first, second = sorted(values, key=lambda name: -values[name])[:2] if len(values) > 1 else ("", "")
            if first and values[first] - values[second] >= AHEAD:
                yield answer.winners[reader] == {first}


def _pooled(answers: Sequence[RunAnswer], reader: Reader, kept: Collection[str]) -> dict[str, float]:
    """Mean log of each variant's headline speed-ups."""
    values: dict[str, list[float]] = defaultdict(list)
    for answer in answers:
        for (place, name), value in answer.headlines.items():
            if place is reader and name in kept:
                values[name].append(value)
    return {name: statistics.fmean(found) for name, found in values.items()}
