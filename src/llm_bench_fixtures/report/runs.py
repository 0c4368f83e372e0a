"""Several runs beside each other, by machine and model: one table, and what in it can't be compared.

Runs that are pooled count as one. Each is described by its own findings. A figure of another run is left out where it
is of something else than the first run's: another workload, reference, corpus or kind of peak.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from llm_bench_fixtures.answer.need import Reader
from llm_bench_fixtures.answer.peaks import PEAKS, memory_metric
from llm_bench_fixtures.errors import first_line
from llm_bench_fixtures.grouping import grouped
from llm_bench_fixtures.history.together import why_runs_apart
from llm_bench_fixtures.report.agreement import (
    Ranks,
    agreement_sections,
    agreement_sentence,
    common_to,
    labels_of,
    ranks_of,
    short_machine,
)
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.tables.by_variant import BATCHED, FLIPS, figure_columns, ratio_rows, ratio_words
from llm_bench_fixtures.report.tables.table import VARIANT, Cell, Column, Figures, Section, Table
from llm_bench_fixtures.report.words.answer import Recommendation
from llm_bench_fixtures.report.words.measured import describe_headline, describe_workload, odd_ratios, times_words
from llm_bench_fixtures.results.formatting import MISSING, count
from llm_bench_fixtures.results.pooled import PooledRun
from llm_bench_fixtures.results.record import Run
from llm_bench_fixtures.text import some_of

RUN = "run"
MOST_SHOWN = 12  # runs that have cards and marks in a chart; more are told apart in tables only
MOST_WARNED = 3  # runs whose noise is told in full


class Aspect(StrEnum):
    """What of a run may be incomparable with the first run's."""

    LATENCY = "latency"
    SPEEDUP = "speed-up"
    THROUGHPUT = "throughput"
    PEAK = "peak memory"
    QUALITY = "quality"
    FLIPS = "flips"


COLUMNS = {
    "latency": Aspect.LATENCY,
    "speed-up": Aspect.SPEEDUP,
    BATCHED: Aspect.THROUGHPUT,
    "weights": None,
    "peak": Aspect.PEAK,
    "perplexity": Aspect.QUALITY,
    "top-1": Aspect.QUALITY,
    FLIPS: Aspect.FLIPS,
}  # the table's columns, from the left to the right; weights are always comparable


def obstacles(first: Findings, other: Findings) -> dict[Aspect, str]:
    """Why these can't be compared between the two runs. Workloads are compared in numbers only: two tokenizers cut
    other tokens from the same text."""
    workload = _difference("another workload", describe_headline(first), describe_headline(other))
    reference = _difference("another reference", _reference(first), _reference(other))
    corpus = _difference("another corpus", first.run.provenance.corpus, other.run.provenance.corpus)
    questions = _difference("other questions", first.run.provenance.choices, other.run.provenance.choices)
    reasons = {
        Aspect.LATENCY: workload,
        Aspect.SPEEDUP: workload or reference,
        Aspect.THROUGHPUT: _difference("another batch", _batch(first), _batch(other)),
        Aspect.PEAK: workload or _difference("another kind of peak", _peak(first), _peak(other)),
        Aspect.QUALITY: corpus or reference,
        Aspect.FLIPS: questions or reference,
    }
    return {aspect: reason for aspect, reason in reasons.items() if reason}


def _difference(what: str, first: str, other: str) -> str:
    """Empty where one of the two has nothing to compare."""
    return f"{what}: {other}; the first run's: {first}" if first and other and first != other else ""


def _reference(findings: Findings) -> str:
    """Reference as it ran; empty where it didn't."""
    variant = findings.run.variant(findings.run.reference)
    return f"{findings.run.reference}, {variant.label}" if variant and variant.label else ""


def _batch(findings: Findings) -> str:
    some = next(iter(findings.largest_batch.values()), None)
    return describe_workload(some) if some else ""


