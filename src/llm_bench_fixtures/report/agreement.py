"""How far pooled runs agree: a sentence, a table of each run's speed-ups, and one of latencies and memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from llm_bench_fixtures.answer.agreement import Agreement, FiguresByRun
from llm_bench_fixtures.report.run_labels import labels_of
from llm_bench_fixtures.report.tables.table import VARIANT, Cell, Column, Section, Table, in_one_unit
from llm_bench_fixtures.report.tables.values import times_cell
from llm_bench_fixtures.results.formatting import Notation, format_share, three_digits
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME
from llm_bench_fixtures.results.pooled import PooledRun

if TYPE_CHECKING:
    from llm_bench_fixtures.report.findings import Findings

TITLE = "Speed-up in each run"
METHOD = (
    "A pooled speed-up is the mean of the runs' speed-ups, weighted by how sure each is. Its interval allows for "
    "differences between runs (Hartung and Knapp 2001): runs that agree make it narrower, and runs that are farther "
    "apart than their rounds explain make it wider."
)


def agreement_sentence(found: Agreement) -> str:
    """How many runs are pooled, and how far apart they came out."""
    pooled = f"{len(found.runs)} runs of the same version are pooled"
    if found.widest is None or found.widest.spread is None:
        return f"{pooled}."
    return f"{pooled}: their speed-ups differ by at most {format_share(found.widest.spread)} ({found.widest.variant})."


def agreement_warnings(found: Agreement) -> Iterator[str]:
    """Where runs contradict each other, though nothing that is known of them differs."""
    for one in found.disagreeing:
        ratios = [speedup.ratio for speedup in one.speedups if speedup]
        yield (
            f"The runs disagree on {one.variant}: {three_digits(min(ratios))}× to {three_digits(max(ratios))}×, which "
            "is more than chance explains. Its interval is wider for it; the machine may have been busy in one of them."
        )
    if found.quality_differences:
        yield (
            "Quality differs between the runs, though the same version should give the same: "
            f"{'; '.join(found.quality_differences)}."
        )


def agreement_sections(findings: Findings) -> Iterator[Section]:
    """Tables of speed-ups, latencies and memory: each run's next to the pooled one. None for a single run."""
    found, run = findings.agreement, findings.run
    if found is None or not isinstance(run, PooledRun):
        return
    labels = labels_of([one.provenance for one in run.runs], [one.source for one in run.runs])
    compared = [one for one in found.variants if one.pooled]
    speedups = [
        (Cell(one.variant), times_cell(one.pooled), *map(times_cell, one.speedups), Cell(value=one.spread))
        for one in compared
    ]
    memory = METRIC_BY_NAME[found.memory_metric]
    latencies, peaks = ([*_rows(found, name)] for name in ("latency_s", "memory"))
    note = f"Speed-ups over {run.reference}. {METHOD}"
    yield from _section(TITLE, Notation.TIMES, speedups, labels, note)
    yield from _section("Latency in each run", Notation.SECONDS, latencies, labels, "Pooled: the median of all rounds.")
    yield from _section(f"{memory.title} in each run", Notation.BYTES, peaks, labels, "Pooled: the median of the runs.")


def _rows(found: Agreement, name: str) -> Iterator[tuple[Cell, ...]]:
    for one in found.variants:
        figures: FiguresByRun = getattr(one, name)
        values = [Cell(value=value) for value in (figures.pooled, *figures.runs)]
        yield (Cell(one.variant), *values, Cell(value=figures.spread))


def _section(
    title: str, notation: Notation, rows: Sequence[tuple[Cell, ...]], labels: Sequence[str], note: str
) -> Iterator[Section]:
    values = [cell for row in rows for cell in row[1:-1]]
    if any(not cell.is_missing for cell in values):
        columns = (in_one_unit(Column(name, notation), values) for name in ("pooled", *labels))
        yield Section(title, Table((Column(VARIANT), *columns, Column("differ by", Notation.SHARE)), tuple(rows)), note)
