"""GitHub-flavoured Markdown: the one place that makes any of it, and that escapes what comes from elsewhere.

Generated texts, ids of models and tests, paths and messages may be anything. None of it becomes markup, a link, a
mention that notifies somebody, or a control character.

The report of one run, or of several, is fit for a comment on a pull request: the answer, a short table, and the rest
folded. Everything that is measured stands in the page and in results.csv; this says what a reviewer must know. The
report of what was judged is fit for a comment, too, or for a CI step's summary.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence

from llm_bench_fixtures.grouping import grouped
from llm_bench_fixtures.report.about import facts, noise_footnote, speedup_footnotes
from llm_bench_fixtures.report.agreement import agreement_sections
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.judged.causes import MOST_CAUSES, JudgedReport, JudgedRow, causes_table, rows_table
from llm_bench_fixtures.report.judged.changes import Changes
from llm_bench_fixtures.report.runs import Runs, about_table, notes
from llm_bench_fixtures.report.tables.by_variant import need_sections, short_table
from llm_bench_fixtures.report.tables.on_request import fit_sections
from llm_bench_fixtures.report.tables.scenarios import case_rows
from llm_bench_fixtures.report.tables.table import Cell, Column, Section, Table
from llm_bench_fixtures.report.words.answer import Answer
from llm_bench_fixtures.report.words.measured import headline_sentence
from llm_bench_fixtures.results.formatting import Notation, count
from llm_bench_fixtures.results.record import Status
from llm_bench_fixtures.text import first_few, printable

MOST_CHANGES, MOST_NOTES = 12, 4  # lines that a comment has room for
MOST_ROWS = 60  # in one table of what was judged
_SPECIAL = str.maketrans({**{one: f"\\{one}" for one in "\\`*[]|~$"}, "<": "&lt;", ">": "&gt;", "&": "&amp;"})
ZERO_WIDTH_SPACE = "\u200b"
# What GitHub and GitLab make a link of, whatever escapes it: @name, #1, GH-1, !1, https://, www.
_LINK = re.compile(r"@|[#!](?=\d)|GH(?=-\d)|:(?=//)|www(?=\.)", re.IGNORECASE)
_EMPHASIS = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")  # inside a word an underscore is only itself
# What makes a heading, a list, a rule or a table of the line that begins with it.
_BLOCK = re.compile(r"^ *(?=(#+|[-+=]+|:-+|\d{1,9}[.)])(\s|$)|--|==|:-)")
_NUMBERED = re.compile(r"^(\d{1,9})(?=[.)](\s|$))")

LIMIT_BYTES = 10_000  # size of a file that is fit for a comment
CUT = "\n**Cut here, as it is too long for a comment: `report.html` has the rest.**\n"
CLOSED = "\n</details>"


def render_markdown(findings: Findings) -> str:
    """The whole file, the most needed first, and cut where it is too long for a comment. Every text from outside is
    escaped: it can't become markup."""
    return comment(_run_lines(findings))


def _run_lines(findings: Findings) -> Iterator[str]:
    changes = findings.changes
    yield from (f"## Text generation of {escape(findings.run.provenance.model)}", "")
    yield from (escape(findings.header).replace("\\|", "|"), "")
    yield from bold(filter(None, [findings.noisy]), "> ")
    yield from bold([*findings.answer.lines, *([changes.sentence] if changes else [])])
    yield from bold(findings.warnings, "> ")
    yield from (escape(headline_sentence(findings)), "", *explained_table(short_table(findings)))
    if changes is not None:
        yield from folded(f"What changed against {changes.name}", _changes(changes))
    yield from _sections([*need_sections(findings), *agreement_sections(findings)])
    yield from folded("The answer for each goal, with its cost", _answer(findings.answer))
    yield from folded("More that follows from this run", bullets(findings.takeaways))
    yield from folded("Does it fit?", _fit(findings))
    yield from folded("Every case: the reference's latency, and the others' speed-ups", _cases(findings))
    yield from folded("Skipped and failed", _skipped(findings))
    about = (*(f"{name}: {value}" for name, value in facts(findings.run)), noise_footnote(findings))
    yield from folded("About this run", bullets([*about, *speedup_footnotes(findings)]))


