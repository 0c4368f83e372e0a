"""A report before any format: tables and sentences."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from llm_bench_fixtures.report.tables.table import Table

SUMMARY, MACHINE = "summary", "machine"  # what plots belong to that are of no scenario


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
