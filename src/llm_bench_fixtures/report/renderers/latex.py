"""A narrow table as LaTeX, for a paper. It needs the packages booktabs and graphicx, and a LaTeX that reads UTF-8 by
itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.runs import Runs
from llm_bench_fixtures.report.tables.by_variant import FLIPS, short_names, variants_table, what_ran
from llm_bench_fixtures.report.tables.table import WHAT_RAN, Table
from llm_bench_fixtures.report.words.measured import describe_headline, listed
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.results.provenance import Provenance
from llm_bench_fixtures.text import INSTEAD, printable, some_of

EN_DASH = "–"
MOST_NAMED = 3  # models, and machines
LAST_LATIN = 0x17F  # last of the characters that LaTeX sets with its own fonts
_LIGATURE = re.compile(r"-(?=-)|,(?=,)|[?!](?=\\textasciigrave)")
_NAMED = {
    "\\": "backslash", "~": "asciitilde", "^": "asciicircum", "<": "less", ">": "greater", "|": "bar", '"': "quotedbl",
    "`": "asciigrave", "“": "quotedblleft", "”": "quotedblright", "'": "quotesingle", "µ": "mu", "μ": "mu",
}  # fmt: skip
_MATHS = {"±": r"\pm", "−": "-", "→": r"\rightarrow", "×": r"\times", "≈": r"\approx", "≤": r"\leq", "≥": r"\geq"}
_SPECIAL = str.maketrans(
    {
        **{character: f"\\text{name}{{}}" for character, name in _NAMED.items()},
        **{character: f"${name}$" for character, name in _MATHS.items()},
        **{character: f"\\{character}" for character in "{}$&#_%"},
        "…": r"\ldots{}",
        INSTEAD: "?",
    }
)


def render_latex(findings: Findings) -> str:
    """A `table` with a caption and a label, in the order of the run's variants."""
    caption = caption_of([findings.run.provenance], describe_headline(findings))
    return latex_table(_narrow(findings), caption, _what_ran(findings))


def render_runs_latex(runs: Runs) -> str:
    """The table of several runs with its legend."""
    return latex_table(runs.table, caption_of([run.findings.run.provenance for run in runs.runs], runs.workload))


def caption_of(origins: Sequence[Provenance], workload: str) -> str:
    """The models, the machines and the workload of runs."""
    machines = dict.fromkeys(f"{one.hardware} ({count(one.threads, 'thread')}, {one.device})" for one in origins)
    models = dict.fromkeys(one.model for one in origins)
    return f"Text generation of {_named(models)} on {_named(machines)}: {workload or 'nothing was timed'}."


def _named(names: Iterable[str]) -> str:
    """The first three names."""
    known = list(names)
    return listed(known, "and") if len(known) <= MOST_NAMED else some_of(known, MOST_NAMED)


def _narrow(findings: Findings) -> Table:
    """The variants that ran, in as few columns as an answer needs; what ran stands beneath. Of flips it has the count
    alone: their intervals, which overlap, would take the width of two columns."""
    table = variants_table(findings, findings.run.loaded, short_names(findings))
    left_out = (WHAT_RAN, "top-1") if FLIPS in table.names else (WHAT_RAN,)
    narrow = table.with_columns(place for place, name in enumerate(table.names) if name not in left_out)
    rows = (tuple(replace(cell, low=None, high=None) if cell.of else cell for cell in row) for row in narrow.rows)
    return replace(narrow, rows=tuple(rows))


def _what_ran(findings: Findings) -> Iterator[str]:
    """Words on what each variant computed with; then those that were not measured, with the reasons."""
    named = [(bool(one.label), f"{one.id} ({what_ran(findings, one)})") for one in findings.run.variants]
    for title, has_run in (("what ran", True), ("not measured", False)):
        if them := [one for is_measured, one in named if is_measured is has_run]:
            yield f"{title}: {', '.join(them)}"


def latex_table(table: Table, caption: str, notes: Iterable[str] = ()) -> str:
    """The environment; comments say what it needs. A table that is wider than the text is scaled down.

    notes: what stands beneath the table and its legend, in sentences without a full stop.
    """
    return "\n".join(_lines(table, caption, [*table.legend(), *notes])) + "\n"


def _lines(table: Table, caption: str, notes: Sequence[str]) -> Iterator[str]:
    yield r"% \usepackage{booktabs}"
    yield r"% \usepackage{graphicx}"
    yield r"\begin{table}"
    yield r"  \centering"
    yield rf"  \caption{{{latex(caption)}}}"
    yield r"  \label{tab:llm-bench}"
    yield r"  \resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
    yield rf"  \begin{{tabular}}{{@{{}}{''.join('r' if column.is_numeric else 'l' for column in table.columns)}@{{}}}}"
    yield r"    \toprule"
    yield _row(column.name for column in table.columns)
    if any(column.unit for column in table.columns):
        yield _row(column.unit for column in table.columns)
    yield r"    \midrule"
    yield from map(_row, table.texts)
    yield r"    \bottomrule"
    yield r"  \end{tabular}}"
    if notes:
        beneath = " ".join(f"{note[:1].upper()}{note[1:]}." for note in notes)
        yield r"  \par\smallskip"
        yield rf"  \begin{{minipage}}{{\linewidth}}\footnotesize\raggedright {latex(beneath)}\end{{minipage}}"
    yield r"\end{table}"


def _row(cells: Iterable[str]) -> str:
    r"""A group protects a first cell that begins with [, which \\ before it would take for a length."""
    return f"    {{}}{' & '.join(map(latex, cells))} \\\\"


def latex(words: str) -> str:
    """The text on one line, so that LaTeX sets it as it is, with whatever engine.

    Its ligatures are kept apart: two hyphens are no dash. Characters that no font of LaTeX's own has stand as their
    numbers: [U+6F22].
    """
    line = printable(words.replace("\n", " ").replace("\r", " ").replace("\t", " "))
    pieces = (_LIGATURE.sub(r"\g<0>{}", one.translate(_SPECIAL)) for one in line.split(EN_DASH))
    return "".join(one if ord(one) <= LAST_LATIN else f"[U+{ord(one):04X}]" for one in "--".join(pieces))
