"""Several runs beside each other, by machine and model: one table, and what in it can't be compared.

Each run is told by its own findings. A figure of another run is left out where it is of something else than the first
run's: another workload, reference, corpus or kind of peak.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from llm_bench_fixtures.answer.picks import Reader
from llm_bench_fixtures.errors import first_line
from llm_bench_fixtures.report.comparable import Aspect, obstacles
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.run_labels import common_to, labels_of
from llm_bench_fixtures.report.tables.short import BATCHED, FLIPS, figure_columns
from llm_bench_fixtures.report.tables.table import VARIANT, Cell, Column, Figures, Table, in_one_unit
from llm_bench_fixtures.report.words.answer import standing_words
from llm_bench_fixtures.results.formatting import MISSING, count

RUN = "run"


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
    """How it stands to the run's reference."""


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
        return tuple(_together([(run.label, run.findings.answer.sentence) for run in self.runs], len(self.runs)))


def _together(said: Iterable[tuple[str, str]], runs: int) -> Iterator[tuple[str, str]]:
    """The labels of all that say the same, and what they say. said: a label and a sentence each. runs: how many there
    are in all."""
    found: dict[str, list[str]] = {}
    for label, sentence in said:
        found.setdefault(sentence, []).append(label)
    for sentence, labels in found.items():
        yield (f"on all {runs}" if len(labels) == runs > 1 else ", ".join(labels)), sentence


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
        common=common_to([findings.run.provenance for _, findings in named]),
        sentence=_sentence(readers),
        readers=tuple((reader, rows) for reader, rows in readers if rows),
        table=_table(runs),
        about=_about(runs),
        incomparable=tuple(_incomparable(runs, unreadable)),
        notes=tuple(_notes(runs)),
    )


def _reader_rows(runs: Sequence[RunBeside], reader: Reader) -> Iterator[ReadersRow]:
    for run in runs:
        for one in run.findings.answer.recommendations:
            if one.pick.reader is reader:
                words = standing_words(one.pick, run.findings.run.reference)
                yield ReadersRow(run.label, one.name, one.figure, words)


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
    """Rows by variant, the runs of each together. One unit a column."""
    of_run = {run.label: _columns(run) for run in runs}
    names = [name for name in COLUMNS if any(name in columns for columns in of_run.values())]
    places = list(_places(runs))
    found = [[_cell(of_run[label].get(name), variant) for variant, label in places] for name in names]
    firsts = [next(columns[name].column for columns in of_run.values() if name in columns) for name in names]
    columns = (Column(VARIANT), Column(RUN), *map(in_one_unit, firsts, found))
    rows = ((Cell(variant), Cell(label), *cells) for (variant, label), *cells in zip(places, *found, strict=True))
    return Table(columns, tuple(rows))


def _cell(figures: Figures | None, variant: str) -> Cell:
    return figures.cells.get(variant, Cell()) if figures else Cell()


def _places(runs: Sequence[RunBeside]) -> Iterator[tuple[str, str]]:
    """The variant and the run of each row: the variants that ran."""
    for name in dict.fromkeys(variant.id for run in runs for variant in run.findings.run.variants):
        for run in runs:
            variant = run.findings.run.variant(name)
            if variant is not None and variant.label:
                yield name, run.label


def _columns(run: RunBeside) -> dict[str, Figures]:
    """By name, those that are comparable and have a value; without figures of another workload than the headline's."""
    columns = figure_columns(replace(run.findings, elsewhere={}))
    found = {one.column.name: one for one in columns if one.has_values}
    return {name: found[name] for name, of in COLUMNS.items() if name in found and of not in run.left_out}


def _about(runs: Sequence[RunBeside]) -> Table:
    rows = []
    for run in runs:
        origin = run.findings.run.provenance
        machine = f"{origin.hardware}, {count(origin.threads, 'thread')}; {origin.device}"
        rows.append((run.label, origin.model, machine, origin.started, origin.commit[:12] or MISSING, run.source))
    return Table.of_texts((RUN, "model", "machine", "started", "commit", "file"), rows)


def _incomparable(runs: Sequence[RunBeside], unreadable: Sequence[str]) -> Iterator[str]:
    for reason in unreadable:
        yield f"Not here: {reason}."
    for run in runs:
        if not run.findings.common:
            yield f"{run.label}: nothing was timed in it."
        yield from run.sentences


def _notes(runs: Sequence[RunBeside]) -> Iterator[str]:
    """How to read the table, and what didn't run where."""
    yield "The runs ran at different times: compare their latencies only where they differ by far more than the noise."
    for run in runs:
        yield f"{run.label}: identical work differed by up to {run.findings.noise.percent:.0f} %."
    if len({run.findings.run.provenance.model for run in runs}) > 1:
        yield "Perplexities of two models are over other tokens; the change against the own reference can be compared."
    said = [(run.label, sentence) for run in runs for sentence in _remarks(run)]
    yield from (f"{labels}: {sentence}" for labels, sentence in _together(said, len(runs)))


def _remarks(run: RunBeside) -> Iterator[str]:
    yield from filter(None, (run.findings.noisy, *run.findings.warnings))
    absent = [one for one in run.findings.run.variants if not one.label]
    if absent:
        yield f"not measured: {'; '.join(f'{one.id} ({one.status}: {first_line(one.reason)})' for one in absent)}."
