"""What fits in a given memory: what each variant was predicted to take next to what was measured, and the largest
workloads that follow from that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from llm_bench_fixtures.answer.headline import OWN, SUPPORTING
from llm_bench_fixtures.models.needs import PROCESS_BYTES, SPARE, Parts, RoundSize
from llm_bench_fixtures.report.tables.table import VARIANT, Cell, Column, Section, Table
from llm_bench_fixtures.results.formatting import Notation, count, format_bytes
from llm_bench_fixtures.results.record import Record, Run, Status, VariantResult
from llm_bench_fixtures.workloads import CacheKind

USUAL = RoundSize(rows=1, prompt=256, new=16)  # where nothing was measured
NOT_KNOWN, NONE = "not known", "none"
BATCH, CONTEXT = "largest batch", "longest context"
COLUMNS = (
    Column(VARIANT),
    *(Column(name, Notation.BYTES) for what in ("weights", "KV cache") for name in (what, f"{what}, measured")),
    *(Column(name, Notation.BYTES) for name in ("activations", "peak", "peak, measured")),
    Column("cache per token", Notation.BYTES),
    Column(BATCH, Notation.COUNT),
)


def fit_sections(run: Run) -> Iterator[Section]:
    """A row a variant; nothing where nothing was predicted."""
    shown, memory = _predicted(run), run.provenance.fit_bytes or run.provenance.memory_bytes
    if shown and memory:
        asked = longest_of(run)
        sizes = sorted({1, max((one.workload.batch_size for one in run.measured() if one.workload), default=1)})
        columns = (*COLUMNS, *(Column(_context(size), Notation.COUNT) for size in sizes))
        contexts = [replace(asked, rows=size) for size in sizes]
        rows = tuple(tuple(_row(run, variant, parts, memory, contexts)) for variant, parts in shown)
        yield Section(f"Does it fit in {format_bytes(memory)}?", Table(columns, rows), _note(run, asked))


def _context(size: int) -> str:
    return f"{CONTEXT}, batch of {size}" if size > 1 else CONTEXT


def fit_sentences(run: Run) -> Iterator[str]:
    """The largest batch of each variant, where a memory was given."""
    memory = run.provenance.fit_bytes
    if not memory:
        return
    asked = longest_of(run)
    rows = {one.id: parts.most_rows(memory, asked) if parts.is_known else None for one, parts in _predicted(run)}
    said = [
        *(f"{name} at most {most:,} at a time" for name, most in rows.items() if most),
        *(f"{name} does not fit" for name, most in rows.items() if most == 0),
        *(f"{name}: {NOT_KNOWN}" for name, most in rows.items() if most is None),
    ]
    if said:
        yield f"In {format_bytes(memory)}, of prompts of {_lengths(asked)}: {', '.join(said)}."


def _predicted(run: Run) -> list[tuple[VariantResult, Parts]]:
    """Predicted parts of the variants that could run here; weights as measured, where they were."""
    known = [(one, one.parts) for one in run.variants if one.parts is not None and one.status is not Status.SKIPPED]
    return [(one, replace(parts, weights=one.weight_bytes or parts.weights)) for one, parts in known]


def longest_of(run: Run) -> RoundSize:
    """One prompt of the most tokens that the run measured, those of the model's limit aside, with its new ones; of the
    user's own prompts where there are any."""
    usual = [record for record in run.measured() if record.workload and record.scenario not in SUPPORTING]
    own = [record for record in usual if record.scenario == OWN] if run.provenance.prompts else []
    return max(map(round_of, own or usual), key=lambda one: one.prompt + one.new, default=USUAL)


def round_of(record: Record) -> RoundSize:
    """The longest batch that the record had, as one prompt; in older files, an average one. Raises ValueError for a
    record without a workload."""
    facts = record.workload
    if facts is None or not facts.prompts:
        raise ValueError(f"{record.test} has no workload")
    width = facts.longest_prompt or -(-(facts.prompt_tokens + facts.padded_tokens) // facts.prompts)
    return RoundSize(1, width, facts.longest_new or facts.new_tokens // facts.prompts, CacheKind(facts.cache))


def _checked(run: Run, variant: VariantResult) -> Record | None:
    """The record of the largest workload whose cache was counted: of one batch, whose width is known."""
    records = [
        record
        for record in run.measured()
        if record.variant == variant.id and record.work and record.workload and record.workload.cache in list(CacheKind)
        if record.workload.batch_size >= record.workload.prompts and record.workload.cache != CacheKind.OFF
    ]
    return max(records, key=_positions, default=None)


def _positions(record: Record) -> int:
    return record.facts.prompt_tokens + record.facts.padded_tokens + record.facts.new_tokens


def _row(run: Run, variant: VariantResult, parts: Parts, memory: int, contexts: Sequence[RoundSize]) -> Iterator[Cell]:
    predicted = variant.parts.weights if variant.parts else None
    yield from (Cell(variant.id), Cell(value=predicted), Cell(value=variant.weight_bytes))
    yield from _checks(run, variant, parts)
    yield Cell(value=sum(one.bytes for one in parts.kept if not one.is_state) if parts.is_known else None)
    for value in (parts.most_rows(memory, contexts[0]), *(parts.longest(memory, one) for one in contexts)):
        yield Cell(NOT_KNOWN) if not parts.is_known else Cell(value=value) if value else Cell(NONE, rank=0.0)


def _checks(run: Run, variant: VariantResult, parts: Parts) -> Iterator[Cell]:
    """Cache, activations and peak of one workload, as predicted; cache and peak as measured, too."""
    record = _checked(run, variant) if parts.is_known else None
    if record is None or record.work is None:
        yield from (Cell(),) * 5
        return
    work, memory, one = record.work, record.memory, round_of(record)
    longest = work.forward_passes or one.new  # the batch runs to its longest answer
    one = replace(one, rows=record.facts.prompts, new=longest)
    counted = [size for size in (work.cache_bytes, work.state_bytes) if size is not None]
    peak = (memory.cuda_allocated_bytes or memory.own_bytes) if memory else None
    yield from (Cell(value=parts.cache(one)), Cell(value=sum(counted) if counted else None))
    predicted = parts.weights + parts.tables + parts.round(one)
    yield from (Cell(value=parts.activations(one)), Cell(value=predicted), Cell(value=peak))


def _lengths(one: RoundSize) -> str:
    return f"{count(one.prompt, 'token')} and {one.new} new"


def _note(run: Run, asked: RoundSize) -> str:
    whose = "given" if run.provenance.fit_bytes else "what was free"
    return (
        f"The memory is {whose}; one variant runs alone in it and leaves {100 * SPARE:.0f} % free. Predictions follow "
        "from the model's shape; cache, activations and peak are those of the variant's largest batch here. A measured "
        f"peak also has libraries' buffers, for which the limits leave {format_bytes(PROCESS_BYTES)}. Largest batch: "
        f"prompts at a time, each of {_lengths(asked)}. Longest context: tokens of one prompt, or of each of a batch, "
        "with its new ones; at most what the model can read."
    )
