"""The report's tables as the page shows them: each column explained, and sortable by its values; and the speed-ups of
every case as a heatmap."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from llm_bench_fixtures.answer.standings import alike_in_quality, near_lossless
from llm_bench_fixtures.report.charts.spec import Plot
from llm_bench_fixtures.report.charts.variants import looks_of
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.tables.by_variant import BATCHED, FLIPS, MEETS, SHORT, of_tasks, variants_table, what_ran
from llm_bench_fixtures.report.tables.scenarios import CaseRow, case_rows
from llm_bench_fixtures.report.tables.table import VARIANT, WHAT_RAN, Cell, Column, Section, Table, Tone
from llm_bench_fixtures.results.formatting import Notation
from llm_bench_fixtures.results.metrics import Direction, Metric
from llm_bench_fixtures.results.record import Run, VariantResult

WORDS = {
    "variant": "one way to run the model: backend, precision and quantization",
    "what ran": "what was really run, which may differ from what was asked for",
    "case": "the value of what the scenario changes",
    "remarks": "what is unusual about the benchmark, with its likely cause",
    "stability": "a word for the coefficient of variation: below 5 % excellent, 10 % good, 20 % fair, else unstable",
    MEETS: "yes: each figure's whole interval is within its limit; perhaps: a limit is inside one",
    BATCHED: "tokens per second at the largest batch, and its size",
    "peak": "the highest memory of a round, as a rise over before the model was loaded",
    "cache per token": "bytes of the keys and values of one more token, before any sliding window is full",
    "largest batch": "prompts at a time that fit in the memory, as predicted",
    "longest context": "tokens of one prompt, its new ones among them, that fit in the memory and the model's context",
}
PERPLEXITY = "perplexity"  # in the summary its change, but for the reference
# The columns in which near-lossless variants share one place when the table is sorted.
UNRANKED = frozenset({
    *("loss", PERPLEXITY, "bits/byte", "word perplexity", "byte perplexity", "ppl ratio"),
    *("KLD", "KLD p50", "KLD p99", "KLD p99.9", "KLD max", "top-1", "mean Δp", "RMS Δp"),
})  # fmt: skip
NARROW = ("variant", "speed-up", "peak", PERPLEXITY)  # the columns of the summary that stay on a phone
STRONGEST, FAINTEST = 52, 12  # percent of the colour in a cell
FULL = math.log(3)  # speed-ups of 3, and of a third, have the strongest colour
KINDS = {Tone.BETTER: "faster", Tone.WORSE: "slower"}


@dataclass(frozen=True)
class Term:
    """Meaning of a column's head: an entry of the glossary."""

    key: str
    """The entry's id in the page."""
    name: str
    meaning: str
    """The formula in words."""
    better: str = ""
    """Which way it is better, as Direction says it; empty where neither is."""
    source: str = ""
    """The publication or the tool that the formula is from."""


@dataclass(frozen=True)
class PageTable(Section):
    """A part of the report with what the page adds to it."""

    terms: Mapping[str, Term] = field(default_factory=dict)
    """Meaning of each column, by its name."""
    narrow: Collection[str] = ()
    """Names of the columns that stay on a narrow window; all without any."""
    of: tuple[str, ...] = ()
    """The variant of each row, which the page's filter goes by, where the column of variants doesn't name it."""
    plots: tuple[Plot, ...] = ()
    """Pictures for browsers that run no scripts."""

    @property
    def rows(self) -> tuple[tuple[Cell, ...], ...]:
        return self.table.rows

    @property
    def variants(self) -> list[str]:
        return list(self.of) or [cell.words for cell in self.table.cells(VARIANT)] or [""] * len(self.rows)

    @property
    def group_starts(self) -> set[int]:
        """Rows that begin a group: those that share their first cell, unless each row has one of its own."""
        firsts = [row[0].words for row in self.rows]
        grouped = len(set(firsts)) < len(firsts)
        return {place for place in range(1, len(firsts)) if grouped and firsts[place] != firsts[place - 1]}

    @property
    def legend(self) -> str:
        """A sentence on what its figures are. Beneath a figure of the page its interval has no brackets."""
        words = "; ".join(self.table.legend(interval="below a figure, a–b"))
        return f"{words[:1].upper()}{words[1:]}." if words else ""


@dataclass(frozen=True)
class Chip:
    """A variant, as the filter offers it."""

    variant: str
    colour: str
    title: str
    """What ran."""


def chips_of(runs: Iterable[Run]) -> list[Chip]:
    """The variants that ran in any of the runs."""
    found: dict[str, Chip] = {}
    for run in runs:
        looks = looks_of(run)
        for variant in run.loaded:
            found.setdefault(variant.id, Chip(variant.id, looks[variant.id].colour, variant.label))
    return list(found.values())


def without(table: Table, name: str) -> Table:
    """The table without the column of that name, and without columns of empty cells."""
    return table.with_columns(
        place
        for place, column in enumerate(table.columns)
        if column.name != name and any(row[place].value is not None or row[place].words for row in table.rows)
    )


def without_zeros(table: Table) -> Table:
    """The table without the columns of errors that are 0 in every row."""
    return table.with_columns(
        place
        for place, column in enumerate(table.columns)
        if not (column.metric and column.metric.name.endswith("_error")) or any(row[place].value for row in table.rows)
    )


