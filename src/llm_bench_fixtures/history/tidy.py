"""Saved runs as one long table: a row a run, benchmark and metric.

A benchmark without metrics, as one that was skipped, has one row with no metric, so that none is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from llm_bench_fixtures.errors import UnreadableResults
from llm_bench_fixtures.history.fingerprint import fingerprint_of
from llm_bench_fixtures.history.headings import PassOver, Unreadable
from llm_bench_fixtures.history.saved import JudgedRecord, JudgedRun, read_saved_run
from llm_bench_fixtures.history.storage import name_in
from llm_bench_fixtures.results.metrics import Metric

if TYPE_CHECKING:
    import pandas as pd

RUN_COLUMNS = (
    *("file", "started", "branch", "commit", "dirty", "model", "random_weights", "hardware", "fingerprint", "state"),
)
RECORD_COLUMNS = ("test", "scenario", "case", "variant", "status", "reason")
METRIC_COLUMNS = ("metric", "value", "unit", "direction", "kind")
COLUMNS = (*RUN_COLUMNS, *RECORD_COLUMNS, *METRIC_COLUMNS)
TEXT_COLUMNS = tuple(name for name in COLUMNS if name not in ("dirty", "random_weights", "value"))


def tidy_tables(
    paths: Iterable[Path], storage: Path, wanted: Collection[str], metrics: Mapping[str, Metric], pass_over: PassOver
) -> Iterator[pd.DataFrame]:
    """A table of COLUMNS for each run that can be read.

    wanted: the names of metrics; empty for all. metrics: what is known of them. value: float64, NaN in a row without a
    metric.
    """
    for path in paths:
        try:
            run = read_saved_run(path)
        except UnreadableResults as error:
            pass_over(Unreadable(path, str(error)))
            continue
        yield tidy_table(run, name_in(storage, path), wanted, metrics)


def tidy_table(run: JudgedRun, file: str, wanted: Collection[str], metrics: Mapping[str, Metric]) -> pd.DataFrame:
    """Of one run; what isn't in the registry has no unit, direction and kind."""
    import pandas as pd

    rows = [(*_identity(record), *values) for record in run.records for values in _values(record, wanted, metrics)]
    table = pd.DataFrame(rows, columns=[*RECORD_COLUMNS, *METRIC_COLUMNS]).astype({"value": "float64"})
    for position, (name, value) in enumerate(zip(RUN_COLUMNS, _run_values(run, file), strict=True)):
        table.insert(position, name, value)
    return table


def _run_values(run: JudgedRun, file: str) -> tuple[str | bool, ...]:
    where = run.provenance
    return (
        *(file, where.started, where.branch, where.commit, where.dirty, where.model, where.random_weights),
        *(where.hardware, fingerprint_of(where).digest, run.state.value),
    )


def _identity(record: JudgedRecord) -> tuple[str, ...]:
    return (record.test, record.scenario, record.case, record.variant, record.status.value, record.reason)


def _values(
    record: JudgedRecord, wanted: Collection[str], metrics: Mapping[str, Metric]
) -> Iterator[tuple[str, float | None, str, str, str]]:
    """A row without a metric where there is none of those that are wanted, so that no record is lost."""
    chosen = {name: value for name, value in record.metrics.items() if not wanted or name in wanted}
    for name, value in chosen.items():
        metric = metrics.get(name)
        described = (metric.unit.value, metric.direction.value, metric.kind.value) if metric else ("", "", "")
        yield (name, value, *described)
    if not chosen:
        yield ("", None, "", "", "")
