"""Where variants stand to the limits of a need, who meets it or comes nearest, and their quality to the reference's.

Near the reference neither the perplexity nor the Kullback-Leibler divergence nor the agreement on the most likely token
ranks variants by the tasks that they solve (Nikolić et al., "Displacement Is Not Direction", arXiv 2606.19558: rank
correlations of 0.00 and -0.24 with benchmarks). So near-lossless variants are in no order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.answer.headline import BATCHES, OWN
from llm_bench_fixtures.answer.intervals import estimate_of, quality_estimate
from llm_bench_fixtures.answer.need import Limit, Need, QualityMeasure, Reader, Standing
from llm_bench_fixtures.answer.noise import ran_the_same
from llm_bench_fixtures.answer.peaks import memory_metric, peaks_of
from llm_bench_fixtures.grouping import grouped
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME, Metric
from llm_bench_fixtures.results.record import Record, Run, Status, VariantResult
from llm_bench_fixtures.statistics.spread import Estimate, deviations_of_look

NEAR = 0.005  # largest change of a near-lossless variant's perplexity: the gate's tolerance for it
LOOKS_SPEND = 0.002  # two-sided error of deciding early, over all looks at a sample that grows
SETTINGS = (BATCHES, "cache")  # scenarios of what can be chosen, in a run without prompts of the user's own
WORST_FIRST = (Standing.BEYOND, Standing.UNKNOWN, Standing.UNCLEAR)


@dataclass(frozen=True)
class Judged:
    """A variant's figure next to one limit."""

    limit: Limit
    metric: Metric
    standing: Standing
    estimate: Estimate | None
    """None where it wasn't measured."""

    @property
    def value(self) -> float | None:
        return self.estimate.value if self.estimate else None

    @property
    def spread(self) -> Estimate | None:
        """The estimate; None where its interval isn't known, or is a point."""
        found = self.estimate
        return found if found and found.low < found.high < math.inf else None

    @property
    def miss(self) -> float:
        """Share of the bound by which the value is worse; infinite where it isn't known."""
        return math.inf if self.estimate is None else self.limit.miss_of(self.estimate.value)


@dataclass(frozen=True)
class Standings:
    """Every variant's figures next to the limits, on one workload."""

    seen: Evidence
    need: Need
    records: Mapping[str, Record]
    """Records of the workload, by variant."""

    @property
    def run(self) -> Run:
        return self.seen.run

    @cached_property
    def judged(self) -> Mapping[str, tuple[Judged, ...]]:
        """Judgements by variant, one for each limit that is applied."""
        return {
            one.id: tuple(judge(limit, metric, found[one.id], one, self.seen) for limit, metric, found in self._figures)
            for one in self.run.variants
        }

    @cached_property
    def _figures(self) -> list[tuple[Limit, Metric, Mapping[str, Estimate | None]]]:
        """The limits that are applied, each with the metric that it is of here, and with every variant's figure."""
        found: list[tuple[Limit, Metric, Mapping[str, Estimate | None]]] = []
        for limit in self.need.limits:
            own = self.run.reference if limit.is_of_quality else ""  # its own measure: its value alone says nothing
            for metric in limit.metrics:
                variants = self.run.variants
                figures = {one.id: estimate_of(metric, self.records.get(one.id), one, self.seen) for one in variants}
                if any(one is not None for name, one in figures.items() if name != own):
                    found.append((limit, metric, figures))
                    break
        return found

    @property
    def applied(self) -> Mapping[Limit, Metric]:
        """The limits that some variant has a figure for, each with the metric that it is of here."""
        return {limit: metric for limit, metric, _ in self._figures}

    @property
    def not_applied(self) -> tuple[Limit, ...]:
        return tuple(limit for limit in self.need.limits if limit not in self.applied)

    def of(self, variant: VariantResult) -> Standing:
        """Standing to all limits together: the worst to any."""
        found = {one.standing for one in self.judged[variant.id]}
        return next((standing for standing in WORST_FIRST if standing in found), Standing.WITHIN)

    def admits(self, variant: VariantResult) -> bool:
        """Whether the run shows that the variant keeps every limit that is applied."""
        return self.of(variant) is Standing.WITHIN

    @cached_property
    def kept(self) -> frozenset[str]:
        """The variants that the run shows to keep every limit that is applied."""
        return frozenset(one.id for one in self.run.variants if self.admits(one))

    @property
    def undecided(self) -> frozenset[str]:
        """The variants of which the run doesn't tell whether they keep every limit."""
        open_ = (Standing.UNCLEAR, Standing.UNKNOWN)
        return frozenset(one.id for one in self.run.variants if self.of(one) in open_)

    @property
    def in_the_race(self) -> frozenset[str]:
        """The variants that more rounds may show to win: their quality is kept, and nothing else shown to be beyond."""
        return frozenset(name for name, judged in self.judged.items() if all(map(_may_be_kept, judged)))


