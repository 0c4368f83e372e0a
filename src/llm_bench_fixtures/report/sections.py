"""What the report says, before any format: a `Document` of tables and sentences, computed from a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from llm_bench_fixtures.report.plots import SUMMARY
from llm_bench_fixtures.results.flags import flags
from llm_bench_fixtures.results.formatting import (
    MISSING,
    five_digits,
    format_bytes,
    format_change,
    format_metric,
    format_seconds,
    with_unit,
)
from llm_bench_fixtures.results.metrics import METRICS, Metric
from llm_bench_fixtures.results.noise import ENOUGH_PAIRS, noise_floor
from llm_bench_fixtures.results.record import Record, Run, Status, VariantResult
from llm_bench_fixtures.results.table import common_workload
from llm_bench_fixtures.results.takeaways import takeaways

OWN_METRICS = frozenset(metric.name for metric in METRICS)

# The scenarios of the suite in the order of the report: title, and the metrics that its table shows beside the latency.
SCENARIOS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "precision": ("Precision", ("output_tokens_per_s", "ms_per_token", "weight_bytes", "perplexity")),
    "quantization": ("Quantization", ("output_tokens_per_s", "ms_per_token", "weight_bytes", "perplexity")),
    "cache": ("KV cache", ("output_tokens_per_s", "ms_per_token")),
    "padding": ("Padding", ("output_tokens_per_s", "prompt_tokens", "padded_tokens", "padding_share")),
    "batch": ("Batch size", ("output_tokens_per_s", "per_sample_latency_s", "padded_tokens")),
    "prompt_length": ("Prompt length", ("output_tokens_per_s", "ms_per_token", "prompt_tokens")),
    "edge_prompts": ("Edge prompts", ("output_tokens_per_s", "prompt_tokens")),
}
OTHER_COLUMNS = ("output_tokens_per_s", "ms_per_token", "prompt_tokens", "new_tokens")


@dataclass(frozen=True)
class Table:
    """Cells as text. numeric: the columns that are set flush right."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Section:
    """scenario: names the plots that belong here. note: a sentence above the table."""

    title: str
    table: Table
    note: str = ""
    scenario: str = ""


@dataclass(frozen=True)
class Document:
    title: str
    header: str
    warnings: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    takeaways: tuple[str, ...]
    summary: Section
    baseline: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    footnotes: tuple[str, ...]


def build_document(run: Run, metrics: Mapping[str, Metric]) -> Document:
    """The whole report as values. `metrics`: the registry, with what a project added to it."""
    return Document(
        title=f"Text generation of {run.provenance.model}",
        header=header_line(run),
        warnings=tuple(_warnings(run)),
        facts=tuple(_facts(run)),
        takeaways=tuple(takeaways(run)),
        summary=summary_section(run, metrics),
        baseline=tuple(_baseline(run, metrics)),
        sections=(*_scenario_sections(run, metrics), *_text_sections(run), *_missing_sections(run)),
        footnotes=tuple(_footnotes(run)),
    )


def header_line(run: Run) -> str:
    """`Loaded: <model> | device=<device> | dtype=<dtype>`, the dtype being the reference's as it ran."""
    loaded = [variant for variant in run.variants if variant.label]
    reference = next((variant for variant in loaded if variant.id == run.reference), next(iter(loaded), None))
    random = " (random weights)" if run.provenance.random_weights else ""
    dtype = reference.label if reference else "nothing loaded"
    return f"Loaded: {run.provenance.model}{random} | device={run.provenance.device} | dtype={dtype}"


def _warnings(run: Run) -> Iterator[str]:
    if run.interrupted:
        yield "The run was interrupted: what had finished by then is here."
    if run.provenance.random_weights:
        yield "The weights are random: speed and memory are real, the generated text means nothing."
    if run.reference not in [variant.id for variant in run.variants]:
        yield f"The reference {run.reference} was not among --llm-variants: there is nothing to compare with."
    failed = [variant.id for variant in run.variants if variant.status is Status.ERROR]
    if failed:
        yield f"Failed to load: {', '.join(failed)}."


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    provenance = run.provenance
    yield "Machine", f"{provenance.hardware}, {provenance.threads} threads; {provenance.platform}"
    yield "Libraries", ", ".join(f"{name} {version}" for name, version in provenance.libraries.items())
    yield "Python", provenance.python
    if provenance.commit:
        dirty = ", with uncommitted changes" if provenance.dirty else ""
        yield "Commit", f"{provenance.commit[:12]} on {provenance.branch or 'no branch'}{dirty}"
    yield "Started", provenance.started
    yield "Command", provenance.command