def _peak(findings: Findings) -> str:
    """Which peak was measured, and of what; empty where none was."""
    metric = memory_metric(findings)
    if metric not in PEAKS:
        return ""
    title = findings.metrics[metric].title
    return f"{title}, {'each variant apart' if findings.run.provenance.isolated else 'all in one process'}"


@dataclass(frozen=True)
class RunPlace:
    """Where a run stands among the others."""

    label: str
    """Machine and model of the run, as far as they tell the runs apart."""
    machine: str
    what: str
    """Subject that runs on several machines: a model, or a model with options."""


@dataclass(frozen=True)
class RunBeside(RunPlace):
    """One of several runs, or several that are pooled."""

    findings: Findings
    left_out: Mapping[Aspect, str]
    """Why these are not comparable with the first run's."""

    @property
    def parts(self) -> tuple[Run, ...]:
        """The runs that are pooled in it, or itself."""
        run = self.findings.run
        return run.runs if isinstance(run, PooledRun) else (run,)


@dataclass(frozen=True)
class Runs:
    """Everything that is said of several runs."""

    runs: tuple[RunBeside, ...]
    unreadable: tuple[str, ...] = ()
    """Why further files are not among them."""

    @cached_property
    def table(self) -> Table:
        """Rows by variant, the runs of each together. One unit a column. The run is a column, and a note at the variant
        for a format that has no room for it."""
        of_run = {run.label: _columns(run) for run in self.runs}
        names = [name for name in COLUMNS if any(name in columns for columns in of_run.values())]
        variants = dict.fromkeys(variant.id for run in self.runs for variant in run.findings.run.variants)
        loaded = {run.label: [variant.id for variant in run.findings.run.loaded] for run in self.runs}
        places = [(name, label) for name in variants for label, ran in loaded.items() if name in ran]
        found = [[_cell(of_run[label].get(name), variant) for variant, label in places] for name in names]
        firsts = [next(columns[name].column for columns in of_run.values() if name in columns) for name in names]
        columns = (Column(VARIANT), Column(RUN), *map(Column.in_one_unit, firsts, found))
        rows = (
            (Cell(variant, note=label), Cell(label), *cells)
            for (variant, label), *cells in zip(places, *found, strict=True)
        )
        return Table(columns, tuple(rows), tuple(self._odd_ratios(of_run)))

    def _odd_ratios(self, columns: Mapping[str, Mapping[str, Figures]]) -> Iterator[str]:
        """columns: by run and name."""
        for words, runs in grouped(self.runs, lambda run: ratio_words(run.findings)).items():
            rows = (row for run in runs for row in ratio_rows(run.findings, columns[run.label], f" on {run.label}"))
            yield from odd_ratios(rows, *words)

    @property
    def workload(self) -> str:
        """Workload of the table, or of each run where these have others; empty where nothing was timed."""
        compared = [run for run in self.runs if run.findings.common and Aspect.LATENCY not in run.left_out]
        said = grouped(compared, lambda run: describe_headline(run.findings))
        if len(said) == 1:
            return next(iter(said))
        return ". ".join(f"{some_of([run.label for run in them])}: {workload}" for workload, them in said.items())

    @property
    def noisy(self) -> tuple[str, ...]:
        """What noisy machines mean for the answer: a warning a run, or one that names the first runs of many."""
        noisy = {run.label: run.findings.noisy for run in self.runs if run.findings.noisy}
        if len(noisy) <= MOST_WARNED:
            return tuple(f"{label}: {warning}" for label, warning in noisy.items())
        return (f"Noisy machine: {some_of(list(noisy))}. The report of each alone says what is still certain.",)

    @cached_property
    def ranks(self) -> Ranks | None:
        """The order of the variants by machine."""
        return ranks_of([(run.what, run.machine, run.findings) for run in self.runs])

    @property
    def agreement(self) -> Iterator[Section]:
        """The ranks, and the tables of each run that several are pooled in, under its name."""
        if self.ranks:
            yield self.ranks.section
        for run in self.runs:
            yield from (replace(one, title=f"{run.label}: {one.title}") for one in agreement_sections(run.findings))

    @property
    def common(self) -> str:
        """The model and the machine, as far as all runs share them."""
        return common_to([run.findings.run.provenance for run in self.runs])

    @property
    def title(self) -> str:
        number = sum(len(run.parts) for run in self.runs)
        return f"Text generation in {count(number, 'run')}{f': {self.common}' if self.common else ''}"

    @property
    def readers(self) -> dict[Reader, dict[str, Recommendation]]:
        """What is recommended to each reader, by the labels of the runs that have an answer."""
        found: dict[Reader, dict[str, Recommendation]] = {reader: {} for reader in Reader}
        for run in self.runs:
            for one in run.findings.answer.recommendations:
                found[one.pick.reader][run.label] = one
        return {reader: by_label for reader, by_label in found.items() if by_label}

    @property
    def sentence(self) -> str:
        """What to use on each, in a sentence for each reader: one variant for all runs, or one for each."""
        runs = len(self.runs)
        said = (f"{reader.capitalize()}: {'; '.join(_choices(found, runs))}." for reader, found in self.readers.items())
        return " ".join(said) or "None of the runs has an answer."

    @property
    def answers(self) -> tuple[tuple[str, str], ...]:
        """Answers in one sentence each, with the runs that give them."""
        return tuple(_together([(run.label, run.findings.answer.sentence) for run in self.runs], len(self.runs)))

    @property
    def incomparable(self) -> tuple[str, ...]:
        """Sentences on what was left out, by the run's name, with the reason."""
        unreadable = (f"Not here: {reason}." for reason in self.unreadable)
        return (*unreadable, *(sentence for run in self.runs for sentence in _left_out(run)))

    @property
    def pooled(self) -> tuple[str, ...]:
        """How far the runs agree that are pooled, and why others are not."""
        return tuple(f"{run.label}: {sentence}" for run in self.runs for sentence in _pooling(run, self.runs))


