"""The tables that have a row a variant.

The summary, on the headline's workload, is what a terminal, a pull request, a paper and the page make columns of, with
one unit a column, and better and worse marked. The page has the details of each of its columns, figures next to the
limits of a need, the answers to questions of multiple choice, and a table for each of lm-evaluation-harness's tasks.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from llm_bench_fixtures.answer.evidence import Evidence
from llm_bench_fixtures.answer.headline import BATCHES
from llm_bench_fixtures.answer.intervals import quality_estimate
from llm_bench_fixtures.answer.need import QualityMeasure, Standing
from llm_bench_fixtures.answer.peaks import PEAKS, WEIGHTS, is_less, memory_metric, peaks_of
from llm_bench_fixtures.answer.standings import Judged, Meeting, is_near_lossless
from llm_bench_fixtures.errors import first_line
from llm_bench_fixtures.measure.tasks import TaskFacts, TaskMetric
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.tables.table import (
    ELSEWHERE,
    FLIP_METRICS,
    LATENCY,
    SPEEDUP,
    SUMMARY,
    VARIANT,
    WHAT_RAN,
    Cell,
    Column,
    Figures,
    Section,
    Table,
    Tone,
)
from llm_bench_fixtures.report.words.measured import (
    RatioRow,
    describe_prompts,
    describe_workload,
    headline_sentence,
    listed,
    odd_ratios,
    pooled_lengths,
    scenarios_of,
    title_of,
)
from llm_bench_fixtures.report.words.quality import need_sentence
from llm_bench_fixtures.results.formatting import Notation, count
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME, Kind, Metric, ReportTable, shown_in
from llm_bench_fixtures.results.metrics.quality import OF_CHOICES
from llm_bench_fixtures.results.metrics.tasks import CHANGE_ERROR, GAINED, LOST, task_metrics, value_name
from llm_bench_fixtures.results.record import Record, Run, VariantResult
from llm_bench_fixtures.statistics.spread import coefficient_of_variation, stability

BATCHED = "batched"
FLIPS = "flips"
BATCHED_MEANS = "batched: tokens/s at the largest batch, and its size"
# A narrow table leaves these out, the last first; other columns even sooner, and the essential ones never.
NEEDED = ("tokens/s", "peak", BATCHED, "weights", WHAT_RAN, "TPOT", "TTFT", "top-1", "KLD", FLIPS)
DROPPABLE = {name: place for place, name in enumerate(NEEDED, 1)}
ESSENTIAL = (VARIANT, "latency", "speed-up", "perplexity")
# The columns that an answer needs.
SHORT = ("latency", "speed-up", BATCHED, "weights", "peak", "perplexity", "top-1", FLIPS)
TASK_FLIPS: Mapping[str, tuple[str, ...]] = {"flips": (LOST, GAINED)}
EACH_WAY: Mapping[str, tuple[str, ...]] = {**TASK_FLIPS, "right → wrong": (LOST,), "wrong → right": (GAINED,)}
FLIPS_DROPPABLE = 3  # flips leave a narrow table late; what was asked for never does
MEETS = "meets it"  # the name of the column
TONES = {Standing.WITHIN: Tone.BETTER, Standing.BEYOND: Tone.WORSE}
SHOWN_OF_CHOICES = ("choice_accuracy", *FLIP_METRICS, "answers_changed")


def what_ran(findings: Findings, variant: VariantResult) -> str:
    """What ran, in words, with what is unusual about it and what its figures are of if not of the headline's workload;
    why it didn't run, or has no quality."""
    if not variant.label:
        return f"{variant.status}: {first_line(variant.reason)}"
    record = findings.elsewhere.get(variant.id)
    title = title_of(scenarios_of(findings.run)[record.scenario]) if record else ""
    where = [f"{ELSEWHERE} {describe_prompts(record)} (“{title}”)"] if record else []
    has_no_quality = variant.quality_note and "perplexity" not in variant.quality
    why = [f"quality not measured: {variant.quality_note}"] if has_no_quality else []
    return "; ".join([variant.label, *findings.variant_flags[variant.id], *where, *why])


