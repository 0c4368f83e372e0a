"""A table before any format: columns, and cells that hold values, such as a record's and a variant's.

A cell is written the same in every format: the figure, and what stands next to it. Where it stands, renderers decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.results.formatting import (
    BYTE_SIZES,
    MISSING,
    SECOND_SIZES,
    Notation,
    change_and_error,
    common_unit,
    notation_of,
    spread_like,
    three_digits,
    written,
)
from llm_bench_fixtures.results.metrics import Metric
from llm_bench_fixtures.results.record import Record, VariantResult
from llm_bench_fixtures.statistics.ratio import Speedup
from llm_bench_fixtures.statistics.spread import exact_interval

VARIANT, WHAT_RAN = "variant", "what ran"  # names of columns that many tables have
SUMMARY, MACHINE = "summary", "machine"  # what plots belong to that are of no scenario
ALIKE = "≈"  # before a figure of a near-lossless variant, in the page
ELSEWHERE = "*"  # marks a figure of a variant that was not measured on the headline's workload
MARKS = {ELSEWHERE: f"{ELSEWHERE}: measured only on other prompts or settings, see the variant"}
FLIP_METRICS = ("flips", "flips_lost", "flips_gained")


class Tone(StrEnum):
    """How a cell compares with the reference, or with the run before; one without a tone is compared with nothing."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    ALIKE = "near-lossless"

    @classmethod
    def of(cls, *, is_better: bool, is_worse: bool) -> Tone | None:
        return cls.BETTER if is_better else cls.WORSE if is_worse else None


@dataclass(frozen=True)
class Column:
    name: str
    """Name without the unit."""
    notation: Notation | None = None
    """How its values are written; None for a column of words."""
    unit: str = ""
    """The unit of all its values, which then stands at the head and not in the cells."""
    size: float = 1.0
    """Size of the unit, in base units."""
    metric: Metric | None = None
    """Metric that explains the column."""
    error_is: str = ""
    """Meaning of the ± next to the values."""
    legend: str = ""
    """Further words that a reader of the table must know of the column."""
    droppable: int = 0
    """Columns leave a table that is too wide in this order, the highest first; 0 stays."""

    @classmethod
    def of(cls, metric: Metric) -> Column:
        """Column under the metric's own name, as the metric is written."""
        return cls(metric.column, notation_of(metric), metric=metric)

    def in_one_unit(self, cells: Iterable[Cell]) -> Column:
        """The column with the unit at its head in which its times or bytes are read best."""
        sizes = {Notation.SECONDS: SECOND_SIZES, Notation.BYTES: BYTE_SIZES}.get(self.notation or Notation.TEXT)
        values = [cell.value for cell in cells if cell.value is not None]
        if not sizes or not values:
            return self
        unit, size = common_unit(values, sizes)
        return replace(self, unit=unit, size=size)

    @property
    def is_numeric(self) -> bool:
        """Whether it is set flush right."""
        return self.notation is not None

    @property
    def head(self) -> str:
        """Name with the unit."""
        return f"{self.name}, {self.unit}" if self.unit else self.name


LATENCY = Column("latency", Notation.SECONDS, error_is="half the distance between the quartiles of the latency")
SPEEDUP = Column("speed-up", Notation.TIMES)
PLAIN = Column("")  # column of a cell that stands in no table


