"""The short table as LaTeX, for a paper. It needs the package booktabs, and a LaTeX that reads UTF-8 by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llm_bench_fixtures.report.cells import describe_workload
from llm_bench_fixtures.report.document import Table
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.short_table import legend as legend_of
from llm_bench_fixtures.report.short_table import short_table
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
        "'": r"\textquotesingle{}",
        "±": r"$\pm$",
        "−": "$-$",
        "…": r"\ldots{}",
        "→": r"$\rightarrow$",
        "×": r"$\times$",
        "µ": r"\textmu{}",
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
    some = next(iter(findings.common.values()), None)
    workload = describe_workload(some) if some else "nothing was timed"
    table = short_table(findings)
    caption = f"Text generation of {findings.run.provenance.model}: {workload}."
    yield from latex_table(table, caption, "; ".join(legend_of(table)))


def latex_table(table: Table, caption: str, legend: str = "") -> Iterator[str]:
    """The lines of the environment; a comment says what it needs. legend: what stands beneath the table."""
    yield r"% \usepackage{booktabs}"
    yield r"\begin{table}"
    yield rf"  \caption{{{latex(caption)}}}"
    yield r"  \label{tab:llm-bench}"
    yield rf"  \begin{{tabular}}{{{_alignment(table)}}}"
    yield r"    \toprule"
    yield _row(table.header)
    yield r"    \midrule"
    yield from map(_row, table.rows)
    yield r"    \bottomrule"
    yield r"  \end{tabular}"
    if legend:
        yield rf"  \par\smallskip{{\footnotesize {latex(f'{legend[:1].upper()}{legend[1:]}.')}}}"
    yield r"\end{table}"


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
