"""What the report says, before any format: a `Document` of tables and sentences, computed from a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from llm_bench_fixtures.measure.equivalence import ExecutionMode
from llm_bench_fixtures.measure.memory import MemoryMethod
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.renderers.figures import text
from llm_bench_fixtures.report.tables.choices import choice_footnotes
from llm_bench_fixtures.report.tables.load import load_sections
from llm_bench_fixtures.report.tables.scenarios import (
    LATENCY,
    means_sections,
    not_asked_sentence,
    scenario_of_texts,
    scenario_sections,
)
from llm_bench_fixtures.report.tables.table import VARIANT, Cell, Column, Section, Table
from llm_bench_fixtures.report.tables.values import latency_cell
from llm_bench_fixtures.report.tables.variants import summary_section, variant_sections
from llm_bench_fixtures.report.words.measured import speedup_footnotes
from llm_bench_fixtures.report.words.workload import describe_workload
from llm_bench_fixtures.results.formatting import MISSING, Notation, count, three_digits, with_unit
from llm_bench_fixtures.results.metrics import ReportTable, shown_in
from llm_bench_fixtures.results.noise import ENOUGH_PAIRS
from llm_bench_fixtures.results.pooled import PooledRun
from llm_bench_fixtures.results.record import Run, VariantResult

TEXTS, SKIPPED = "Generated texts", "Skipped and failed"  # titles of sections


@dataclass(frozen=True)
class Document:
    title: str
    header: str
    warnings: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    summary: Section
    reference: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    footnotes: tuple[str, ...]


def build_document(findings: Findings) -> Document:
    """The whole report as values."""
    run = findings.run
    return Document(
        title=f"Text generation of {run.provenance.model}",
        header=findings.header,
        warnings=tuple(filter(None, (findings.noisy, *findings.warnings))),
        facts=tuple(facts(run)),
        summary=summary_section(findings),
        reference=tuple(_reference(findings)),
        sections=(
            *means_sections(findings),
            *variant_sections(findings),
            *scenario_sections(findings),
            *load_sections(run),
            *_equivalence_sections(run),
            *_text_sections(run),
            *_skipped_or_failed_sections(findings),
        ),
        footnotes=tuple(footnotes(findings)),
    )


def facts(run: Run) -> Iterator[tuple[str, str]]:
    """Where the run's numbers come from, by name."""
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
    if provenance.attention:
        yield "Attention", f"{provenance.attention}, as asked for"
    if provenance.chat:
        yield "Prompts", "turns in the model's chat template, whose tokens count; quality is of plain text"
    if provenance.commit:
        dirty = ", with uncommitted changes" if provenance.dirty else ""
        yield "Commit", f"{provenance.commit[:12]} on {provenance.branch or 'no branch'}{dirty}"
    if isinstance(run, PooledRun):
        yield "Runs", "; ".join(f"{one.source}, started {one.provenance.started}" for one in run.runs)
    else:
        yield "Started", provenance.started
    yield "Command", provenance.command


def _reference(findings: Findings) -> Iterator[tuple[str, str]]:
    """What the reference does on the common workload."""
    record, variant = findings.reference, findings.run.variant(findings.run.reference)
    if record is None or variant is None:
        return
    yield "Variant", _name(variant)
    yield "Workload", describe_workload(record)
    yield "Latency", text(latency_cell(record), LATENCY)
    shown = shown_in(ReportTable.REFERENCE, findings.metrics)
    for metric in shown:
        yield metric.title, with_unit(metric.of(record, variant), metric)
    if variant.quality_note:
        yield "Quality", variant.quality_note
    for name, metric in findings.metrics.items():
        if name in variant.quality and metric not in shown:
            yield metric.title, with_unit(variant.quality[name], metric)


def _name(variant: VariantResult) -> str:
    """The id, and what actually ran where the id doesn't say it."""
    return f"{variant.id}: {variant.label}" if variant.label else variant.id


