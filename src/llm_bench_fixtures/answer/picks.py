"""What to use here, for each of three readers: a ranking of the variants that keep some limits; and which variants are
not worth using, and by what.

Times are compared as `Evidence.gain` does, memory as `peaks` says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.answer.need import Need, Reader
from llm_bench_fixtures.answer.peaks import compare_peaks, memory_metric, peaks_of
from llm_bench_fixtures.answer.standings import Standings, standings_for
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME
from llm_bench_fixtures.results.noise import Gain
from llm_bench_fixtures.results.record import Record
from llm_bench_fixtures.statistics.ratio import WIDE, Speedup
from llm_bench_fixtures.statistics.spread import Estimate

SMALL = WIDE  # the reference is kept where nothing else can be faster by more than this share
MUCH = 1.5  # times as fast as what is recommended: then the answer names it though it is beyond the quality limit
TIMES = {Reader.LATENCY: "latency_s", Reader.THROUGHPUT: "output_tokens_per_s"}  # what readers of times compare

Found: TypeAlias = Gain | Speedup


class Outcome(StrEnum):
    """Result of a run for a reader."""

    WINNER = "winner"  # better than the reference, and nothing may be much better than it
    UNDECIDED = "undecided"
    REFERENCE = "reference"  # nothing else is better by more than SMALL
    UNMET = "unmet"  # nothing is shown to keep the limits, not even the reference


@dataclass(frozen=True)
class Choice:
    """One variant in a reader's ranking."""

    variant: str
    value: float
    """Value of the pick's metric, in base units."""
    ratio: float
    """Comparison with the reference: how many times as fast, or which share of its memory."""
    low: float | None
    """The 95 % interval of the ratio, or for memory what the least and the most peak of the variant make of it; None
    where the two didn't take turns, or it was measured once."""
    high: float | None
    is_better: bool = False
    """Whether it is shown to be better than the reference, or to keep the limits where the reference isn't."""
    is_unclear: bool = False
    """Whether the run can't tell it from the best, though they may be far apart."""


@dataclass(frozen=True)
class Pick:
    """Pick for one reader."""

    reader: Reader
    metric: str = ""
    """The name in the registry of what is compared; empty where nothing is."""
    outcome: Outcome = Outcome.UNDECIDED
    reference: Choice | None = None
    """The reference's own figure."""
    choices: tuple[Choice, ...] = ()
    """The best, or where the run is undecided the likely best, and then those that it can't tell from the best. The
    likely best has the best figure; but one that is shown to be better than the reference stands before others that
    aren't, if theirs are better by less than SMALL. Empty where the run says nothing, and where the need is unmet."""
    better: tuple[str, ...] = ()
    """The variants that are shown to be better than the reference, the best first."""
    beyond_limit: tuple[Choice, ...] = ()
    """Variants that are shown to be better than the best, but not to keep the limits; the best first. Then those that
    are probably better than it, if it is undecided whether they keep the limits."""
    undecided: frozenset[str] = frozenset()
    """Variants of which the run doesn't tell whether they keep the limits."""
    keeps_reference: bool = True
    """Whether the reference keeps the limits, so that it is used where nothing else is better."""
    batch_size: int = 1
    """Batch size of the workload on which times were compared."""
    runs_to_decide: int | None = None
    """About how many runs like this, pooled, would tell the best from the others. None where that is told, and where
    the run can't tell how far its figures scatter."""

    @property
    def best(self) -> Choice:
        """The first choice; there must be one."""
        return self.choices[0]

    @property
    def is_ahead(self) -> bool:
        """Whether the best has a better figure than the reference, proven or not, or needn't have."""
        if not self.keeps_reference:
            return True
        return self.best.ratio < 1 if self.reader is Reader.MEMORY else self.best.ratio > 1

    @property
    def alike(self) -> tuple[str, ...]:
        """The best, and those that are as good and better than the reference, too."""
        others = (one.variant for one in self.choices[1:] if one.is_better and not one.is_unclear)
        return (self.best.variant, *others)

    def choice(self, variant: str) -> Choice:
        return next(one for one in self.choices if one.variant == variant)


def picks_of(seen: Evidence, need: Need) -> tuple[Pick, ...]:
    """Pick for each reader, that of the need first."""
    readers = sorted(Reader, key=lambda reader: reader is not need.want)
    return tuple(_pick(reader, standings_for(reader, seen, need)) for reader in readers)


