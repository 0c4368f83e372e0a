"""How noisy the machine was while variants took turns, by identical work, like cases and threads that had to wait."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, zip_longest
from statistics import fmean

from llm_bench_fixtures.results.noise import ENOUGH_PAIRS, NoiseFloor
from llm_bench_fixtures.results.record import Record, Run, Status
from llm_bench_fixtures.results.speedup import disturbed_pairs, record_speedup
from llm_bench_fixtures.statistics.ratio import WIDE

NOISY = WIDE  # identical work that differs by more hides what a speed-up's interval must be able to show
MOST = 0.5  # share of disturbed pairs from which on a trimmed mean no longer leaves the disturbance out
BEST_SHARE = 0.05  # of the pairs, in which data takes the least time from core to core
# Times as long as then. On an AMD EPYC single looks found 1 to 1.25 times while the cores were together, and 2 to 2.5
# times while they were apart.
APART = 1.5
OFTEN = 0.1  # share of pairs with cores apart that is worth a word on a noisy machine
KEPT = 0.9  # share of identical work's figures, the nearest to 1: one odd case doesn't make a machine noisy


@dataclass(frozen=True)
class MachineNoise:
    """Machine noise that a run shows."""

    least: float = 1.0
    """How many times as fast identical work came out, at least."""
    most: float = 1.0
    comparisons: int = 0
    """How many comparisons of identical work the two are taken from."""
    disturbed: int = 0
    """How many pairs of rounds were disturbed: a thread had to wait for a core."""
    pairs: int = 0
    drifting: str = ""
    """The variant whose speed-ups drift the most between like cases; empty where none does."""
    drift: float = 0.0
    """Standard deviation of the logarithm of its speed-up between them, beyond what their rounds show."""

    @property
    def is_noisy(self) -> bool:
        """Whether identical work or like cases differ too much; without identical work, whether too many rounds are
        disturbed."""
        return self.differs or self.drifts or (not self.comparisons and self.is_mostly_disturbed)

    @property
    def differs(self) -> bool:
        """Whether identical work differs too much."""
        return max(self.most, 1 / self.least) > 1 + NOISY

    @property
    def drifts(self) -> bool:
        """Whether a variant's speed-ups of like cases differ too much."""
        return self.drift > math.log1p(NOISY)

    @property
    def is_mostly_disturbed(self) -> bool:
        return self.disturbed > MOST * self.pairs

    def hides(self, ratio: float) -> bool:
        """Whether identical work came out as different as this ratio."""
        return self.differs and self.least <= ratio <= self.most


def machine_noise(run: Run, floor: NoiseFloor) -> MachineNoise:
    """Noise from the variants that ran the same as the reference, in turns with it.

    In a run whose variants never took turns, from identical work at different times.
    """
    others = [record for record in run.measured() if record.variant != run.reference]
    found = [record_speedup(record) for record in others if ran_the_same(run, record.variant, run.reference)]
    ratios = sorted((one.ratio for one in found if one is not None), key=lambda ratio: abs(math.log(ratio)))
    if not in_turns_at_all(run) and floor.pairs >= ENOUGH_PAIRS:
        ratios = [math.exp(-floor.log_ratio), math.exp(floor.log_ratio)]
    near = [1.0, *ratios[: math.ceil(KEPT * len(ratios))]]
    disturbed, pairs = sum(map(disturbed_pairs, others)), sum(len(record.reference_s) for record in others)
    drifts = drift_by_variant(run)
    drifting = max(drifts, key=drifts.__getitem__, default="")
    return MachineNoise(min(near), max(near), len(ratios), disturbed, pairs, drifting, drifts.get(drifting, 0.0))


@dataclass(frozen=True)
class CoresApart:
    """Pairs of rounds in which data took long from core to core, as where a host moves a virtual machine's cores apart:
    that slows variants whose threads share work."""

    pairs: int
    looked_at: int
    """Pairs of which it is known how long data took."""
    times: float
    """How many times as long as at best it took in these pairs, on average; 0 without any."""

    @property
    def is_often(self) -> bool:
        return self.pairs > OFTEN * self.looked_at


def cores_apart(run: Run) -> CoresApart:
    """The pairs of a variant and the reference in which data took at least APART times as long as at best. A state that
    lasted for the whole run is not seen."""
    by_run = _by_run(record for record in run.measured() if record.variant != run.reference)
    found = [sorted(chain.from_iterable(one.core_to_core for one in own)) for own in by_run]
    times = [one / looks[int(BEST_SHARE * len(looks))] for looks in found for one in looks]
    apart = [one for one in times if one >= APART]
    return CoresApart(len(apart), len(times), fmean(apart) if apart else 0.0)


def _by_run(records: Iterable[Record]) -> Iterator[list[Record]]:
    """The records of each run; of several that are pooled, too."""
    for own in zip_longest(*(record.by_run for record in records)):
        yield [one for one in own if one is not None]


def drift_by_variant(run: Run) -> dict[str, float]:
    """Standard deviation of the logarithm of each variant's speed-up between like cases, of those that drift. Of pooled
    runs, the largest."""
    found: dict[str, float] = {}
    for record in chain.from_iterable(one.by_run for one in run.measured()):
        if record and record.drift.variance:
            found[record.variant] = max(found.get(record.variant, 0.0), math.sqrt(record.drift.variance))
    return found


def ran_the_same(run: Run, one: str, other: str) -> bool:
    """Whether two variants are one, or had the same configuration."""
    own, its = run.variant(one), run.variant(other)
    return one == other or bool(own and its and own.configuration == its.configuration != "")


def in_turns_at_all(run: Run) -> bool:
    """Whether any benchmark of the run was measured in turns with the reference."""
    return any(record.reference_s for record in run.measured())


def was_alone(run: Run, record: Record) -> bool:
    """Whether it was not measured in turns with the reference, though others of the run were."""
    return record.status is Status.MEASURED and not record.reference_s and in_turns_at_all(run)


def disturbance(*records: Record) -> tuple[int, int] | None:
    """How many of their pairs of rounds were disturbed, and of how many; None where these are not most."""
    disturbed, pairs = sum(map(disturbed_pairs, records)), sum(len(record.reference_s) for record in records)
    return (disturbed, pairs) if disturbed > MOST * pairs else None
