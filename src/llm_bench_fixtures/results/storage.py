"""Runs as JSON of schema version 4, which docs/reference/results.md describes. It holds no NaN and no infinity.

Nor does it hold what no run can have, and a damaged file or one made by others may: no end, or lists that don't fit
each other. Whoever reads a run refuses these, so that no later code has to check for them. What a field may hold, its
type says. The limits are far from real runs: a whole suite on 14 variants, with the times of all tokens, is a file of
1.6 MB.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import msgspec

from llm_bench_fixtures.errors import DamagedResults, NotOurResults, UnreadableResults
from llm_bench_fixtures.reading import LARGEST, refusal
from llm_bench_fixtures.results.formatting import format_bytes
from llm_bench_fixtures.results.record import SCHEMA_VERSION, Record, RecordHead, Run, Status, VariantResult
from llm_bench_fixtures.results.table import metric_values, run_table
from llm_bench_fixtures.statistics.shrinkage import NO_PRIOR
from llm_bench_fixtures.text import LONGEST, printable, well_formed, without_middle
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
    return cast(Json, well_formed(msgspec.to_builtins(value, enc_hook=_plain)))


def _plain(value: object) -> float:
    """Numpy's floats, which other plugins may give, are floats too."""
    if isinstance(value, float):
        return float(value)
    raise NotImplementedError(f"{type(value).__name__}: no value of this type can be written as JSON")


def write_run(run: Run, path: Path, *, follows: bool = True) -> str:
    """Write the run whole. Returns why `read_run` will refuse the file, in words that follow its name; empty where it
    won't. Raises UnwritableFile, and ValueError for a NaN or an infinity in it."""
    text = text_of_run(run)
    write_whole(path, text, follows=follows)
    data = text.encode()
    try:
        check_size(data, path)
        run_in(data, path)
    except UnreadableResults as error:
        return str(error).removeprefix(f"{path} ")
    return ""


def text_of_run(run: Run) -> str:
    """The content of a RESULTS_FILE. Raises ValueError for a NaN or an infinity in it."""
    return json.dumps(run_to_json(run), indent=1, allow_nan=False) + "\n"


def read_run(path: str | Path) -> Run:
    """The run in a `results.json`. Raises UnreadableResults that names the file where it isn't one, or is damaged."""
    return run_in(read_bytes(path), path)


def run_in(data: bytes, path: object) -> Run:
    """The run in the content of a results.json. Raises UnreadableResults."""
    check_schema(data, path)
    run = decode(data, Run[Record], path)
    refuse(path, chain(faults_of_run(run), chain.from_iterable(map(faults_of_record, run.records))))
    return run


def refuse(path: object, faults: Iterable[str]) -> None:
    """Raise DamagedResults, which names the file, where there is a fault."""
    for fault in faults:
        raise DamagedResults(f"{path} is damaged: {fault}")


def read_bytes(path: str | Path) -> bytes:
    """The content of a file. Raises UnreadableResults."""
    file = Path(path)
    try:
        if why := refusal(file):
            raise UnreadableResults(f"{path} {why}")
        with file.open("rb") as opened:
            for fault in faults_of_size(os.fstat(opened.fileno()).st_size):
                raise UnreadableResults(f"{path} {fault}")
            data = opened.read()
    except OSError as error:
        raise UnreadableResults(f"{path} can't be read: {error.strerror or error}") from error
    check_size(data, path)
    return data


def check_size(data: bytes, path: object) -> None:
    """Raise UnreadableResults for more than a run has, before it is decoded, which takes the memory."""
    for fault in faults_of_size(len(data), data.count(b",") + 1):
        raise UnreadableResults(f"{path} {fault}")


def check_schema(data: bytes, path: object) -> None:
    """Raise UnreadableResults unless the JSON is a run's, of the schema version that this program reads."""
    found = head_of(data, Schema, path)
    if found.schema != SCHEMA:
        raise NotOurResults(f"{path} is not a results file of llm-bench-fixtures")
    check_version(found.version, path)


def head_of(data: bytes, kind: type[T], path: object) -> T:
    """The fields by which the JSON says what it holds; without any of them where it holds a list, say."""
    try:
        return decode(data, kind, path)
    except DamagedResults:
        return kind()


def is_results(path: Path) -> bool:
    """Whether the file holds a run, of whatever version."""
    try:
        return bool(decode(read_bytes(path), Schema, path).schema == SCHEMA)
    except UnreadableResults:
        return False


