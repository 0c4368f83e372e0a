"""The Pareto front: the variants that no other beats.

A variant beats another where it is better beyond doubt in something and worse beyond doubt in nothing: on one prompt
and at the largest batch by the intervals of their speed-ups, the memory by what the gate lets pass, the quality by its
95 % interval, where near-lossless variants are all alike. And whoever keeps the limits isn't beaten by who doesn't.
So a variant that is picked is on the front; of those that the run can't tell apart, one may need less memory, but that
is no reason to call the picked one beaten.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from llm_bench_fixtures.answer.intervals import quality_estimate
from llm_bench_fixtures.answer.need import QualityMeasure
from llm_bench_fixtures.answer.peaks import is_less, memory_metric, peaks_of
from llm_bench_fixtures.answer.picks import Pick
from llm_bench_fixtures.answer.standings import Standings, alike_in_quality
from llm_bench_fixtures.statistics.spread import exactly


def front(names: Collection[str], standings: Standings, picks: Iterable[Pick]) -> frozenset[str]:
    """Those of the variants that no other of them beats, and those that are picked.

    names: variants of the common workload that have a quality and a memory. standings: those on that workload.
    """
    seen, metric, alike = standings.seen, memory_metric(standings.seen), alike_in_quality(standings.run)
    peaks, perplexity = peaks_of(seen, metric), QualityMeasure.PPL_RATIO
    ratios = {one.id: quality_estimate(one.quality, perplexity) or exactly(1.0) for one in standings.run.variants}

    def gains(one: str, other: str) -> Iterator[bool]:
        """Yield for each quantity whether one is better than the other in it beyond doubt."""
        for workload in (seen.common, seen.largest_batch):
            if one in workload and other in workload:
                yield seen.gain(workload[one], workload[other]).is_faster
        yield is_less(peaks[one], peaks[other], metric)
        yield not {one, other} <= alike and ratios[one].high < ratios[other].low
        yield one in standings.kept and other not in standings.kept

    def is_beaten(name: str) -> bool:
        return any(any(gains(other, name)) and not any(gains(name, other)) for other in names if other != name)

    picked = {name for pick in picks if pick.choices for name in pick.alike}
    return frozenset(name for name in names if name in picked or not is_beaten(name))
