"""Who meets a need, who may and who doesn't; what comes nearest, and which other settings would do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.answer.headline import BATCHES, OWN
from llm_bench_fixtures.answer.intervals import estimate_of
from llm_bench_fixtures.answer.need import Need, Reader, Standing
from llm_bench_fixtures.answer.peaks import memory_metric, peaks_of
from llm_bench_fixtures.answer.standings import Standings, judge, standings_for
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME
from llm_bench_fixtures.results.record import Record, Status, VariantResult

SETTINGS = (BATCHES, "cache")  # scenarios of what can be chosen, in a run without prompts of the user's own


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
    standings = standings_for(need.want, seen, need)
    ran = [one for one in seen.run.variants if one.status is Status.MEASURED or one.id in standings.records]
    order = _best_first(seen, need.want, standings)
    ran.sort(key=lambda one: order.index(one.id) if one.id in order else len(order))
    by_standing = {standing: [one.id for one in ran if standings.of(one) is standing] for standing in Standing}
    return Meeting(
        standings,
        meets=tuple(by_standing[Standing.WITHIN]),
        may=tuple(by_standing[Standing.UNCLEAR]),
        unknown=tuple(by_standing[Standing.UNKNOWN]),
        fails=tuple(by_standing[Standing.BEYOND]),
        elsewhere=tuple(sorted(_elsewhere(ran, standings), key=lambda record: _rank(record, standings))),
    )


def _best_first(seen: Evidence, want: Reader, standings: Standings) -> list[str]:
    """The variants that have a figure for it."""
    records, reference = standings.records, standings.records.get(seen.run.reference)
    if want is Reader.MEMORY:
        peaks = peaks_of(seen, memory_metric(seen))
        return sorted(peaks, key=lambda name: peaks[name].shown)
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
    found = {_setting(one): one for one in standings.records.values()}
    judged = set(found)
    for record in standings.run.measured():
        if record.variant == variant.id and record.scenario in scenarios and record.workload:
            found.setdefault(_setting(record), record)
    return [one for setting, one in found.items() if setting not in judged]


def _setting(record: Record) -> tuple[int, str]:
    return record.facts.batch_size, record.facts.cache


def _is_met(record: Record, variant: VariantResult, standings: Standings) -> bool:
    judged = (
        judge(limit, metric, estimate_of(metric, record, variant, standings.seen), variant, standings.seen)
        for limit, metric in standings.applied.items()
    )
    return all(one.standing is Standing.WITHIN for one in judged)
