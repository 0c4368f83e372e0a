"""A report before any format: tables and sentences."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Cells as text. numeric: the columns that are set flush right."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Section:
    """scenario: names the plots that belong here. note: a sentence above the table."""

    title: str
    table: Table
    note: str = ""
    scenario: str = ""


@dataclass(frozen=True)
class Document:
    title: str
    header: str
    warnings: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    takeaways: tuple[str, ...]
    summary: Section
    reference: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    footnotes: tuple[str, ...]
