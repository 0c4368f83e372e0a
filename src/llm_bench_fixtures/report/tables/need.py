"""Every variant's figures next to the limits of a need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from llm_bench_fixtures.answer.meeting import Meeting
from llm_bench_fixtures.answer.need import Standing
from llm_bench_fixtures.answer.standings import Judged
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.tables.by_variant import table_by_variant
from llm_bench_fixtures.report.tables.table import (
    Cell,
    Column,
    Figures,
    Section,
    Tone,
    headline_speedup,
    in_one_unit,
    metric_column,
)
from llm_bench_fixtures.report.words.need import need_sentence
from llm_bench_fixtures.results.formatting import Notation

MEETS = "meets it"  # the name of the column
TONES = {Standing.WITHIN: Tone.BETTER, Standing.BEYOND: Tone.WORSE}


def need_sections(findings: Findings) -> Iterator[Section]:
    """None where nothing but quality is limited, which the other tables show."""
    meeting, need = findings.answer.meeting, findings.answer.need
    if meeting.ran and not need.is_of_quality:
        note = need_sentence(meeting)
        variants = filter(None, map(findings.run.variant, meeting.ran))
        yield Section("Who meets the need", table_by_variant(variants, list(_figures(meeting, findings))), note)


def _figures(meeting: Meeting, findings: Findings) -> Iterator[Figures]:
    standings = meeting.standings
    words = {"yes": meeting.meets, "perhaps": meeting.may, "not known": meeting.unknown, "no": meeting.fails}
    yield Figures(Column(MEETS), {name: Cell(word) for word, names in words.items() for name in names})
    speedups = {name: headline_speedup(standings.records.get(name), findings) for name in meeting.ran}
    yield Figures(Column("speed-up", Notation.TIMES), speedups)
    for place, metric in enumerate(standings.applied.values()):
        found = {name: standings.judged[name][place] for name in meeting.ran}
        cells = {name: _cell(one) for name, one in found.items()}
        column = replace(metric_column(metric), error_is="half of the 95 % interval")
        yield Figures(in_one_unit(column, cells.values()), cells)


def _cell(one: Judged) -> Cell:
    """Intervals of quality reach as far to either side; those of times and sizes are of logarithms."""
    cell = Cell(value=one.value, tone=TONES.get(one.standing))
    if one.spread is None or one.value is None:
        return cell
    if one.limit.is_of_quality:
        return replace(cell, error=one.spread.high - one.value)
    return replace(cell, low=one.spread.low, high=one.spread.high)
