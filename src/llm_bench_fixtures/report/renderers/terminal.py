"""Text for a terminal, in lines and columns: measured in character cells, of which 漢 takes two.

The end of pytest's output: the answer, a table fitted to the width, what else follows, and where the report is. The
report of what was judged. Tables and paragraphs of any width.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from wcwidth import center, clip, ljust, rjust, wrap
from wcwidth import width as width_of

from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.judged.causes import MOST_CAUSES, JudgedReport, rows_table
from llm_bench_fixtures.report.tables.by_variant import variants_table, what_ran
from llm_bench_fixtures.report.tables.table import WHAT_RAN, Column, Table, Tone
from llm_bench_fixtures.report.words.measured import headline_sentence
from llm_bench_fixtures.results.folder import PAGE_FILE
from llm_bench_fixtures.results.formatting import BYTE_SIZES, FLOP_SIZES, SECOND_SIZES
from llm_bench_fixtures.text import first_few, harmless, printable, without_commands

GAP = 2  # cells between two columns
NO_BREAK_SPACE = "\N{NO-BREAK SPACE}"
UNITS = "|".join(("%", *SECOND_SIZES, *BYTE_SIZES, "B", *FLOP_SIZES, "FLOP"))
BEFORE_UNIT = re.compile(rf"(?<=\d) (?=(?:{UNITS})(?!\w))|(?<=±) ")
LEAST_TEXT = 8  # cells to which a column of texts may be cut

Paint = Callable[[str, Tone], str]
"""Gives a cell the colour of its tone."""
COLOURS = {Tone.BETTER: "green", Tone.WORSE: "red"}


def summary_lines(findings: Findings, folder: Path | None, width: int, paint: Paint | None = None) -> Iterator[str]:
    """Lines of at most `width` cells, none of which is a command to a CI runner.

    folder: where the page is, if there is one. paint: colours the cells that are better or worse than the reference's.
    """
    return map(without_commands, _summary_lines(findings, folder, width, paint))


def lines_so_far(findings: Findings, width: int) -> Iterator[str]:
    """The answer of a run that goes on, in two sentences at most."""
    first, *second = findings.answer.brief
    said = (f"llm-bench: so far, {findings.so_far}: {first}", *second)
    return map(without_commands, _paragraphs(said, width, indent="  "))


def _summary_lines(findings: Findings, folder: Path | None, width: int, paint: Paint | None) -> Iterator[str]:
    yield ""
    yield title_line(printable(f"llm-bench: {findings.run.provenance.model}"), width)
    yield from _paragraphs(filter(None, [findings.header, findings.noisy, *findings.warnings]), width)
    yield ""
    yield from _paragraphs(findings.answer.lines, width)
    if findings.changes is not None:
        yield from ("", *_paragraphs([findings.changes.sentence], width))
    yield ""
    yield from _variants(findings, width, paint)
    of_picks = (note for one in findings.answer.recommendations for note in one.notes)
    yield from _list((*of_picks, *findings.answer.untold), width)  # what the answer's lines leave out
    yield from _lists(findings, width)
    yield from _list(findings.answer.notes, width)
    yield from _list(findings.takeaways, width)
    for cost in findings.instrumentation:
        yield ""
        yield from _paragraphs([cost], width)
    if folder is not None:
        yield ""
        yield printable(f"Report: {folder / PAGE_FILE}")


def _paragraphs(sentences: Iterable[str], width: int, indent: str = "") -> Iterator[str]:
    """Each sentence in lines of its own, without what would move the cursor."""
    for sentence in sentences:
        yield from wrapped(printable(sentence), width, indent)


def _list(sentences: Iterable[str], width: int) -> Iterator[str]:
    if lines := list(_paragraphs((f"- {sentence}" for sentence in sentences), width, indent="  ")):
        yield from ("", *lines)


def _variants(findings: Findings, width: int, paint: Paint | None) -> Iterator[str]:
    """The variants that loaded; below them what has no room in the table, and why the others didn't run."""
    yield from _paragraphs([headline_sentence(findings, ":")], width)
    variants = findings.run.variants
    table = variants_table(findings, findings.run.loaded)
    shown = fitting(table, width)
    if table.rows:
        yield from columns(table, width, paint)
    below = [variant for variant in variants if not variant.label or WHAT_RAN not in shown]
    yield from _paragraphs((f"{one.id}: {what_ran(findings, one)}" for one in below), width, indent="  ")
    yield from _paragraphs(table.legend(shown), width)


def _lists(findings: Findings, width: int) -> Iterator[str]:
    """What is not worth using and what isn't recommended: a line a variant."""
    for title, remarks in findings.answer.lists:
        yield from ("", *_paragraphs([f"{title}:"], width))
        yield from _paragraphs((f"  {one.variant} {one.text}" for one in remarks), width, indent="    ")


def judged_lines(report: JudgedReport, width: int, *, verbose: bool = False) -> Iterator[str]:
    """What was judged, in lines of at most `width` character cells. A longer name is not broken.

    verbose: whether every cause and every row is shown.
    """
    # names come from saved files and from the code under test
    return harmless(_judged_lines(report, width, verbose=verbose))


def _judged_lines(report: JudgedReport, width: int, *, verbose: bool) -> Iterator[str]:
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


def columns(table: Table, width: int = 0, paint: Paint | None = None) -> Iterator[str]:
    """The lines of a table: the columns that have a value, with a rule below the header.

    If the table is wider than `width` character cells, its droppable columns are left out. If the others don't fit
    either, they stand in several tables below each other, each with the first column. Texts in a column that is too
    wide even so are cut, with an ellipsis; a figure never is. width: 0 is without limit.
    """
    for index, part in enumerate(_parts(_fitting(table, width), width)):
        yield from [""] * (index > 0)
        yield from _table_lines(part, paint)


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
            texts = tuple(map(printable, (column.head, *(cell.text(column) for cell in cells))))
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


def _table_lines(shown: Sequence[_Shown], paint: Paint | None) -> Iterator[str]:
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