def _baseline(run: Run, metrics: Mapping[str, Metric]) -> Iterator[tuple[str, str]]:
    """What the reference does on the common workload."""
    record = next((record for record in common_workload(run) if record.variant == run.reference), None)
    variant = run.variant(run.reference)
    if record is None or variant is None:
        return
    yield "Variant", _name(variant)
    yield "Workload", describe_workload(record)
    yield "Latency", latency_cell(record)
    shown = ("latency_mean_s", "output_tokens_per_s", "ms_per_token", "new_tokens", "prompt_tokens", "load_s")
    for name in (*shown, "weight_bytes"):
        yield metrics[name].title, with_unit(metrics[name].of(record, variant), metrics[name])
    if variant.quality_note:
        yield "Quality", variant.quality_note
    for name, metric in metrics.items():
        if name in variant.quality:
            yield metric.title, with_unit(variant.quality[name], metric)


def describe_workload(record: Record) -> str:
    """One line: prompts, tokens, batch and cache."""
    workload = record.workload
    if workload is None:
        return MISSING
    parts = (
        "one prompt" if workload.prompts == 1 else f"{workload.prompts} prompts",
        _count(workload.prompt_tokens, "prompt token"),
        _count(workload.new_tokens, "new token"),
        f"batch {workload.batch_size}",
        f"cache {workload.cache}",
    )
    return ", ".join(parts)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def latency_cell(record: Record) -> str:
    """Median, and half the distance between the quartiles where there is more than one round."""
    if not record.rounds_s:
        return MISSING
    median = format_seconds(record.median_s)
    if len(record.rounds_s) < 2:
        return median
    low, _, high = record.quartiles_s
    return f"{median} ± {format_seconds((high - low) / 2)}"


def _name(variant: VariantResult) -> str:
    """The id, and what actually ran where the id doesn't say it."""
    return f"{variant.id}: {variant.label}" if variant.label else variant.id


def summary_section(run: Run, metrics: Mapping[str, Metric]) -> Section:
    """One row a variant: speed on the common workload, memory and quality; those that didn't run with their reason."""
    records = {record.variant: record for record in common_workload(run)}
    reference = records.get(run.reference)
    added = _added(run, metrics)
    header = (
        "variant",
        "what ran",
        "latency",
        "tokens/s",
        "speed-up",
        "load",
        "weights",
        "loss",
        "perplexity",
        "change",
    )
    rows = []
    for variant in run.variants:
        record = records.get(variant.id)
        own = _summary_row(run, variant, record, reference, metrics)
        rows.append((*own, *(_metric_cell(metric, record, variant) for metric in added)))
    some = next(iter(records.values()), None)
    note = f"On the workload that most variants ran: {describe_workload(some)}." if some else "Nothing was timed."
    titles = (*header, *(metric.column for metric in added))
    return Section("All variants", Table(titles, tuple(rows), frozenset(range(2, len(titles)))), note, SUMMARY)


def _summary_row(
    run: Run,
    variant: VariantResult,
    record: Record | None,
    reference: Record | None,
    metrics: Mapping[str, Metric],
) -> tuple[str, ...]:
    if not variant.label:
        return (variant.id, f"{variant.status}: {_first_line(variant.reason)}", *[MISSING] * 8)
    base = run.variant(run.reference)
    loss, perplexity = variant.quality.get("loss"), variant.quality.get("perplexity")
    other = base.quality.get("perplexity") if base else None
    quality = variant.quality_note or MISSING
    return (
        variant.id,
        variant.label,
        latency_cell(record) if record else MISSING,
        _metric_cell(metrics["output_tokens_per_s"], record, variant),
        _speedup(record, reference),
        format_seconds(variant.load_s) if variant.load_s is not None else MISSING,
        format_bytes(variant.weight_bytes) if variant.weight_bytes is not None else MISSING,
        five_digits(loss) if loss is not None else quality,
        five_digits(perplexity) if perplexity is not None else quality,
        format_change(perplexity / other) if perplexity and other and variant.id != run.reference else MISSING,
    )


def _metric_cell(metric: Metric, record: Record | None, variant: VariantResult) -> str:
    return format_metric(metric.of(record, variant) if record else None, metric)


def _speedup(record: Record | None, reference: Record | None) -> str:
    if record is None or reference is None:
        return MISSING
    return f"{reference.median_s / record.median_s:.2f}×"


def _added(run: Run, metrics: Mapping[str, Metric]) -> list[Metric]:
    """The metrics that a project added and that some record or variant has a value for."""
    present = {name for record in run.records for name in record.extra}
    present |= {name for variant in run.variants for name in variant.quality}
    return [metric for metric in metrics.values() if metric.name in present - OWN_METRICS]