def _sections(sections: Iterable[Section]) -> Iterator[str]:
    for one in sections:
        yield from folded(one.title, [escape(one.note), "", *markdown_table(one.table)])


def _changes(changes: Changes) -> Iterator[str]:
    """The first causes; the page has them all, and the values."""
    shown = changes.moved[:MOST_CHANGES]
    if shown:
        yield from (*markdown_table(causes_table(shown)), "")
    if len(shown) < len(changes.moved):
        yield from (f"... and {len(changes.moved) - len(shown):,} more, which report.html has.", "")
    yield from bullets([changes.against, *changes.notes[:MOST_NOTES]])


def _answer(answer: Answer) -> Iterator[str]:
    """What each reader should use, and what is not worth using."""
    for one in answer.recommendations:
        yield f"- {escape(f'For the {one.pick.reader}:')} {escape(' '.join([one.sentence, *one.notes]))}"
    yield from bullets(answer.remarks)


def _cases(findings: Findings) -> Iterator[str]:
    """The bare speed-ups, whose intervals the page has; a scenario's title at its first case only."""
    cases, rows, before = case_rows(findings), [], ""
    for one in cases:
        cells = (Cell(value=cell.value) if cell.notation is Notation.TIMES else cell for cell in one.cells.values())
        rows.append((Cell("" if one.title == before else one.title), Cell(one.case), *cells))
        before = one.title
    if rows:
        columns = (Column("scenario"), Column("case"), *(Column(name, Notation.NUMBER) for name in cases[0].cells))
        yield from markdown_table(Table(columns, tuple(rows)))


def _fit(findings: Findings) -> Iterator[str]:
    for section in fit_sections(findings.run):
        yield from (escape(section.title), "", escape(section.note), "", *markdown_table(section.table))


def _skipped(findings: Findings) -> Iterator[str]:
    """A line for each status of a variant, with its first reason; what didn't load has its reason in the table, and a
    warning counts what was not reached."""
    loaded = {variant.id for variant in findings.run.loaded}
    reached = [one for one in findings.skipped_or_failed if one.status is not Status.NOT_REACHED]
    shown = (one for one in reached if one.variant in loaded)
    for (variant, status), them in grouped(shown, lambda one: (one.variant, one.status)).items():
        more = f" and {count(len(them) - 1, 'other reason')}" if len(them) > 1 else ""
        benchmarks = count(sum(one.benchmarks for one in them), "benchmark")
        what = "skipped" if status is Status.SKIPPED else "failed"
        yield f"- {escape(f'{variant}: {benchmarks} {what}: {them[0].reason}{more}')}"


def render_runs_markdown(runs: Runs) -> str:
    """The file of several runs, cut where it is too long for a comment. Every text from outside is escaped."""
    return comment(_runs_lines(runs))


def _runs_lines(runs: Runs) -> Iterator[str]:
    yield from ("## Text generation by machine and model", "")
    if runs.common:
        yield from (f"All of {escape(runs.common)}.", "")
    yield from bold(runs.noisy, "> ")
    yield from bold([runs.sentence])
    if runs.ranks:
        yield from (escape(runs.ranks.sentence), "")
    if runs.workload:
        yield from (f"Workload: {escape(runs.workload)}.", "")
    yield from explained_table(runs.table)
    yield from (*bullets(runs.pooled), "")
    if runs.incomparable:
        yield from ("Not compared:", "", *bullets(runs.incomparable), "")
    yield from _sections(runs.agreement)
    answers = (f"{labels}: {sentence}" for labels, sentence in runs.answers)
    yield from folded("The answer of each run", bullets(answers))
    yield from folded("About the runs", [*markdown_table(about_table(runs.runs)), "", *bullets(notes(runs.runs))])


def judged_markdown(report: JudgedReport) -> str:
    """The report of what was judged, its rows folded."""
    return "\n".join(_judged_lines(report)) + "\n"


