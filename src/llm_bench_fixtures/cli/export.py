"""Write all saved runs as one long table: one row per run, benchmark and metric, in base units.

llm-bench export > history.csv
llm-bench export -o history.parquet --metric latency_s,perplexity
llm-bench export -o history.sqlite && sqlite3 history.sqlite 'SELECT "commit", value FROM measurements WHERE ...'

In CSV, a text that a spreadsheet would take for a formula gets an apostrophe before it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llm_bench_fixtures.cli.arguments import add_output, add_storage, storage_in
from llm_bench_fixtures.cli.console import counted, data_output, tell_passed_over
from llm_bench_fixtures.errors import InvalidSetting, NothingToShow, UnknownName
from llm_bench_fixtures.history.export import ExportFormat, tidy_tables, write_csv, write_export
from llm_bench_fixtures.history.storage import Storage
from llm_bench_fixtures.options.parsers import parse_names
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.writing import check_writable

if TYPE_CHECKING:
    import pandas as pd

HELP = "write all saved runs as one table"
FORMAT_HELP = "csv, parquet (needs pyarrow) or sqlite. Default: by the ending of FILE, else csv"
SUFFIXES = {f".{kind}": kind for kind in ExportFormat} | {".db": ExportFormat.SQLITE}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_output(parser, "file to write. Default: CSV to standard output", "FILE", None)
    add("--format", type=ExportFormat, choices=list(ExportFormat), metavar="FORMAT", help=FORMAT_HELP)
    add("--metric", type=parse_names, default=(), metavar="NAME[,NAME...]", help="metrics to write. Default: all")
    add_storage(parser)


def run(arguments: argparse.Namespace) -> None:
    kind = _format(arguments.format, arguments.output)
    check_writable(arguments.output)
    storage = storage_in(arguments)
    places = counted(storage.places(), "exporting")
    tables = tidy_tables(places, storage, arguments.metric, registry(), tell_passed_over)
    tables = _checked(tables, storage, arguments.metric)
    if arguments.output is None:
        with data_output() as output:
            write_csv(tables, output)
    else:
        write_export(tables, kind, arguments.output)


def _format(given: ExportFormat | None, output: Path | None) -> ExportFormat:
    """The format to write. Raises InvalidSetting for one that can't be written to a terminal."""
    kind = given or (SUFFIXES.get(output.suffix.lower()) if output else None) or ExportFormat.CSV
    if output is None and kind is not ExportFormat.CSV:
        raise InvalidSetting(f"{kind} is not text: name a file for it with -o FILE")
    return kind


def _checked(tables: Iterable[pd.DataFrame], storage: Storage, metrics: Sequence[str]) -> Iterator[pd.DataFrame]:
    """The tables. Raises NothingToShow where there is none, and UnknownName after the last one for a metric that none
    of them has."""
    table = None
    unseen = set(metrics)
    for table in tables:
        unseen.difference_update(table["metric"])
        yield table
    if table is None:
        raise NothingToShow(f"none of the runs in {storage} can be read")
    for name in metrics:
        if name in unseen:
            raise UnknownName("metric", name, registry())