def metric_figures(metric: Metric, findings: Findings) -> Figures:
    """The values on the headline's workload. Weights and quality over the corpus are the variant's, whether or not it
    has a record of the workload."""
    cells = {}
    for one in findings.run.loaded:
        is_the_variants = metric.name == WEIGHTS or metric.name in one.quality
        record = findings.common.get(one.id, _bare(one) if is_the_variants else None)
        cells[one.id] = Cell.of_metric(metric, record, one)
    return Figures(Column.of(metric), cells)


def _bare(variant: VariantResult) -> Record:
    """A record of the variant without anything measured."""
    return Record("", "", "", variant.id, variant.status)


def variants_table(findings: Findings, variants: Sequence[VariantResult], names: Sequence[str] = ()) -> Table:
    """A row a variant. One that didn't run has its reason. Columns without a value are left out.

    names: of the columns of figures, to show only these.
    """
    shown = [one for one in figure_columns(findings) if one.has_values and (not names or one.column.name in names)]
    what = {one.id: Cell(what_ran(findings, one)) for one in variants}
    table = Table.by_variant(variants, [Figures(Column(WHAT_RAN), what), *shown])
    kept = (*ESSENTIAL, *of_tasks(findings))
    columns = tuple(
        column if column.name in kept else replace(column, droppable=DROPPABLE.get(column.name, len(NEEDED) + 1))
        for column in table.columns
    )
    rows = ratio_rows(findings, {one.column.name: one for one in shown})
    return replace(table, columns=columns, notes=tuple(odd_ratios(rows, *ratio_words(findings))))


def ratio_rows(findings: Findings, figures: Mapping[str, Figures], where: str = "") -> Iterator[RatioRow]:
    """Rows for `odd_ratios`. Figures of other workloads than the headline's have marks of their own.

    figures: by column. where: the words that follow the variants' ids.
    """
    latencies, speedups = (figures[name].cells if name in figures else {} for name in ("latency", "speed-up"))
    reference = latencies.get(findings.run.reference, Cell())
    for name, found in speedups.items():
        if name in latencies and name not in findings.elsewhere:
            yield f"{name}{where}", reference, latencies[name], found


def ratio_words(findings: Findings) -> tuple[str, ...]:
    """What speed-ups and latencies are, for `odd_ratios`; empty where they are of the same workload."""
    lengths = pooled_lengths(findings)
    if not lengths:
        return ()
    shown = describe_prompts(next(iter(findings.common.values())))
    return f"is a mean over prompts of {listed(lengths, 'and')} tokens", f"of {shown}"


def short_table(findings: Findings) -> Table:
    """Table of a pull request or a paper: every variant, the columns that an answer needs, and a project's own
    metrics."""
    own = [*of_tasks(findings), *(metric.column for metric in findings.added)]
    return variants_table(findings, findings.run.variants, [*short_names(findings), *own])


def of_tasks(findings: Findings) -> list[str]:
    """The names of the tasks' columns."""
    return [one.column.name for one in task_figures(findings)]


def short_names(findings: Findings) -> list[str]:
    """The columns that an answer needs, with the throughput of one prompt where no batches can be compared."""
    throughput = BATCHED if len(findings.largest_batch) > 1 else "tokens/s"
    return [throughput if name == BATCHED else name for name in SHORT]


def figure_columns(findings: Findings) -> Iterator[Figures]:
    """Every column of figures, from the left to the right."""
    metrics, run = findings.metrics, findings.run
    speeds = _speed_tones(findings, findings.common)
    peak = next((name for name in PEAKS if name == memory_metric(findings)), PEAKS[-1])
    yield from (_figures(metrics[name], findings) for name in ("ttft_s", "tpot_s"))
    yield from (_figures(metrics[name], findings, speeds) for name in ("latency_s", "speedup", "output_tokens_per_s"))
    yield _batched(findings)
    yield _figures(metrics[WEIGHTS], findings, _memory_tones(findings, WEIGHTS))
    peaks = _figures(metrics[peak], findings, _memory_tones(findings, peak))
    yield replace(peaks, column=replace(peaks.column, name="peak"))
    yield _perplexities(findings)
    yield from (_figures(metrics[name], findings) for name in ("kld_mean", "top1_agreement"))
    flips = {one.id: Cell.flips(one) for one in run.loaded}
    yield Figures(Column(FLIPS, Notation.COUNT, metric=metrics["flips"]), flips)
    yield from task_figures(findings)
    yield from (_figures(metric, findings) for metric in findings.added)


