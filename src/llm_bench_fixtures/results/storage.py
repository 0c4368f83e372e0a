"""Runs as JSON of schema version 4, which docs/reference/results.md describes. It holds no NaN and no infinity."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from llm_bench_fixtures.errors import DamagedResults, NotOurResults, UnreadableResults
from llm_bench_fixtures.reading import refusal
from llm_bench_fixtures.results.plausible import faults_of_record, faults_of_run, faults_of_size
from llm_bench_fixtures.results.record import SCHEMA_VERSION, Record, Run, VariantResult
from llm_bench_fixtures.results.table import metric_values, run_table
from llm_bench_fixtures.text import well_formed
from llm_bench_fixtures.writing import write_whole

if TYPE_CHECKING:
    import pandas as pd

Json: TypeAlias = "dict[str, Any]"
T = TypeVar("T")

RESULTS_FILE = "results.json"
SCHEMA = "llm-bench-fixtures/run"
KINDS = {"float": "a number", "int": "a whole number", "str": "a text", "array": "a list", "object": "an object"}


def record_to_json(record: Record, variant: VariantResult | None) -> Json:
    """The record, with its metrics computed for readers that don't have this package."""
    return {**to_json(record), "metrics": well_formed(metric_values(record, variant))}


def run_to_json(run: Run) -> Json:
    """The run as RESULTS_FILE holds it."""
    records = [record_to_json(record, run.variant(record.variant)) for record in run.records]
    whole = {"schema": SCHEMA, "version": run.version, **to_json(replace(run, records=())), "records": records}
    return {name: value for name, value in whole.items() if name != "source"}


def to_json(value: object) -> Json:
    """A dataclass or Struct by the names that its fields have in a file. Surrogates, which no reader takes, are
    replaced."""
    fields: Json = well_formed(msgspec.to_builtins(value, enc_hook=_plain))
    return fields


def _plain(value: object) -> float:
    """Numpy's floats, which other plugins may give, are floats too."""
    if isinstance(value, float):
        return float(value)
    raise NotImplementedError(f"{type(value).__name__}: no value of this type can be written as JSON")


def write_run(run: Run, path: Path, *, follows: bool = True) -> str:
    """Write the run whole. Returns why `read_run` will refuse the file, in words that follow its name; empty where it
    won't. Raises UnwritableFile, and ValueError for a NaN or an infinity in it."""
    text = json.dumps(run_to_json(run), indent=1, allow_nan=False) + "\n"
    write_whole(path, text, follows=follows)
    try:
        _refuse_size(path, faults_of_size(len(text), text.count(",") + 1))
        _run_in(text.encode(), path)
    except UnreadableResults as error:
        return str(error).removeprefix(f"{path} ")
    return ""


def read_run(path: str | Path) -> Run:
    """The run in a `results.json`. Raises UnreadableResults that names the file where it isn't one, or is damaged."""
    return _run_in(read_bytes(path), path)


def _run_in(data: bytes, path: str | Path) -> Run:
    check_schema(data, path)
    run = decode(data, Run[Record], path)
    refuse(path, chain(faults_of_run(run), chain.from_iterable(map(faults_of_record, run.records))))
    return run


def refuse(path: str | Path, faults: Iterable[str]) -> None:
    """Raise DamagedResults, which names the file, where there is a fault."""
    for fault in faults:
        raise DamagedResults(f"{path} is damaged: {fault}")


def read_bytes(path: str | Path) -> bytes:
    """The content of a file. Raises UnreadableResults."""
    if why := refusal(Path(path)):
        raise UnreadableResults(f"{path} {why}")
    try:
        with Path(path).open("rb") as file:
            _refuse_size(path, faults_of_size(os.fstat(file.fileno()).st_size))
            data = file.read()
    except OSError as error:
        raise UnreadableResults(f"{path} can't be read: {error.strerror or error}") from error
    _refuse_size(path, faults_of_size(len(data), data.count(b",") + 1))  # before it is decoded, which takes the memory
    return data


def _refuse_size(path: str | Path, faults: Iterator[str]) -> None:
    for fault in faults:
        raise UnreadableResults(f"{path} {fault}")


def check_schema(data: bytes, path: str | Path) -> None:
    """Raise UnreadableResults unless the JSON is a run's, of the schema version that this program reads."""
    try:
        found = decode(data, Schema, path)
    except DamagedResults:  # a list, say
        found = Schema()
    if found.schema != SCHEMA:
        raise NotOurResults(f"{path} is not a results file of llm-bench-fixtures")
    check_version(found.version, path)


def is_results(path: Path) -> bool:
    """Whether the file holds a run, of whatever version."""
    try:
        return bool(decode(read_bytes(path), Schema, path).schema == SCHEMA)
    except UnreadableResults:
        return False


def check_version(version: object, path: str | Path) -> None:
    """Raise UnreadableResults unless this program reads the schema version."""
    if version != SCHEMA_VERSION:
        raise UnreadableResults(f"{path} is of schema version {version!r}; this reads {SCHEMA_VERSION}")


def decode(data: bytes, kind: type[T], path: str | Path) -> T:
    """The value in the JSON, with its types checked. Fields that the type doesn't have are skipped.

    Raises UnreadableResults that names the file, or DamagedResults with the place where the JSON has another shape.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise DamagedResults(f"{path} is damaged: {_in_words(str(error))}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableResults(f"{path} can't be read as JSON: {error}") from error


def _in_words(message: str) -> str:
    """Msgspec's message, the field first: "records[0].rounds_s[3]: expected a number >= 1e-09"."""
    what, _, where = message.partition(" - at ")
    what = re.sub("`([^`]+)`", lambda kinds: " or ".join(KINDS.get(kind, kind) for kind in kinds[1].split(" | ")), what)
    where = where.replace("`key` in", "a name in").replace("$.", "").replace("$", "the whole").replace("`", "")
    return f"{where}: {what[0].lower()}{what[1:]}" if where else what


@dataclass(frozen=True)
class Schema:
    """The fields by which a file says what it holds."""

    schema: Any = None
    version: Any = None


def read_results(path: str | Path) -> pd.DataFrame:
    """The table of a `results.json`: the DataFrame that its run had. Raises UnreadableResults."""
    run = read_run(path)
    try:
        return run_table(run)
    except (ArithmeticError, ValueError) as error:
        raise DamagedResults(f"{path} is damaged: its metrics can't be computed: {error}") from error