def _scenario_sections(run: Run, metrics: Mapping[str, Metric]) -> Iterator[Section]:
    """A table for each scenario that measured something, the suite's own first."""
    found = dict.fromkeys(record.scenario for record in run.records)
    for scenario in [
        *(name for name in SCENARIOS if name in found),
        *(name for name in found if name not in SCENARIOS),
    ]:
        title, columns = SCENARIOS.get(scenario, (scenario.replace("_", " ").capitalize(), OTHER_COLUMNS))
        records = [record for record in run.records if record.scenario == scenario and record.workload is not None]
        if records:
            shown = [metrics[name] for name in columns] + _added(run, metrics)
            yield Section(title, _scenario_table(run, records, shown), scenario=scenario)


def _scenario_table(run: Run, records: Sequence[Record], metrics: Sequence[Metric]) -> Table:
    """Rows by case, the variants of each case together."""
    cases = list(dict.fromkeys(record.case for record in records))
    rows = [
        _scenario_row(run, record, metrics) for record in sorted(records, key=lambda record: cases.index(record.case))
    ]
    with_case = len(cases) > 1
    header = ("case", "variant", "what ran", "latency", *(metric.column for metric in metrics), "remarks")
    if not with_case:
        header, rows = header[1:], [row[1:] for row in rows]
    first = header.index("latency")
    return Table(header, tuple(rows), frozenset(range(first, first + 1 + len(metrics))))


def _scenario_row(run: Run, record: Record, metrics: Sequence[Metric]) -> tuple[str, ...]:
    variant = run.variant(record.variant)
    remarks = [*flags(run, record)]
    if record.status is not Status.MEASURED:
        remarks.insert(0, f"{record.status}: {_first_line(record.reason)}")
    cells = [format_metric(metric.of(record, variant) if variant else None, metric) for metric in metrics]
    if variant and variant.quality_note:
        named = zip(metrics, cells, strict=True)
        cells = [variant.quality_note if metric.name == "perplexity" else cell for metric, cell in named]
    label = variant.label if variant else ""
    return (record.case, record.variant, label, latency_cell(record), *cells, "; ".join(remarks))


def _text_sections(run: Run) -> Iterator[Section]:
    """The generated texts of the standard prompts, variants below each other."""
    records = [record for record in run.records if record.scenario == "quantization" and record.outputs]
    if records:
        cases = list(dict.fromkeys(record.case for record in records))
        by_place = {(record.case, record.variant): record.outputs[0] for record in records}
        variants = dict.fromkeys(record.variant for record in records)
        rows = [
            (case, variant, by_place[case, variant])
            for case in cases
            for variant in variants
            if (case, variant) in by_place
        ]
        yield Section("Generated texts", Table(("prompt", "variant", "continuation"), tuple(rows)))


def _missing_sections(run: Run) -> Iterator[Section]:
    """What was skipped and what failed, benchmarks with the same reason counted together."""
    counts: dict[tuple[str, str, str], int] = {}
    for record in run.records:
        if record.status in (Status.SKIPPED, Status.ERROR):
            key = (record.variant, record.status.value, _first_line(record.reason))
            counts[key] = counts.get(key, 0) + 1
    rows = [(*key, str(count)) for key, count in counts.items()]
    if rows:
        header = ("variant", "status", "reason", "benchmarks")
        yield Section("Skipped and failed", Table(header, tuple(rows), frozenset({3})))


def _footnotes(run: Run) -> Iterator[str]:
    floor = noise_floor(run)
    measured = f"measured on {floor.pairs} pairs of identical work in this run (95th percentile)"
    few = f"assumed: this run holds only {floor.pairs} pairs of identical work"
    how = measured if floor.pairs >= ENOUGH_PAIRS else few
    yield f"Noise of the median latency: {floor.percent:.0f} %, {how}. Smaller differences mean nothing."
    yield "Latency is the median of the rounds ± half the distance between the quartiles; the prefill is in it."
    if not run.provenance.random_weights:
        yield f"Loss and perplexity are over the {run.provenance.corpus}."
    for variant in run.variants:
        if variant.notes:
            yield f"{variant.id}: {'; '.join(variant.notes)}."
    phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in _by_size(run.phase_s.items()) if seconds)
    yield f"The session took {run.session_s:.0f} s: {phases}."


def _by_size(items: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    return sorted(((str(name), value) for name, value in items), key=lambda item: -item[1])


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]
