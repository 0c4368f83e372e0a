"""How the values of a table's cells are written, in whatever format: the figure, and what stands beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llm_bench_fixtures.report.tables.table import ELSEWHERE, Cell, Column, Table
from llm_bench_fixtures.results.formatting import Notation, change_and_error, spread_like, three_digits, written

MARKS = {ELSEWHERE: f"{ELSEWHERE}: measured only on other prompts or settings, see the variant"}
PLAIN = Column("")  # column of a cell that stands in no table


def head(column: Column) -> str:
    """The name of a column with its unit."""
    return f"{column.name}, {column.unit}" if column.unit else column.name


def figure(cell: Cell, column: Column = PLAIN) -> str:
    """The value alone with its mark; the words where there is none."""
    return f"{_value(cell, column)}{cell.mark}" if cell.value is not None else cell.text


def spread(cell: Cell, column: Column = PLAIN) -> str:
    """The error or the interval, without brackets: "± 0.4", "1.26–1.34". Empty without any."""
    return _error(cell, column) or _interval(cell, column)


def text(cell: Cell, column: Column = PLAIN) -> str:
    """The whole cell in one line: "33.8 ± 0.4", "1.30× (1.26–1.34)"."""
    shown, beside = figure(cell, column), spread(cell, column)
    if not beside:
        return shown
    return f"{shown} {beside}" if cell.error is not None else f"{shown} ({beside})"


def texts(table: Table) -> Iterator[list[str]]:
    """The cells of each row, each in one line."""
    return ([text(cell, column) for cell, column in zip(row, table.columns, strict=True)] for row in table.rows)


def _notation(cell: Cell, column: Column) -> Notation:
    return cell.notation or column.notation or Notation.NUMBER


def _value(cell: Cell, column: Column) -> str:
    value, notation = cell.value or 0.0, _notation(cell, column)
    if cell.of is not None:
        return f"{value:.0f}/{cell.of}"
    if notation is Notation.CHANGE and cell.error is not None:
        return change_and_error(value, cell.error)[0]
    return three_digits(value / column.size) if column.unit and cell.notation is None else written(value, notation)


def _error(cell: Cell, column: Column) -> str:
    if cell.error is None or cell.value is None:
        return ""
    notation = _notation(cell, column)
    if notation is Notation.CHANGE:
        error = change_and_error(cell.value, cell.error)[1]
    elif column.unit and cell.notation is None:
        error = spread_like(cell.value / column.size, cell.error / column.size)
    else:
        error = written(cell.error, notation)
    return f"± {error}" if error else ""


def _interval(cell: Cell, column: Column) -> str:
    """Interval in the column's unit, if it has one; empty without a width."""
    if cell.low is None or cell.high is None or cell.low == cell.high:
        return ""
    if cell.of is not None:
        return f"{100 * cell.low:.2g}–{100 * cell.high:.2g} %"
    size = column.size if column.unit and cell.notation is None else 1.0
    return f"{three_digits(cell.low / size)}–{three_digits(cell.high / size)}"


def legend(table: Table, names: Sequence[str] = (), interval: str = "(a–b)") -> Iterator[str]:
    """Meaning of the table's figures, in lines to stand beneath it.

    names: of the columns that are shown; all without any. interval: how the reader sees one.
    """
    shown = [column for column in table.columns if column.name in (names or table.names)]
    cells = [(cell, column) for column in shown for cell in table.cells(column.name)]
    yield from dict.fromkeys(column.legend for column in shown if column.legend)
    yield from (means for mark, means in MARKS.items() if any(cell.mark == mark for cell, _ in cells))
    yield from table.notes
    errors = dict.fromkeys(column.error_is for cell, column in cells if column.error_is and _error(cell, column))
    parts = [f"±: {', '.join(errors)}"] if errors else []
    parts += [f"{interval}: the 95 % interval"] if any(_interval(*one) for one in cells) else []
    if parts:
        yield "; ".join(parts)
