"""A run as one pandas DataFrame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from llm_bench_fixtures.results.metrics import METRICS, Metric
from llm_bench_fixtures.results.record import Record, Run, Status, VariantResult, WorkloadFacts
from llm_bench_fixtures.text import csv_text, well_formed

if TYPE_CHECKING:
    import pandas as pd

WORKLOAD_TEXTS = ("cache", "padding_side")
WORKLOAD_NUMBERS = ("prompts", "batch_size", "prompt_length")
IDENTITY = ("run", "model", "test", "scenario", "case", "variant", "label", "status", "reason", *WORKLOAD_TEXTS)
OWN_COLUMNS = (*IDENTITY, *WORKLOAD_NUMBERS)  # before those of the metrics, none of which is called so


def metric_values(
    record: Record, variant: VariantResult | None, metrics: Iterable[Metric] = METRICS
) -> dict[str, float]:
    """The record's metrics by name: those of the registry that have a value, then other values that it was given.

    Empty if the record's workload never ran.
    """
    if variant is None or record.workload is None or record.status is Status.SKIPPED:
        return {}
    values = {metric.name: metric.of(record, variant) for metric in metrics}
    values |= {name: value for name, value in {**variant.quality, **record.extra}.items() if name not in values}
    return {name: value for name, value in values.items() if value is not None}


def run_table(run: Run) -> pd.DataFrame:
    """One row a record: what it was, its status, what it ran, and its metrics as columns in base units.

    `run` is when the run started. A metric that no record has is a column of missing values. Numbers are float64.
    """
    import pandas as pd

    whole = {"run": run.provenance.started, "model": run.provenance.model}
    rows = [well_formed({**_row(record, run.variant(record.variant)), **whole}) for record in run.records]
    names = dict.fromkeys([*(metric.name for metric in METRICS), *(name for row in rows for name in row)])
    numbers = [*WORKLOAD_NUMBERS, *(name for name in names if name not in OWN_COLUMNS)]
    table = pd.DataFrame(rows, columns=[*IDENTITY, *numbers])
    return table.astype({**dict.fromkeys(IDENTITY, "object"), **dict.fromkeys(numbers, "float64")})


def for_csv(table: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """The table with every text made safe for the spreadsheets and terminals that may show it.

    names: of the columns of texts. The headers are made safe, too: a project names its own metrics.
    """
    safe = {name: table[name].map({text: csv_text(text) for text in table[name].unique()}) for name in names}
    return table.assign(**safe).rename(columns=csv_text)


def workload_columns(workload: WorkloadFacts | None) -> dict[str, str | float | None]:
    """Columns of the workload, by WORKLOAD_TEXTS and WORKLOAD_NUMBERS. prompt_length: mean tokens of a prompt, without
    padding."""
    if workload is None:
        return {**dict.fromkeys(WORKLOAD_TEXTS, ""), **dict.fromkeys(WORKLOAD_NUMBERS)}
    length = workload.prompt_tokens / workload.prompts if workload.prompts else None
    given = {name: getattr(workload, name) for name in (*WORKLOAD_TEXTS, "prompts", "batch_size")}
    return {**given, "prompt_length": length}


def _row(record: Record, variant: VariantResult | None) -> dict[str, str | float | None]:
    """All but the columns of the run. pandas takes no surrogates, so they have to be taken out of it."""
    return {
        **metric_values(record, variant),  # a project's own may have any name in runs of before
        **{name: getattr(record, name) for name in ("test", "scenario", "case", "variant", "reason")},
        "label": variant.label if variant else "",
        "status": record.status.value,
        **workload_columns(record.workload),
    }