def _equivalence_sections(run: Run) -> Iterator[Section]:
    """Whether a variant's text depends on how it is run: a row a variant, a column a mode."""
    variants = [variant for variant in run.variants if variant.equivalence]
    if variants:
        modes = list(dict.fromkeys(found.mode for variant in variants for found in variant.equivalence))
        rows = [(variant.id, *(_mode_cell(variant, mode) for mode in modes)) for variant in variants]
        note = (
            "Each mode is compared with a prompt alone, unpadded, with the usual cache. A tie: they differ within the "
            "tolerance of the variant's arithmetic."
        )
        yield Section("Same text however it is run", Table.of_texts((VARIANT, *map(str, modes)), rows), note)


def _mode_cell(variant: VariantResult, mode: ExecutionMode) -> str:
    found = [found for found in variant.equivalence if found.mode is mode]
    return "; ".join(dict.fromkeys(item.short for item in found)) or MISSING


def _text_sections(run: Run) -> Iterator[Section]:
    """The generated texts of the standard prompts, variants below each other."""
    shown = scenario_of_texts(run)
    records = [record for record in run.records if record.scenario == shown and record.outputs]
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
        yield Section(TEXTS, Table.of_texts(("prompt", VARIANT, "continuation"), rows), not_asked_sentence(run))


def _skipped_or_failed_sections(findings: Findings) -> Iterator[Section]:
    columns = (*map(Column, (VARIANT, "status", "reason")), Column("benchmarks", Notation.COUNT))
    rows = [
        (Cell(one.variant), Cell(one.status.value), Cell(one.reason), Cell(value=one.benchmarks))
        for one in findings.skipped_or_failed
    ]
    if rows:
        yield Section(SKIPPED, Table(columns, tuple(rows)))


def footnotes(findings: Findings) -> Iterator[str]:
    """How the numbers came to be, in sentences."""
    run = findings.run
    yield noise_footnote(findings)
    yield from speedup_footnotes(findings)
    yield "Latency includes the prefill. It is the median of the rounds ± half the distance between their quartiles."
    yield from findings.instrumentation
    if not run.provenance.random_weights:
        yield f"Quality is over the {run.provenance.corpus}."
        yield "A change of the perplexity is given ± its standard error, from paired differences of the tokens."
    yield from choice_footnotes(run)
    if any(record.memory and record.memory.method == MemoryMethod.SAMPLED for record in run.records):
        yield f"The resident memory was {MemoryMethod.SAMPLED}: a shorter peak may have escaped."
    for reason in dict.fromkeys(record.work.flops_reason for record in run.records if record.work):
        if reason:
            yield f"FLOPs are not counted: {reason}."
    for reason in dict.fromkeys(record.work.passes_reason for record in run.records if record.work):
        if reason:
            yield f"Forward passes and the cache's bytes are not counted: {reason}."
    for reason in dict.fromkeys(record.work.cache_reason for record in run.records if record.work):
        if reason:
            yield f"The KV cache's bytes are not counted: {reason}."
    for variant in run.variants:
        notes = [*variant.notes, *([variant.quality_note] if variant.quality_note and variant.quality else [])]
        if notes:
            yield f"{variant.id}: {'; '.join(notes)}."
    phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in _by_size(run.phase_s.items()) if seconds)
    yield f"The session took {run.session_s:.0f} s: {phases}."


def noise_footnote(findings: Findings) -> str:
    """How far apart identical work came out at different times."""
    floor = findings.noise
    differed = f"differed by up to {floor.percent:.0f} % ({floor.pairs} pairs, 95th percentile)"
    few = f"only {count(floor.pairs, 'pair')}" if floor.pairs else "no pairs"
    assumed = f"is taken to differ by up to {floor.percent:.0f} %, as this run has {few} of it"
    how = differed if floor.pairs >= ENOUGH_PAIRS else assumed
    return f"Identical work measured at different times {how}. Smaller differences between cases are noise."


def _by_size(items: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    return sorted(((str(name), value) for name, value in items), key=lambda item: -item[1])
