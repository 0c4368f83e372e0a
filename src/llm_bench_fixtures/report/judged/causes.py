"""What was judged, of two saved runs and of two versions in turns: a row for each verdict, and causes, which are rows
that ended alike as one. "ort-*: peak memory +36.0 MB in 24 tests" instead of 24 rows. Also the report of them, before
any format, and their tables.

Rows of one variant and metric with one verdict are a cause. Where all variants of a backend moved, or all variants of
the run, they are one cause, unless some rows of theirs moved the other way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from llm_bench_fixtures.gate.comparison import Comparison
from llm_bench_fixtures.gate.rules import rule_in_words
from llm_bench_fixtures.gate.verdicts import BETTER, WORSE, Judgement, Verdict
from llm_bench_fixtures.grouping import grouped
from llm_bench_fixtures.report.tables.table import VARIANT, Cell, Column, Table, Tone
from llm_bench_fixtures.report.words.measured import scenarios_of, title_of
from llm_bench_fixtures.results.formatting import (
    MINUS,
    MISSING,
    Notation,
    count,
    format_bytes,
    format_change,
    with_unit,
)
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME, Force, Kind, Metric, Unit
from llm_bench_fixtures.text import printable

TONES = dict.fromkeys(BETTER, Tone.BETTER) | dict.fromkeys(WORSE, Tone.WORSE)
MOVED = (*WORSE, Verdict.VANISHED, *BETTER, Verdict.NEW)  # the order in which they are shown
STILL = (Verdict.INCONCLUSIVE, Verdict.NOT_MEASURED, Verdict.UNCHANGED)
FIGURE = Notation.TEXT  # a column that is set flush right
CHANGE, VERDICT = Column("change", FIGURE), Column("verdict")
FIRST = (Column(VARIANT), Column("benchmark"), Column("metric"))
VALUES = (*FIRST, Column("before", FIGURE), Column("now", FIGURE), CHANGE, VERDICT)
CAUSES = (Column(VARIANT), Column("metric"), CHANGE, Column("tests"), VERDICT)
ALL_TESTS = "all"  # test column of a value that all tests of the variant share
MOST_CAUSES = 12  # in one part


@dataclass(frozen=True)
class JudgedRow:
    """The verdict on one metric of one test, or of all tests of a variant together."""

    variant: str
    """Id of the variant; empty for all variants."""
    metric: Metric
    verdict: Verdict
    backend: str = ""
    benchmark: str = ""
    """The test's scenario and case; empty where the verdict is on all the variant's tests."""
    test: str = ""
    """The test's node id; empty likewise."""
    base: float | None = None
    """The value before; None where it is unknown."""
    head: float | None = None
    ratio: float | None = None
    """The change that is judged."""
    raw_ratio: float | None = None
    """The change without what the probe saw of the machine, where that differs."""
    interval: tuple[float, float] | None = None
    """Ends of the ratio's interval; None where none is known, or the value is exact."""
    is_advisory: bool = False
    """Whether it fails no gate."""
    allowed: str = ""
    """The change that its rule allows."""
    reason: str = ""
    """Why it was not judged, or why the value vanished."""

    @property
    def before(self) -> str:
        return with_unit(self.base, self.metric)

    @property
    def after(self) -> str:
        return with_unit(self.head, self.metric)

    @property
    def change(self) -> str:
        """The relative change with its sign."""
        if self.ratio is None:
            return MISSING
        raw = f" (raw {format_change(self.raw_ratio)})" if self.raw_ratio is not None else ""
        return f"{format_change(self.ratio)}{raw}"

    @property
    def change_in_full(self) -> str:
        """The change with its interval, where that has a width: "+25.0 % (+8.7 % to +43.8 %)"."""
        low, high = map(format_change, self.interval or (1.0, 1.0))
        return f"{self.change} ({low} to {high})" if low != high else self.change

    def as_json(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)} | {"metric": self.metric.name}


def rows_of(comparison: Comparison) -> tuple[JudgedRow, ...]:
    """One row for each value that a rule is on."""
    run = comparison.head
    records = {record.test: record for record in run.records}
    scenarios = scenarios_of(run)
    backends = {variant.id: variant.backend for variant in run.variants}

    def row(one: Judgement) -> JudgedRow:
        record = records.get(one.subject)
        variant = record.variant if record else one.subject
        place = ": ".join(filter(None, (title_of(scenarios[record.scenario]), record.case))) if record else ""
        return JudgedRow(
            variant=printable(variant),
            metric=one.metric,
            verdict=one.verdict,
            backend=backends.get(variant, ""),
            benchmark=printable(place),
            test=printable(record.test) if record else "",
            base=one.base,
            head=one.head,
            ratio=one.ratio,
            raw_ratio=one.raw_ratio if one.slowdown != 1.0 else None,
            interval=one.interval,
            is_advisory=not one.is_blocking,
            allowed=rule_in_words(one.rule, one.metric),
            reason=printable(one.reason),
        )

    return tuple(row(one) for one in comparison.judgements if one.rule.force is not Force.OFF)


