"""Text for a terminal, in lines and columns: measured in character cells, of which 漢 takes two."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from wcwidth import center, clip, ljust, rjust, wrap
from wcwidth import width as width_of

from llm_bench_fixtures.report.document import Table, Tone
from llm_bench_fixtures.results.formatting import MINUS, MISSING
from llm_bench_fixtures.text import printable

GAP = 2  # cells between two columns
LEAST_TEXT = 8  # cells to which a column of texts may be cut
SIGNS = f"+-{MINUS}<~≈ "  # what a figure may begin with

Paint = Callable[[str, Tone], str]
"""Gives a cell the colour of its tone."""


COLOURS = {Tone.BETTER: "green", Tone.WORSE: "red"}


def plain(text: str, _: Tone) -> str:
    """The text without any colour."""
    return text


def columns(table: Table, width: int = 0, dispensable: Sequence[str] = (), paint: Paint = plain) -> Iterator[str]:
    """The lines of a table: the columns that have a value, with a rule below the header.

    If the table is wider than `width` character cells, the columns of `dispensable` are left out, in that order. If the
    other columns don't fit either, they stand in several tables below each other, each with the first column. Texts
    in a column that is too wide even so are cut, with an ellipsis; a number never is. width: 0 is without limit.
    """
    for index, part in enumerate(_parts(table, _fitting(table, width, dispensable), width)):
        yield from [""] * (index > 0)
        yield from _lines(table, part, paint)


def fitting(table: Table, width: int, dispensable: Sequence[str] = ()) -> tuple[str, ...]:
    """The names of the columns that `columns` shows."""
    return tuple(_fitting(table, width, dispensable))


def _fitting(table: Table, width: int, dispensable: Sequence[str]) -> dict[str, int]:
    """The width of each column that is shown."""
    widths = {name: max(map(width_of, _column(table, name))) for name in table.header if _has_values(table, name)}
    for dropped in dispensable:
        if _total(widths) <= width:
            break
        widths.pop(dropped, None)
    return widths


def _parts(table: Table, widths: Mapping[str, int], width: int) -> Iterator[dict[str, int]]:
    """The columns in as many tables as it takes, each with the first column."""
    if not width or _total(widths) <= width:
        yield dict(widths)
        return
    (first, wide), *others = widths.items()
    least = max((_least(table, name) for name, _ in others), default=0)
    part = {first: min(wide, max(LEAST_TEXT, width - GAP - least))}
    room = width - GAP - part[first]
    for name, one in others:
        shown = min(one, max(room, _least(table, name)))
        if len(part) > 1 and _total({**part, name: shown}) > width:
            yield part
            part = {first: part[first]}
        part[name] = shown
    yield part


def _least(table: Table, name: str) -> int:
    """The width of the widest cell that may not be cut, as it begins with a figure."""
    figures = [cell for cell in _column(table, name)[1:] if cell.lstrip(SIGNS)[:1].isdigit()]
    return max(map(width_of, figures), default=0) if table.header.index(name) in table.numeric else 0


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


def _lines(table: Table, widths: Mapping[str, int], paint: Paint) -> Iterator[str]:
    """The columns that have a width."""
    lines = zip(*(_cells(table, name, width, paint) for name, width in widths.items()), strict=True)
    for index, cells in enumerate(lines):
        yield "  ".join(cells).rstrip()
        if index == 0:
            yield "-" * _total(widths)


def _has_values(table: Table, name: str) -> bool:
    return any(cell != MISSING for cell in _column(table, name)[1:])


def _column(table: Table, name: str) -> list[str]:
    """The header and the cells below it, with a replacement for each character that would move the cursor."""
    index = table.header.index(name)
    return [printable(name), *(printable(row[index]) for row in table.rows)]


def _cells(table: Table, name: str, width: int, paint: Paint) -> list[str]:
    index = table.header.index(name)
    cells = [_cut(cell, width) for cell in _column(table, name)]
    aligned = [(rjust if index in table.numeric else ljust)(cell, width) for cell in cells]
    tones = [None, *(table.tones.get((row, index)) for row in range(len(table.rows)))]
    return [paint(cell, tone) if tone else cell for cell, tone in zip(aligned, tones, strict=True)]


def _cut(text: str, width: int) -> str:
    return text if width_of(text) <= width else f"{clip(text, 0, width - 1)}…"


def _total(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1)