def _figures(metric: Metric, findings: Findings, tones: Mapping[str, Tone | None] | None = None) -> Figures:
    """Figures of a metric in one unit, with what is known of latencies and speed-ups next to the value. A variant that
    was not measured on the headline's workload has the values on another, with a mark."""
    cells = dict(metric_figures(metric, findings).cells)
    records = {**findings.common, **findings.elsewhere}
    for one in findings.run.variants:
        if (record := records.get(one.id)) is None:
            continue
        if metric.name == "latency_s":
            cell = Cell.latency(record)
        elif metric.name == "speedup":
            cell = Cell.headline_speedup(record, findings)
        else:
            cell = Cell.of_metric(metric, record, one)
        is_the_variants = cell == Cell.of_metric(metric, _bare(one), one)
        is_marked = one.id in findings.elsewhere and not cell.is_missing and not is_the_variants
        cells[one.id] = replace(cell, mark=ELSEWHERE) if is_marked else cell
    column = {"latency_s": LATENCY, "speedup": SPEEDUP}.get(metric.name, Column.of(metric))
    return Figures(column.in_one_unit(cells.values()), _toned(cells, tones or {}))


def _toned(cells: Mapping[str, Cell], tones: Mapping[str, Tone | None]) -> dict[str, Cell]:
    return {name: replace(cell, tone=tones.get(name)) for name, cell in cells.items()}


def _speed_tones(seen: Evidence, records: Mapping[str, Record]) -> dict[str, Tone | None]:
    """Tones of the variants that are faster or slower than the reference's record by a difference that this run can
    show."""
    reference = records.get(seen.run.reference)
    if reference is None:
        return {}
    gains = {name: seen.gain(one, reference) for name, one in records.items() if not seen.ran_the_reference(name)}
    return {name: Tone.of(is_better=gain.is_faster, is_worse=gain.is_slower) for name, gain in gains.items()}


def _batched(findings: Findings) -> Figures:
    """Tokens per second at the largest batch and its size, which is a variant's own where it lacks the headline's."""
    metric = findings.metrics["output_tokens_per_s"]
    own = [record for record in findings.run.measured(BATCHES) if record.workload]
    own.sort(key=lambda record: record.facts.batch_size)
    cells = {}
    for name, record in ({record.variant: record for record in own} | {**findings.largest_batch}).items():
        cell = Cell.of_metric(metric, record, findings.run.variant(name))
        cells[name] = replace(cell, mark=f" ({record.facts.batch_size})")
    column = Column(BATCHED, Notation.NUMBER, unit=str(metric.unit), legend=BATCHED_MEANS)
    return Figures(column, _toned(cells, _speed_tones(findings, findings.largest_batch)))


def _memory_tones(seen: Evidence, metric: str) -> Mapping[str, Tone]:
    peaks = peaks_of(seen, metric)
    reference = peaks.get(seen.run.reference)
    if reference is None:
        return {}
    less = {name: Tone.BETTER for name, one in peaks.items() if is_less(one, reference, metric)}
    return less | {name: Tone.WORSE for name, one in peaks.items() if is_less(reference, one, metric)}


def _perplexities(findings: Findings) -> Figures:
    """The reference's perplexity and the others' change, which all are sorted by. It has a tone where a variant is not
    near-lossless, and its whole interval is on one side of the reference's."""
    run, metric = findings.run, findings.metrics["perplexity"]
    cells = {}
    for one in run.loaded:
        change = Cell.perplexity_change(one)
        own = Cell(value=one.quality.get("perplexity"), rank=1.0 if one.id == run.reference else None)
        cells[one.id] = own if change.is_missing else change
    column = replace(Column.of(metric), error_is="one standard error of the perplexity's change")
    graded = (one for one in run.loaded if not is_near_lossless(one))
    known = {one.id: quality_estimate(one.quality, QualityMeasure.PPL_RATIO) for one in graded}
    tones = {name: Tone.of(is_better=one.high < 1, is_worse=one.low > 1) for name, one in known.items() if one}
    return Figures(column, _toned(cells, tones))


def task_figures(findings: Findings) -> Iterator[Figures]:
    """Each task's first metric, and the answers that flip."""
    for task in findings.run.provenance.tasks:
        for metric in task.metrics[:1]:
            yield from _of_task(findings, task, metric, TASK_FLIPS)


