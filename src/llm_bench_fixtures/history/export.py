"""Writes the long table of saved runs as CSV, Parquet or SQLite.

The runs are written one by one, so that a thousand of them need no more memory than one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from llm_bench_fixtures.errors import MissingLibrary
from llm_bench_fixtures.history.tidy import FLAG_COLUMNS, NUMBER_COLUMNS, TEXT_COLUMNS
from llm_bench_fixtures.results.table import for_csv
from llm_bench_fixtures.writing import replacing

if TYPE_CHECKING:
    import pandas as pd

    Tables = Iterable[pd.DataFrame]

SQL_TABLE = "measurements"


class ExportFormat(StrEnum):
    """The formats of `llm-bench export`."""

    CSV = "csv"
    PARQUET = "parquet"
    SQLITE = "sqlite"


def write_csv(tables: Tables, output: TextIO) -> None:
    """Write one CSV. Every text is made safe for the spreadsheets and terminals that may show it."""
    for index, table in enumerate(tables):
        for_csv(table, TEXT_COLUMNS).to_csv(output, index=False, header=index == 0)


def write_csv_file(tables: Tables, path: Path) -> None:
    """Write the CSV into a file."""
    with path.open("w", encoding="utf-8", newline="", errors="replace") as output:
        write_csv(tables, output)


def write_sqlite(tables: Tables, path: Path) -> None:
    """Write a database of one table, `measurements`."""
    import sqlite3

    with closing(sqlite3.connect(path)) as connection:
        for table in tables:
            table.to_sql(SQL_TABLE, connection, if_exists="append", index=False)
        connection.commit()


def write_parquet(tables: Tables, path: Path) -> None:
    """Write one Parquet file. Raises MissingLibrary where pyarrow isn't installed."""
    try:
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter
    except ImportError as error:
        raise MissingLibrary("Parquet", "pyarrow", "parquet") from error
    text = pa.dictionary(pa.int32(), pa.string())
    writer = None
    try:
        for table in tables:
            kinds = dict.fromkeys(TEXT_COLUMNS, text) | dict.fromkeys(FLAG_COLUMNS, pa.bool_())
            kinds |= dict.fromkeys(NUMBER_COLUMNS, pa.float64())
            schema = pa.schema([(name, kinds[name]) for name in table.columns])
            writer = writer or ParquetWriter(path, schema)
            writer.write_table(pa.Table.from_pandas(table, schema, preserve_index=False))
    finally:
        if writer is not None:
            writer.close()


WRITERS: Mapping[ExportFormat, Callable[[Tables, Path], None]] = {
    ExportFormat.CSV: write_csv_file,
    ExportFormat.PARQUET: write_parquet,
    ExportFormat.SQLITE: write_sqlite,
}


def write_export(tables: Tables, kind: ExportFormat, path: Path) -> None:
    """Write the file whole, or leave the file that is there as it is. Raises UnwritableFile and MissingLibrary."""
    with replacing(path) as scratch:
        WRITERS[kind](tables, scratch)
