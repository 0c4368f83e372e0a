"""Tables as a reader of plain text sees them."""

from __future__ import annotations

from llm_bench_fixtures.report.tables.table import Table


def header(table: Table) -> tuple[str, ...]:
    return tuple(column.head for column in table.columns)


def rows(table: Table) -> tuple[tuple[str, ...], ...]:
    return tuple(map(tuple, table.texts))


def by_column(table: Table, key: str) -> dict[str, str]:
    """The cells of the first row whose first cell is that."""
    cells = next(cells for cells in rows(table) if cells[0] == key)
    return dict(zip(header(table), cells, strict=True))
