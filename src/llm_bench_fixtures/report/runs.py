"""Several runs beside each other, by machine and model: one table, and what in it can't be compared.

Each run is told by its own findings. A figure of another run is left out where it is of something else than the first
run's: another workload, reference, corpus or kind of peak.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from llm_bench_fixtures.errors import first_line
from llm_bench_fixtures.report.comparable import Aspect, obstacles
from llm_bench_fixtures.report.document import Table
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.picks import Pick, Reader, against
from llm_bench_fixtures.report.short_table import BATCHED, FLIPS, Column, figure_columns
from llm_bench_fixtures.results.formatting import MISSING, count
from llm_bench_fixtures.results.record import Provenance

VARIANT, RUN = "variant", "run"


COLUMNS = {
    "latency": Aspect.LATENCY,
    "speed-up": Aspect.SPEEDUP,
    BATCHED: Aspect.THROUGHPUT,
    "weights": None,
    "peak": Aspect.PEAK,
    "perplexity": Aspect.QUALITY,
    "top-1": Aspect.QUALITY,
    FLIPS: Aspect.FLIPS,
}  # of the table, from the left to the right; weights are always comparable


@dataclass(frozen=True)
class RunBeside:
    """One of several runs."""

    label: str
    """Its machine and model, as far as they tell the runs apart."""
    source: str
    """Its file."""
    findings: Findings
    left_out: Mapping[Aspect, str]
    """Why these are not comparable with the first run's."""

    @property
    def sentences(self) -> Iterator[str]:
        """What is left out, and why; aspects with the same reason together."""
        for reason in dict.fromkeys(self.left_out.values()):
            aspects = ", ".join(aspect for aspect, why in self.left_out.items() if why == reason)
            yield f"{self.label}: no {aspects}: {reason}."


@dataclass(frozen=True)
class ReadersRow:
    """What one run's answer is for a reader."""

    label: str
    variant: str
    figure: str
    beside: str
    """How it stands to the run's reference, or that nothing beats that."""


@dataclass(frozen=True)
class Runs:
    """Everything that is said of several runs."""

    runs: tuple[RunBeside, ...]
    common: str
    """The model and the machine, as far as all runs share them."""
    sentence: str
    """What to use on each, in one sentence."""
    readers: tuple[tuple[Reader, tuple[ReadersRow, ...]], ...]
    """For each reader, the answer of each run that has one."""
    table: Table
    """A row for each variant and run."""
    about: Table
    """A row a run: where it comes from."""
    incomparable: tuple[str, ...]
    """What was left out, by the run's name, with the reason."""
    notes: tuple[str, ...]

    @property
    def answers(self) -> tuple[tuple[str, str], ...]:
        """By run, its answer in one sentence; runs with the same one together."""
        found: dict[str, list[str]] = {}
        for run in self.runs:
            found.setdefault(run.findings.answer.sentence, []).append(run.label)
        if len(found) == 1 < len(self.runs):
            return tuple((f"on all {len(self.runs)}", sentence) for sentence in found)
        return tuple((", ".join(labels), sentence) for sentence, labels in found.items())


def runs_of(named: Sequence[tuple[str, Findings]], unreadable: Sequence[str] = ()) -> Runs:
    """named: each run's file and what its own report says; at least one. unreadable: why further files are not among
    them."""
    labels = labels_of([findings.run.provenance for _, findings in named], [source for source, _ in named])
    first = named[0][1]
    runs = tuple(
        RunBeside(label, source, findings, obstacles(first, findings))
        for label, (source, findings) in zip(labels, named, strict=True)
    )
    readers = tuple((reader, tuple(_reader_rows(runs, reader))) for reader in Reader)
    return Runs(
        runs=runs,
        common=_common([findings.run.provenance for _, findings in named]),
        sentence=_sentence(readers),
        readers=tuple((reader, rows) for reader, rows in readers if rows),
        table=_table(runs),
        about=_about(runs),
        incomparable=tuple(_incomparable(runs, unreadable)),
        notes=tuple(_notes(runs)),
    )


