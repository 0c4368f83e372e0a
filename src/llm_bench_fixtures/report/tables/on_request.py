"""Tables of what is measured or predicted where it is asked for, and what follows in sentences: what fits in a memory,
servers under load, the sweep over numbers of threads, layers on several devices, and whether texts stay the same.

In the table of what fits, what each variant was predicted to take stands next to what was measured, before the largest
workloads that follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from operator import attrgetter

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.answer.headline import OWN, SUPPORTING
from llm_bench_fixtures.answer.noise import disturbance
from llm_bench_fixtures.answer.threads import InThreads
from llm_bench_fixtures.errors import first_line
from llm_bench_fixtures.grouping import grouped
from llm_bench_fixtures.measure.equivalence import ExecutionMode
from llm_bench_fixtures.models.backends import BACKENDS
from llm_bench_fixtures.models.needs import PROCESS_BYTES, SPARE, Parts, RoundSize
from llm_bench_fixtures.report.tables.table import LATENCY, VARIANT, Cell, Column, Section, Table, Tone
from llm_bench_fixtures.report.words.measured import describe_workload, times_words
from llm_bench_fixtures.results.formatting import MISSING, Notation, count, format_bytes, format_seconds, format_share
from llm_bench_fixtures.results.load import LoadPoint
from llm_bench_fixtures.results.record import Record, Run, Status, VariantResult
from llm_bench_fixtures.workloads import CacheKind

USUAL = RoundSize(rows=1, prompt=256, new=16)  # where nothing was measured
NOT_KNOWN, NONE = "not known", "none"
CONTEXT = "longest context"
FIT_BYTES = (
    *("weights", "weights, measured", "KV cache", "KV cache, measured", "activations", "peak", "peak, measured"),
    "cache per token",
)
NEARLY_ALL = 0.99  # share of the requests within the limits at a rate that a server sustains
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
OF_REQUEST = {"TTFT": attrgetter("ttft_s"), "TPOT": attrgetter("tpot_s"), "latency": attrgetter("latency_s")}
MOST_REASONS = 3  # reasons of failures in a row
LOAD_COLUMNS = (
    *map(Column, ("variant", "test")),
    *(Column(name, Notation.TEXT) for name in ("tokens", "rate")),
    *(Column(name, Notation.COUNT) for name in ("requests", "failed")),
    Column("goodput", Notation.NUMBER, unit="1/s"),
    Column("within limits", Notation.SHARE),
    Column("tokens/s", Notation.NUMBER),
    *(Column(f"{name} {which}", Notation.SECONDS) for name in OF_REQUEST for which in SHARES),
    *(Column(name, Notation.SECONDS) for name in ("drain", "send lag")),
    Column("cached", Notation.SHARE),
    Column("remarks"),
)
LOAD_NOTE = (
    "Tokens: those of a prompt and the new ones. "
    "Requests at random times (a Poisson process), sent whether or not earlier ones are answered. Times count from "
    "when a request was planned; percentiles are of answered ones, and shown if there are enough. Goodput: "
    "requests answered within the limits; those that failed are not. Drain: from the load's end to the last answer. "
    "Cached: share of prompt tokens from the server's cache."
)
DEVICE_COLUMNS = (
    *map(Column, (VARIANT, "device")),
    *(Column(name, Notation.BYTES) for name in ("weights", "peak memory")),
    Column("reads weights at", Notation.NUMBER, unit="GB/s", size=1e9),
)
DEVICE_NOTE = (
    "Peak memory of a CUDA device is what torch had allocated there; the sum is of peaks that need not be at the same "
    "time. Weights on devices that don't compute are fetched for each use. The last row has the rate of reading all "
    "weights once, device by device; MBU and the roofline TTFT and TPOT use it. The roofline chart's slope is the "
    "rate of the first device that computes."
)
THREADS, OVER_DEFAULT = Column("threads", Notation.COUNT), Column("over the default", Notation.TIMES)


def sections_on_request(seen: Evidence, threads: Sequence[InThreads]) -> Iterator[Section]:
    """All sections of this module. threads: the sweep over threads."""
    yield from thread_sections(threads, seen.run.provenance.threads)
    yield from load_sections(seen.run)
    yield from device_sections(seen)
    yield from fit_sections(seen.run)
    yield from equivalence_sections(seen.run)


def fit_sections(run: Run) -> Iterator[Section]:
    """A row a variant; nothing where nothing was predicted."""
    shown, memory = _predicted(run), run.provenance.fit_bytes or run.provenance.memory_bytes
    if shown and memory:
        asked = longest_of(run)
        sizes = sorted({1, max((one.workload.batch_size for one in run.measured() if one.workload), default=1)})
        names = (f"{CONTEXT}, batch of {size}" if size > 1 else CONTEXT for size in sizes)
        counts = (Column(name, Notation.COUNT) for name in ("largest batch", *names))
        columns = (Column(VARIANT), *(Column(name, Notation.BYTES) for name in FIT_BYTES), *counts)
        contexts = [replace(asked, rows=size) for size in sizes]
        rows = tuple(tuple(_fit_row(run, variant, parts, memory, contexts)) for variant, parts in shown)
        yield Section(f"Does it fit in {format_bytes(memory)}?", Table(columns, rows), _fit_note(run, asked))


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
        yield f"In {format_bytes(memory)}, of prompts of {_round_words(asked)}: {', '.join(said)}."


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
    own = [(one, one.workload) for one in run.measured() if one.variant == variant.id and one.work and one.workload]
    cached = ((one, facts) for one, facts in own if facts.cache in set(CacheKind) - {CacheKind.OFF})
    return max((one for one, facts in cached if facts.batch_size >= facts.prompts), key=_positions, default=None)


def _positions(record: Record) -> int:
    return record.facts.prompt_tokens + record.facts.padded_tokens + record.facts.new_tokens


def _fit_row(run: Run, variant: VariantResult, parts: Parts, memory: int, sizes: Sequence[RoundSize]) -> Iterator[Cell]:
    predicted = variant.parts.weights if variant.parts else None
    yield from (Cell(variant.id), Cell(value=predicted), Cell(value=variant.weight_bytes))
    yield from _checks(run, variant, parts)
    yield Cell(value=sum(one.bytes for one in parts.kept if not one.is_state) if parts.is_known else None)
    for value in (parts.most_rows(memory, sizes[0]), *(parts.longest(memory, one) for one in sizes)):
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


def _round_words(one: RoundSize) -> str:
    return f"{count(one.prompt, 'token')} and {one.new} new"


def _fit_note(run: Run, asked: RoundSize) -> str:
    whose = "given" if run.provenance.fit_bytes else "what was free"
    return (
        f"The memory is {whose}; one variant runs alone in it and leaves {100 * SPARE:.0f} % free. Predictions follow "
        "from the model's shape; cache, activations and peak are those of the variant's largest batch here. A measured "
        f"peak also has libraries' buffers, for which the limits leave {format_bytes(PROCESS_BYTES)}. Largest batch: "
        f"prompts at a time, each of {_round_words(asked)}. Longest context: tokens of one prompt, or of each of a "
        "batch, with its new ones; at most what the model can read."
    )


def load_sections(run: Run) -> Iterator[Section]:
    """A row for each server, test and rate, those of a series together; nothing where there are none."""
    if run.loads:
        points = [point for series in _by_series(run.loads).values() for point in series]
        table = Table(LOAD_COLUMNS, tuple(tuple(_load_row(point)) for point in points))
        yield Section("Servers under load", table, LOAD_NOTE)


def _by_series(points: Iterable[LoadPoint]) -> dict[tuple[object, ...], list[LoadPoint]]:
    """Load points in series that differ by their rates alone, the lowest rate first."""
    found = grouped(points, lambda point: point.series)
    return {series: sorted(them, key=lambda point: point.rate_per_s) for series, them in found.items()}


def _load_row(point: LoadPoint) -> Iterator[Cell]:
    yield from map(Cell, (point.variant, point.function, _tokens(point)))
    yield Cell(f"{point.rate_per_s:g}/s", rank=point.rate_per_s)
    counts = (len(point.requests), sum(point.failures.values()))
    rates = (point.goodput_per_s, point.good_share, point.output_tokens_per_s)
    times_s = (point.percentile(of, share) for of in OF_REQUEST.values() for share in SHARES.values())
    for value in (*counts, *rates, *times_s, point.drain_s, point.lag_s, point.cached_share):
        yield Cell(value=value)
    yield Cell("; ".join(_remarks(point)))


def _tokens(point: LoadPoint) -> str:
    return f"{point.prompt_tokens} + {point.new_tokens}"


def _remarks(point: LoadPoint) -> Iterator[str]:
    if not point.is_valid:
        yield invalid_sentence(point)
    if point.early_share:
        yield _early(point)
    shown, others = (list(point.failures.items())[part] for part in (slice(MOST_REASONS), slice(MOST_REASONS, None)))
    for reason, number in shown:
        yield f"{number} failed: {first_line(reason)}"
    if others:
        further = sum(number for _, number in others)
        yield f"and {further} further for {count(len(others), 'other reason')}"


def _early(point: LoadPoint) -> str:
    return f"{format_share(point.early_share)} of the answers ended before {point.new_tokens} tokens"


def invalid_sentence(point: LoadPoint) -> str:
    """Why the figures are worth nothing."""
    if point.clients_failures:
        failed = count(point.clients_failures, "request")
        return f"INVALID: {failed} failed as this client was short of file descriptors or ports, not by the server"
    return (
        f"INVALID: requests were sent up to {format_seconds(point.lag_s)} after their time, more than "
        f"{format_seconds(point.lag_limit_s)}, so the figures describe this client, not the server"
    )


def load_sentences(run: Run) -> Iterator[str]:
    """Sentences for each server and test on the highest rate that it sustains, and what becomes of the next; which
    loads are invalid."""
    for point in run.loads:
        if not point.is_valid:
            yield f"{point.variant} at {point.rate_per_s:g}/s, {_tokens(point)} tokens: {invalid_sentence(point)}."
    for points in _by_series(point for point in run.loads if point.is_valid).values():
        yield _series_sentence(points, names_test=len({point.function for point in run.loads}) > 1)


def _series_sentence(points: Sequence[LoadPoint], *, names_test: bool) -> str:
    """points: of one series, by their rates. A rate counts as sustained only where all lower ones are, too."""
    kept = list(takewhile(lambda point: point.good_share >= NEARLY_ALL, points))
    beyond = points[len(kept)] if len(kept) < len(points) else None
    last = kept[-1] if kept else points[0]
    limits = f"TTFT ≤ {format_seconds(last.ttft_limit_s)} and TPOT ≤ {format_seconds(last.tpot_limit_s)}"
    of = f", {_tokens(last)} tokens" + (f" ({last.function})" if names_test else "")
    further = f"; at {beyond.rate_per_s:g}/s {format_share(beyond.good_share)}" if beyond and beyond is not last else ""
    early = f"; {_early(last)}" if last.early_share else ""
    return (
        f"{last.variant} answers {format_share(last.good_share)} of {count(len(last.requests), 'request')} at "
        f"{last.rate_per_s:g}/s{of}, within {limits}{further}{early}."
    )


def thread_sections(found: Sequence[InThreads], default: int) -> Iterator[Section]:
    """A row for each variant and number of threads; nothing without a sweep. default: the default number."""
    rows: list[tuple[Cell, ...]] = []
    for name, swept in grouped(found, lambda one: one.over.variant).items():
        rows.append((Cell(name), Cell(value=default), Cell.latency(swept[0].over), Cell("default")))
        for one in swept:
            tone = Tone.of(is_better=one.is_better, is_worse=one.is_worse)
            over_default = replace(Cell.times(one.found), tone=tone)
            rows.append((Cell(name), Cell(value=one.threads), Cell.latency(one.of), over_default))
    if rows:
        note = f"{describe_workload(found[0].over)}. By default each variant computes in {count(default, 'thread')}."
        yield Section("Threads", Table((Column(VARIANT), THREADS, LATENCY, OVER_DEFAULT), tuple(rows)), f"On {note}")


def thread_sentences(found: Sequence[InThreads], run: Run) -> Iterator[str]:
    """The best number for each variant that gains from another than the default, and the variants that don't."""
    same, default = [], run.provenance.threads
    for name, swept in grouped(found, lambda one: one.over.variant).items():
        better = [(one.found, one) for one in swept if one.found is not None and one.is_better]
        if not better:
            same.append(name)
            continue
        gain, best = max(better, key=lambda one: one[0].ratio)
        gained = f"{name} is {times_words(gain.ratio, gain.low, gain.high)} as fast"
        compared = f"{gained} in {count(best.threads, 'thread')} as in {default}, the default"
        if disturbed := disturbance(best.of, best.over):
            doubt = f"in {disturbed[0]} of {disturbed[1]} pairs of rounds, threads waited for a core"
            yield f"{compared}, which is doubtful: {doubt}."
        else:
            yield f"{compared}: run it as {best.of.variant} here, elsewhere with {_setting(run, name)} {best.threads}."
    if same:
        yield f"No number of threads is shown to be faster than the default, {default}, for {', '.join(same)}."