@dataclass(frozen=True)
class Cause:
    """Rows of one metric with one verdict, of one variant or of several."""

    name: str
    """The variant's id, "ort-*" for all variants of a backend, or "all variants"."""
    rows: tuple[JudgedRow, ...]
    """Rows of the cause, at least one. A row on all tests of its variant has the change of those of the tests."""
    tests: int
    """How many tests of these variants are judged in the metric, whether or not they moved."""
    others: int = 0
    """How many other metrics it stands for."""

    @property
    def first(self) -> JudgedRow:
        return self.rows[0]

    @property
    def verdict(self) -> Verdict:
        return self.first.verdict

    @property
    def variants(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.variant for row in self.rows))

    @property
    def title(self) -> str:
        """The metric within a sentence, and how many others it stands for."""
        name = self.first.metric.title_in_sentence
        other = "other timing" if self.verdict in MOVED else "other metric"
        return f"{name} and {count(self.others, other)}" if self.others else name

    @property
    def change(self) -> str:
        """Both values of a single row; else the change, or the range of the changes; empty where there is none."""
        shared = [row for row in self.rows if not row.benchmark]
        shown = shared if len(shared) == len(self.variants) else self.rows
        first = shown[0]
        if len(shown) == 1:
            return f"{_both(first)}{first.change_in_full}" if first.ratio is not None else _both(first).rstrip(", ")
        if first.metric.unit is Unit.BYTES:
            rises = [row.head - row.base for row in shown if row.base is not None and row.head is not None]
            return _span(rises, _bytes)
        return _span([row.ratio for row in shown if row.ratio is not None], format_change)

    @property
    def where(self) -> str:
        """Tests that moved, in words; empty for a value that all tests of a variant share."""
        moved = [row.benchmark for row in self.rows if row.benchmark]
        if len(moved) < len(self.rows):
            which = "in the same direction" if self.verdict in MOVED else self.verdict
            alone = f", {len(moved)} of them {which}" if moved else ""
            return f"across {count(self.tests, 'test')}{alone}" if self.tests else ""
        if len(moved) == 1:
            return f"in {moved[0]}"
        return f"in {len(moved)} tests" if len(moved) == self.tests else f"in {len(moved)} of {self.tests} tests"

    @property
    def allowed(self) -> str:
        """The changes that its rules allow."""
        return " or ".join(dict.fromkeys(row.allowed for row in self.rows if row.allowed))

    @property
    def text(self) -> str:
        """One clause: "bf16: weights 2.00 MB → 2.50 MB, +25.0 %"."""
        reason = f"({self.first.reason})" if self.first.reason else ""
        return " ".join(filter(None, (f"{self.name}: {self.title}", self.change, self.where, reason)))

    def as_json(self) -> dict[str, Any]:
        ratios = [row.ratio for row in self.rows if row.ratio is not None]
        return {
            "name": self.name,
            "variants": self.variants,
            "metric": self.first.metric.name,
            "verdict": self.verdict.value,
            "is_advisory": self.first.is_advisory,
            "tests": [row.test for row in self.rows if row.test],
            "judged_tests": self.tests,
            "other_metrics": self.others,
            "ratios": [min(ratios), max(ratios)] if ratios else None,
            "text": self.text,
        }


def causes_of(moved: Iterable[JudgedRow], judged: Sequence[JudgedRow]) -> list[Cause]:
    """Causes of the rows that moved, by verdict, what fails a gate first and then the largest change.

    judged: all rows. They show whether all of a backend moved, and how many tests there are.
    """
    found = [
        cause
        for name, rows in grouped(moved, lambda row: row.metric.name).items()
        for cause in _of_metric(rows, [row for row in judged if row.metric.name == name])
    ]
    order = (*MOVED, *STILL)
    return sorted(found, key=lambda one: (one.first.is_advisory, order.index(one.verdict), -_size(one)))


def led(causes: Sequence[Cause]) -> list[Cause]:
    """The causes, one of which stands for all timings that ended alike, and one for all metrics that did not move."""

    def subject(one: Cause) -> object:
        is_led = one.first.metric.kind is Kind.TIMING or one.verdict in STILL
        return (one.variants, _kind(one.first)) if is_led else one

    return [replace(max(group, key=_lead), others=len(group) - 1) for group in grouped(causes, subject).values()]


def _lead(cause: Cause) -> tuple[int, int]:
    """The most rows; of as many, the first metric of the registry."""
    name = cause.first.metric.name
    return len(cause.rows), -[*METRIC_BY_NAME, name].index(name)


def _kind(row: JudgedRow) -> tuple[Verdict, bool, str]:
    return row.verdict, row.is_advisory, row.reason


