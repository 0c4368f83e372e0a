"""The end of pytest's output: the answer, a table fitted to the width, what else follows, and where the report is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from llm_bench_fixtures.report.findings import Findings
from llm_bench_fixtures.report.renderers.columns import Paint, columns, fitting, title_line, wrapped
from llm_bench_fixtures.report.renderers.figures import legend
from llm_bench_fixtures.report.tables.by_variant import variants_table, what_ran
from llm_bench_fixtures.report.tables.table import WHAT_RAN
from llm_bench_fixtures.report.words.measured import headline_sentence
from llm_bench_fixtures.results.folder import PAGE_FILE
from llm_bench_fixtures.text import printable, without_commands


def summary_lines(findings: Findings, folder: Path | None, width: int, paint: Paint | None = None) -> Iterator[str]:
    """Lines of at most `width` cells, none of which is a command to a CI runner.

    folder: where the page is, if there is one. paint: colours the cells that are better or worse than the reference's.
    """
    return map(without_commands, _lines(findings, folder, width, paint))


def lines_so_far(findings: Findings, width: int) -> Iterator[str]:
    """The answer of a run that goes on, in two sentences at most."""
    first, *second = findings.answer.brief
    said = (f"llm-bench: so far, {findings.so_far}: {first}", *second)
    return map(without_commands, _paragraphs(said, width, indent="  "))


def _lines(findings: Findings, folder: Path | None, width: int, paint: Paint | None) -> Iterator[str]:
    yield ""
    yield title_line(printable(f"llm-bench: {findings.run.provenance.model}"), width)
    yield from _paragraphs(filter(None, [findings.header, findings.noisy, *findings.warnings]), width)
    yield ""
    yield from _paragraphs(findings.answer.lines, width)
    if findings.changes is not None:
        yield from ("", *_paragraphs([findings.changes.sentence], width))
    yield ""
    yield from _table(findings, width, paint)
    of_picks = (note for one in findings.answer.recommendations for note in one.notes)
    yield from _list((*of_picks, *findings.answer.untold), width)  # what the answer's lines leave out
    yield from _lists(findings, width)
    yield from _list(findings.answer.notes, width)
    yield from _list(findings.takeaways, width)
    for cost in findings.instrumentation:
        yield ""
        yield from _paragraphs([cost], width)
    if folder is not None:
        yield ""
        yield printable(f"Report: {folder / PAGE_FILE}")


def _paragraphs(texts: Iterable[str], width: int, indent: str = "") -> Iterator[str]:
    """Each text in lines of its own, without what would move the cursor."""
    for text in texts:
        yield from wrapped(printable(text), width, indent)


def _list(sentences: Iterable[str], width: int) -> Iterator[str]:
    if lines := list(_paragraphs((f"- {sentence}" for sentence in sentences), width, indent="  ")):
        yield from ("", *lines)


def _table(findings: Findings, width: int, paint: Paint | None) -> Iterator[str]:
    """The variants that loaded; below them what has no room in the table, and why the others didn't run."""
    yield from _paragraphs([headline_sentence(findings, ":")], width)
    variants = findings.run.variants
    table = variants_table(findings, findings.run.loaded)
    shown = fitting(table, width)
    if table.rows:
        yield from columns(table, width, paint)
    below = [variant for variant in variants if not variant.label or WHAT_RAN not in shown]
    yield from _paragraphs((f"{one.id}: {what_ran(findings, one)}" for one in below), width, indent="  ")
    yield from _paragraphs(legend(table, shown), width)


def _lists(findings: Findings, width: int) -> Iterator[str]:
    """What is not worth using and what isn't recommended: a line a variant."""
    for title, remarks in findings.answer.lists:
        yield from ("", *_paragraphs([f"{title}:"], width))
        yield from _paragraphs((f"  {one.variant} {one.text}" for one in remarks), width, indent="    ")
