"""The report's tables as the page shows them: each column explained, and sortable by what its cells say."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from llm_bench_fixtures.report.document import Table
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.page.values import Cell, Head, PageTable, Row, Term
from llm_bench_fixtures.report.short_table import BATCHED, FLIPS, LABEL, variants_table
from llm_bench_fixtures.results.formatting import MINUS

_NUMBER = re.compile(r"<?([+−-]?[\d,]*\.?\d+(?:e[+-]?\d+)?)(?: ?(µs|ms|s|[kMG]?B|[MGT]?FLOP)\b)?")
_SIZES = {
    "µs": 1e-6, "ms": 1e-3, "s": 1.0, "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9,
    "FLOP": 1.0, "MFLOP": 1e6, "GFLOP": 1e9, "TFLOP": 1e12,
}  # fmt: skip
STYLES = {"variant": "name", "case": "name", "what ran": "prose", "remarks": "prose", "reason": "prose"}
VARIANT, WHAT_RAN = "variant", LABEL
PERPLEXITY = "perplexity"  # in the summary its change, but for the reference
# Of the summary, what an answer needs; the whole table is folded below.
SHORT = ("TTFT", "TPOT", "speed-up", BATCHED, "weights", "peak", PERPLEXITY, "top-1", FLIPS)


def sort_key(cell: str) -> float | None:
    """The first number of a cell in its base unit, however the cell scaled it; None where it begins with none."""
    found = _NUMBER.match(cell)
    if found is None:
        return None
    return float(found[1].replace(",", "").replace(MINUS, "-")) * _SIZES.get(found[2] or "", 1.0)


def page_table(table: Table, caption: str, terms: Mapping[str, Term]) -> PageTable:
    """The same cells. Rows that share their first cell are a group, unless each row has a first cell of its own."""
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
    return PageTable(caption, heads, tuple(rows))


def _term(head: str, terms: Mapping[str, Term]) -> Term | None:
    """Of the head, or of what stands in it before its unit."""
    return terms.get(head) or terms.get(head.partition(", ")[0])


def _cells(table: Table, index: int, heads: Sequence[Head]) -> Iterator[Cell]:
    for place, (text, head) in enumerate(zip(table.rows[index], heads, strict=True)):
        yield Cell(text, sort_key(text) if head.is_number else None, tone=table.tones.get((index, place), ""))


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


def summary_table(findings: Findings, terms: Mapping[str, Term]) -> PageTable:
    """The variants that ran, in the columns that an answer needs; what ran stands below the variant's id."""
    run = findings.run
    ran = [variant for variant in run.variants if variant.label]
    table = page_table(variants_table(findings, ran, SHORT), "The variants that ran", terms)
    rows = (_with_detail(row, table.heads, is_reference=row.variant == run.reference) for row in table.rows)
    first, _, *others = table.heads
    return PageTable(table.caption, (first, *others), tuple(rows))


def _with_detail(row: Row, heads: Sequence[Head], *, is_reference: bool) -> Row:
    """The second cell below the first one. The perplexity's change of the reference, whose own stands there, is 0."""
    first, ran, *others = row.cells
    cells = [
        replace(cell, sort=0.0) if is_reference and head.text == PERPLEXITY else cell
        for cell, head in zip(others, heads[2:], strict=True)
    ]
    return replace(row, cells=(replace(first, detail=ran.text), *cells))
