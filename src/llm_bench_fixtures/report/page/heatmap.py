"""The speed-ups of every case as a heatmap: a row a case, a column a variant."""

from __future__ import annotations

import math
from dataclasses import dataclass

from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.renderers.figures import figure, spread
from llm_bench_fixtures.report.tables.scenarios import cases_table, scenarios_of
from llm_bench_fixtures.report.tables.table import Cell, Column, Tone
from llm_bench_fixtures.report.words.workload import title_of
from llm_bench_fixtures.results.formatting import Notation

STRONGEST, FAINTEST = 52, 12  # percent of the colour in a cell
FULL = math.log(3)  # speed-ups of 3, and of a third, have the strongest colour
KINDS = {Tone.BETTER: "faster", Tone.WORSE: "slower"}


@dataclass(frozen=True)
class HeatCell:
    variant: str
    text: str
    interval: str = ""
    kind: str = "absent"
    """faster, slower, unclear (the interval includes 1), or absent without a speed-up."""
    heat: int = 0
    """Percent of the colour."""
    sort: float | None = None
    tip: str = ""
    """Lines for the pointer; empty for none."""


@dataclass(frozen=True)
class HeatRow:
    scenario: str
    """Its name, which the page's filter goes by."""
    title: str
    """Of the scenario."""
    case: str
    cells: tuple[HeatCell, ...]


@dataclass(frozen=True)
class Heatmap:
    reference: str
    variants: tuple[str, ...]
    rows: tuple[HeatRow, ...]


def heatmap_of(findings: Findings) -> Heatmap | None:
    """None where no variant has a speed-up. The reference has no column: each cell's tip has its latency."""
    table, reference = cases_table(findings), findings.run.reference
    names = {title_of(scenario): name for name, scenario in scenarios_of(findings.run).items()}
    columns = [
        (place, column)
        for place, column in enumerate(table.columns)
        if place > 1 and any(row[place].notation is Notation.TIMES for row in table.rows)
    ]
    if not columns:
        return None
    own = table.names.index(reference) if reference in table.names else None
    rows = []
    for row in table.rows:
        title, case = row[0].text, row[1].text
        where = ", ".join(filter(None, (title, case)))
        beside = f"{reference}: {figure(row[own], table.columns[own])}" if own is not None else ""
        cells = (_cell(row[place], column, where, beside, reference) for place, column in columns)
        rows.append(HeatRow(names[title], title, case, tuple(cells)))
    return Heatmap(reference, tuple(column.name for _, column in columns), tuple(rows))


def _cell(cell: Cell, column: Column, where: str, beside: str, reference: str) -> HeatCell:
    name, text = column.name, figure(cell, column)
    if cell.value is None or cell.notation is not Notation.TIMES:
        return HeatCell(name, text)
    kind = KINDS.get(cell.tone, "unclear") if cell.tone else "unclear"
    share = min(abs(math.log(cell.value)) / FULL, 1.0)
    heat = round(FAINTEST + (STRONGEST - FAINTEST) * share)
    words = f"{kind} than {reference}" if kind != "unclear" else f"no difference from {reference} is shown"
    interval = spread(cell, column)
    lines = (name, where, f"{text} ({interval})" if interval else text, words, beside)
    return HeatCell(name, text, interval, kind, heat, cell.value, "\n".join(filter(None, lines)))