@dataclass(frozen=True)
class Cell:
    """A value with what is known of it, or words. `Cell()` is a value that is missing."""

    words: str = MISSING
    """The words, where there is no value."""
    value: float | None = None
    """Value in its base unit."""
    error: float | None = None
    """Error, shown as ± next to the value."""
    low: float | None = None
    """Ends of the interval that the value lies in; of a count, the ends of its share."""
    high: float | None = None
    of: int | None = None
    """Number that a count is of: 3 of 190."""
    notation: Notation | None = None
    """How the value is written, where not as the column's others are."""
    tone: Tone | None = None
    mark: str = ""
    """Mark right behind the figure."""
    note: str = ""
    """Further words, for a format that has room for a second line."""
    link: str = ""
    """Where a click on it leads, in a page; empty for nowhere."""
    rank: float | None = None
    """Value that the cell is sorted by, where not by its own."""

    @classmethod
    def of_metric(cls, metric: Metric, record: Record | None, variant: VariantResult | None) -> Cell:
        return cls(value=metric.of(record, variant) if record and variant else None)

    @classmethod
    def latency(cls, record: Record | None) -> Cell:
        """Median, and half the distance between the quartiles where there is more than one round."""
        if record is None or not record.rounds_s:
            return cls()
        low, median, high = record.quartiles_s
        return cls(value=median, error=(high - low) / 2 if len(record.rounds_s) > 1 else None)

    @classmethod
    def times(cls, found: Speedup | None, *, is_toned: bool = False) -> Cell:
        """A ratio with its 95 % interval. is_toned: better or worse where the whole interval is on one side of 1."""
        if found is None:
            return cls()
        tone = Tone.of(is_better=found.is_faster, is_worse=found.is_slower) if is_toned else None
        return cls(value=found.ratio, low=found.low, high=found.high, notation=Notation.TIMES, tone=tone)

    @classmethod
    def headline_speedup(cls, record: Record | None, seen: Evidence) -> Cell:
        """The speed-up over the reference; the ratio of the medians where the two were measured in separate runs."""
        found, reference = seen.speedup(record) if record else None, seen.reference
        if record is None or reference is None or found is not None:
            return cls.times(found)
        if record.reference_s or record.workload != reference.workload:
            return cls()
        return cls(value=reference.median_s / record.median_s, notation=Notation.TIMES)

    @classmethod
    def perplexity_change(cls, variant: VariantResult) -> Cell:
        """The perplexity's change against the reference's, with its standard error."""
        quality = variant.quality
        return cls(value=quality.get("ppl_ratio"), error=quality.get("ppl_ratio_error"), notation=Notation.CHANGE)

    @classmethod
    def flips(cls, variant: VariantResult, name: str = "flips") -> Cell:
        """Answers lost and gained, or what the name says of them, with the 95 % interval of their share."""
        quality, items = variant.quality, round(variant.quality.get("choice_items", 0))
        if not items or "flips" not in quality:
            return cls()
        ways = FLIP_METRICS[1:] if name == "flips" else (name,)
        return cls.counted(sum(round(quality.get(way, 0.0)) for way in ways), items)

    @classmethod
    def counted(cls, number: int, items: int) -> Cell:
        """A count of items, with the 95 % interval of its share."""
        low, high = exact_interval(number, items)
        return cls(value=number, low=low, high=high, of=items)

    @property
    def is_missing(self) -> bool:
        return self.value is None and self.words == MISSING

    @property
    def key(self) -> float | None:
        """Value that the cell is sorted by; None sorts by its text, or last among numbers."""
        return self.value if self.rank is None else self.rank

    def figure(self, column: Column = PLAIN) -> str:
        """The value alone with its mark; the words where there is none."""
        return self.words if self.value is None else f"{self._value(self.value + 0.0, column)}{self.mark}"  # not -0.0

    def spread(self, column: Column = PLAIN) -> str:
        """The error or the interval, without brackets: "± 0.4", "1.26–1.34". Empty without any."""
        return self.plus_minus(column) or self.interval(column)

    def text(self, column: Column = PLAIN) -> str:
        """The whole cell in one line: "33.8 ± 0.4", "1.30× (1.26–1.34)"."""
        shown, beside = self.figure(column), self.spread(column)
        if not beside:
            return shown
        return f"{shown} {beside}" if self.error is not None else f"{shown} ({beside})"

    def _notation(self, column: Column) -> Notation:
        return self.notation or column.notation or Notation.NUMBER

    def _value(self, value: float, column: Column) -> str:
        notation = self._notation(column)
        if self.of is not None:
            return f"{value:.0f}/{self.of}"
        if notation is Notation.CHANGE and self.error is not None:
            return change_and_error(value, self.error)[0]
        return three_digits(value / column.size) if column.unit and self.notation is None else written(value, notation)

    def plus_minus(self, column: Column) -> str:
        """The error; empty without one."""
        if self.error is None or self.value is None:
            return ""
        notation = self._notation(column)
        if notation is Notation.CHANGE:
            error = change_and_error(self.value, self.error)[1]
        elif column.unit and self.notation is None:
            error = spread_like(self.value / column.size, self.error / column.size)
        else:
            error = written(self.error, notation)
        return f"± {error}" if error else ""

    def interval(self, column: Column) -> str:
        """Interval in the column's unit, if it has one; empty without a width."""
        if self.low is None or self.high is None or self.low == self.high:
            return ""
        if self.of is not None:
            return f"{100 * self.low:.2g}–{100 * self.high:.2g} %"
        size = column.size if column.unit and self.notation is None else 1.0
        return f"{three_digits(self.low / size)}–{three_digits(self.high / size)}"