def _of_metric(moved: Sequence[JudgedRow], judged: Sequence[JudgedRow]) -> Iterator[Cause]:
    """The causes of one metric: of all variants, of each backend, or of each variant."""
    everyone = frozenset(row.variant for row in judged)
    backends = dict.fromkeys(row.backend for row in judged)
    families = [everyone, *(frozenset(row.variant for row in judged if row.backend == one) for one in backends)]
    for alike in grouped(moved, _kind).values():
        left = frozenset(row.variant for row in alike)
        for members in families:
            if len(members) > 1 and members <= left and not _is_mixed(judged, members):
                yield _cause(alike, judged, members, _family_name(members, everyone))
                left -= members
        for variant in dict.fromkeys(row.variant for row in alike if row.variant in left):
            yield _cause(alike, judged, frozenset({variant}), variant)


def _is_mixed(rows: Sequence[JudgedRow], members: frozenset[str]) -> bool:
    """Whether some of their rows moved one way and some another way."""
    return len({row.verdict for row in rows if row.variant in members and row.verdict in MOVED}) > 1


def _family_name(members: frozenset[str], everyone: frozenset[str]) -> str:
    """Beginning of their names up to the first dash, if nobody else's name has it; else all their names."""
    if members == everyone:
        return "all variants"
    prefix, *others = {f"{member.partition('-')[0]}-" for member in members}
    if not others and not any(other.startswith(prefix) for other in everyone - members):
        return f"{prefix}*"
    return ", ".join(sorted(members))


def _cause(alike: Sequence[JudgedRow], judged: Sequence[JudgedRow], members: frozenset[str], name: str) -> Cause:
    tests = sum(row.variant in members and bool(row.benchmark) for row in judged)
    return Cause(name, tuple(row for row in alike if row.variant in members), tests)


def _size(cause: Cause) -> float:
    """The largest log ratio among the rows; infinite where one of the values is 0 or missing."""
    return max(abs(math.log(row.ratio)) if row.ratio else math.inf for row in cause.rows)


def _both(row: JudgedRow) -> str:
    if row.base is None:
        return f"{row.after}, " if row.head is not None else ""
    return f"{row.before} → {row.after}, " if row.head is not None else f"was {row.before}, "


def _bytes(change: float) -> str:
    return f"{MINUS if change < 0 else '+'}{format_bytes(abs(change))}"


def _span(values: Sequence[float], show: Callable[[float], str]) -> str:
    """The smallest and the largest value, or one where they are written alike."""
    ends = dict.fromkeys(show(value) for value in (min(values), max(values))) if values else {}
    return " to ".join(ends)


@dataclass(frozen=True)
class JudgedPart:
    """Some of what is judged, under a title."""

    title: str
    lines: tuple[str, ...]
    """A line for each cause."""
    rows: tuple[JudgedRow, ...] = ()
    """The verdicts that the causes stand for: folded, or shown on request."""

    @property
    def has_details(self) -> bool:
        """Whether the rows say more than the lines."""
        return len(self.rows) > len(self.lines)


@dataclass(frozen=True)
class JudgedReport:
    """The parts of a report, from top to bottom."""

    title: str
    sentences: tuple[str, ...]
    """Sentences on what was compared, and with which result."""
    parts: tuple[JudgedPart, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """Warnings that a reader must not miss."""
    conclusion: str = ""
    """The exit status and what it means."""


def rows_table(rows: Sequence[JudgedRow]) -> Table:
    """A row for each verdict; the values before and now where they are known."""
    cells = tuple(tuple(_cells(row)) for row in rows)
    has_values = any(row.base is not None or row.head is not None for row in rows)
    return Table(VALUES, cells).with_columns([0, 1, 2, *([3, 4] if has_values else []), 5, 6])


def _cells(row: JudgedRow) -> Iterator[Cell]:
    yield from (Cell(row.variant), Cell(row.benchmark or ALL_TESTS), Cell(row.metric.title))
    yield from (Cell(row.before, rank=row.base), Cell(row.after, rank=row.head))
    yield Cell(row.change_in_full, rank=row.ratio, tone=TONES.get(row.verdict))
    yield _verdict(row)


def _verdict(row: JudgedRow) -> Cell:
    advisory = ", advisory" if row.is_advisory else ""
    return Cell(f"{row.verdict}{advisory}", tone=TONES.get(row.verdict), note=row.reason)


def causes_table(causes: Sequence[Cause]) -> Table:
    """A row for each cause."""
    rows = []
    for one in causes:
        change = Cell(one.change, rank=one.first.ratio, tone=TONES.get(one.verdict))
        rows.append((Cell(one.name), Cell(one.title), change, Cell(one.where or ALL_TESTS), _verdict(one.first)))
    return Table(CAUSES, tuple(rows))
