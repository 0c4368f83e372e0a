"""A run as one pandas DataFrame, and the workload on which its variants are compared."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
    """What was run, by WORKLOAD_TEXTS and WORKLOAD_NUMBERS. prompt_length: mean tokens of a prompt, without padding."""
    if workload is None:
        return {**dict.fromkeys(WORKLOAD_TEXTS, ""), **dict.fromkeys(WORKLOAD_NUMBERS)}
    length = workload.prompt_tokens / workload.prompts if workload.prompts else None
    texts = zip(WORKLOAD_TEXTS, (workload.cache, workload.padding_side), strict=True)
    numbers = zip(WORKLOAD_NUMBERS, (workload.prompts, workload.batch_size, length), strict=True)
    return {**dict(texts), **dict(numbers)}


def _row(record: Record, variant: VariantResult | None) -> dict[str, str | float | None]:
    """All but the columns of the run. pandas takes no surrogates, so they have to be taken out of it."""
    return {
        **metric_values(record, variant),  # a project's own may have any name in runs of before
        "test": record.test,
        "scenario": record.scenario,
        "case": record.case,
        "variant": record.variant,
        "label": variant.label if variant else "",
        "status": record.status.value,
        "reason": record.reason,
        **workload_columns(record.workload),
    }


def compared_records(run: Run) -> list[Record]:
    """The measured records, and one of the reference for each workload that it lacks: its turns next to the others'."""
    measured = run.measured()
    if run.variant(run.reference) is None:
        return measured
    own = {_digest(record) for record in measured if record.variant == run.reference}
    longest_last = sorted(measured, key=lambda record: len(record.reference_s))
    beside = {_digest(one): one for one in longest_last if one.reference_s and _digest(one) not in own}
    return [*measured, *(_reference_turns(run.reference, record) for record in beside.values())]


def _digest(record: Record) -> str:
    return record.workload.digest if record.workload else ""


def _reference_turns(reference: str, record: Record) -> Record:
    """A record of the reference from its rounds next to the given one: latencies, without tokens or memory."""
    return Record(
        test="",
        scenario=record.scenario,
        case=record.case,
        variant=reference,
        status=Status.MEASURED,
        workload=record.workload,
        rounds_s=record.reference_s,
        waited_s=record.reference_waited_s,
        reference_s=record.reference_s,
        reference_waited_s=record.reference_waited_s,
        undisturbed_s=record.reference_undisturbed_s,
        reference_undisturbed_s=record.reference_undisturbed_s,
    )


def common_workload(run: Run) -> list[Record]:
    """One record for each variant that ran the workload that most variants ran.

    Of several such workloads it is the one with the fewest prompts, then the earliest. Of a variant's records of it,
    that of the case which most variants ran counts: they were measured side by side. Empty if nothing was measured.
    """
    of_digest: dict[str, list[Record]] = defaultdict(list)
    for record in compared_records(run):
        if record.workload is not None:
            of_digest[record.workload.digest].append(record)
    candidates = [_one_a_variant(records) for records in of_digest.values()]
    largest = max(candidates, key=_suitability, default={})
    order = [variant.id for variant in run.variants]
    return sorted(largest.values(), key=lambda record: order.index(record.variant))


def best_batch(run: Run) -> dict[str, Record]:
    """By variant, in the run's order: its record of the scenario `batch` with the most tokens per second.

    All are of the prompts that most of these records ran.
    """
    records = [one for one in compared_records(run) if one.scenario == "batch" and one.workload is not None]
    prompts = Counter(record.workload.prompts_digest for record in records if record.workload)
    best: dict[str, Record] = {}
    for record in records:
        if record.workload and record.workload.prompts_digest == prompts.most_common(1)[0][0]:
            best[record.variant] = min(best.get(record.variant, record), record, key=lambda one: one.median_s)
    return {variant.id: best[variant.id] for variant in run.variants if variant.id in best}


def _one_a_variant(records: Sequence[Record]) -> dict[str, Record]:
    """By variant, its record of the case that most variants have; of several such, the earliest."""
    variants = Counter(
        (scenario, case) for scenario, case, _ in {(*_case(record), record.variant) for record in records}
    )
    chosen: dict[str, Record] = {}
    for record in sorted(records, key=lambda record: -variants[_case(record)]):
        chosen.setdefault(record.variant, record)
    return chosen


def _case(record: Record) -> tuple[str, str]:
    return record.scenario, record.case


def _suitability(records: Mapping[str, Record]) -> tuple[int, int]:
    prompts = [record.workload.prompts for record in records.values() if record.workload is not None]
    return len(records), -max(prompts)