def _together(said: Iterable[tuple[str, str]], runs: int) -> Iterator[tuple[str, str]]:
    """The labels of all that say the same, and what they say. said: a label and a sentence each. runs: how many there
    are in all."""
    for sentence, them in grouped(said, lambda one: one[1]).items():
        labels = [label for label, _ in them]
        yield (f"on all {runs}" if len(labels) == runs > 1 else ", ".join(labels)), sentence


def runs_of(found: Sequence[Findings], unreadable: Sequence[str] = (), places: Sequence[RunPlace] = ()) -> Runs:
    """found: what each run's own report says; at least one. unreadable: why further files are not among them. places:
    of a sweep's runs, which are compared between machines only; without any, all are with the first."""
    firsts: dict[str, Findings] = {}
    for place, one in zip(places, found, strict=False):
        firsts.setdefault(place.what, one)
    runs = (
        RunBeside(**vars(place), findings=one, left_out=obstacles(firsts.get(place.what, found[0]), one))
        for place, one in zip(places or _places_of(found), found, strict=True)
    )
    return Runs(tuple(runs), tuple(unreadable))


def _places_of(found: Sequence[Findings]) -> Iterator[RunPlace]:
    labels = labels_of([one.run.provenance for one in found], [one.run.source for one in found])
    for label, one in zip(labels, found, strict=True):
        origin = one.run.provenance
        yield RunPlace(label, f"{short_machine(origin.hardware)}, {origin.device}", origin.model)


def _choices(by_label: Mapping[str, Recommendation], runs: int) -> Iterator[str]:
    """runs: how many there are in all, of which some may have no answer."""
    for name, labels in grouped(by_label, lambda label: by_label[label].name).items():
        where = labels[0] if len(labels) == 1 else "all of them" if len(labels) == runs else f"{len(labels)} runs"
        yield f"{name} on {where}{_speedups([by_label[label] for label in labels])}"


