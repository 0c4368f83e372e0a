"""What the report says, before any format: a `Document` of tables and sentences, computed from a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from llm_bench_fixtures.errors import first_line
from llm_bench_fixtures.measure.equivalence import Way
from llm_bench_fixtures.measure.memory import MemoryMethod
from llm_bench_fixtures.report.cells import (
    added_metrics,
    describe_workload,
    instrumentation_sentences,
    latency_cell,
    metric_cell,
)
from llm_bench_fixtures.report.document import Document, Section, Table
from llm_bench_fixtures.report.flags import flags
from llm_bench_fixtures.report.takeaways import takeaways
from llm_bench_fixtures.report.variants import summary_section, variant_sections
from llm_bench_fixtures.results.formatting import MISSING, count, three_digits, with_unit
from llm_bench_fixtures.results.metrics import Metric
from llm_bench_fixtures.results.noise import ENOUGH_PAIRS, noise_floor
from llm_bench_fixtures.results.record import Record, Run, Status, VariantResult
from llm_bench_fixtures.results.table import common_workload

# The scenarios of the suite in the order of the report: title, and the metrics that its table shows beside the latency.
SCENARIOS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "precision": (
        "Precision",
        ("ttft_s", "tpot_s", "output_tokens_per_s", "weight_bytes", "peak_rss_bytes", "perplexity"),
    ),
    "quantization": (
        "Quantization",
        ("ttft_s", "tpot_s", "output_tokens_per_s", "weight_bytes", "perplexity", "first_divergent_token"),
    ),
    "cache": ("KV cache", ("ttft_s", "tpot_s", "output_tokens_per_s", "cache_bytes", "peak_rss_bytes")),
    "padding": (
        "Padding",
        (
            "output_tokens_per_s",
            "prefill_tokens_per_s",
            "prefill_positions_per_s",
            "prompt_tokens",
            "padded_tokens",
            "padding_share",
        ),
    ),
    "batch": (
        "Batch size",
        ("output_tokens_per_s", "per_sample_latency_s", "ttft_s", "tpot_s", "padded_tokens", "peak_rss_bytes"),
    ),
    "prompt_length": (
        "Prompt length",
        ("ttft_s", "tpot_s", "prefill_tokens_per_s", "output_tokens_per_s", "cache_bytes", "peak_rss_bytes"),
    ),
    "edge_prompts": ("Edge prompts", ("ttft_s", "tpot_s", "output_tokens_per_s", "prompt_tokens")),
}
BASELINE = (
    "latency_mean_s",
    "ttft_s",
    "tpot_s",
    "output_tokens_per_s",
    "ms_per_token",
    "new_tokens",
    "prompt_tokens",
    "load_s",
    "weight_bytes",
    "peak_rss_bytes",
)
OTHER_COLUMNS = ("ttft_s", "tpot_s", "output_tokens_per_s", "prompt_tokens", "new_tokens")


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
        sections=(
            *variant_sections(run, metrics),
            *_scenario_sections(run, metrics),
            *_equivalence_sections(run),
            *_text_sections(run),
            *_missing_sections(run),
        ),
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
    for candidate in run.provenance.passed_over:
        yield f"Not used: {candidate}."
    if run.provenance.random_weights:
        yield "The weights are random: speed and memory are real, the generated text means nothing."
    if run.reference not in [variant.id for variant in run.variants]:
        yield f"The reference {run.reference} was not among --llm-variants: there is nothing to compare with."
    failed = [variant.id for variant in run.variants if variant.status is Status.ERROR]
    if failed:
        yield f"Failed to load: {', '.join(failed)}."


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    provenance = run.provenance
    yield "Machine", f"{provenance.hardware}, {count(provenance.threads, 'thread')}; {provenance.platform}"
    yield "Libraries", ", ".join(f"{name} {version}" for name, version in provenance.libraries.items())
    yield "Python", provenance.python
    if provenance.read_bytes_per_s:
        rates = ", ".join(
            f"{dtype} matrices {three_digits(rate / 1e9)} GFLOP/s"
            for dtype, rate in provenance.matmul_flops_per_s.items()
        )
        yield "Limits, measured", f"memory {three_digits(provenance.read_bytes_per_s / 1e9)} GB/s, {rates}"
    if provenance.energy:
        yield "Energy", provenance.energy
    if provenance.isolated:
        yield "Isolation", "each variant in a process of its own"
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
    for name in BASELINE:
        yield metrics[name].title, with_unit(metrics[name].of(record, variant), metrics[name])
    if variant.quality_note:
        yield "Quality", variant.quality_note
    for name, metric in metrics.items():
        if name in variant.quality:
            yield metric.title, with_unit(variant.quality[name], metric)


def _name(variant: VariantResult) -> str:
    """The id, and what actually ran where the id doesn't say it."""
    return f"{variant.id}: {variant.label}" if variant.label else variant.id


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
            shown = [metrics[name] for name in columns] + added_metrics(run, metrics)
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
        remarks.insert(0, f"{record.status}: {first_line(record.reason)}")
    cells = [metric_cell(metric, record, variant) for metric in metrics]
    if variant and variant.quality_note:
        named = zip(metrics, cells, strict=True)
        missing = {"perplexity"} - variant.quality.keys()
        cells = [variant.quality_note if metric.name in missing else cell for metric, cell in named]
    label = variant.label if variant else ""
    return (record.case, record.variant, label, latency_cell(record), *cells, "; ".join(remarks))


def _equivalence_sections(run: Run) -> Iterator[Section]:
    """Whether a variant's text depends on how it is run: a row a variant, a column a way."""
    variants = [variant for variant in run.variants if variant.equivalence]
    if variants:
        ways = list(dict.fromkeys(found.way for variant in variants for found in variant.equivalence))
        rows = [(variant.id, *(_way_cell(variant, way) for way in ways)) for variant in variants]
        note = (
            "Each way against a prompt alone, unpadded, with the usual cache. A tie: they differ within the tolerance "
            "of the variant's arithmetic."
        )
        yield Section("Same text however it is run", Table(("variant", *map(str, ways)), tuple(rows)), note)


def _way_cell(variant: VariantResult, way: Way) -> str:
    found = [found for found in variant.equivalence if found.way is way]
    return "; ".join(dict.fromkeys(item.short for item in found)) or MISSING


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
            key = (record.variant, record.status.value, first_line(record.reason))
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
    yield from instrumentation_sentences(run)
    if not run.provenance.random_weights:
        yield f"Quality is over the {run.provenance.corpus}."
        yield "A perplexity's change stands with its standard error, from the tokens' paired differences."
    if any(record.memory and record.memory.method == MemoryMethod.SAMPLED for record in run.records):
        yield f"The resident memory was {MemoryMethod.SAMPLED}: a shorter peak may have escaped."
    for reason in dict.fromkeys(record.work.flops_reason for record in run.records if record.work):
        if reason:
            yield f"FLOPs are not counted: {reason}."
    for reason in dict.fromkeys(record.work.passes_reason for record in run.records if record.work):
        if reason:
            yield f"Forward passes and the cache's bytes are not counted: {reason}."
    for variant in run.variants:
        notes = [*variant.notes, *([variant.quality_note] if variant.quality_note and variant.quality else [])]
        if notes:
            yield f"{variant.id}: {'; '.join(notes)}."
    phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in _by_size(run.phase_s.items()) if seconds)
    yield f"The session took {run.session_s:.0f} s: {phases}."


def _by_size(items: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    return sorted(((str(name), value) for name, value in items), key=lambda item: -item[1])
