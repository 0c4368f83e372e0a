"""The sweep over numbers of threads: a table, and its conclusions in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from llm_bench_fixtures.answer.noise import disturbance
from llm_bench_fixtures.answer.threads import InThreads
from llm_bench_fixtures.grouping import grouped
from llm_bench_fixtures.models.backends import BACKENDS
from llm_bench_fixtures.report.tables.table import LATENCY, VARIANT, Cell, Column, Section, Table, Tone
from llm_bench_fixtures.report.words.workload import describe_workload, times_words
from llm_bench_fixtures.results.formatting import Notation, count
from llm_bench_fixtures.results.record import Run

COLUMNS = (
    Column(VARIANT),
    Column("threads", Notation.COUNT),
    LATENCY,
    Column("over the default", Notation.TIMES),
)


def thread_sections(found: Sequence[InThreads], default: int) -> Iterator[Section]:
    """A row for each variant and number of threads; nothing without a sweep. default: the default number."""
    rows: list[tuple[Cell, ...]] = []
    for name, swept in grouped(found, lambda one: one.over.variant).items():
        rows.append((Cell(name), Cell(value=default), Cell.latency(swept[0].over), Cell("default")))
        rows += ((Cell(name), Cell(value=one.threads), Cell.latency(one.of), _speedup(one)) for one in swept)
    if rows:
        note = f"{describe_workload(found[0].over)}. By default each variant computes in {count(default, 'thread')}."
        yield Section("Threads", Table(COLUMNS, tuple(rows)), f"On {note}")


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


def _speedup(one: InThreads) -> Cell:
    """The speed-up, marked where it is shown to be better or worse."""
    tone = Tone.BETTER if one.is_better else Tone.WORSE if one.is_worse else None
    return replace(Cell.times(one.found), tone=tone)
