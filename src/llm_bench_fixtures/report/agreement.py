"""What several runs are called, how far pooled ones agree (a sentence, and tables of each run's speed-ups, latencies
and memory), and in which order machines have the variants."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from llm_bench_fixtures.answer.agreement import Agreement, FiguresByRun, Pairs, contradicted, rank, shown_order
from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.history.storage import MADE_BY_AUTOSAVE
from llm_bench_fixtures.report.tables.table import VARIANT, Cell, Column, Section, Table
from llm_bench_fixtures.results.folder import folder_name
from llm_bench_fixtures.results.formatting import Notation, count, format_share, three_digits
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME
from llm_bench_fixtures.results.pooled import PooledRun
from llm_bench_fixtures.results.provenance import Provenance
from llm_bench_fixtures.results.storage import RESULTS_FILE
from llm_bench_fixtures.text import first_few

if TYPE_CHECKING:
    from llm_bench_fixtures.report.findings import Findings

METHOD = (
    "A pooled speed-up is the mean of the runs' speed-ups, weighted by how sure each is. Its interval allows for "
    "differences between runs (Hartung and Knapp 2001): runs that agree make it narrower, and runs that are farther "
    "apart than their rounds explain make it wider."
)
TRADEMARKS = re.compile(r"\((R|TM)\)|\bCPU\b|, \d+ cores?$", re.IGNORECASE)
AGREE = "yes"
RANKS_NOTE = (
    "1 is the fastest on the workload of the answer. 2–4: the rank is one of these; the others are too close to "
    "tell. At 95 % confidence, a few of many orders may be chance."
)


def short_machine(hardware: str) -> str:
    """The processor without its trademarks and its number of cores."""
    return " ".join(TRADEMARKS.sub("", hardware).split()) or hardware


def in_utc(started: str) -> str:
    """Time to the minute; as it is where it is no time."""
    try:
        return f"{datetime.fromisoformat(started).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return started


def _parts(one: Provenance) -> tuple[str, str, str]:
    """Parts of a label, wherever they differ: the model, the machine and the device."""
    model = f"{one.model} (random weights)" if one.random_weights else one.model
    return model, short_machine(one.hardware), one.device


def _more(one: Provenance, source: str) -> tuple[str, ...]:
    """What else may tell runs apart, the most telling first.

    source: the run's file. Its name stands without what --benchmark-autosave makes of the commit and the time; for a
    results.json its folder's.
    """
    path = Path(source)
    file = MADE_BY_AUTOSAVE.sub("", path.stem) if path.name != RESULTS_FILE else folder_name(path)
    libraries = ", ".join(f"{name} {version}" for name, version in one.libraries.items())
    threads, commit = count(one.threads, "thread"), one.commit[:12]
    return one.hardware, threads, commit, file, libraries, in_utc(one.started), one.started


def common_to(origins: Sequence[Provenance]) -> str:
    """The model and the machine, as far as all runs share them."""
    models, machines, _ = zip(*map(_parts, origins), strict=True)
    return ", ".join(found[0] for found in (models, machines) if len(set(found)) == 1)


def labels_of(origins: Sequence[Provenance], sources: Sequence[str] = ()) -> list[str]:
    """A different one for each run: its model and machine as far as these differ, then whatever else tells them apart,
    alone or, where nothing does alone, together. sources: the runs' files."""
    chosen = _differing(map(_parts, origins))
    others = _differing(map(_more, origins, sources or [""] * len(origins)))
    alone = [texts for texts in others if _all_differ([*chosen, texts])]
    for texts in alone or others:
        if not _all_differ(chosen):
            chosen.append(texts)
    labels = [" · ".join(filter(None, texts)) for texts in zip(*chosen, strict=True)] or [one.model for one in origins]
    return labels if len(set(labels)) == len(labels) else [f"{label} · run {at}" for at, label in enumerate(labels, 1)]