PARTS: tuple[Callable[[Provenance], str], ...] = (
    lambda one: f"{one.model} (random weights)" if one.random_weights else one.model,
    lambda one: _short_machine(one.hardware),
    lambda one: one.device,
)  # of a label, wherever they differ
MORE: tuple[Callable[[Provenance], str], ...] = (
    lambda one: one.hardware,
    lambda one: count(one.threads, "thread"),
    lambda one: one.commit[:12],
)  # what else may tell the runs apart, the most telling first; then the folder's name, and these:
LAST: tuple[Callable[[Provenance], str], ...] = (
    lambda one: ", ".join(f"{name} {version}" for name, version in one.libraries.items()),
    lambda one: _short_time(one.started),
    lambda one: one.started,
)

TRADEMARKS = re.compile(r"\((R|TM)\)|\bCPU\b|, \d+ cores?$", re.IGNORECASE)


def _short_machine(hardware: str) -> str:
    """The processor without its trademarks and its number of cores."""
    return " ".join(TRADEMARKS.sub("", hardware).split()) or hardware


def _short_time(started: str) -> str:
    """22 Nov 11:09 UTC; as it is where it is no time."""
    try:
        return datetime.fromisoformat(started).astimezone(UTC).strftime("%d %b %H:%M UTC")
    except ValueError:
        return started


def _folder(source: str) -> str:
    """The file's name; of a results.json that of its folder."""
    path = Path(source)
    return path.stem if path.stem != "results" else path.absolute().parent.name


def _common(origins: Sequence[Provenance]) -> str:
    texts = [{part(one) for one in origins} for part in PARTS[:2]]
    return ", ".join(found.pop() for found in texts if len(found) == 1)


def labels_of(origins: Sequence[Provenance], sources: Sequence[str] = ()) -> list[str]:
    """A different one for each run: its model and machine as far as these differ, then whatever else tells them apart,
    alone or, where nothing does alone, together. sources: the runs' files."""
    chosen = [texts for texts in _texts(PARTS, origins) if len(set(texts)) > 1]
    if not _all_differ(chosen):
        folders = [list(map(_folder, sources))] if sources else []
        others = [*_texts(MORE, origins), *folders, *_texts(LAST, origins)]
        chosen = _told_apart(chosen, [texts for texts in others if len(set(texts)) > 1])
    if not chosen:
        chosen = [[one.model for one in origins]]
    labels = [" · ".join(filter(None, texts)) for texts in zip(*chosen, strict=True)]
    return labels if len(set(labels)) == len(labels) else [f"{label} · run {at}" for at, label in enumerate(labels, 1)]


def _texts(parts: Sequence[Callable[[Provenance], str]], origins: Sequence[Provenance]) -> list[list[str]]:
    return [[part(one) for one in origins] for part in parts]


def _told_apart(chosen: list[list[str]], others: Sequence[list[str]]) -> list[list[str]]:
    """With the first of the others that is enough alone, else with as many as it takes."""
    for texts in others:
        if _all_differ([*chosen, texts]):
            return [*chosen, texts]
    for texts in others:
        if not _all_differ(chosen):
            chosen = [*chosen, texts]
    return chosen


def _all_differ(chosen: Sequence[Sequence[str]]) -> bool:
    rows = list(zip(*chosen, strict=True))
    return bool(rows) and len(set(rows)) == len(rows)


def _reader_rows(runs: Sequence[RunBeside], reader: Reader) -> Iterator[ReadersRow]:
    for run in runs:
        for one in run.findings.answer.recommendations:
            if one.pick.reader is reader and one.pick.best is not None:
                best = one.pick.best
                yield ReadersRow(run.label, best.variant, best.figure, _beside(one.pick, run.findings.run.reference))


def _beside(pick: Pick, reference: str) -> str:
    best = pick.best
    if best is None or not pick.is_proven:
        return "nothing is shown to beat it"
    others = f"; or {', '.join(pick.variants[1:])}" if len(pick.variants) > 1 else ""
    over = f"as fast as {reference}" if pick.reader is Reader.LATENCY else f"{reference}'s {pick.reader.quantity}"
    return f"{against(best)} {over}{others}"


def _sentence(readers: Sequence[tuple[Reader, Sequence[ReadersRow]]]) -> str:
    """For each reader one variant for all runs, or one for each."""
    clauses = [f"{reader}: {_choices(rows)}" for reader, rows in readers if rows]
    text = "; ".join(clauses) or "None of the runs has an answer"
    return f"{text[:1].upper()}{text[1:]}."