def _may_be_kept(one: Judged) -> bool:
    is_open = not one.limit.is_of_quality and one.standing is not Standing.BEYOND
    return one.standing is Standing.WITHIN or is_open


def standings_for(reader: Reader, seen: Evidence, need: Need) -> Standings:
    """Standings on the workload that the reader's answer goes by."""
    return Standings(seen, need, seen.largest_batch if reader is Reader.THROUGHPUT else seen.common)


def judge(limit: Limit, metric: Metric, estimate: Estimate | None, variant: VariantResult, seen: Evidence) -> Judged:
    """The reference, and what ran the same as it, keeps every limit on quality that is measured against it."""
    standing = limit.standing_of(estimate) if estimate else Standing.UNKNOWN
    if limit.is_of_quality and seen.ran_the_reference(variant.id) and _is_against_reference(metric, seen.run):
        standing = Standing.WITHIN
    return Judged(limit, metric, standing, estimate)


def _is_against_reference(metric: Metric, run: Run) -> bool:
    """Whether the reference was scored, and has no value of its own."""
    reference = run.variant(run.reference)
    own = reference.quality if reference else {}
    return metric.name in list(QualityMeasure) or (bool(own) and metric.name not in own)


def is_decided(quality: Mapping[str, float], limits: Iterable[Limit], look: int) -> bool:
    """Whether the limits on quality are decided by a sample that has grown, so that nothing larger is needed.

    look: how many samples there were, this one included. The report claims by its 95 % interval, whose error this may
    raise by LOOKS_SPEND at the most.
    """
    deviations = deviations_of_look(look, LOOKS_SPEND)
    of_quality = [limit for limit in limits if limit.is_of_quality]
    found = ((limit, quality_estimate(quality, limit.metric.name, deviations)) for limit in of_quality)
    return all(one is not None and limit.standing_of(one) is not Standing.UNCLEAR for limit, one in found)


def is_near_lossless(variant: VariantResult) -> bool:
    """Whether the whole 95 % interval of the perplexity ratio is within 0.5 % of 1: a test of equivalence."""
    found = quality_estimate(variant.quality, QualityMeasure.PPL_RATIO)
    return found is not None and found.low >= 1 - NEAR and found.high <= 1 + NEAR


def alike_in_quality(run: Run) -> frozenset[str]:
    """Ids of the near-lossless variants and of the reference: quality doesn't tell them apart."""
    return frozenset(one.id for one in run.variants if one.id == run.reference or is_near_lossless(one))


def near_lossless(run: Run) -> tuple[str, ...]:
    """Ids of near-lossless variants in the run's order, which says nothing of their quality. Variants that ran the same
    as the reference are not named."""
    near = (one.id for one in run.variants if is_near_lossless(one))
    return tuple(name for name in near if not ran_the_same(run, name, run.reference))


