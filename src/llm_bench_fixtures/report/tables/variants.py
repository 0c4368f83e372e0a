"""The page's tables that have a row a variant: the summary, the details of each of its columns, figures next to the
limits of a need, the answers to questions of multiple choice, and whether a text depends on how it is run."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

from llm_bench_fixtures.answer.need import Standing
from llm_bench_fixtures.answer.standings import Judged, Meeting
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.tables.by_variant import metric_figures, task_sections, variants_table
from llm_bench_fixtures.report.tables.table import FLIP_METRICS, SUMMARY, Cell, Column, Figures, Section, Table, Tone
from llm_bench_fixtures.report.words.measured import describe_workload, headline_sentence
from llm_bench_fixtures.report.words.quality import need_sentence
from llm_bench_fixtures.results.formatting import Notation, count, format_share
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME, Kind, Metric, ReportTable, shown_in
from llm_bench_fixtures.results.metrics.quality import OF_CHOICES
from llm_bench_fixtures.results.metrics.tasks import task_metrics
from llm_bench_fixtures.results.record import Record, Run, VariantResult
from llm_bench_fixtures.statistics.spread import coefficient_of_variation, exact_interval, stability

SHOWN_OF_CHOICES = ("choice_accuracy", *FLIP_METRICS, "answers_changed")


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
        table = _table(findings, [*figures, *more])
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
    table = _table(findings, [*(metric_figures(metric, findings) for metric in quality), *of_texts])
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


def _table(findings: Findings, figures: Sequence[Figures]) -> Table | None:
    """A row a variant that loaded; columns in which no variant has a value are left out. None where none is left."""
    filled = [one for one in figures if one.has_values]
    return Table.by_variant(findings.run.loaded, filled) if filled else None


def _stability(record: Record) -> Cell:
    variation = coefficient_of_variation(record.rounds_s)
    return Cell() if variation is None else Cell(stability(variation))


def choice_sections(findings: Findings) -> Iterator[Section]:
    """A row a variant that was asked; nothing where none was."""
    run = findings.run
    asked = _asked(run)
    if asked:
        figures = [_choice_figures(name, asked) for name in SHOWN_OF_CHOICES]
        flips = f" Flips are against {run.reference}, each way with its 95 % interval." if _any_flips(run) else ""
        note = f"{f'Of {run.provenance.choices}.' if run.provenance.choices else ''}{flips}".strip()
        yield Section("Multiple choice", Table.by_variant(asked, figures), note)


def choice_footnotes(run: Run) -> Iterator[str]:
    """Footnotes: what a flip is, and which shares of flips so few questions can't tell from none."""
    if _any_flips(run):
        items = int(max(variant.quality["choice_items"] for variant in _asked(run)))
        yield (
            "A flip is an answer that turned from right to wrong, or from wrong to right. Where the two cancel out, "
            "the share of right answers hides them. The interval is Clopper and Pearson's, for questions like these."
        )
        yield (
            f"No flip in {count(items, 'question')} rules out only shares above "
            f"{format_share(exact_interval(0, items)[1])}. Unsure answers flip easily, so flips say little about a "
            "model that does hardly better than guessing."
        )


def _any_flips(run: Run) -> bool:
    return any("flips" in variant.quality for variant in _asked(run))


def _asked(run: Run) -> list[VariantResult]:
    return [variant for variant in run.variants if variant.quality.get("choice_items")]


def _choice_figures(name: str, asked: Sequence[VariantResult]) -> Figures:
    """Flips with their intervals, all else as it is."""
    are_flips = name in FLIP_METRICS
    own = {one.id: Cell.flips(one, name) if are_flips else Cell(value=one.quality.get(name)) for one in asked}
    return Figures(Column.of(METRIC_BY_NAME[name]), own)


MEETS = "meets it"  # the name of the column
TONES = {Standing.WITHIN: Tone.BETTER, Standing.BEYOND: Tone.WORSE}


def need_sections(findings: Findings) -> Iterator[Section]:
    """None where nothing but quality is limited, which the other tables show."""
    meeting, need = findings.answer.meeting, findings.answer.need
    if meeting.ran and not need.is_of_quality:
        note = need_sentence(meeting)
        variants = filter(None, map(findings.run.variant, meeting.ran))
        yield Section("Who meets the need", Table.by_variant(variants, list(_figures(meeting, findings))), note)


def _figures(meeting: Meeting, findings: Findings) -> Iterator[Figures]:
    standings = meeting.standings
    words = {"yes": meeting.meets, "perhaps": meeting.may, "not known": meeting.unknown, "no": meeting.fails}
    yield Figures(Column(MEETS), {name: Cell(word) for word, names in words.items() for name in names})
    speedups = {name: Cell.headline_speedup(standings.records.get(name), findings) for name in meeting.ran}
    yield Figures(Column("speed-up", Notation.TIMES), speedups)
    for place, metric in enumerate(standings.applied.values()):
        found = {name: standings.judged[name][place] for name in meeting.ran}
        cells = {name: _cell(one) for name, one in found.items()}
        column = replace(Column.of(metric), error_is="half of the 95 % interval")
        yield Figures(column.in_one_unit(cells.values()), cells)


def _cell(one: Judged) -> Cell:
    """Intervals of quality reach as far to either side; those of times and sizes are of logarithms."""
    cell = Cell(value=one.value, tone=TONES.get(one.standing))
    if one.spread is None or one.value is None:
        return cell
    if one.limit.is_of_quality:
        return replace(cell, error=one.spread.high - one.value)
    return replace(cell, low=one.spread.low, high=one.spread.high)
