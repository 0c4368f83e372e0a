"""What to use here, for each of three readers: the variants that do best of those that keep some limits.

Times are compared as `Evidence.gain` does, memory as `peaks` says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.answer.need import Need
from llm_bench_fixtures.answer.peaks import Peaks, is_less, memory_metric, peaks_of
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME
from llm_bench_fixtures.results.noise import Gain
from llm_bench_fixtures.results.record import Record
from llm_bench_fixtures.statistics.ratio import Speedup


class Reader(StrEnum):
    """Who asks what to use."""

    LATENCY = "lowest latency"
    THROUGHPUT = "most throughput"
    MEMORY = "least memory"

    @property
    def quantity(self) -> str:
        """What the reader looks at, in a word."""
        return self.value.split()[1]


@dataclass(frozen=True)
class Choice:
    """One variant that a reader may use."""

    variant: str
    value: float
    """Of the pick's metric, in base units."""
    ratio: float | None
    """Against the reference: how many times as fast, or which share of its memory."""
    low: float | None
    """The 95 % interval of the ratio, or for memory what the least and the most peak of the variant make of it; None
    where it was taken apart, or measured once."""
    high: float | None
    is_unclear: bool = False
    """Whether the rounds are too few to tell it from the best."""


@dataclass(frozen=True)
class Pick:
    """What to use for one reader."""

    reader: Reader
    metric: str
    """The name in the registry of what is compared; empty where nothing is."""
    reference: Choice | None
    """The reference's own figure."""
    choices: tuple[Choice, ...]
    """The best first, then those that this run shows to be better than the reference and can't tell from the best.
    Where it shows none to be better, the reference first, then those that it can't tell from it. Empty where the run
    says nothing."""
    is_proven: bool
    """Whether the best is better than the reference by a difference that this run can show."""
    better_beyond_limit: tuple[Choice, ...] = ()
    """Variants that would be better, but are not shown to keep the quality limit; the best first."""
    has_rivals_beyond_limit: bool = False
    """Whether a variant that isn't shown to keep the limit isn't shown to be worse than the best either."""
    undecided: tuple[Choice, ...] = ()
    """Of a proven best: others that this run can't tell from it, and doesn't show to be better than the reference. They
    are no recommendation."""
    batch_size: int = 1
    """Of the workload on which times were compared."""

    @property
    def is_unclear(self) -> bool:
        """Whether none is proven, and the rounds of some variant are too few to tell."""
        return not self.is_proven and any(one.is_unclear for one in self.choices)

    @property
    def tied(self) -> tuple[Choice, ...]:
        """All that this run can't tell from the best."""
        return (*self.choices[1:], *self.undecided)

    @property
    def variants(self) -> tuple[str, ...]:
        return tuple(choice.variant for choice in self.choices)

    @property
    def level(self) -> tuple[str, ...]:
        """The best, and the variants that are known to be as good: not those that the rounds are too few to tell."""
        return tuple(choice.variant for choice in self.choices if not choice.is_unclear)

    @property
    def best(self) -> Choice | None:
        return self.choices[0] if self.choices else None

    def choice(self, variant: str) -> Choice | None:
        """That of the variant; None where it is not among them."""
        return next((one for one in self.choices if one.variant == variant), None)


def picks_of(seen: Evidence, need: Need) -> tuple[Pick, ...]:
    """For each reader, in their order."""
    admitted = need.kept_by(seen.run)
    return (
        _pick_by_time(Reader.LATENCY, "latency_s", seen.common, seen, admitted),
        _pick_by_time(Reader.THROUGHPUT, "output_tokens_per_s", seen.largest_batch, seen, admitted),
        _pick_by_memory(seen, admitted),
    )


def _pick_by_time(
    reader: Reader, metric: str, records: Mapping[str, Record], seen: Evidence, keeping: Collection[str]
) -> Pick:
    """keeping: the variants that keep the limits."""
    reference = records.get(seen.run.reference)
    if reference is None or len(records) < 2:
        return Pick(reader, "", None, (), is_proven=False)
    others = [record for name, record in records.items() if not seen.ran_the_reference(name)]
    admitted = [record for record in others if record.variant in keeping]
    settled = _settle(seen, admitted, reference)
    beyond = {record.variant: seen.gain(record, settled.best) for record in others if record not in admitted}
    faster = [_time_choice(metric, record, reference, seen) for record in others if _is_faster(beyond, record.variant)]
    rejected = tuple(sorted(faster, key=lambda one: -(one.ratio or 0.0)))
    has_rivals = not all(found.is_slower for found in beyond.values())
    own = _time_choice(metric, reference, reference, seen)
    choices, undecided = (
        tuple(_time_choice(metric, record, reference, seen, settled.best) for record in records)
        for records in ((settled.best, *settled.tied), settled.undecided)
    )
    size = reference.workload.batch_size if reference.workload else 1
    return Pick(reader, metric, own, choices, settled.is_proven, rejected, has_rivals, undecided, size)


