"""The tables that have a row a variant: the summary, and what stands behind each of its columns."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from llm_bench_fixtures.errors import first_line
from llm_bench_fixtures.report.cells import added_metrics, describe_workload, latency_cell, metric_cell
from llm_bench_fixtures.report.document import Section, Table
from llm_bench_fixtures.report.flags import variant_flags
from llm_bench_fixtures.report.plots import SUMMARY
from llm_bench_fixtures.report.takeaways import decode_sentence
from llm_bench_fixtures.results.formatting import MISSING, format_change, format_change_and_error, format_metric
from llm_bench_fixtures.results.metrics import Kind, Metric
from llm_bench_fixtures.results.record import Record, Run, VariantResult
from llm_bench_fixtures.results.spread import coefficient_of_variation, stability
from llm_bench_fixtures.results.table import common_workload

PHASES = (
    "ttft_s",
    "tpot_s",
    "itl_p50_s",
    "itl_p90_s",
    "itl_p99_s",
    "prefill_tokens_per_s",
    "decode_tokens_per_s",
    "roofline_ttft_s",
    "roofline_tpot_s",
    "mfu",
    "mbu",
    "energy_j",
    "tokens_per_joule",
)
STEADINESS = ("latency_s", "latency_low_s", "latency_high_s", "rounds", "latency_cv", "load_s", "first_generate_s")
MEMORY = (
    "weight_bytes",
    "weight_bytes_read",
    "cache_bytes",
    "cache_bytes_read",
    "peak_rss_bytes",
    "cuda_max_allocated_bytes",
    "cuda_max_reserved_bytes",
    "forward_passes",
    "prefill_flops",
    "decode_flops",
)
OF_THE_TEXTS = ("first_divergent_token", "divergent_share")

Cell = Callable[[VariantResult, Record | None], str]


def summary_section(run: Run, metrics: Mapping[str, Metric]) -> Section:
    """One row a variant: speed on the common workload, memory and quality; those that didn't run with their reason."""
    records = {record.variant: record for record in common_workload(run)}
    columns = {
        **_summary_columns(records.get(run.reference), metrics),
        **_metric_columns(added_metrics(run, metrics)),
    }
    rows = []
    for variant in run.variants:
        record = records.get(variant.id)
        ran = "; ".join([variant.label, *variant_flags(variant)])
        what = ran if variant.label else f"{variant.status}: {first_line(variant.reason)}"
        values = [cell(variant, record) if variant.label else MISSING for cell in columns.values()]
        rows.append((variant.id, what, *values))
    some = next(iter(records.values()), None)
    note = f"On the workload that most variants ran: {describe_workload(some)}." if some else "Nothing was timed."
    header = ("variant", "what ran", *columns)
    return Section("All variants", Table(header, tuple(rows), frozenset(range(2, len(header)))), note, SUMMARY)


def _summary_columns(reference: Record | None, metrics: Mapping[str, Metric]) -> dict[str, Cell]:
    def by_metric(*names: str) -> dict[str, Cell]:
        return _metric_columns([metrics[name] for name in names])

    def speedup(_: VariantResult, record: Record | None) -> str:
        if record is None or reference is None:
            return MISSING
        return f"{reference.median_s / record.median_s:.2f}×"

    return {
        **by_metric("ttft_s", "tpot_s"),
        "latency": lambda _, record: latency_cell(record),
        **by_metric("output_tokens_per_s"),
        "speed-up": speedup,
        **by_metric("weight_bytes", "peak_rss_bytes"),
        "perplexity": _or_note(by_metric("perplexity")["perplexity"]),
        "change": lambda variant, _: _change(variant),
        **by_metric("kld_mean", "top1_agreement"),
    }


def _metric_columns(metrics: Sequence[Metric]) -> dict[str, Cell]:
    def cell_of(metric: Metric) -> Cell:
        return lambda variant, record: _value_cell(metric, record, variant)

    return {metric.column: cell_of(metric) for metric in metrics}


def _value_cell(metric: Metric, record: Record | None, variant: VariantResult) -> str:
    """Quality over the corpus is the variant's, whether or not it has a record of the workload."""
    if record is None and metric.name in variant.quality:
        record = Record("", "", "", variant.id, variant.status)
    return metric_cell(metric, record, variant)