def _differing(runs: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The texts of each kind that isn't the same in all runs. runs: the texts of each."""
    return [texts for texts in zip(*runs, strict=True) if len(set(texts)) > 1]


def _all_differ(chosen: Sequence[Sequence[str]]) -> bool:
    rows = list(zip(*chosen, strict=True))
    return bool(rows) and len(set(rows)) == len(rows)


def agreement_sentence(found: Agreement) -> str:
    """How many runs are pooled, how far apart they came out, and what only some of them have."""
    sentence = f"{len(found.runs)} runs of the same version are pooled"
    if spreads := {one.variant: one.spread for one in found.variants if one.spread is not None}:
        widest = max(spreads, key=spreads.__getitem__)
        sentence += f": their speed-ups differ by at most {format_share(spreads[widest])} ({widest})"
    batches = [(variant, f" at batch {size}" if size > 1 else "", runs) for variant, size, runs in found.of_fewer]
    fewer = ", ".join(f"{variant}{batch} ({runs} of {len(found.runs)})" for variant, batch, runs in batches)
    return f"{sentence}. Speed-ups of fewer runs: {fewer}." if fewer else f"{sentence}."


def agreement_warnings(found: Agreement) -> Iterator[str]:
    """Where runs contradict each other, though nothing that is known of them differs."""
    for one in (variant for variant in found.variants if variant.disagrees):
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
    pooled = [one for one in found.variants if one.pooled]
    times = [
        (Cell(one.variant), *map(Cell.times, (one.pooled, *one.speedups)), Cell(value=one.spread)) for one in pooled
    ]
    memory = METRIC_BY_NAME[found.memory_metric]
    latencies = [_row(one.variant, one.latency_s) for one in found.variants]
    peaks = [_row(one.variant, one.memory) for one in found.variants]
    note = f"Speed-ups over {run.reference}. {METHOD}"
    yield from _section("Speed-up in each run", Notation.TIMES, times, labels, note)
    yield from _section("Latency in each run", Notation.SECONDS, latencies, labels, "Pooled: the median of all rounds.")
    yield from _section(f"{memory.title} in each run", Notation.BYTES, peaks, labels, "Pooled: the median of the runs.")


def _row(variant: str, figures: FiguresByRun) -> tuple[Cell, ...]:
    values = (figures.pooled, *figures.runs, figures.spread)
    return (Cell(variant), *(Cell(value=value) for value in values))


def _section(
    title: str, notation: Notation, rows: Sequence[tuple[Cell, ...]], labels: Sequence[str], note: str
) -> Iterator[Section]:
    values = [cell for row in rows for cell in row[1:-1]]
    if any(not cell.is_missing for cell in values):
        columns = (Column(name, notation).in_one_unit(values) for name in ("pooled", *labels))
        yield Section(title, Table((Column(VARIANT), *columns, Column("differ by", Notation.SHARE)), tuple(rows)), note)


@dataclass(frozen=True)
class Ranks:
    sentence: str
    """Whether the machines agree, and where they don't."""
    section: Section


def ranks_of(runs: Sequence[tuple[str, str, Evidence]]) -> Ranks | None:
    """runs: of each what runs, the machine, and its evidence. None where no two machines measured the same, or one
    machine did so twice."""
    runs = [one for one in runs if one[-1].common]
    groups: dict[str, dict[str, Evidence]] = {}
    for what, machine, seen in runs:
        groups.setdefault(what, {})[machine] = seen
    shared = {what: found for what, found in groups.items() if len(found) > 1}
    if not shared or sum(map(len, groups.values())) < len(runs):
        return None
    machines = list(dict.fromkeys(machine for found in shared.values() for machine in found))
    rows = [row for what, found in shared.items() for row in _rank_rows(what, found, machines)]
    apart = list(dict.fromkeys(row[0].words for row in rows if row[-1].words != AGREE))
    columns = (Column("what"), Column(VARIANT), *map(Column, machines), Column("agree"))
    section = Section("Ranks by machine", Table(columns, tuple(rows)), RANKS_NOTE)
    return Ranks(_order_sentence(list(shared), apart), section)


def _order_sentence(shared: Sequence[str], apart: Sequence[str]) -> str:
    if not apart:
        return "No machine is shown to rank the variants differently."
    agree = len(shared) - len(apart)
    others = f"; elsewhere ({agree}) they agree, as far as is shown" if agree else ""
    return f"Machines have the variants in different orders for {', '.join(first_few(apart))}{others}."


def _rank_rows(what: str, found: Mapping[str, Evidence], machines: Sequence[str]) -> Iterator[tuple[Cell, ...]]:
    shown = {machine: frozenset(shown_order(seen)) for machine, seen in found.items()}
    for variant in dict.fromkeys(name for seen in found.values() for name in seen.common):
        cells = [_rank_cell(variant, shown[one], found[one]) if one in found else Cell() for one in machines]
        others = contradicted(variant, list(shown.values()))
        yield (Cell(what), Cell(variant), *cells, Cell(f"no: {', '.join(others)}" if others else AGREE))


def _rank_cell(variant: str, shown: Pairs, seen: Evidence) -> Cell:
    if variant not in seen.common:
        return Cell()
    low, high = rank(variant, seen.common, shown)
    return Cell(f"{low}" if low == high else f"{low}–{high}", rank=(low + high) / 2)