def _is_faster(gains: Mapping[str, Gain | Speedup], variant: str) -> bool:
    return variant in gains and gains[variant].is_faster


@dataclass(frozen=True)
class _Settled:
    """The best of some records, and those that can't be told from it."""

    best: Record
    is_proven: bool
    """Whether it is faster than the reference by a difference that this run can show; so is each that is tied then."""
    tied: tuple[Record, ...]
    undecided: tuple[Record, ...] = ()
    """Those that aren't shown to be faster than the reference, though the best is."""


def _settle(seen: Evidence, others: list[Record], reference: Record) -> _Settled:
    gains = {record.variant: seen.gain(record, reference) for record in others}
    ranked = sorted(others, key=lambda one: (gains[one.variant].is_faster, gains[one.variant].ratio), reverse=True)
    near = [one for one in ranked if not gains[one.variant].is_slower]
    if not near or not gains[near[0].variant].is_faster:
        return _Settled(reference, False, tuple(near))
    best = near[0]
    level = [one for one in near[1:] if not seen.gain(one, best).is_slower]
    tied = tuple(one for one in level if gains[one.variant].is_faster)
    return _Settled(best, True, tied, tuple(one for one in level if one not in tied))


def _time_choice(metric: str, record: Record, reference: Record, seen: Evidence, best: Record | None = None) -> Choice:
    variant = seen.run.variant(record.variant)
    value = (METRIC_BY_NAME[metric].of(record, variant) if variant else None) or 0.0
    found = seen.speedup(record)
    ratio = found.ratio if found else reference.median_s / record.median_s
    has_width = found is not None and found.low < found.high
    low, high = (found.low, found.high) if found is not None and has_width else (None, None)
    is_unclear = best is not None and best is not record and seen.gain(record, best).is_unclear
    return Choice(record.variant, value, ratio, low, high, is_unclear)


def _pick_by_memory(seen: Evidence, keeping: Collection[str]) -> Pick:
    """By the peak of a round of one prompt; by the weights where no peak was measured."""
    metric = memory_metric(seen)
    peaks = peaks_of(seen, metric)
    reference = peaks.get(seen.run.reference)
    if reference is None or seen.reference is None or len(peaks) < 2:
        return Pick(Reader.MEMORY, "", None, (), is_proven=False)
    names = [name for name in peaks if not seen.ran_the_reference(name)]
    admitted = sorted((name for name in names if name in keeping), key=_shown_in(peaks))
    less = [name for name in admitted if is_less(peaks[name], reference, metric)]
    best = less[0] if less else seen.run.reference
    tied = [name for name in admitted if name != best and not is_less(peaks[best], peaks[name], metric)]
    beyond = [name for name in names if name not in admitted]
    less_beyond = sorted((name for name in beyond if is_less(peaks[name], peaks[best], metric)), key=_shown_in(peaks))
    rejected = tuple(_memory_choice(name, peaks[name], reference) for name in less_beyond)
    has_rivals = not all(is_less(peaks[best], peaks[name], metric) for name in beyond)
    own = _memory_choice(seen.run.reference, reference, reference)
    undecided = [name for name in tied if less and name not in less]
    named = [best, *(name for name in tied if name not in undecided)]
    choices, others = (
        tuple(_memory_choice(name, peaks[name], reference) for name in names) for names in (named, undecided)
    )
    return Pick(Reader.MEMORY, metric, own, choices, bool(less), rejected, has_rivals, others)


def _shown_in(peaks: Mapping[str, Peaks]) -> Callable[[str], float]:
    return lambda name: peaks[name].shown


def _memory_choice(name: str, peaks: Peaks, reference: Peaks) -> Choice:
    share, low, high = (value / reference.shown for value in (peaks.shown, peaks.low, peaks.high))
    has_width = low < high
    return Choice(name, peaks.shown, share, low if has_width else None, high if has_width else None)
