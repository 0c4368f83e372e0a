"""What is judged, drawn: in a terminal, and as Markdown for a pull request's comment or a CI step's summary.

Names and reasons come from saved files and from the code under test, which anybody may have written: control characters
are taken out, and characters that mean something in Markdown are escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llm_bench_fixtures.report.judged.causes import TONES, Cause, JudgedRow
from llm_bench_fixtures.report.renderers.columns import columns, title_line, wrapped, wrapped_lines
from llm_bench_fixtures.report.renderers.markdown import bullets, escape, folded, markdown_table
from llm_bench_fixtures.report.tables.table import VARIANT, Cell, Column, Table
from llm_bench_fixtures.results.formatting import Notation
from llm_bench_fixtures.text import first_few, harmless

FIGURE = Notation.TEXT  # a column that is set flush right
CHANGE, VERDICT = Column("change", FIGURE), Column("verdict")
FIRST = (Column(VARIANT), Column("benchmark"), Column("metric"))
VALUES = (*FIRST, Column("before", FIGURE), Column("now", FIGURE), CHANGE, VERDICT)
CAUSES = (Column(VARIANT), Column("metric"), CHANGE, Column("tests"), VERDICT)
ALL_TESTS = "all"  # test column of a value that all tests of the variant share
MOST_CAUSES = 12  # in one part
MOST_ROWS = 60  # in one table


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


def terminal_lines(report: JudgedReport, width: int, *, verbose: bool = False) -> Iterator[str]:
    """Lines of at most `width` character cells. A longer name is not broken.

    verbose: whether every cause and every row is shown.
    """
    return harmless(_lines(report, width, verbose=verbose))


def _lines(report: JudgedReport, width: int, *, verbose: bool) -> Iterator[str]:
    yield ""
    yield title_line(report.title, width)
    for sentence in (*report.sentences, *report.warnings):
        yield from wrapped_lines(sentence, width)
    for part in report.parts:
        yield from ("", part.title)
        for line in part.lines if verbose else first_few(part.lines, MOST_CAUSES):
            yield from wrapped(line, width, "    ", "  ", break_words=False)
        if verbose and part.has_details:
            yield from ("", *columns(rows_table(part.rows), width))
    if report.notes:
        yield ""
    for note in report.notes:
        yield from wrapped_lines(note, width)
    if report.conclusion:
        yield report.conclusion


def markdown(report: JudgedReport) -> str:
    """The report as Markdown, its rows folded."""
    return "\n".join(_markdown_lines(report)) + "\n"


def _markdown_lines(report: JudgedReport) -> Iterator[str]:
    yield from (f"## {escape(report.title)}", "", *(f"{escape(sentence)}  " for sentence in report.sentences))
    for warning in report.warnings:
        yield from ("", f"> **{escape(warning)}**")
    for part in report.parts:
        yield from ("", f"### {escape(part.title)}", "", *bullets(first_few(part.lines, MOST_CAUSES)), "")
        if part.has_details:
            yield from folded("Value by value", _details(part.rows))
    if report.notes:
        yield from ("", *bullets(report.notes))
    if report.conclusion:
        yield from ("", f"**{escape(report.conclusion)}**")


def _details(rows: Sequence[JudgedRow]) -> Iterator[str]:
    yield from markdown_table(rows_table(rows[:MOST_ROWS]))
    if len(rows) > MOST_ROWS:
        yield from ("", f"... and {len(rows) - MOST_ROWS:,} more, which --verbose and --json have.")


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
