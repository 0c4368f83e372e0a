"""A narrow table as LaTeX, for a paper. It needs the packages booktabs and graphicx, and a LaTeX that reads UTF-8 by
itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from llm_bench_fixtures.report.cells import describe_headline
from llm_bench_fixtures.report.document import Table
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.short_table import BATCHED, FLIPS, figure_columns, variants_table, what_ran
from llm_bench_fixtures.report.short_table import legend as legend_of
from llm_bench_fixtures.text import INSTEAD, printable

EN_DASH = "–"
LAST_LATIN = 0x17F  # of those that LaTeX sets with its own fonts
_LIGATURE = re.compile(r"-(?=-)|,(?=,)|[?!](?=\\textasciigrave)")
_SPECIAL = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
        **{character: f"\\{character}" for character in "{}$&#_%"},
        "`": r"\textasciigrave{}",
        "“": r"\textquotedblleft{}",
        "”": r"\textquotedblright{}",
        "'": r"\textquotesingle{}",
        "±": r"$\pm$",
        "−": "$-$",
        "…": r"\ldots{}",
        "→": r"$\rightarrow$",
        "×": r"$\times$",
        "µ": r"\textmu{}",
        "≈": r"$\approx$",
        "≤": r"$\leq$",
        "≥": r"$\geq$",
        "μ": r"\textmu{}",
        INSTEAD: "?",
    }
)


def render_latex(findings: Findings) -> str:
    """A `table` with a caption and a label, in the order of the run's variants."""
    return "\n".join(_lines(findings)) + "\n"


def _lines(findings: Findings) -> Iterator[str]:
    workload = describe_headline(findings) or "nothing was timed"
    table = _narrow(findings)
    caption = f"Text generation of {findings.run.provenance.model}: {workload}."
    yield from latex_table(table, caption, [*legend_of(table), *_what_ran(findings)])


def _narrow(findings: Findings) -> Table:
    """The variants that ran, in as few columns as an answer needs; what ran stands beneath."""
    ran = [variant for variant in findings.run.variants if variant.label]
    filled = {column.name for column in figure_columns(findings) if column.has_values}
    throughput = BATCHED if len(findings.largest_batch) > 1 else "tokens/s"
    memory = "peak" if "peak" in filled else "weights"
    names = ("latency", "speed-up", throughput, memory, "perplexity", FLIPS if FLIPS in filled else "top-1")
    table = variants_table(findings, ran, names)
    flips = table.header.index(FLIPS) if FLIPS in table.header else -1
    return Table(
        (table.header[0], *table.header[2:]),
        tuple(
            (row[0], *(_narrowed(cell, place == flips) for place, cell in enumerate(row[2:], 2))) for row in table.rows
        ),
        frozenset(column - 1 for column in table.numeric),
    )


def _narrowed(cell: str, is_flips: bool) -> str:
    """Of flips the count alone: their intervals, which overlap, would take the width of two columns."""
    return cell.partition(" (")[0] if is_flips else cell


def _what_ran(findings: Findings) -> Iterator[str]:
    """What each variant computed with; then those that were not measured, with the reasons."""
    named = [(bool(one.label), f"{one.id} ({what_ran(findings, one)})") for one in findings.run.variants]
    for title, has_run in (("what ran", True), ("not measured", False)):
        them = [text for is_measured, text in named if is_measured is has_run]
        if them:
            yield f"{title}: {', '.join(them)}"


def latex_table(table: Table, caption: str, notes: Sequence[str] = ()) -> Iterator[str]:
    """The lines of the environment; comments say what it needs. A table that is wider than the text is scaled down.

    notes: what stands beneath the table, in sentences without a full stop.
    """
    yield r"% \usepackage{booktabs}"
    yield r"% \usepackage{graphicx}"
    yield r"\begin{table}"
    yield r"  \centering"
    yield rf"  \caption{{{latex(caption)}}}"
    yield r"  \label{tab:llm-bench}"
    yield r"  \resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
    yield rf"  \begin{{tabular}}{{@{{}}{_alignment(table)}@{{}}}}"
    yield r"    \toprule"
    yield from map(_row, _header(table))
    yield r"    \midrule"
    yield from map(_row, table.rows)
    yield r"    \bottomrule"
    yield r"  \end{tabular}}"
    if notes:
        text = " ".join(f"{note[:1].upper()}{note[1:]}." for note in notes)
        yield r"  \par\smallskip"
        yield rf"  \begin{{minipage}}{{\linewidth}}\footnotesize\raggedright {latex(text)}\end{{minipage}}"
    yield r"\end{table}"


def _header(table: Table) -> Iterator[tuple[str, ...]]:
    """The names, and the units below them where there are some."""
    parts = [name.partition(", ") for name in table.header]
    yield tuple(name for name, _, _ in parts)
    units = tuple(unit for _, _, unit in parts)
    if any(units):
        yield units


def _alignment(table: Table) -> str:
    return "".join("r" if column in table.numeric else "l" for column in range(len(table.header)))


def _row(cells: tuple[str, ...]) -> str:
    r"""A group protects a first cell that begins with [, which \\ before it would take for a length."""
    return f"    {{}}{' & '.join(map(latex, cells))} \\\\"


def latex(text: str) -> str:
    """The text on one line, so that LaTeX sets it as it is, with whatever engine.

    Its ligatures are kept apart: two hyphens are no dash. Characters that no font of LaTeX's own has stand as their
    numbers: [U+6F22].
    """
    line = printable(text.replace("\n", " ").replace("\r", " ").replace("\t", " "))
    pieces = (_LIGATURE.sub(r"\g<0>{}", one.translate(_SPECIAL)) for one in line.split(EN_DASH))
    return "".join(map(_settable, "--".join(pieces)))


def _settable(character: str) -> str:
    return character if ord(character) <= LAST_LATIN else f"[U+{ord(character):04X}]"