def unranked(table: Table, run: Run) -> Table:
    """The table with one place in each order by quality for the reference and all near-lossless variants.

    Their changes of perplexity are marked, save of what ran the same as the reference.
    """
    alike, marked = alike_in_quality(run), frozenset(near_lossless(run))
    names = [cell.words for cell in table.cells(VARIANT)]
    rows = [list(row) for row in table.rows]
    for place, column in enumerate(table.columns):
        known = [(name, row) for name, row in zip(names, rows, strict=False) if name in alike]
        if column.name in UNRANKED and len(alike) > 1:
            rank = _shared_rank(column, {name: row[place] for name, row in known}, run.reference)
            for name, row in known:
                is_marked = name in marked and row[place].notation is Notation.CHANGE
                row[place] = replace(row[place], rank=rank, tone=Tone.ALIKE if is_marked else row[place].tone)
    return replace(table, rows=tuple(map(tuple, rows)))


def _shared_rank(column: Column, cells: Mapping[str, Cell], reference: str) -> float | None:
    """The reference's number, or the best of the group where it has none; None where nobody has one."""
    keys = {name: key for name, cell in cells.items() if (key := cell.key) is not None}
    best = max if column.metric and column.metric.direction is Direction.HIGHER_IS_BETTER else min
    return keys.get(reference, best(keys.values(), default=None))


def explained(run: Run, section: Section, terms: Mapping[str, Term], plots: Iterable[Plot] = ()) -> PageTable:
    """The section's table as the page shows it. plots: the pictures that stand beneath tables."""
    shown = without_zeros(section.table)
    if section.scenario:
        shown = without(shown, WHAT_RAN)  # the summary says it, and tables must fit
    own = tuple(plot for plot in plots if plot.scenario == section.scenario)
    return PageTable(section.title, unranked(shown, run), section.note, section.scenario, terms, plots=own)


def summary_table(findings: Findings, terms: Mapping[str, Term]) -> PageTable:
    """The variants that ran, in the columns that an answer needs; what ran stands below the variant's id. The whole
    table is folded further below."""
    table = variants_table(findings, findings.run.loaded, (*SHORT, *of_tasks(findings)))
    rows = []
    for variant, row in zip(findings.run.loaded, table.rows, strict=True):
        notes = {VARIANT: what_ran(findings, variant), FLIPS: _each_way(variant)}
        cells = zip(table.names, row, strict=True)
        rows.append(tuple(replace(cell, note=notes.get(name, cell.note)) for name, cell in cells))
    shown = without(unranked(replace(table, rows=tuple(rows)), findings.run), WHAT_RAN)
    return PageTable("The variants that ran", shown, terms=terms, narrow=NARROW)


def _each_way(variant: VariantResult) -> str:
    """Answers lost and gained, a line each with its interval; empty where none was compared."""
    named = {way: Cell.flips(variant, f"flips_{way}") for way in ("lost", "gained")}
    shown = ((way, cell) for way, cell in named.items() if not cell.is_missing)
    return "\n".join(f"{cell.value:.0f} {way} ({cell.spread()})" for way, cell in shown)


@dataclass(frozen=True)
class HeatCell:
    """A case of a variant."""

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


def heatmap(findings: Findings) -> list[tuple[CaseRow, list[HeatCell]]]:
    """The speed-ups of every case; nothing where no variant has one. The reference has no column: each cell's tip has
    its latency."""
    reference, cases = findings.run.reference, case_rows(findings)
    shown = {name for one in cases for name, cell in one.cells.items() if cell.notation is Notation.TIMES}
    rows = []
    for one in cases if shown else ():
        where = ", ".join(filter(None, (one.title, one.case)))
        beside = f"{reference}: {one.cells[reference].text()}" if reference in one.cells else ""
        cells = [_heat_cell(name, cell, where, beside, reference) for name, cell in one.cells.items() if name in shown]
        rows.append((one, cells))
    return rows


def _heat_cell(name: str, cell: Cell, where: str, beside: str, reference: str) -> HeatCell:
    """beside: the reference's latency."""
    if cell.value is None or cell.notation is not Notation.TIMES:
        return HeatCell(name, cell.text())
    kind = KINDS.get(cell.tone, "unclear") if cell.tone else "unclear"
    share = min(abs(math.log(cell.value)) / FULL, 1.0)
    heat = round(FAINTEST + (STRONGEST - FAINTEST) * share)
    words = f"{kind} than {reference}" if kind != "unclear" else f"no difference from {reference} is shown"
    tip = "\n".join(filter(None, (name, where, cell.text(), words, beside)))
    return HeatCell(name, cell.figure(), cell.spread(), kind, heat, cell.value, tip)


def glossary(heads: Iterable[str], metrics: Mapping[str, Metric]) -> dict[str, Term]:
    """Terms by the head's text; heads that need no explanation are left out. Where several metrics have the same head,
    the registry's first."""
    by_column = {metric.column: metric for metric in reversed(list(metrics.values()))}
    known = [head for head in dict.fromkeys(heads) if head in WORDS or head in by_column]
    return {head: _term(f"term-{place}", head, by_column.get(head)) for place, head in enumerate(known)}


def _term(key: str, head: str, metric: Metric | None) -> Term:
    if metric is None:
        return Term(key, head, WORDS[head])
    better = "" if metric.direction is Direction.NEITHER else metric.direction.value
    return Term(key, metric.title, metric.formula, better, metric.source)
