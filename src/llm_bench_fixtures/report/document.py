"""A report before any format: tables and sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

SUMMARY, MACHINE = "summary", "machine"  # what plots belong to that are of no scenario


class Tone(StrEnum):
    """How a cell compares with the reference; one without a tone shows no difference."""

    BETTER = "better"
    WORSE = "worse"


@dataclass(frozen=True)
class Table:
    """Cells as text."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    """The columns that are set flush right, counted from 0."""
    tones: Mapping[tuple[int, int], Tone] = field(default_factory=dict)
    """By row and column, both counted from 0."""


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
class Plot:
    """A picture on disk."""

    path: Path
    """The SVG; the PNG beside it differs in the suffix."""
    title: str
    scenario: str
    """The scenario that it shows, or SUMMARY or MACHINE."""


@dataclass(frozen=True)
class Document:
    title: str
    header: str
    warnings: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    summary: Section
    reference: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    footnotes: tuple[str, ...]
