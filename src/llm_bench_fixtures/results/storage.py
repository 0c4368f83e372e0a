"""Runs as JSON: schema version 2, described in docs/results.md. No NaN, no infinity."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from llm_bench_fixtures.errors import UnreadableResults
from llm_bench_fixtures.measure.equivalence import Equivalence, Verdict, Way
from llm_bench_fixtures.measure.work import Work
from llm_bench_fixtures.results.record import (
    SCHEMA_VERSION,
    MemoryFacts,
    Provenance,
    Record,
    Run,
    Status,
    VariantResult,
    WorkloadFacts,
)
from llm_bench_fixtures.results.table import metric_values, run_table

if TYPE_CHECKING:
    import pandas as pd

Json: TypeAlias = "dict[str, Any]"
T = TypeVar("T")

RESULTS_FILE = "results.json"


def record_to_json(record: Record, variant: VariantResult | None) -> Json:
    """The record, with its metrics computed for readers that don't have this package."""
    return {**asdict(record), "metrics": metric_values(record, variant)}


def variant_to_json(variant: VariantResult) -> Json:
    return asdict(variant)


def run_to_json(run: Run) -> Json:
    return {
        "schema": "llm-bench-fixtures/run",
        "version": SCHEMA_VERSION,
        **asdict(run),
        "records": [record_to_json(record, run.variant(record.variant)) for record in run.records],
    }


def write_run(run: Run, path: Path) -> None:
    """Write the run beside `path` and move it there, so that a reader never sees half of it."""
    scratch = path.with_suffix(".json.part")
    scratch.write_text(json.dumps(run_to_json(run), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    scratch.replace(path)


def read_run(path: str | Path) -> Run:
    """The run in a `results.json`. Raises UnreadableResults that names the file where it isn't one, or is damaged."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnreadableResults(f"{path} can't be read as JSON: {error}") from error
    if not isinstance(data, dict) or data.get("schema") != "llm-bench-fixtures/run":
        raise UnreadableResults(f"{path} is not a results file of llm-bench-fixtures")
    if data.get("version") != SCHEMA_VERSION:
        raise UnreadableResults(f"{path} is of schema version {data.get('version')}; this reads {SCHEMA_VERSION}")
    try:
        return _run_from_json(data)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnreadableResults(f"{path} is damaged: {type(error).__name__}: {error}") from error


def read_results(path: str | Path) -> pd.DataFrame:
    """The table of a `results.json`: the same DataFrame that its run had. Raises UnreadableResults."""
    return run_table(read_run(path))


def _run_from_json(data: Json) -> Run:
    return Run(
        provenance=_build(Provenance, {**data["provenance"], "passed_over": tuple(data["provenance"]["passed_over"])}),
        reference=data["reference"],
        variants=tuple(_variant_from_json(item) for item in data["variants"]),
        records=tuple(_record_from_json(item) for item in data["records"]),
        session_s=data["session_s"],
        phase_s=data["phase_s"],
        interrupted=data["interrupted"],
        instrumentation_ratios={name: tuple(ratios) for name, ratios in data["instrumentation_ratios"].items()},
    )


def _variant_from_json(data: Json) -> VariantResult:
    equivalence = tuple(map(_equivalence_from_json, data["equivalence"]))
    known = {**data, "status": Status(data["status"]), "notes": tuple(data["notes"]), "equivalence": equivalence}
    return _build(VariantResult, known)


def _equivalence_from_json(data: Json) -> Equivalence:
    return _build(Equivalence, {**data, "way": Way(data["way"]), "verdict": Verdict(data["verdict"])})


def _record_from_json(data: Json) -> Record:
    return _build(
        Record,
        {
            **data,
            "status": Status(data["status"]),
            "workload": data["workload"] and _build(WorkloadFacts, data["workload"]),
            "work": data["work"] and _build(Work, data["work"]),
            "memory": data["memory"] and _build(MemoryFacts, data["memory"]),
            "rounds_s": tuple(data["rounds_s"]),
            "batches_s": tuple(map(tuple, data["batches_s"])),
            "tokens_s": tuple(tuple(map(tuple, batches)) for batches in data["tokens_s"]),
            "batch_rows": tuple(data["batch_rows"]),
            "energy_j": tuple(data["energy_j"]),
            "outputs": tuple(data["outputs"]),
        },
    )


def _build(kind: type[T], data: Json) -> T:
    """The dataclass from its fields in `data`; others are for readers of the file."""
    return kind(**{item.name: data[item.name] for item in fields(kind)})  # type: ignore[arg-type]
