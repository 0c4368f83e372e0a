"""What several runs are called, and how far pooled ones agree: a sentence, a table of each run's speed-ups, and one of
latencies and memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from llm_bench_fixtures.answer.agreement import Agreement, FiguresByRun
from llm_bench_fixtures.history.storage import MADE_BY_AUTOSAVE
from llm_bench_fixtures.report.tables.table import VARIANT, Cell, Column, Section, Table
from llm_bench_fixtures.results.formatting import Notation, count, format_share, three_digits
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME
from llm_bench_fixtures.results.pooled import PooledRun
from llm_bench_fixtures.results.provenance import Provenance
from llm_bench_fixtures.results.storage import RESULTS_FILE

if TYPE_CHECKING:
    from llm_bench_fixtures.report.findings import Findings

TITLE = "Speed-up in each run"
METHOD = (
    "A pooled speed-up is the mean of the runs' speed-ups, weighted by how sure each is. Its interval allows for "
    "differences between runs (Hartung and Knapp 2001): runs that agree make it narrower, and runs that are farther "
    "apart than their rounds explain make it wider."
)
PARTS: tuple[Callable[[Provenance], str], ...] = (
    lambda one: f"{one.model} (random weights)" if one.random_weights else one.model,
    lambda one: short_machine(one.hardware),
    lambda one: one.device,
)  # parts of a label, wherever they differ
MORE: tuple[Callable[[Provenance], str], ...] = (
    lambda one: one.hardware,
    lambda one: count(one.threads, "thread"),
    lambda one: one.commit[:12],
)  # what else may tell the runs apart, the most telling first; then the folder's name, and these:
LAST: tuple[Callable[[Provenance], str], ...] = (
    lambda one: ", ".join(f"{name} {version}" for name, version in one.libraries.items()),
    lambda one: in_utc(one.started),
    lambda one: one.started,
)

TRADEMARKS = re.compile(r"\((R|TM)\)|\bCPU\b|, \d+ cores?$", re.IGNORECASE)


def short_machine(hardware: str) -> str:
    """The processor without its trademarks and its number of cores."""
    return " ".join(TRADEMARKS.sub("", hardware).split()) or hardware


def in_utc(started: str) -> str:
    """Time to the minute; as it is where it is no time."""
    try:
        return f"{datetime.fromisoformat(started).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return started


def _folder(source: str) -> str:
    """The file's name, without what --benchmark-autosave makes of the commit and the time; of a results.json that of
    its folder."""
    path = Path(source)
    return MADE_BY_AUTOSAVE.sub("", path.stem) if path.name != RESULTS_FILE else path.absolute().parent.name


def common_to(origins: Sequence[Provenance]) -> str:
    """The model and the machine, as far as all runs share them."""
    texts = [{part(one) for one in origins} for part in PARTS[:2]]
    shared = [found.pop() for found in texts if len(found) == 1]
    return ", ".join(shared)


def labels_of(origins: Sequence[Provenance], sources: Sequence[str] = ()) -> list[str]:
    """A different one for each run: its model and machine as far as these differ, then whatever else tells them apart,
    alone or, where nothing does alone, together. sources: the runs' files."""
    folders = [list(map(_folder, sources))] if sources else []
    parts, more, last = ([[part(one) for one in origins] for part in parts] for parts in (PARTS, MORE, LAST))
    chosen = [texts for texts in parts if len(set(texts)) > 1]
    others = [texts for texts in (*more, *folders, *last) if len(set(texts)) > 1]
    if not _all_differ(chosen):
        enough = next((texts for texts in others if _all_differ([*chosen, texts])), None)
        for texts in others if enough is None else [enough]:
            if not _all_differ(chosen):
                chosen.append(texts)
    labels = [" · ".join(filter(None, texts)) for texts in zip(*chosen, strict=True)] or [one.model for one in origins]
    return labels if len(set(labels)) == len(labels) else [f"{label} · run {at}" for at, label in enumerate(labels, 1)]


def _all_differ(chosen: Sequence[Sequence[str]]) -> bool:
    rows = list(zip(*chosen, strict=True))
    return bool(rows) and len(set(rows)) == len(rows)


def agreement_sentence(found: Agreement) -> str:
    """How many runs are pooled, how far apart they came out, and what only some of them have."""
    sentence = f"{len(found.runs)} runs of the same version are pooled"
    if found.widest is not None and found.widest.spread is not None:
        widest = f"{format_share(found.widest.spread)} ({found.widest.variant})"
        sentence += f": their speed-ups differ by at most {widest}"
    fewer = ", ".join(
        f"{variant}{f' at batch {size}' if size > 1 else ''} ({runs} of {len(found.runs)})"
        for variant, size, runs in found.of_fewer
    )
    return f"{sentence}. Speed-ups of fewer runs: {fewer}." if fewer else f"{sentence}."


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
        (Cell(one.variant), Cell.times(one.pooled), *map(Cell.times, one.speedups), Cell(value=one.spread))
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
        columns = (Column(name, notation).in_one_unit(values) for name in ("pooled", *labels))
        yield Section(title, Table((Column(VARIANT), *columns, Column("differ by", Notation.SHARE)), tuple(rows)), note)