def task_sections(findings: Findings) -> Iterator[Section]:
    """A row a variant that was asked, with all metrics."""
    run = findings.run
    for task in run.provenance.tasks:
        figures = [one for metric in task.metrics for one in _of_task(findings, task, metric, EACH_WAY)]
        asked = [one for one in run.loaded if not all(column.cells[one.id].is_missing for column in figures)]
        items = count(task.of, "item") if task.items == task.of else f"{task.items:,} of {count(task.of, 'item')}"
        version = f", version {task.version}" if task.version else ""
        note = f"By lm-evaluation-harness {task.harness}: {items}, {task.shots}-shot{version}."
        yield Section(f"Task {task.name}", Table.by_variant(asked, figures), note)


def _of_task(
    findings: Findings, task: TaskFacts, metric: TaskMetric, counts: Mapping[str, tuple[str, ...]]
) -> Iterator[Figures]:
    """The metric, then columns of counts. counts: by the column's name, the endings of what it sums up."""
    name = value_name(task.name, metric.name)
    error_is = f"one standard error of a task's difference from {findings.run.reference}, from pairs of items"
    column = replace(Column.of(findings.metrics[name]), error_is=error_is)
    known = {one.id: one.quality for one in findings.run.loaded}
    error = f"{name}_{CHANGE_ERROR}"
    yield Figures(column, {one: Cell(value=own.get(name), error=own.get(error)) for one, own in known.items()})
    for head, endings in counts.items():
        names = [f"{name}_{ending}" for ending in endings]
        of_task = Column(f"{column.name} {head}", Notation.COUNT, droppable=FLIPS_DROPPABLE)
        counted = Figures(of_task, {one: _count(own, names, task.items) for one, own in known.items()})
        if counted.has_values:
            yield counted


def _count(quality: Mapping[str, float], names: Sequence[str], items: int) -> Cell:
    found = [quality[name] for name in names if name in quality]
    return Cell.counted(round(sum(found)), items) if found else Cell()


def summary_section(findings: Findings) -> Section:
    """One row a variant: speed on the common workload, memory and quality; those that didn't run with their reason."""
    table = variants_table(findings, findings.run.variants)
    return Section("All variants", table, headline_sentence(findings), SUMMARY)


def variant_sections(findings: Findings) -> Iterator[Section]:
    """The details of the summary: prefill and decode, variation between rounds, memory and counts, quality, answers."""
    records = findings.common
    shown = findings.reference or next(iter(records.values()), None)
    where = f"{describe_workload(shown)}." if shown else ""
    sure = "From and to: the 95 % interval of the rounds' geometric mean, without differences between processes."
    of_rounds = {name: _stability(record) for name, record in records.items()}
    words = Figures(Column("stability", Notation.TEXT), of_rounds)
    parts: tuple[tuple[str, ReportTable, list[Figures], str], ...] = (
        ("Prefill and decode", ReportTable.PREFILL_DECODE, [], f"On {where} {findings.decode}".strip()),
        ("Variation between rounds", ReportTable.VARIATION, [words], sure),
        ("Memory and exact counts", ReportTable.MEMORY, [], f"Of a round on {where}"),
    )
    for title, name, more, note in parts:
        figures = [metric_figures(metric, findings) for metric in shown_in(name, findings.metrics)]
        table = _loaded_table(findings, [*figures, *more])
        if records and table is not None:
            yield Section(title, table, note)
    yield from _quality_section(findings)
    yield from choice_sections(findings)
    yield from task_sections(findings)


def _quality_section(findings: Findings) -> Iterator[Section]:
    """Section on the corpus and the generated texts; nothing where neither is known."""
    run, metrics = findings.run, findings.metrics
    of_tasks = task_metrics(run.provenance.tasks)
    quality = [one for one in metrics.values() if _is_of_the_corpus(run, one) and one.name not in of_tasks]
    of_texts = [_mean_over_records(run, metric) for metric in shown_in(ReportTable.TEXTS, metrics)]
    table = _loaded_table(findings, [*(metric_figures(metric, findings) for metric in quality), *of_texts])
    if table is not None:
        over = [f"Over the {run.provenance.corpus}; against {run.reference}."] if quality else []
        columns = " and ".join(one.column.name for one in of_texts if one.column in table.columns)
        of_what = f"of the generated texts against {run.reference}'s, the mean of the benchmarks' means."
        yield Section("Quality", table, " ".join([*over, *([f"{columns}: {of_what}"] if columns else [])]))


