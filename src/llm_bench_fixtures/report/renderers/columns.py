"""Text for a terminal, in lines and columns: measured in character cells, of which 漢 takes two."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from wcwidth import center, clip, ljust, rjust, wrap
from wcwidth import width as width_of

from llm_bench_fixtures.report.renderers.figures import head, text
from llm_bench_fixtures.report.tables.table import Column, Table, Tone
from llm_bench_fixtures.results.formatting import BYTE_SIZES, FLOP_SIZES, SECOND_SIZES
from llm_bench_fixtures.text import printable

GAP = 2  # cells between two columns
NO_BREAK_SPACE = "\N{NO-BREAK SPACE}"
UNITS = "|".join(("%", *SECOND_SIZES, *BYTE_SIZES, "B", *FLOP_SIZES, "FLOP"))
BEFORE_UNIT = re.compile(rf"(?<=\d) (?=(?:{UNITS})(?!\w))|(?<=±) ")
LEAST_TEXT = 8  # cells to which a column of texts may be cut

Paint = Callable[[str, Tone], str]
"""Gives a cell the colour of its tone."""
COLOURS = {Tone.BETTER: "green", Tone.WORSE: "red"}


def columns(table: Table, width: int = 0, paint: Paint | None = None) -> Iterator[str]:
    """The lines of a table: the columns that have a value, with a rule below the header.

    If the table is wider than `width` character cells, its droppable columns are left out. If the others don't fit
    either, they stand in several tables below each other, each with the first column. Texts in a column that is too
    wide even so are cut, with an ellipsis; a figure never is. width: 0 is without limit.
    """
    for index, part in enumerate(_parts(_fitting(table, width), width)):
        yield from [""] * (index > 0)
        yield from _lines(part, paint)


def fitting(table: Table, width: int) -> tuple[str, ...]:
    """The names of the columns that `columns` shows."""
    return tuple(one.column.name for one in _fitting(table, width))


@dataclass(frozen=True)
class _Shown:
    """A column as it is written, without what would move the cursor."""

    column: Column
    texts: tuple[str, ...]
    """The head, and the cells below it."""
    tones: tuple[Tone | None, ...]
    least: int
    """The width of the widest figure, which may not be cut."""
    width: int


def _shown(table: Table) -> Iterator[_Shown]:
    """The columns that have a value."""
    for place, column in enumerate(table.columns):
        cells = [row[place] for row in table.rows]
        if any(not cell.is_missing for cell in cells):
            texts = tuple(map(printable, (head(column), *(text(cell, column) for cell in cells))))
            least = max(map(width_of, texts[1:])) if column.is_numeric else 0
            tones = (None, *(cell.tone for cell in cells))
            yield _Shown(column, texts, tones, least, max(map(width_of, texts)))


def _fitting(table: Table, width: int) -> list[_Shown]:
    shown = list(_shown(table))
    for dropped in sorted(shown, key=lambda one: -one.column.droppable):
        if not width or _total(shown) <= width or not dropped.column.droppable:
            break
        shown.remove(dropped)
    return shown


def _parts(shown: Sequence[_Shown], width: int) -> Iterator[list[_Shown]]:
    """The columns in as many tables as it takes, each with the first column."""
    if not width or _total(shown) <= width:
        yield list(shown)
        return
    first, *others = shown
    least = max((one.least for one in others), default=0)
    first = replace(first, width=min(first.width, max(LEAST_TEXT, width - GAP - least)))
    room, part = width - GAP - first.width, [first]
    for other in others:
        one = replace(other, width=min(other.width, max(room, other.least)))
        if len(part) > 1 and _total([*part, one]) > width:
            yield part
            part = [first]
        part.append(one)
    yield part


def wrapped(text: str, width: int, indent: str = "", first: str = "", *, break_words: bool = True) -> list[str]:
    """The text in lines of at most `width` character cells, each number on one line with its unit. A longer word is
    broken, unless `break_words` is False.

    indent: before each line but the first, before which `first` stands.
    """
    lines = wrap(
        BEFORE_UNIT.sub(NO_BREAK_SPACE, text),
        width,
        initial_indent=first,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=break_words,
    )
    return [line.replace(NO_BREAK_SPACE, " ") for line in lines]


def wrapped_lines(text: str, width: int) -> Iterator[str]:
    """Lines of at most `width` character cells, but for a longer word; line breaks of the text stay."""
    for line in text.splitlines():
        yield from wrapped(line, width, indent="  ", break_words=False)


def title_line(title: str, width: int) -> str:
    """The title in the middle of a rule as wide as the terminal."""
    return center(clip(f" {title} ", 0, width), width, "=")


def _lines(shown: Sequence[_Shown], paint: Paint | None) -> Iterator[str]:
    for index, cells in enumerate(zip(*(_cells(one, paint) for one in shown), strict=True)):
        yield (" " * GAP).join(cells).rstrip()
        if index == 0:
            yield "-" * _total(shown)


def _cells(one: _Shown, paint: Paint | None) -> Iterator[str]:
    align = rjust if one.column.is_numeric else ljust
    for cell, tone in zip(one.texts, one.tones, strict=True):
        shown = cell if width_of(cell) <= one.width else f"{clip(cell, 0, one.width - 1)}…"
        aligned = align(shown, one.width)
        yield paint(aligned, tone) if paint and tone else aligned


def _total(shown: Sequence[_Shown]) -> int:
    return sum(one.width for one in shown) + GAP * (len(shown) - 1)