def rivals_of(picks: Iterable[Pick]) -> Iterator[tuple[Pick, Choice]]:
    """Yield, for each reader, who must be named next to the best: one of those of which it is undecided whether they
    keep the limits, and for readers of times the fastest that is beyond a limit if it is faster by far. Who is shown to
    be better than the best goes before who probably is."""
    for pick in picks:
        fastest = [] if pick.reader is Reader.MEMORY else pick.beyond_limit[:1]
        far = [one for one in fastest if one.ratio >= MUCH * pick.best.ratio]
        open_ = [one for one in pick.beyond_limit if one.variant in pick.undecided][:1]
        yield from ((pick, one) for one in dict.fromkeys([*far, *open_]))


@dataclass(frozen=True)
class _Times:
    """The variants' times on a reader's workload."""

    seen: Evidence
    metric: str
    figures: Mapping[str, Record]

    def compare(self, one: str, other: str) -> Found:
        return self.seen.gain(self.figures[one], self.figures[other])

    def may_matter(self, found: Found) -> bool:
        """Whether what is found over the reference leaves room for a gain that matters."""
        most = found.high if isinstance(found, Speedup) else found.ratio * math.exp(self.seen.noise.log_ratio)
        return found.is_unclear or most > 1 + SMALL

    def choice(self, name: str, *, is_better: bool = False, is_unclear: bool = False) -> Choice:
        own, reference = self.figures[name], self.figures[self.seen.run.reference]
        variant, found = self.seen.run.variant(name), self.seen.speedup(own)
        value = (METRIC_BY_NAME[self.metric].of(own, variant) if variant else None) or 0.0
        ratio = found.ratio if found else reference.median_s / own.median_s
        low, high = (found.low, found.high) if found and found.low < found.high else (None, None)
        return Choice(name, value, ratio, low, high, is_better, is_unclear)


@dataclass(frozen=True)
class _Memory:
    """The variants' peak memory of a round of one prompt, or their weight bytes where no peak was measured."""

    seen: Evidence
    metric: str
    figures: Mapping[str, Estimate]

    def compare(self, one: str, other: str) -> Found:
        return compare_peaks(self.figures[one], self.figures[other], self.metric)

    def may_matter(self, found: Found) -> bool:
        return found.is_unclear

    def choice(self, name: str, *, is_better: bool = False, is_unclear: bool = False) -> Choice:
        own, whole = self.figures[name], self.figures[self.seen.run.reference].value
        low, high = (own.low / whole, own.high / whole) if own.low < own.high else (None, None)
        return Choice(name, own.value, own.value / whole, low, high, is_better, is_unclear)


def _comparer(reader: Reader, standings: Standings) -> _Times | _Memory:
    """What the reader's variants are compared by."""
    if reader is not Reader.MEMORY:
        return _Times(standings.seen, TIMES[reader], standings.records)
    metric = memory_metric(standings.seen)
    return _Memory(standings.seen, metric, peaks_of(standings.seen, metric))


def _pick(reader: Reader, standings: Standings) -> Pick:
    """What to use for a reader: the best of the variants that keep the limits, or the reference."""
    by, kept, reference = _comparer(reader, standings), standings.kept, standings.run.reference
    if reference not in standings.records or reference not in by.figures or len(by.figures) < 2:
        return Pick(reader)
    is_in = reference in kept  # else a variant that keeps the limits is used though it is slower
    size, runs = standings.records[reference].facts.batch_size, len(standings.records[reference].by_run)
    blank = Pick(reader, by.metric, reference=by.choice(reference), undecided=standings.undecided, batch_size=size)
    names = [name for name in by.figures if not standings.seen.ran_the_reference(name)]
    gains = _best_first({name: by.compare(name, reference) for name in names if name in kept})
    gains = {name: gain for name, gain in gains.items() if not (is_in and gain.is_slower)}
    if not is_in and not gains:
        return replace(blank, outcome=Outcome.UNMET, keeps_reference=False)
    better = tuple(name for name, gain in gains.items() if gain.is_faster)
    if is_in and not better:
        best, decided, level = reference, Outcome.REFERENCE, gains
        unclear = {name: gain for name, gain in level.items() if by.may_matter(gain)}
    else:
        best, decided = next(iter(gains)), Outcome.WINNER
        level = {name: gain for name in gains if name != best and not (gain := by.compare(name, best)).is_slower}
        unclear = {name: gain for name, gain in level.items() if gain.is_unclear}
    order = _likely_order(best, level, gains) if unclear else [best, *level]
    return replace(
        blank,
        outcome=Outcome.UNDECIDED if unclear else decided,
        choices=tuple(
            by.choice(name, is_better=name in better or not is_in, is_unclear=name in unclear) for name in order
        ),
        better=better,
        keeps_reference=is_in,
        beyond_limit=tuple(_beyond_limit(by, names, best, standings)),
        runs_to_decide=_runs_to_decide([*unclear.values()], runs, over_reference=best == reference),
    )