@dataclass(frozen=True)
class Meeting:
    """Every variant that ran, by whether it meets the need on the workload of what is wanted; the best for that
    first."""

    standings: Standings
    meets: tuple[str, ...]
    may: tuple[str, ...]
    unknown: tuple[str, ...]
    """Variants that lack a figure, and don't fail by another."""
    fails: tuple[str, ...]
    elsewhere: tuple[Record, ...]
    """Records of variants that don't meet it, or only perhaps, with another batch size or cache at which they do; those
    with the highest throughput first, or with the least memory where that is wanted."""

    @property
    def ran(self) -> tuple[str, ...]:
        return (*self.meets, *self.may, *self.unknown, *self.fails)

    @cached_property
    def nearest(self) -> str | None:
        """The variant whose largest miss, as a share of the bound, is the smallest; None where another may meet the
        need. What it lacks a figure for counts for nothing."""
        return None if self.meets or self.may else min(self.fails, key=self._largest_miss, default=None)

    def _largest_miss(self, name: str) -> float:
        return max(one.miss for one in self.standings.judged[name] if one.standing is Standing.BEYOND)


def meeting_of(seen: Evidence, need: Need) -> Meeting:
    """Who meets the need; of nobody it is known where none of its limits is applied."""
    standings = standings_for(need.want, seen, need)
    ran = [one for one in seen.run.variants if one.status is Status.MEASURED or one.id in standings.records]
    order = _best_first(seen, need.want, standings)
    ran.sort(key=lambda one: order.index(one.id) if one.id in order else len(order))
    is_judged = bool(standings.applied) or not need.limits
    found = grouped(ran, lambda one: standings.of(one) if is_judged else Standing.UNKNOWN)
    by_standing = {standing: tuple(one.id for one in found.get(standing, ())) for standing in Standing}
    return Meeting(
        standings,
        meets=by_standing[Standing.WITHIN],
        may=by_standing[Standing.UNCLEAR],
        unknown=by_standing[Standing.UNKNOWN],
        fails=by_standing[Standing.BEYOND],
        elsewhere=tuple(sorted(_elsewhere(ran, standings), key=lambda record: _rank(record, standings))),
    )


def _best_first(seen: Evidence, want: Reader, standings: Standings) -> list[str]:
    """The variants that have a figure for it."""
    records, reference = standings.records, standings.records.get(seen.run.reference)
    if want is Reader.MEMORY:
        peaks = peaks_of(seen, memory_metric(seen))
        return sorted(peaks, key=lambda name: peaks[name].value)
    if reference is None:
        return sorted(records, key=lambda name: records[name].median_s)
    return sorted(records, key=lambda name: -seen.gain(records[name], reference).ratio)


def _rank(record: Record, standings: Standings) -> float:
    variant, metric = standings.run.variant(record.variant), METRIC_BY_NAME[memory_metric(standings.seen)]
    if standings.need.want is Reader.MEMORY and variant:
        return metric.of(record, variant) or math.inf
    return -(record.tokens_per_s or 0.0)


def _elsewhere(ran: Iterable[VariantResult], standings: Standings) -> Iterator[Record]:
    for variant in ran:
        if not standings.admits(variant):
            yield from (one for one in _other_settings(variant, standings) if _is_met(one, variant, standings))


def _other_settings(variant: VariantResult, standings: Standings) -> list[Record]:
    """The variant's first record of each batch size and cache but those of the workload that is judged."""
    scenarios = (OWN,) if standings.run.provenance.prompts else SETTINGS
    judged = {_setting(one) for one in standings.records.values()}
    found: dict[tuple[int, str], Record] = {}
    for record in standings.run.measured():
        is_own = record.variant == variant.id and record.scenario in scenarios and record.workload
        if is_own and _setting(record) not in judged:
            found.setdefault(_setting(record), record)
    return list(found.values())


def _setting(record: Record) -> tuple[int, str]:
    return record.facts.batch_size, record.facts.cache


def _is_met(record: Record, variant: VariantResult, standings: Standings) -> bool:
    judged = (
        judge(limit, metric, estimate_of(metric, record, variant, standings.seen), variant, standings.seen)
        for limit, metric in standings.applied.items()
    )
    return all(one.standing is Standing.WITHIN for one in judged)