def _choices(rows: Sequence[ReadersRow]) -> str:
    chosen: dict[str, list[str]] = {}
    for row in rows:
        chosen.setdefault(row.variant, []).append(row.label)
    if len(chosen) == 1 and len(rows) > 1:
        return f"{rows[0].variant} on all of them"
    return ", ".join(f"{variant} on {_named(labels)}" for variant, labels in chosen.items())


def _named(labels: Sequence[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{len(labels)} runs"


def _table(runs: Sequence[RunBeside]) -> Table:
    """Rows by variant, the runs of each together. One unit a column where all runs are read best in the same."""
    of_run = {run.label: _columns(run) for run in runs}
    names = [name for name in COLUMNS if any(name in columns for columns in of_run.values())]
    units = {name: {columns[name].unit for columns in of_run.values() if name in columns} for name in names}
    places = list(_places(runs))
    rows = tuple(
        (variant, label, *(_cell(of_run[label].get(name), variant, len(units[name]) > 1) for name in names))
        for variant, label in places
    )
    tones = {
        (row, column): of_run[label][name].tones[variant]
        for row, (variant, label) in enumerate(places)
        for column, name in enumerate(names, 2)
        if name in of_run[label] and variant in of_run[label][name].tones
    }
    header = (VARIANT, RUN, *(name if len(units[name]) > 1 else _headed(name, *units[name]) for name in names))
    return Table(header, rows, frozenset(range(2, len(header))), tones)


def _places(runs: Sequence[RunBeside]) -> Iterator[tuple[str, str]]:
    """The variant and the run of each row: the variants that ran."""
    for name in dict.fromkeys(variant.id for run in runs for variant in run.findings.run.variants):
        for run in runs:
            variant = run.findings.run.variant(name)
            if variant is not None and variant.label:
                yield name, run.label


def _columns(run: RunBeside) -> dict[str, Column]:
    """By name, those that are comparable and have a value."""
    found = {column.name: column for column in figure_columns(run.findings) if column.has_values}
    return {name: found[name] for name, of in COLUMNS.items() if name in found and of not in run.left_out}


def _headed(name: str, unit: str) -> str:
    return f"{name}, {unit}" if unit else name


def _cell(column: Column | None, variant: str, has_unit: bool) -> str:
    """With its unit where the column's rows have several; then without its spread."""
    text = column.cells.get(variant, MISSING) if column else MISSING
    if column is None or text == MISSING or not has_unit:
        return text
    return f"{text.partition(' ±')[0]} {column.unit}"


def _about(runs: Sequence[RunBeside]) -> Table:
    rows = []
    for run in runs:
        origin = run.findings.run.provenance
        machine = f"{origin.hardware}, {count(origin.threads, 'thread')}; {origin.device}"
        rows.append((run.label, origin.model, machine, origin.started, origin.commit[:12] or MISSING, run.source))
    return Table((RUN, "model", "machine", "started", "commit", "file"), tuple(rows))


def _incomparable(runs: Sequence[RunBeside], unreadable: Sequence[str]) -> Iterator[str]:
    for reason in unreadable:
        yield f"Not here: {reason}."
    for run in runs:
        if not run.findings.common:
            yield f"{run.label}: nothing was timed in it."
        yield from run.sentences


def _notes(runs: Sequence[RunBeside]) -> Iterator[str]:
    """How to read the table, and what didn't run where."""
    yield "Two runs were taken apart: of their latencies only a difference far beyond their noise means anything."
    for run in runs:
        yield f"{run.label}: noise of the median latency {run.findings.noise.percent:.0f} %."
    if len({run.findings.run.provenance.model for run in runs}) > 1:
        yield "Perplexities of two models are over other tokens; the change against the own reference can be compared."
    for run in runs:
        yield from (f"{run.label}: {warning}" for warning in run.findings.warnings)
        absent = [one for one in run.findings.run.variants if not one.label]
        if absent:
            names = "; ".join(f"{one.id} ({one.status}: {first_line(one.reason)})" for one in absent)
            yield f"{run.label}: not measured: {names}."
