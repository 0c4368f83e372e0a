"""A run as it was saved, in as much as it is compared: its metrics, and what they can be trusted for.

There are two kinds of files: our `results.json`, and what pytest-benchmark stores, in which each benchmark carries its
record as `extra_info["llm_bench"]` and the rest of the run stands under `llm_bench`. Both are read by their types, with
everything that is not compared skipped unread, so that a thousand of them take seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from llm_bench_fixtures.errors import DamagedResults, NotOurResults
from llm_bench_fixtures.results.record import Provenance, RunState, Status, VariantResult, run_state
from llm_bench_fixtures.results.spread import quartiles
from llm_bench_fixtures.results.storage import (
    Schema,
    check_schema,
    check_version,
    decode,
    read_bytes,
    record_to_json,
    run_to_json,
)
from llm_bench_fixtures.text import printable

if TYPE_CHECKING:
    from llm_bench_fixtures.results.record import Run

EXTRA = "llm_bench"  # under which both a benchmark's record and the rest of the run are stored
LARGEST = 1e30  # of any figure: more than all FLOPs of a year, and far from where floats overflow
RAW = ("batches_s", "tokens_s", "outputs")  # of a record: large, and kept only where pytest-benchmark keeps raw data


RunT = TypeVar("RunT", bound="RunParts")
RecordT = TypeVar("RecordT")


@dataclass(frozen=True)
class SavedWorkload:
    digest: str


@dataclass(frozen=True)
class SavedRecord:
    """The fields are those of Record; metrics: what was computed from the rest of it, those of its variant too."""

    test: str
    scenario: str
    case: str
    variant: str
    status: Status
    reason: str = ""
    workload: SavedWorkload | None = None
    rounds_s: tuple[float, ...] = ()
    probe_s: tuple[tuple[float, float], ...] = ()
    gate: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def median_s(self) -> float:
        """Median latency of the rounds. Raises ValueError where there are none."""
        return quartiles(self.rounds_s)[1]


@dataclass(frozen=True)
class Blessing:
    """That a run is accepted as a baseline whatever its state; when: ISO 8601 in UTC."""

    reason: str
    when: str


@dataclass(frozen=True)
class SavedRun:
    """The fields are those of Run. source: the file's path, or what a run that isn't saved yet is called.

    version: of the schema, as the file has it.
    """

    provenance: Provenance
    reference: str
    variants: tuple[VariantResult, ...]
    records: tuple[SavedRecord, ...]
    interrupted: bool = False
    selection: tuple[str, ...] = ()
    failed_tests: int = 0
    regressed: bool = False
    refused: str = ""
    blessing: Blessing | None = None
    source: str = ""
    version: Any = None

    @property
    def state(self) -> RunState:
        return run_state(
            interrupted=self.interrupted,
            failed_tests=self.failed_tests,
            measured=len(self.measured()),
            regressed=self.regressed,
            refused=self.refused,
        )

    @property
    def is_baseline(self) -> bool:
        """Whether it may be compared with without being named."""
        return self.state is RunState.COMPLETE or self.blessing is not None

    def measured(self) -> list[SavedRecord]:
        """The records that hold timings."""
        return [record for record in self.records if record.status is Status.MEASURED]

    def variant(self, identifier: str) -> VariantResult | None:
        return next((variant for variant in self.variants if variant.id == identifier), None)


def saved_run(run: Run, source: str = "this run") -> SavedRun:
    """The run of this session as it would be read back."""
    return saved_run_from_json(run_to_json(run), source)


def saved_run_from_json(run: Mapping[str, Any], source: str) -> SavedRun:
    """What `run_to_json` gave, in this process or in another. Raises UnreadableResults for that of another schema."""
    try:
        return replace(msgspec.convert(run, SavedRun), source=source)
    except msgspec.ValidationError as error:
        raise DamagedResults(f"the results of {source} can't be read: {error}") from error


def read_saved_run(path: Path) -> SavedRun:
    """Raises UnreadableResults that names the file where it holds no run of ours, or is damaged."""
    parts, records = read_parts(path, SavedRun, SavedRecord)
    run = replace(parts, records=tuple(records), source=str(path))
    wrong = next(_impossible(run), "")
    if wrong:
        raise DamagedResults(f"{path} is damaged: {wrong}")
    return run


def _impossible(run: SavedRun) -> Iterator[str]:
    """Values of the right type that no run has: nothing that follows has to reckon with them."""
    for record in run.measured():
        if not record.rounds_s or min(record.rounds_s) <= 0:
            yield f"{printable(record.test)} was measured in no time"
        large = [printable(name) for name, value in record.metrics.items() if abs(value) > LARGEST]
        yield from (f"{printable(record.test)}: {name}" for name in large)
    for variant in run.variants:
        errors = [value for name, value in variant.quality.items() if name.endswith("_error")]
        sizes = [variant.weight_bytes or 0, *variant.quality.values(), *variant.loss_blocks, variant.load_s or 0]
        if min(errors, default=0) < 0 or max(map(abs, sizes)) > LARGEST:
            yield f"{printable(variant.id)} has an impossible figure"


class RunParts(Protocol):
    """The fields that any type has that a run is read as."""

    @property
    def version(self) -> Any: ...

    @property
    def records(self) -> Sequence[Any]: ...


def read_parts(path: Path, run: type[RunT], record: type[RecordT]) -> tuple[RunT, list[RecordT]]:
    """The run, and all its records, in as much as these types have fields for; the rest is passed over unread.

    record: the type of the run's `records`, where only those stand that became no benchmark if pytest-benchmark wrote
    the file. Raises UnreadableResults.
    """
    data = read_bytes(path)
    try:
        stored = decode(data, _Stored[run, record], path)  # type: ignore[valid-type]
        if stored.schema is not None or stored.benchmarks is None:
            check_schema(data, path)
            found = decode(data, run, path)
            return found, list(found.records)
    except DamagedResults:
        _check_kind(data, path)  # where that is the reason, it says more than which field is missing
        raise
    if stored.llm_bench is None:
        raise NotOurResults(path)
    check_version(stored.llm_bench.version, path)
    measured = (benchmark.extra_info.llm_bench for benchmark in stored.benchmarks)
    return stored.llm_bench, [*(one for one in measured if one is not None), *stored.llm_bench.records]


def _check_kind(data: bytes, path: Path) -> None:
    """Raise UnreadableResults where no run of ours is in the file, or one of another version than this reads."""
    try:
        head = decode(data, _Head, path)
    except DamagedResults:  # a list, say
        head = _Head()
    if head.schema is not None or head.benchmarks is None:
        check_schema(data, path)
    elif head.llm_bench is None:
        raise NotOurResults(path)
    else:
        check_version(head.llm_bench.version, path)


def to_stored(output_json: dict[str, Any], run: Run) -> None:
    """Put the run into what pytest-benchmark is about to write, each record once.

    Its own rule says whether raw data is kept: in --benchmark-json, and with --benchmark-save-data.
    """
    rest = {record.test: record_to_json(record, run.variant(record.variant)) for record in run.records}
    for benchmark in output_json["benchmarks"]:
        record = rest.pop(benchmark["fullname"], None)
        if record is not None:
            keeps_raw = "data" in benchmark["stats"]
            kept = record if keeps_raw else {name: value for name, value in record.items() if name not in RAW}
            benchmark["extra_info"] = {**benchmark["extra_info"], EXTRA: kept}
    output_json[EXTRA] = {**run_to_json(replace(run, records=())), "records": list(rest.values())}


class _Unread(msgspec.Struct, gc=False):
    """An object whose fields are passed over."""


class _Head(msgspec.Struct):
    """What tells whether the rest can be read."""

    schema: Any = None
    llm_bench: Schema | None = None
    benchmarks: list[_Unread] | None = None


class _Extra(msgspec.Struct, Generic[RecordT], gc=False):
    llm_bench: RecordT | None = None


class _Benchmark(msgspec.Struct, Generic[RecordT], gc=False):
    extra_info: _Extra[RecordT]


class _Stored(msgspec.Struct, Generic[RunT, RecordT]):
    """pytest-benchmark's file; of a results.json only `schema` is found."""

    schema: Any = None
    llm_bench: RunT | None = None
    benchmarks: list[_Benchmark[RecordT]] | None = None