def _judged_lines(report: JudgedReport) -> Iterator[str]:
    yield from (f"## {escape(report.title)}", "", *(f"{escape(sentence)}  " for sentence in report.sentences))
    for warning in report.warnings:
        yield from ("", f"> **{escape(warning)}**")
    for part in report.parts:
        yield from ("", f"### {escape(part.title)}", "", *bullets(first_few(part.lines, MOST_CAUSES)), "")
        if part.has_details:
            yield from folded("Value by value", _details(part.rows))
    if report.notes:
        yield from ("", *bullets(report.notes))
    if report.conclusion:
        yield from ("", f"**{escape(report.conclusion)}**")


def _details(rows: Sequence[JudgedRow]) -> Iterator[str]:
    yield from markdown_table(rows_table(rows[:MOST_ROWS]))
    if len(rows) > MOST_ROWS:
        yield from ("", f"... and {len(rows) - MOST_ROWS:,} more, which --verbose and --json have.")


def escape(text: str) -> str:
    """The text on one line, with replacements for control characters, so that it is shown as it is."""
    unbroken = _LINK.sub(f"\\g<0>{ZERO_WIDTH_SPACE}", one_line(text))
    return _not_a_block(_EMPHASIS.sub(r"\\_", unbroken.translate(_SPECIAL)))


def escape_html(text: str) -> str:
    """Escaped text for within a tag, where Markdown is not read."""
    return html.escape(_LINK.sub(f"\\g<0>{ZERO_WIDTH_SPACE}", one_line(text)))


def one_line(text: str) -> str:
    """Line breaks as arrows, tabs as spaces, and a replacement for each other character that is not printable."""
    return printable(text.replace("\r", " ").replace("\n", " ↵ ").replace("\t", " "))


def _not_a_block(text: str) -> str:
    """A backslash before what would begin a heading, a list or a rule. A deep indent, which begins code, goes."""
    if not _BLOCK.match(text):
        return re.sub(r"^ {2,}", " ", text)
    start = text.lstrip(" ")
    return _NUMBERED.sub(r"\1\\", start) if start[0].isdigit() else f"\\{start}"


def markdown_table(table: Table) -> Iterator[str]:
    """The table's lines."""
    yield _row(column.head for column in table.columns)
    yield f"| {' | '.join('---:' if column.is_numeric else '---' for column in table.columns)} |"
    yield from map(_row, table.texts)


def explained_table(table: Table) -> Iterator[str]:
    """The table's lines, and a paragraph on its figures."""
    if table.rows:
        yield from (*markdown_table(table), "")
    if means := "; ".join(table.legend()):
        yield from (escape(f"{means[:1].upper()}{means[1:]}."), "")


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(escape(cell) for cell in cells)} |"


def bullets(sentences: Iterable[str]) -> Iterator[str]:
    """A list."""
    return (f"- {escape(sentence)}" for sentence in sentences)


def bold(sentences: Iterable[str], before: str = "") -> Iterator[str]:
    """A bold paragraph for each sentence."""
    for sentence in sentences:
        yield from (f"{before}**{escape(sentence)}**", "")


def folded(title: str, lines: Iterable[str]) -> Iterator[str]:
    """The lines, shown to who clicks on the title. Nothing where there are none."""
    if content := list(lines):
        yield from (f"<details><summary>{escape_html(title)}</summary>", "", *content, "", "</details>", "")


def comment(lines: Iterable[str]) -> str:
    """The lines as a file that is fit for a comment: of LIMIT_BYTES or more the first ones, with a line that says so,
    and what is folded closed."""
    text = "\n".join(lines) + "\n"
    if len(text.encode()) < LIMIT_BYTES:
        return text
    kept, left = [], LIMIT_BYTES - len(CUT.encode()) - len(CLOSED.encode()) - 2
    for line in text.splitlines():
        left -= len(line.encode()) + 1
        if left < 0:
            break
        kept.append(line)
    is_open = sum(line.startswith("<details>") for line in kept) > kept.count("</details>")
    return "\n".join([*kept, *([CLOSED] if is_open else []), CUT])
