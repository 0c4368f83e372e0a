"""A run as it is saved and judged: its metrics, and what they can be trusted for.

There are two kinds of files: our `results.json`, and what pytest-benchmark stores, in which each benchmark carries its
record as `extra_info["llm_bench"]` and the rest of the run stands under `llm_bench`. Both are read by their types. A
database holds the content of a `results.json`.
What the type has no field for is skipped unread, so that a thousand files take seconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Generic, TypeAlias

import msgspec

from llm_bench_fixtures.errors import DamagedResults, InvalidSetting, NotOurResults
from llm_bench_fixtures.results import storage
from llm_bench_fixtures.results.record import MOST_RECORDS, Blessing, Record, RecordT, Run
from llm_bench_fixtures.results.table import metric_values
from llm_bench_fixtures.text import well_formed
from llm_bench_fixtures.writing import write_whole

EXTRA = "llm_bench"  # under which both a benchmark's record and the rest of the run are stored
MOST_INDENT = 50  # bytes by which pytest-benchmark's files indent a value, with the end of its line
ADDRESS = re.compile(r"([a-z+]+://.+)#(\d{1,18})", re.ASCII | re.DOTALL)
RAW = ("batches_s", "tokens_s", "outputs")  # a record's large fields, kept only where pytest-benchmark keeps raw data


@dataclass(frozen=True)
class Address:
    """Where a database keeps a run."""

    url: str
    number: int

    def __str__(self) -> str:
        return f"{self.url}#{self.number}"

    @property
    def name(self) -> str:
        return str(self.number)


SavedAt: TypeAlias = Path | Address


def saved_at(source: str) -> SavedAt:
    """The place whose text is a run's `source`."""
    address = ADDRESS.fullmatch(source)
    return Address(address[1], int(address[2])) if address else Path(source)


def judged_run(run: Run, source: str = "this run") -> Run:
    """The run of this session as it would be read back from a file: its records have their metrics."""
    records = (replace(one, metrics=metric_values(one, run.variant(one.variant))) for one in run.records)
    return replace(run, records=tuple(records), source=source)


def judged_run_from_json(run: Mapping[str, Any], source: str) -> Run:
    """Run from what `run_to_json` gave in another process. Raises UnreadableResults where it has another schema."""
    try:
        return replace(msgspec.convert(run, Run[Record]), source=source)
    except msgspec.ValidationError as error:
        raise DamagedResults(f"the results of {source} can't be read: {error}") from error


def read_saved_run(place: SavedAt) -> Run:
    """The run with all that was kept of it. `has_raw_data` tells whether that is everything.

    Raises UnreadableResults that names the place where it holds no run of ours, or is damaged.
    """
    run = read_run_of(place, Record)
    storage.refuse(place, chain.from_iterable(map(storage.faults_of_record, run.records)))
    return run


def has_raw_data(run: Run) -> bool:
    """Whether the run has the times of batches and tokens and the generated texts, which pytest-benchmark's storage
    keeps only where it is asked to; also where nothing was measured."""
    measured = run.measured()
    return not measured or any(record.batches_s for record in measured)


def read_run_of(place: SavedAt, record: type[RecordT]) -> Run[RecordT]:
    """The run, with as much of each record as the type has fields for; the rest of it is skipped unread.

    Raises UnreadableResults.
    """
    run = replace(_decode_run(_read_bytes(place), place, record), source=str(place))
    storage.refuse(place, storage.faults_of_run(run))
    return run


def _read_bytes(place: SavedAt) -> bytes:
    if isinstance(place, Path):
        return storage.read_bytes(place)
    from llm_bench_fixtures.history.database import Database

    return Database(place.url).read_bytes(place)


def _decode_run(data: bytes, path: SavedAt, record: type[RecordT]) -> Run[RecordT]:
    """The run in either kind of file."""
    try:
        stored = storage.decode(data, _Stored[record], path)  # type: ignore[valid-type]
        if stored.llm_bench is None or stored.benchmarks is None:
            _check_kind(data, path)
            return storage.decode(data, Run[record], path)  # type: ignore[valid-type]
    except DamagedResults:
        _check_kind(data, path)  # where that is the reason, it says more than which field is missing
        raise
    storage.check_version(stored.llm_bench.version, path)
    measured = (benchmark.extra_info.llm_bench for benchmark in stored.benchmarks)
    records = (*(one for one in measured if one is not None), *stored.llm_bench.records)
    return replace(stored.llm_bench, records=records)