def _setting(run: Run, name: str) -> str:
    """Call that sets the variant's number of threads in a program of the user's own."""
    variant = run.variant(name)
    backend = BACKENDS.get(variant.backend) if variant else None
    return backend.threads_setting if backend else "its number of threads"


def device_sections(seen: Evidence) -> Iterator[Section]:
    """A row for each device that a variant's layers lie on, and one for all; nothing where nobody asked to spread
    them."""
    spread = [variant for variant in seen.run.loaded if variant.weight_bytes_by_device]
    rows = [row for variant in spread for row in _device_rows(variant, seen.common.get(variant.id))]
    if rows:
        yield Section("Weights, memory and bandwidth by device", Table(DEVICE_COLUMNS, tuple(rows)), DEVICE_NOTE)


def _device_rows(variant: VariantResult, record: Record | None) -> Iterator[tuple[Cell, ...]]:
    memory, sizes, rates = record and record.memory, variant.weight_bytes_by_device, variant.read_bytes_per_s_by_device
    peaks = {"cpu": memory.own_bytes, **memory.cuda_by_device} if memory else {}
    for place in dict.fromkeys((*sizes, *peaks)):
        shown = sizes.get(place, 0), peaks.get(place), rates.get(place)
        yield (Cell(variant.id), Cell(place), *(Cell(value=value) for value in shown))
    total = variant.weight_bytes, sum(peaks.values()) if peaks else None, variant.read_bytes_per_s
    yield (Cell(variant.id), Cell("all"), *(Cell(value=value) for value in total))


def equivalence_sections(run: Run) -> Iterator[Section]:
    """Whether a variant's text depends on how it is run: a row a variant, a column a mode."""
    if variants := [variant for variant in run.variants if variant.equivalence]:
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
