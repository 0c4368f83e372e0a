"""The report's tables as the page shows them: each column explained, and sortable by what its cells say."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from llm_bench_fixtures.answer.standings import is_near_lossless, near_lossless
from llm_bench_fixtures.report.choices import flips_each_way
from llm_bench_fixtures.report.document import Table
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.page.values import Cell, Head, PageTable, Row, Term
from llm_bench_fixtures.report.short_table import BATCHED, FLIPS, LABEL, legend, percent_interval, variants_table
from llm_bench_fixtures.results.formatting import MINUS, MISSING
from llm_bench_fixtures.results.metrics import Direction
from llm_bench_fixtures.results.record import Run, VariantResult

_NUMBER = re.compile(r"<?([+−-]?[\d,]*\.?\d+(?:e[+-]?\d+)?)(?: ?(µs|ms|s|[kMG]?B|[MGT]?FLOP)\b)?")
_SPREAD = re.compile(r"(?P<value>.+?) (?:(?P<error>± .+)|\((?P<interval>.*(?:–| to ).*)\))")
_SIZES = {
    "µs": 1e-6, "ms": 1e-3, "s": 1.0, "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9,
    "FLOP": 1.0, "MFLOP": 1e6, "GFLOP": 1e9, "TFLOP": 1e12,
}  # fmt: skip
STYLES = {"variant": "name", "case": "name", "what ran": "prose", "remarks": "prose", "reason": "prose"}
VARIANT, WHAT_RAN = "variant", LABEL
PERPLEXITY = "perplexity"  # in the summary its change, but for the reference
CHANGES = frozenset({PERPLEXITY, "change"})  # columns whose change of a near-lossless variant is marked
ALIKE = "≈"
ALIKE_MEANS = f"{ALIKE} near-lossless: so near to the reference that quality ranks nobody, nor does sorting by it."
# The columns in which near-lossless variants share one place when the table is sorted.
UNRANKED = frozenset({
    *("loss", PERPLEXITY, "change", "bits/byte", "word perplexity", "byte perplexity", "ppl ratio"),
    *("KLD", "KLD p50", "KLD p99", "KLD p99.9", "KLD max", "top-1", "mean Δp", "RMS Δp"),
})  # fmt: skip
# Of the summary, what an answer needs; the whole table is folded below.
SHORT = ("latency", "speed-up", BATCHED, "weights", "peak", PERPLEXITY, "top-1", FLIPS)
NARROW = ("variant", "speed-up", "peak", PERPLEXITY)  # what stays of it on a phone


def sort_key(cell: str) -> float | None:
    """The first number of a cell in its base unit, however the cell scaled it; None where it begins with none."""
    found = _NUMBER.match(cell)
    if found is None:
        return None
    return float(found[1].replace(",", "").replace(MINUS, "-")) * _SIZES.get(found[2] or "", 1.0)


def page_table(table: Table, caption: str, terms: Mapping[str, Term]) -> PageTable:
    """The same cells, the interval or error of a figure below it. Rows that share their first cell are a
    group, unless each row has a first cell of its own."""
    heads = tuple(
        Head(text, place in table.numeric, "" if place in table.numeric else STYLES.get(text, ""), _term(text, terms))
        for place, text in enumerate(table.header)
    )
    firsts = [row[0] for row in table.rows]
    starts = [place > 0 and first != firsts[place - 1] for place, first in enumerate(firsts)]
    grouped = len(set(firsts)) < len(firsts)
    rows = (
        Row(tuple(_cells(table, index, heads)), _variant(table.header, row), grouped and starts[index])
        for index, row in enumerate(table.rows)
    )
    return PageTable(caption, heads, tuple(rows), _legend(table))


def _legend(table: Table) -> str:
    """A sentence. Beneath a figure of the page its interval has no brackets."""
    text = "; ".join(legend(table, interval="below a figure, a–b"))
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _term(head: str, terms: Mapping[str, Term]) -> Term | None:
    """Of the head, or of what stands in it before its unit."""
    return terms.get(head) or terms.get(head.partition(", ")[0])


def _cells(table: Table, index: int, heads: Sequence[Head]) -> Iterator[Cell]:
    for place, (text, head) in enumerate(zip(table.rows[index], heads, strict=True)):
        tone = table.tones.get((index, place), "")
        found = _SPREAD.fullmatch(text) if head.is_number else None
        key = sort_key(text) if head.is_number else None
        if found is None:
            yield Cell(text, key, tone=tone)
        else:
            yield Cell(found["value"], key, found["error"] or found["interval"], tone)


def _variant(header: Sequence[str], row: Sequence[str]) -> str:
    return row[header.index(VARIANT)] if VARIANT in header else ""


def without(table: Table, name: str) -> Table:
    """The table without the column of that name, and without columns of empty cells."""
    kept = [place for place, head in enumerate(table.header) if head != name and any(row[place] for row in table.rows)]
    return Table(
        tuple(table.header[place] for place in kept),
        tuple(tuple(row[place] for place in kept) for row in table.rows),
        frozenset(new for new, place in enumerate(kept) if place in table.numeric),
    )


def without_zeros(table: Table) -> Table:
    """The table without the columns of errors that are 0 in every row."""
    zeros = [
        head
        for place, head in enumerate(table.header)
        if head.endswith("±") and {row[place] for row in table.rows} <= {"0", MISSING}
    ]
    for name in zeros:
        table = without(table, name)
    return table


def unranked(table: PageTable, run: Run) -> PageTable:
    """The table with one place in each order by quality for the reference and all near-lossless variants.

    Their changes of perplexity are marked, save of what ran the same as the reference.
    """
    alike = {one.id for one in run.variants if one.id == run.reference or is_near_lossless(one)}
    marked = frozenset(near_lossless(run))
    rows = list(table.rows)
    for place, head in enumerate(table.heads):
        if head.is_number and head.text in UNRANKED and len(alike) > 1:
            key = _shared_key(table, place, alike, run.reference)
            rows = [_with_key(row, place, key, head.text, marked) if row.variant in alike else row for row in rows]
    return replace(table, rows=tuple(rows))


def _shared_key(table: PageTable, place: int, alike: Collection[str], reference: str) -> float | None:
    """The reference's number, or the best of the group where it has none; None where nobody has one."""
    known = [(row.variant, row.cells[place].sort) for row in table.rows if row.variant in alike]
    keys = {variant: key for variant, key in known if key is not None}
    term = table.heads[place].term
    best = max if term and term.better == Direction.HIGHER_IS_BETTER else min
    return keys.get(reference, best(keys.values(), default=None))


