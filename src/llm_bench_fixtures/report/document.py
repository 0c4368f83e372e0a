"""A report before any format: tables and sentences."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Cells as text."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    """The columns that are set flush right, counted from 0."""


@dataclass(frozen=True)
class Section:
    """A part of the report: a table under a title."""

    title: str
    table: Table
    note: str = ""
    """A sentence above the table."""
    scenario: str = ""
    """The plots of this scenario stand below the table."""


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