@dataclass(frozen=True)
class Table:
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    """Notes that a reader must know of its figures, besides what its columns say: clauses."""

    @classmethod
    def of_texts(cls, header: Sequence[str], rows: Iterable[Sequence[str]], numeric: Iterable[int] = ()) -> Table:
        """numeric: the columns that are set flush right, counted from 0."""
        right = frozenset(numeric)
        columns = (Column(name, Notation.TEXT if place in right else None) for place, name in enumerate(header))
        return cls(tuple(columns), tuple(tuple(map(Cell, row)) for row in rows))

    @classmethod
    def by_variant(cls, variants: Iterable[VariantResult], figures: Sequence[Figures]) -> Table:
        """A row a variant."""
        rows = ((Cell(one.id), *(column.cells.get(one.id, Cell()) for column in figures)) for one in variants)
        return cls((Column(VARIANT), *(one.column for one in figures)), tuple(rows))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def cells(self, name: str) -> list[Cell]:
        """Cells of the first column of that name; none without one."""
        place = self.names.index(name) if name in self.names else None
        return [] if place is None else [row[place] for row in self.rows]

    def with_columns(self, places: Iterable[int]) -> Table:
        """Table of these columns only, in this order."""
        kept = tuple(places)
        rows = (tuple(row[place] for place in kept) for row in self.rows)
        return replace(self, columns=tuple(self.columns[place] for place in kept), rows=tuple(rows))

    @property
    def texts(self) -> Iterator[list[str]]:
        """The cells of each row, each in one line."""
        return ([cell.text(column) for cell, column in zip(row, self.columns, strict=True)] for row in self.rows)

    def legend(self, names: Sequence[str] = (), interval: str = "(a–b)") -> Iterator[str]:
        """Meaning of its figures, in lines to stand beneath it.

        names: of the columns that are shown; all without any. interval: how the reader sees one.
        """
        shown = [column for column in self.columns if column.name in (names or self.names)]
        cells = [(cell, column) for column in shown for cell in self.cells(column.name)]
        yield from dict.fromkeys(column.legend for column in shown if column.legend)
        yield from (means for mark, means in MARKS.items() if any(cell.mark == mark for cell, _ in cells))
        yield from self.notes
        errors = dict.fromkeys(column.error_is for cell, column in cells if column.error_is and cell.plus_minus(column))
        parts = [f"±: {', '.join(errors)}"] if errors else []
        parts += [f"{interval}: the 95 % interval"] if any(cell.interval(column) for cell, column in cells) else []
        if parts:
            yield "; ".join(parts)


@dataclass(frozen=True)
class Section:
    """A part of the report: a table under a title."""

    title: str
    table: Table
    note: str = ""
    """A sentence above the table."""
    scenario: str = ""
    """Scenario of its rows, by which the page filters, and whose plots stand below the table; empty for none."""


@dataclass(frozen=True)
class Figures:
    """A column of a table whose rows are variants."""

    column: Column
    cells: Mapping[str, Cell]
    """Cells by variant; one that is absent has no value."""

    @property
    def has_values(self) -> bool:
        return any(not cell.is_missing for cell in self.cells.values())
