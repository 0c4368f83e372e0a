"""The record that a test gets from `llm_benchmark`: its metrics are attributes, so that a test can assert by them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TypeVar

from llm_bench_fixtures.results.metrics import METRIC_BY_NAME, Kind, Metric, Unit
from llm_bench_fixtures.results.record import Record, VariantResult
from llm_bench_fixtures.results.table import metric_values

NOT_TIMED = "nothing is timed under --benchmark-disable, nor in pytest-xdist's workers"
NOT_SCORED = (
    "quality is compared with the reference's: those of the reference itself, and what none was measured of, are not "
    "there"
)

V = TypeVar("V")


class UntilScored(Mapping[str, V]):
    """Values by name, some of which are known once the variant is scored: who reads one of these has it scored."""

    def __init__(self, known: Mapping[str, V], score: Callable[[], Mapping[str, V]]) -> None:
        """score: scores the variant, and gives all values."""
        self.known = known
        self._score = score

    def __getitem__(self, name: str) -> V:
        metric = METRIC_BY_NAME.get(name)
        may_come = metric is None or metric.value is None
        return self._score()[name] if name not in self.known and may_come else self.known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._score())

    def __len__(self) -> int:
        return len(self._score())

    def __reduce__(self) -> tuple[type[dict[str, V]], tuple[dict[str, V]]]:
        return dict, (dict(self._score()),)


@dataclass(frozen=True)
class MeasuredRecord(Record):
    """A record whose metrics, in base units, are attributes too: `record.latency_s`.

    A field of the record wins over a metric of the same name; `metrics` has all by name.
    """

    absent: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Metrics that the record doesn't have, and why."""

    def __getattr__(self, name: str) -> float:
        """The metric's value. Raises AttributeError, with the reason and with what there is, where it has none."""
        if name.startswith("__"):  # Python and tools look for such names
            raise AttributeError(name=name, obj=self)
        values = vars(self).get("metrics", {})  # an object that is being copied has no fields yet
        if name in values:
            return float(values[name])
        reason = vars(self).get("absent", {}).get(name, "there is no such metric")
        message = f"this record has no {name}: {reason}. It has {', '.join(self.known_metrics)}"
        raise AttributeError(message, name=name, obj=self)

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *self.known_metrics]

    @property
    def known_metrics(self) -> Mapping[str, float]:
        """Metrics that are known before the variant is scored."""
        return self.metrics.known if isinstance(self.metrics, UntilScored) else self.metrics


def with_metrics(
    record: Record,
    variant: VariantResult,
    metrics: Mapping[str, Metric],
    score: Callable[[], VariantResult] | None = None,
) -> MeasuredRecord:
    """The record with its metrics. metrics: the registry, by name.

    score: scores the variant, where that has yet to be done. It is called where the quality is read: by the test, or by
    a formula of the project's own.
    """
    if score is None:
        values = metric_values(record, variant, metrics.values())
        absent = {name: why_absent(metric, record, variant) for name, metric in metrics.items() if name not in values}
        return MeasuredRecord(**{**vars(record), "metrics": values}, absent=absent)
    scored = cache(lambda: with_metrics(record, score(), metrics))
    asking = replace(variant, quality=UntilScored({}, lambda: score().quality))
    computed = {name: metric for name, metric in metrics.items() if metric.value is not None}
    known = metric_values(record, variant)
    if known:
        found = {name: one.of(record, asking) for name, one in computed.items() if name not in METRIC_BY_NAME}
        known |= {name: value for name, value in found.items() if value is not None}
    lacking = {name: why_absent(one, record, variant) for name, one in computed.items() if name not in known}
    fields = {**vars(record), "metrics": UntilScored(known, lambda: scored().metrics)}
    return MeasuredRecord(**fields, absent=UntilScored(lacking, lambda: scored().absent))


def why_absent(metric: Metric, record: Record, variant: VariantResult) -> str:
    """Why the record has no such metric, as far as that is known, and how it is computed."""
    if metric.kind is Kind.TIMING and not record.rounds_s:
        return NOT_TIMED
    if metric.kind is Kind.QUALITY:
        return variant.quality_note or NOT_SCORED
    work = record.work
    noted = ""
    if metric.kind is Kind.EXACT and work is not None:
        noted = work.flops_reason if metric.unit is Unit.FLOPS else work.passes_reason or work.cache_reason
    return f"{noted} (it is {metric.formula})" if noted else f"it is {metric.formula}"