def _mean_over_records(run: Run, metric: Metric) -> Figures:
    """Mean over all of a variant's benchmarks that have a value."""
    found = {}
    for variant in run.variants:
        of_records = [metric.of(record, variant) for record in run.records if record.variant == variant.id]
        values = [value for value in of_records if value is not None]
        found[variant.id] = Cell(value=statistics.fmean(values) if values else None)
    return Figures(Column.of(metric), found)


def _is_of_the_corpus(run: Run, metric: Metric) -> bool:
    is_elsewhere = ReportTable.TEXTS in metric.tables or metric.name in OF_CHOICES
    is_quality = metric.kind is Kind.QUALITY and not is_elsewhere
    return is_quality and any(metric.name in variant.quality for variant in run.variants)


def _loaded_table(findings: Findings, figures: Sequence[Figures]) -> Table | None:
    """A row a variant that loaded; columns in which no variant has a value are left out. None where none is left."""
    filled = [one for one in figures if one.has_values]
    return Table.by_variant(findings.run.loaded, filled) if filled else None


def _stability(record: Record) -> Cell:
    variation = coefficient_of_variation(record.rounds_s)
    return Cell() if variation is None else Cell(stability(variation))


def choice_sections(findings: Findings) -> Iterator[Section]:
    """A row a variant that was asked; nothing where none was."""
    run = findings.run
    if asked := [variant for variant in run.variants if variant.quality.get("choice_items")]:
        figures = [_choice_figures(name, asked) for name in SHOWN_OF_CHOICES]
        of = [f"Of {run.provenance.choices}."] if run.provenance.choices else []
        has_flips = any("flips" in one.quality for one in asked)
        flips = [f"Flips are against {run.reference}, each way with its 95 % interval."] if has_flips else []
        yield Section("Multiple choice", Table.by_variant(asked, figures), " ".join([*of, *flips]))


def _choice_figures(name: str, asked: Sequence[VariantResult]) -> Figures:
    """Flips with their intervals, all else as it is."""
    are_flips = name in FLIP_METRICS
    own = {one.id: Cell.flips(one, name) if are_flips else Cell(value=one.quality.get(name)) for one in asked}
    return Figures(Column.of(METRIC_BY_NAME[name]), own)


def need_sections(findings: Findings) -> Iterator[Section]:
    """None where nothing but quality is limited, which the other tables show."""
    meeting, need = findings.answer.meeting, findings.answer.need
    if meeting.ran and not need.is_of_quality:
        note = need_sentence(meeting)
        variants = filter(None, map(findings.run.variant, meeting.ran))
        yield Section("Who meets the need", Table.by_variant(variants, list(_need_figures(meeting, findings))), note)


def _need_figures(meeting: Meeting, findings: Findings) -> Iterator[Figures]:
    standings = meeting.standings
    words = {"yes": meeting.meets, "perhaps": meeting.may, "not known": meeting.unknown, "no": meeting.fails}
    yield Figures(Column(MEETS), {name: Cell(word) for word, names in words.items() for name in names})
    speedups = {name: Cell.headline_speedup(standings.records.get(name), findings) for name in meeting.ran}
    yield Figures(Column("speed-up", Notation.TIMES), speedups)
    for place, metric in enumerate(standings.applied.values()):
        found = {name: standings.judged[name][place] for name in meeting.ran}
        cells = {name: _need_cell(one) for name, one in found.items()}
        column = replace(Column.of(metric), error_is="half of the 95 % interval")
        yield Figures(column.in_one_unit(cells.values()), cells)


def _need_cell(one: Judged) -> Cell:
    """Intervals of quality reach as far to either side; those of times and sizes are of logarithms."""
    cell = Cell(value=one.value, tone=TONES.get(one.standing))
    if one.spread is None:
        return cell
    if one.limit.is_of_quality:
        return replace(cell, error=one.spread.high - one.spread.value)
    return replace(cell, low=one.spread.low, high=one.spread.high)