def _check_kind(data: bytes, path: SavedAt) -> None:
    """Raise UnreadableResults where no run of ours is in the file, or one of another version than this reads."""
    head = storage.head_of(data, _Head, path)
    if head.schema is not None or head.benchmarks is None:
        storage.check_schema(data, path)
    elif head.llm_bench is None:
        raise NotOurResults(f"{path} has no benchmarks that llm-bench-fixtures measured")
    else:
        storage.check_version(head.llm_bench.version, path)


def to_stored(output_json: dict[str, Any], run: Run) -> None:
    """Put the run into what pytest-benchmark is about to write, each record once.

    Raw data is kept where pytest-benchmark keeps its own: in --benchmark-json, and with --benchmark-save-data.
    """
    rest = {record.test: storage.record_to_json(record, run.variant(record.variant)) for record in run.records}
    for benchmark in output_json["benchmarks"]:
        record = rest.pop(benchmark["fullname"], None)
        if record is not None:
            keeps_raw = "data" in benchmark["stats"]
            kept = record if keeps_raw else {name: value for name, value in record.items() if name not in RAW}
            benchmark["extra_info"] = {**benchmark["extra_info"], EXTRA: kept}
    output_json[EXTRA] = {**storage.run_to_json(replace(run, records=())), "records": list(rest.values())}
    others = {name: section for name, section in output_json.items() if name != EXTRA}
    output_json.update(well_formed(others))  # names of tests, of parameters and of the project's folder


def fault_of_stored(output_json: dict[str, Any]) -> str:
    """Why what pytest-benchmark is about to write will not be read again, in words that follow its name; empty where it
    will.

    It is only written out as it will be where it may be so large.
    """
    compact = json.dumps(output_json, default=str)
    if len(compact) + compact.count(",") * MOST_INDENT < storage.MOST_BYTES:
        return ""
    text = json.dumps(output_json, indent=4, default=str)
    return next(storage.faults_of_size(len(text), text.count(",") + 1), "")


class _Unread(msgspec.Struct, gc=False):
    """An object whose fields are passed over."""


class _Head(msgspec.Struct):
    """The fields that tell whether the rest can be read."""

    schema: Any = None
    llm_bench: storage.Schema | None = None
    benchmarks: list[_Unread] | None = None


class _Extra(msgspec.Struct, Generic[RecordT], gc=False):
    llm_bench: RecordT | None = None


class _Benchmark(msgspec.Struct, Generic[RecordT], gc=False):
    extra_info: _Extra[RecordT]


class _Stored(msgspec.Struct, Generic[RecordT]):
    """pytest-benchmark's file; of a results.json nothing is found."""

    llm_bench: Run[RecordT] | None = None
    """The run, with only those records that became no benchmark."""
    benchmarks: Annotated[list[_Benchmark[RecordT]], msgspec.Meta(max_length=MOST_RECORDS)] | None = None


def bless(place: SavedAt, reason: str) -> Run:
    """Write at its place that a run is a baseline, and why. Returns the run as it was before.

    A file is replaced whole or not at all, and keeps its mode. Raises InvalidSetting where there is no reason,
    UnreadableResults and UnwritableFile.
    """
    if not reason.strip():
        raise InvalidSetting("a run is blessed for a reason: say which")
    run = read_saved_run(place)
    blessing = Blessing(reason.strip(), datetime.now(UTC).isoformat(timespec="seconds"))
    if isinstance(place, Address):
        from llm_bench_fixtures.history.database import Database

        Database(place.url).bless(place, replace(run, blessing=blessing))
        return run
    data = storage.decode(storage.read_bytes(place), dict, place)
    data.get(EXTRA, data)["blessing"] = asdict(blessing)
    write_whole(place, json.dumps(well_formed(data), indent=4))
    return run