def _or_note(cell: Cell) -> Cell:
    """The cell, or why the variant has no quality."""

    def noted(variant: VariantResult, record: Record | None) -> str:
        missing = "perplexity" not in variant.quality
        return variant.quality_note if missing and variant.quality_note else cell(variant, record)

    return noted


def _change(variant: VariantResult) -> str:
    """Of the perplexity against the reference's, with its paired uncertainty."""
    ratio = variant.quality.get("ppl_ratio")
    if ratio is None:
        return MISSING
    error = variant.quality.get("ppl_ratio_error")
    return format_change(ratio) if error is None else format_change_and_error(ratio, error)


def variant_sections(run: Run, metrics: Mapping[str, Metric]) -> Iterator[Section]:
    """What stands behind the summary: phases and limits, steadiness, memory and counts, quality."""
    records = {record.variant: record for record in common_workload(run)}
    reference = records.get(run.reference)
    where = f"{describe_workload(reference or next(iter(records.values())))}." if records else ""
    sentence = decode_sentence(reference, run.variant(run.reference)) if reference else ""
    sure = (
        "From and to: the 95 % interval of the rounds' geometric mean in this process; another process differs by more."
    )
    steadiness: dict[str, Cell] = {"steadiness": lambda _, record: _steadiness(record)}
    parts: tuple[tuple[str, tuple[str, ...], dict[str, Cell], str], ...] = (
        ("Phases and limits", PHASES, {}, f"On {where} {sentence}".strip()),
        ("Steadiness", STEADINESS, steadiness, sure),
        ("Memory and exact counts", MEMORY, {}, f"Of a round on {where}"),
    )
    for title, names, more, note in parts:
        table = _table(run, records, {**_metric_columns([metrics[name] for name in names]), **more})
        if records and table is not None:
            yield Section(title, table, note)
    quality = [metric for metric in metrics.values() if _is_of_the_corpus(run, metric)]
    texts = [metrics[name] for name in OF_THE_TEXTS]
    of_texts = {metric.column: _mean_over_records(run, metric) for metric in texts}
    table = _table(run, records, {**_metric_columns(quality), **of_texts})
    if table is not None:
        over = [f"Over the {run.provenance.corpus}; against {run.reference}."] if quality else []
        columns = " and ".join(title for title in of_texts if title in table.header)
        of_what = f"of the generated texts against {run.reference}'s, the mean of the benchmarks' means."
        yield Section("Quality", table, " ".join([*over, *([f"{columns}: {of_what}"] if columns else [])]))


def _mean_over_records(run: Run, metric: Metric) -> Cell:
    """Over all of the variant's benchmarks that have a value."""

    def cell(variant: VariantResult, _: Record | None) -> str:
        found = [metric.of(record, variant) for record in run.records if record.variant == variant.id]
        values = [value for value in found if value is not None]
        return format_metric(statistics.fmean(values) if values else None, metric)

    return cell


def _is_of_the_corpus(run: Run, metric: Metric) -> bool:
    is_quality = metric.kind is Kind.QUALITY and metric.name not in OF_THE_TEXTS
    return is_quality and any(metric.name in variant.quality for variant in run.variants)


def _table(run: Run, records: Mapping[str, Record], columns: Mapping[str, Cell]) -> Table | None:
    """A row a variant that loaded; columns in which no variant has a value are left out. None where none is left."""
    variants = [variant for variant in run.variants if variant.label]
    cells = {title: [cell(variant, records.get(variant.id)) for variant in variants] for title, cell in columns.items()}
    filled = {title: column for title, column in cells.items() if set(column) != {MISSING}}
    if not filled:
        return None
    header = ("variant", *filled)
    rows = tuple((variant.id, *row) for variant, *row in zip(variants, *filled.values(), strict=True))
    return Table(header, rows, frozenset(range(1, len(header))))


def _steadiness(record: Record | None) -> str:
    variation = coefficient_of_variation(record.rounds_s) if record else None
    return MISSING if variation is None else stability(variation)
