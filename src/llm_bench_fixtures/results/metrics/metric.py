"""What a metric is: `Metric` and the choices that its row is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from llm_bench_fixtures.errors import UnknownName
from llm_bench_fixtures.results.record import Record, VariantResult


class Direction(StrEnum):
    """Which way a metric is better."""

    HIGHER_IS_BETTER = "higher is better"
    LOWER_IS_BETTER = "lower is better"
    NEITHER = "neither"


class Kind(StrEnum):
    """Kind of quantity that a metric measures. The gate has a rule for each kind."""

    TIMING = "timing"
    MEMORY = "memory"
    QUALITY = "quality"
    EXACT = "exact"


class Unit(StrEnum):
    """Base units of metrics; the report converts them."""

    SECONDS = "s"
    MILLISECONDS_PER_TOKEN = "ms/token"
    TOKENS_PER_SECOND = "tokens/s"
    TOKENS = "tokens"
    BYTES = "bytes"
    NATS_PER_TOKEN = "nats/token"
    JOULES = "J"
    TOKENS_PER_JOULE = "tokens/J"
    FLOPS = "FLOP"
    SHARE = "share"
    COUNT = "count"
    NONE = ""


class ReportTable(StrEnum):
    """The report's tables whose columns are metrics."""

    SCENARIO = "scenario"  # scenarios whose marker names no columns
    PREFILL_DECODE = "prefill and decode"
    VARIATION = "variation between rounds"
    MEMORY = "memory and exact counts"
    TEXTS = "generated texts"  # within the table of quality, which has every metric of that kind


class Force(StrEnum):
    """Whether a change beyond the tolerance fails the gate, is only reported, or is not judged."""

    BLOCKING = "blocking"
    ADVISORY = "advisory"
    OFF = "off"


@dataclass(frozen=True)
class Tolerance:
    """How finely a metric is compared: a value passes while it is within `relative` or `absolute` of the baseline's."""

    relative: float = 0.0
    """0.05 allows up to 1.05 times the baseline's value, or down to a 1.05th of it."""
    absolute: float = 0.0
    """Absolute tolerance in the metric's unit."""
    force: Force = Force.BLOCKING
    floor: float | None = None
    """A relative change that no uncertainty excuses."""


BY_KIND: Mapping[Kind, Tolerance] = {
    Kind.EXACT: Tolerance(),
    Kind.MEMORY: Tolerance(relative=0.10, absolute=5e6),
    Kind.QUALITY: Tolerance(relative=0.01, force=Force.ADVISORY),
    Kind.TIMING: Tolerance(relative=0.10, force=Force.ADVISORY),
}

Value: TypeAlias = Callable[[Record, VariantResult], float | None]


@dataclass(frozen=True)
class Metric:
    """One reported quantity: a row that says everything about it.

    Raises UnknownName for a unit, direction, kind, table or force that is no member of its enumeration.
    """

    name: str
    """Name in stored files and in options."""
    title: str
    """Name in a sentence or a list."""
    column: str
    """Name in the header of a table: short."""
    unit: Unit
    direction: Direction
    kind: Kind
    formula: str
    """Formula in words."""
    source: str = ""
    """The publication or the tool that the formula is from."""
    value: Value | None = None
    """Computes it from what was stored. None: it is looked up by name in the record's extra values, then in the
    variant's quality values."""
    tables: Mapping[ReportTable, float] = field(default_factory=dict, hash=False)
    """The report's tables that show it. A table's columns are in the order of these numbers."""
    tolerance: Tolerance | None = None
    """How finely it is compared. None: as its kind is."""

    def __post_init__(self) -> None:
        self._check("unit", self.unit, Unit)
        self._check("direction", self.direction, Direction)
        self._check("kind", self.kind, Kind)
        for table in self.tables:
            self._check("table", table, ReportTable)
        if self.tolerance is not None:
            self._check("force of the tolerance", self.tolerance.force, Force)

    def _check(self, what: str, given: object, choices: type[StrEnum]) -> None:
        """A string that equals a member is none: the members are told apart by identity."""
        if not isinstance(given, choices):
            known = [f"{choices.__name__}.{member.name}" for member in choices]
            raise UnknownName(f"{what} of metric {self.name}:", str(given), known)

    def of(self, record: Record, variant: VariantResult) -> float | None:
        if self.value is not None:
            value = self.value(record, variant)
            return value if value is not None or record.batches_s else record.metrics.get(self.name)
        return record.extra.get(self.name, variant.quality.get(self.name))

    @property
    def title_in_sentence(self) -> str:
        """The title where no sentence begins with it."""
        return self.title if self.title[:2].isupper() else f"{self.title[:1].lower()}{self.title[1:]}"

    @property
    def default_tolerance(self) -> Tolerance:
        """Tolerance of its own, else of its kind. A metric without a better direction is never judged, unless it is
        exact."""
        if self.direction is Direction.NEITHER and self.kind is not Kind.EXACT:
            return Tolerance(force=Force.OFF)
        return self.tolerance or BY_KIND[self.kind]
