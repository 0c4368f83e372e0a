"""Writes saved runs as one long table, with a row for each run, benchmark and metric: as CSV, Parquet or SQLite.

A benchmark without metrics, such as one that was skipped, has one row without a metric, so that no benchmark is lost.
The runs are written one by one, so that a thousand of them need no more memory than one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from llm_bench_fixtures.errors import MissingLibrary
from llm_bench_fixtures.history.headings import PassOver, read_each, run_facts
from llm_bench_fixtures.history.saved import SavedAt, read_saved_run
from llm_bench_fixtures.history.storage import Storage
from llm_bench_fixtures.results.metrics import Metric
from llm_bench_fixtures.results.record import Record
from llm_bench_fixtures.results.table import WORKLOAD_NUMBERS, WORKLOAD_TEXTS, for_csv, workload_columns
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
    kinds = dict.fromkeys(TEXT_COLUMNS, text) | dict.fromkeys(FLAG_COLUMNS, pa.bool_())
    kinds |= dict.fromkeys(NUMBER_COLUMNS, pa.float64())
    schema = pa.schema([(name, kinds[name]) for name in COLUMNS])
    with ParquetWriter(path, schema) as writer:
        for table in tables:
            writer.write_table(pa.Table.from_pandas(table, schema, preserve_index=False))


WRITERS: Mapping[ExportFormat, Callable[[Tables, Path], None]] = {
    ExportFormat.CSV: write_csv_file,
    ExportFormat.PARQUET: write_parquet,
    ExportFormat.SQLITE: write_sqlite,
}


def write_export(tables: Tables, kind: ExportFormat, path: Path) -> None:
    """Write the file whole, or leave the file that is there as it is. Raises UnwritableFile and MissingLibrary."""
    with replacing(path) as scratch:
        WRITERS[kind](tables, scratch)


RUN_COLUMNS = (
    *("file", "started", "branch", "commit", "dirty", "model", "random_weights", "hardware", "fingerprint", "state"),
)
RECORD_COLUMNS = ("test", "scenario", "case", "variant", "status", "reason")
TOKEN_COLUMNS = ("new_tokens", "padded_tokens")
WORKLOAD_COLUMNS = (*WORKLOAD_TEXTS, *WORKLOAD_NUMBERS, *TOKEN_COLUMNS)
METRIC_COLUMNS = ("metric", "value", "unit", "direction", "kind")
COLUMNS = (*RUN_COLUMNS, *RECORD_COLUMNS, *WORKLOAD_COLUMNS, *METRIC_COLUMNS)
FLAG_COLUMNS = ("dirty", "random_weights")
NUMBER_COLUMNS = (*WORKLOAD_NUMBERS, *TOKEN_COLUMNS, "value")
TEXT_COLUMNS = tuple(name for name in COLUMNS if name not in (*FLAG_COLUMNS, *NUMBER_COLUMNS))


def tidy_tables(
    places: Iterable[SavedAt],
    storage: Storage,
    wanted: Collection[str],
    metrics: Mapping[str, Metric],
    pass_over: PassOver,
) -> Iterator[pd.DataFrame]:
    """A table of COLUMNS for each run that can be read.

    wanted: the names of metrics; empty for all. metrics: those that are known, by name. NUMBER_COLUMNS are float64:
    NaN in a row without a metric, or of a benchmark whose workload isn't known. A metric that is not known has no unit,
    direction and kind.
    """
    import pandas as pd

    for place, run in read_each(places, read_saved_run, pass_over):
        rows = [row for record in run.records for row in _rows(record, wanted, metrics)]
        table = pd.DataFrame(rows, columns=[*RECORD_COLUMNS, *WORKLOAD_COLUMNS, *METRIC_COLUMNS])
        table = table.astype(dict.fromkeys(NUMBER_COLUMNS, "float64"))
        for position, (name, value) in enumerate(run_facts(storage.name(place), run.provenance, run.state).items()):
            table.insert(position, name, value)
        yield table


def _rows(record: Record, wanted: Collection[str], metrics: Mapping[str, Metric]) -> Iterator[tuple[object, ...]]:
    """The record's rows: one without a metric where it has none that is wanted."""
    identity = (record.test, record.scenario, record.case, record.variant, record.status.value, record.reason)
    tokens = (getattr(record.workload, name, None) for name in TOKEN_COLUMNS)
    common = (*identity, *workload_columns(record.workload).values(), *tokens)
    chosen = {name: value for name, value in record.metrics.items() if not wanted or name in wanted}
    for name, value in chosen.items():
        metric = metrics.get(name)
        described = (metric.unit.value, metric.direction.value, metric.kind.value) if metric else ("", "", "")
        yield (*common, name, value, *described)
    if not chosen:
        yield (*common, "", None, "", "", "")
