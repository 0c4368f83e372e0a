"""Text for a terminal, in lines and columns: measured in character cells, of which 漢 takes two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from wcwidth import center, clip, ljust, rjust, wrap
from wcwidth import width as width_of

from llm_bench_fixtures.report.document import Table
from llm_bench_fixtures.results.formatting import MISSING
from llm_bench_fixtures.text import printable

LEAST_WIDTH = 12  # to which a column is shortened


def columns(table: Table, width: int = 0, dispensable: Sequence[str] = (), shortened: str = "") -> Iterator[str]:
    """The lines of a table: the columns that have a value, with a rule below the header.

    If the table is wider than `width` character cells, the column `shortened` is cut, and its cells are printed in full
    below the table, each after the first cell of its row. If that isn't enough, the columns of `dispensable` are left
    out, in that order. If the other columns don't fit either, the lines are wider than `width`.
    """
    names = [name for name in table.header if _has_values(table, name)]
    for dropped in (None, *dispensable):
        names = [name for name in names if name != dropped]
        widths = {name: max(map(width_of, _column(table, name))) for name in names}
        if shortened in widths:
            over = max(_total(widths) - width, 0)
            widths[shortened] = min(max(widths[shortened] - over, LEAST_WIDTH), widths[shortened])
        if _total(widths) <= width:
            break
    yield from _lines(table, widths)
    if shortened in widths:
        for name, cell in zip(_column(table, table.header[0]), _column(table, shortened), strict=True):
            if width_of(cell) > widths[shortened]:
                yield from wrapped(f"{name}: {cell}", width, indent="  ")


def wrapped(text: str, width: int, indent: str = "", first: str = "", *, break_words: bool = True) -> list[str]:
    """The text in lines of at most `width` character cells. A longer word is broken, unless `break_words` is False.

    indent: before each line but the first, before which `first` stands.
    """
    return wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=break_words,
    )


def wrapped_lines(text: str, width: int) -> Iterator[str]:
    """Lines of at most `width` character cells; line breaks of the text stay."""
    for line in text.splitlines():
        yield from wrapped(line, width, indent="  ")


def title_line(title: str, width: int) -> str:
    """The title in the middle of a rule as wide as the terminal."""
    return center(clip(f" {title} ", 0, width), width, "=")


def _lines(table: Table, widths: Mapping[str, int]) -> Iterator[str]:
    """The columns that have a width, each cell cut to it."""
    lines = zip(*(_cells(table, name, width) for name, width in widths.items()), strict=True)
    for index, cells in enumerate(lines):
        yield "  ".join(cells).rstrip()
        if index == 0:
            yield "-" * _total(widths)


def _has_values(table: Table, name: str) -> bool:
    return any(cell != MISSING for cell in _column(table, name)[1:])


def _column(table: Table, name: str) -> list[str]:
    """The header and the cells below it, with a replacement for each character that would move the cursor."""
    index = table.header.index(name)
    return [name, *(printable(row[index]) for row in table.rows)]


def _cells(table: Table, name: str, width: int) -> list[str]:
    right = table.header.index(name) in table.numeric
    cut = [cell if width_of(cell) <= width else f"{clip(cell, 0, width - 1)}…" for cell in _column(table, name)]
    return [rjust(cell, width) if right else ljust(cell, width) for cell in cut]


def _total(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + 2 * (len(widths) - 1)