def check_version(version: object, path: object) -> None:
    """Raise UnreadableResults unless this program reads the schema version."""
    if version != SCHEMA_VERSION:
        raise UnreadableResults(f"{path} is of schema version {version!r}; this reads {SCHEMA_VERSION}")


def decode(data: bytes, kind: type[T], path: object) -> T:
    """The value in the JSON, with its types checked. Fields that the type doesn't have are skipped.

    Raises UnreadableResults that names the file, or DamagedResults with the place where the JSON has another shape.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise DamagedResults(f"{path} is damaged: {fault_in_words(str(error))}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableResults(f"{path} can't be read as JSON: {error}") from error


def fault_in_words(message: str) -> str:
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


MOST_BYTES = 128 * 2**20  # of one file
MOST_VALUES = 8_000_000  # in a file: read, each takes up to 60 bytes, however short it is there
MOST_DRIFT = 1e3  # variance of a log ratio: a factor of e^31 either way
SHOWN = 200  # characters of a name in a message


def faults_of_size(size_bytes: int, values: int = 0) -> Iterator[str]:
    """Faults of a file of so many bytes and values, in words that follow its name."""
    if size_bytes > MOST_BYTES:
        yield f"has {format_bytes(size_bytes)}, and no run has more than {format_bytes(MOST_BYTES)}"
    if values > MOST_VALUES:
        yield f"has {values:,} values, and no run has more than {MOST_VALUES:,}"


def faults_of_run(run: Run[RecordHead]) -> Iterator[str]:
    """Faults of the run, apart from its records, in words that follow "is damaged: "."""
    for variant in run.variants:
        errors = (value for name, value in variant.quality.items() if name.endswith("_error"))
        if min(errors, default=0) < 0:
            yield f"{_shown(variant.id)} has an error below 0"


def faults_of_record(record: Record) -> Iterator[str]:
    """Faults of the record."""
    if record.status is not Status.MEASURED:
        return
    if not record.rounds_s:
        yield f"{_shown(record.test)} was measured in no rounds"
    if not _blocks_fit(record):
        yield f"{_shown(record.test)} has blocks that don't fit its rounds"
    if not _raw_fits(record):
        yield f"{_shown(record.test)} has times of tokens that don't fit its rounds"


def _blocks_fit(record: Record) -> bool:
    """Whether what was measured along with each round is there for each or for none."""
    by_round = record.reference_s, record.waited_s, record.reference_waited_s, record.core_to_core
    lengths = set(map(len, by_round))
    expected, drift = record.expected_variance, record.drift
    is_variance = expected == NO_PRIOR or (0 < expected.variance <= LARGEST and 0 < expected.freedom <= LARGEST)
    is_drift = drift == NO_PRIOR or (0 < drift.variance <= MOST_DRIFT and 1 <= drift.freedom <= LARGEST)
    return lengths <= {0, len(record.rounds_s)} and is_variance and is_drift


def _raw_fits(record: Record) -> bool:
    """Whether each round has its batches, and each batch its tokens, or none has."""
    rounds, batches = len(record.rounds_s), len(record.batch_rows)
    whole = all(len(one) == batches for one in chain(record.batches_s, record.tokens_s))
    return whole and {len(record.batches_s), len(record.tokens_s)} <= {0, rounds} and len(record.energy_j) <= rounds


def with_texts_cut(value: T) -> T:
    """The value with each of its texts, names included, cut to what readers take."""
    cut: Any = value
    if isinstance(value, str):
        cut = value if len(value) <= LONGEST else without_middle(value)
    elif isinstance(value, Mapping):
        cut = {with_texts_cut(name): with_texts_cut(one) for name, one in value.items()}
    elif isinstance(value, tuple) and not (value and isinstance(value[0], float)):  # rounds have many thousand times
        cut = tuple(map(with_texts_cut, value))
    elif isinstance(value, msgspec.Struct):
        cut = msgspec.structs.replace(value, **with_texts_cut(msgspec.structs.asdict(value)))
    elif is_dataclass(value) and not isinstance(value, type):
        cut = replace(value, **{field.name: with_texts_cut(getattr(value, field.name)) for field in fields(value)})
    return cast(T, cut)


def _shown(name: str) -> str:
    return printable(name[:SHOWN])
