"""The report as Markdown, fit for a comment on a pull request: the answer, a short table, and the rest folded; of one
run, or of several.

Everything that is measured stands in the page and in results.csv; this says what a reviewer must know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from llm_bench_fixtures.grouping import grouped
from llm_bench_fixtures.report.about import facts, noise_footnote
from llm_bench_fixtures.report.agreement import agreement_sections
from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.judged.changes import Changes
from llm_bench_fixtures.report.judged.renderer import causes_table
from llm_bench_fixtures.report.renderers.markdown import (
    bold,
    bullets,
    comment,
    escape,
    explained_table,
    folded,
    markdown_table,
)
from llm_bench_fixtures.report.runs import Runs, about_table, notes
from llm_bench_fixtures.report.tables.by_variant import need_sections, short_table
from llm_bench_fixtures.report.tables.on_request import fit_sections
from llm_bench_fixtures.report.tables.scenarios import case_rows
from llm_bench_fixtures.report.tables.table import Cell, Column, Section, Table
from llm_bench_fixtures.report.words.answer import Answer
from llm_bench_fixtures.report.words.measured import headline_sentence, speedup_footnotes
from llm_bench_fixtures.results.formatting import Notation, count
from llm_bench_fixtures.results.record import Status

MOST_CHANGES, MOST_NOTES = 12, 4  # lines that a comment has room for


def render_markdown(findings: Findings) -> str:
    """The whole file, the most needed first, and cut where it is too long for a comment. Every text from outside is
    escaped: it can't become markup."""
    return comment(_lines(findings))


def _lines(findings: Findings) -> Iterator[str]:
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