def _best_first(found: Mapping[str, Found]) -> dict[str, Found]:
    """Those that are shown to be faster, and then the others; each by how much."""
    return dict(sorted(found.items(), key=lambda one: (one[1].is_faster, one[1].ratio), reverse=True))


def _likely_order(best: str, level: Iterable[str], gains: Mapping[str, Found]) -> list[str]:
    """The likely best first, as `Pick.choices` says; without the reference, which has no gain."""
    order = sorted((name for name in (best, *level) if name in gains), key=lambda name: -gains[name].ratio)
    is_near = best in gains and gains[best].ratio * (1 + SMALL) >= gains[order[0]].ratio
    return sorted(order, key=lambda name: is_near and name != best)


def _beyond_limit(by: _Times | _Memory, names: Iterable[str], best: str, standings: Standings) -> Iterator[Choice]:
    """Yield those shown to be better than the best, and then those of the undecided that probably are."""
    found = {name: by.compare(name, best) for name in names if name not in standings.kept}
    for name, gain in _best_first(found).items():
        if gain.is_faster or (name in standings.undecided and _is_probably_faster(gain)):
            yield by.choice(name, is_better=gain.is_faster, is_unclear=not gain.is_faster)


def _runs_to_decide(found: Sequence[Found], runs: int, *, over_reference: bool) -> int | None:
    """How many runs it takes until each interval excludes 1, or shows that there is no difference that matters: over
    the reference by ending below a gain that matters, else by being no wider than WIDE to either side.

    An interval narrows with the root of the number of its rounds. runs: so many were pooled.
    """
    intervals = [one for one in found if isinstance(one, Speedup) and one.low < one.high]
    if not found or len(intervals) < len(found):
        return None
    logs = [(math.log(one.ratio), math.log(one.high / one.low) / 2) for one in intervals]
    tied = math.log1p(SMALL)  # WIDE is as much
    excess = max(half / max(abs(log), tied - (log if over_reference else 0.0)) for log, half in logs)
    return max(math.ceil(runs * excess**2), runs + 1)


def _is_probably_faster(found: Found) -> bool:
    """Whether the interval reaches at least twice as far above 1 as below it, in logarithms."""
    if isinstance(found, Speedup):
        return found.high * found.low**2 >= 1
    return found.is_unclear and found.ratio > 1 + SMALL


@dataclass(frozen=True)
class Drawback:
    """Why one variant is not worth using."""

    variant: str
    slower_than: str = ""
    """The reference, or what a quantized variant is made from; empty where it ran the same as the reference."""
    found: Found | None = None
    """How many times as fast it is as that."""
    saved_bytes: int | None = None
    """Bytes by which its weights are smaller than the reference's; None if unknown."""
    in_batches: Found | None = None
    """How many times as fast as the reference it is at the largest batch; None where that wasn't measured."""


def drawbacks_of(seen: Evidence, picks: Sequence[Pick]) -> Iterator[Drawback]:
    """Variants that ran the same as the reference, and those that cost time; but none that is best for some reader.
    None at all where something is to be used though it is slower, because the reference doesn't keep the limits."""
    if any(pick.choices and not pick.keeps_reference for pick in picks):
        return
    best = {name for pick in picks if pick.better for name in pick.alike}
    for name, record in seen.common.items():
        if name == seen.run.reference or name in best:
            continue
        if seen.ran_the_reference(name):
            yield Drawback(name)
        elif (found := _slower(record, seen)) is not None:
            yield found


def _slower(record: Record, seen: Evidence) -> Drawback | None:
    own, reference = (seen.largest_batch.get(name) for name in (record.variant, seen.run.reference))
    in_batches = seen.gain(own, reference) if own is not None and reference is not None else None
    if in_batches is not None and in_batches.is_faster:
        return None
    for other in (seen.reference, seen.base_of(record)):
        if other is not None and (found := seen.gain(record, other)).is_slower:
            shown = seen.speedup(record) if other is seen.reference else None
            return Drawback(record.variant, other.variant, shown or found, _saved(record.variant, seen), in_batches)
    return None


def _saved(identifier: str, seen: Evidence) -> int | None:
    own, reference = (seen.run.variant(name) for name in (identifier, seen.run.reference))
    if own is None or reference is None or own.weight_bytes is None or reference.weight_bytes is None:
        return None
    return reference.weight_bytes - own.weight_bytes