def _with_key(row: Row, place: int, key: float | None, head: str, marked: Collection[str]) -> Row:
    cell = row.cells[place]
    is_change = head in CHANGES and row.variant in marked and cell.text.startswith(("+", "-"))
    text = f"{ALIKE} {cell.text}" if is_change else cell.text
    return replace(row, cells=(*row.cells[:place], replace(cell, text=text, sort=key), *row.cells[place + 1 :]))


def summary_table(findings: Findings, terms: Mapping[str, Term]) -> PageTable:
    """The variants that ran, in the columns that an answer needs; what ran stands below the variant's id."""
    run = findings.run
    ran = [variant for variant in run.variants if variant.label]
    table = page_table(variants_table(findings, ran, SHORT), "The variants that ran", terms)
    detailed = (_with_detail(row, table.heads, is_reference=row.variant == run.reference) for row in table.rows)
    ways = {variant.id: _each_way(variant) for variant in ran}
    flips = next((place for place, head in enumerate(table.heads[2:], 1) if head.text == FLIPS), 0)
    rows = (_with_ways(row, flips, ways[row.variant]) for row in detailed) if flips else detailed
    first, _, *others = (replace(head, is_minor=head.text.partition(", ")[0] not in NARROW) for head in table.heads)
    return unranked(PageTable(table.caption, (first, *others), tuple(rows), table.legend), run)


def _each_way(variant: VariantResult) -> str:
    """Answers lost and gained, a line each with its interval; empty where none was compared."""
    found = flips_each_way(variant)
    named = {"lost": found.get("flips_lost"), "gained": found.get("flips_gained")}
    return "\n".join(f"{one.number} {way} ({percent_interval(one)})" for way, one in named.items() if one)


def _with_ways(row: Row, place: int, ways: str) -> Row:
    cell = row.cells[place]
    shown = replace(cell, detail=ways or cell.detail)
    return replace(row, cells=(*row.cells[:place], shown, *row.cells[place + 1 :]))


def _with_detail(row: Row, heads: Sequence[Head], *, is_reference: bool) -> Row:
    """The second cell below the first one. The perplexity's change of the reference, whose own stands there, is 0."""
    first, ran, *others = row.cells
    cells = [
        replace(cell, sort=0.0) if is_reference and head.text == PERPLEXITY else cell
        for cell, head in zip(others, heads[2:], strict=True)
    ]
    return replace(row, cells=(replace(first, detail=ran.text), *cells))