def _speedups(found: Sequence[Recommendation]) -> str:
    """The speed-up with its interval, or the least and the greatest of several; empty for none, and for those over
    different references or batch sizes."""
    ahead = [one for one in found if one.pick.is_ahead and one.pick.reader is not Reader.MEMORY]
    ahead.sort(key=lambda one: one.pick.best.ratio)
    over = {(one.pick.reference.variant, one.pick.batch_size) for one in ahead if one.pick.reference}
    if len(over) != 1:
        return ""
    least = ahead[0].pick.best
    start = f"{times_words(least.ratio, least.low, least.high)} to " if ahead[0].gain != ahead[-1].gain else ""
    return f", {start}{ahead[-1].gain}"


def _left_out(run: RunBeside) -> Iterator[str]:
    """Aspects with the same reason together."""
    if not run.findings.common:
        yield f"{run.label}: nothing was timed in it."
    for aspects, reason in _together(((aspect, reason) for aspect, reason in run.left_out.items()), 0):
        yield f"{run.label}: no {aspects}: {reason}."


def _cell(figures: Figures | None, variant: str) -> Cell:
    return figures.cells.get(variant, Cell()) if figures else Cell()


def _columns(run: RunBeside) -> dict[str, Figures]:
    """Columns by name that are comparable and have a value; without figures of another workload than the headline's."""
    columns = figure_columns(replace(run.findings, elsewhere={}))
    found = {one.column.name: one for one in columns if one.has_values}
    return {name: found[name] for name, of in COLUMNS.items() if name in found and of not in run.left_out}


def answers_table(runs: Runs) -> Table:
    """A row a run: what to use there for each reader."""
    cells = [{label: Cell(one.name, note=one.figure) for label, one in them.items()} for them in runs.readers.values()]
    columns = (Column(RUN), *(Column(str(reader)) for reader in runs.readers))
    rows = ((Cell(run.label), *(found.get(run.label, Cell()) for found in cells)) for run in runs.runs)
    return Table(columns, tuple(rows))


def about_table(runs: Sequence[RunBeside]) -> Table:
    """A row for each file: where it comes from."""
    rows = []
    for run in runs:
        for part in run.parts:
            origin = part.provenance
            machine = f"{origin.hardware}, {count(origin.threads, 'thread')}; {origin.device}"
            rows.append((run.label, origin.model, machine, origin.started, origin.commit[:12] or MISSING, part.source))
    return Table.of_texts((RUN, "model", "machine", "started", "commit", "file"), rows)


def notes(runs: Sequence[RunBeside]) -> Iterator[str]:
    """How to read the table, and what didn't run where."""
    yield "The runs ran at different times: compare their latencies only where they differ by far more than the noise."
    noise = [run.findings.noise.percent for run in runs]
    if len(runs) > MOST_SHOWN:
        yield f"Identical work of a run differed by up to {min(noise):.0f} to {max(noise):.0f} %."
    else:
        for run in runs:
            yield f"{run.label}: identical work differed by up to {run.findings.noise.percent:.0f} %."
    if len({run.findings.run.provenance.model for run in runs}) > 1:
        yield "Perplexities of two models are over other tokens; the change against the own reference can be compared."
    said = [(run.label, sentence) for run in runs for sentence in _remarks(run)]
    yield from (f"{labels}: {sentence}" for labels, sentence in _together(said, len(runs)))


def _pooling(run: RunBeside, runs: Sequence[RunBeside]) -> Iterator[str]:
    if run.findings.agreement is not None:
        yield agreement_sentence(run.findings.agreement)
    alike = next(one for one in runs if (one.machine, one.what) == (run.machine, run.what))
    if alike is not run:
        reasons = "; ".join(why_runs_apart(alike.findings.run, run.findings.run))
        yield f"not pooled with {alike.label}: {reasons}."


def _remarks(run: RunBeside) -> Iterator[str]:
    yield from run.findings.warnings
    if absent := [one for one in run.findings.run.variants if not one.label]:
        yield f"not measured: {'; '.join(f'{one.id} ({one.status}: {first_line(one.reason)})' for one in absent)}."
