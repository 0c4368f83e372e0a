"""The report as GitHub-flavoured Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from llm_bench_fixtures.report.document import Document, Section, Table
from llm_bench_fixtures.report.plots import Plot

_SPECIAL = str.maketrans(
    {
        **{character: f"\\{character}" for character in "\\`*[]|~"},
        "<": "&lt;",
        ">": "&gt;",
        "&": "&amp;",
        "\n": " ↵ ",
        "\r": " ",
    }
)
ZERO_WIDTH_SPACE = "\u200b"
_LINK = re.compile(r"@|#(?=\d)|:(?=//)|www(?=\.)")  # what GitHub and GitLab make a link of, whatever escapes it
_EMPHASIS = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")  # inside a word an underscore is only itself


def render_markdown(document: Document, plots: Sequence[Plot]) -> str:
    """The whole report. Every text from outside is escaped: it can't become markup."""
    return "\n".join(_lines(document, plots)) + "\n"


def _lines(document: Document, plots: Sequence[Plot]) -> Iterator[str]:
    yield from (f"# {escape(document.title)}", "", escape(document.header).replace("\\|", "|"), "")
    for warning in document.warnings:
        yield from (f"> **{escape(warning)}**", "")
    if document.takeaways:
        yield from ("## Takeaways", "", *(f"- {escape(sentence)}" for sentence in document.takeaways), "")
    yield from _section(document.summary, plots)
    if document.reference:
        yield from ("## Reference", "", *_pairs(document.reference), "")
    for section in document.sections:
        yield from _section(section, plots)
    yield from ("## About this run", "", *_pairs(document.facts), "")
    yield from (f"- {escape(note)}" for note in document.footnotes)


def _section(section: Section, plots: Sequence[Plot]) -> Iterator[str]:
    yield from (f"## {escape(section.title)}", "")
    if section.note:
        yield from (escape(section.note), "")
    yield from (*markdown_table(section.table), "")
    for plot in plots:
        if plot.scenario == section.scenario:
            yield from (f"![{escape(plot.title)}](plots/{Path(plot.path).name})", "")


def markdown_table(table: Table) -> Iterator[str]:
    rule = ["---:" if column in table.numeric else "---" for column in range(len(table.header))]
    yield _row(table.header)
    yield f"| {' | '.join(rule)} |"
    for row in table.rows:
        yield _row(row)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(escape(cell) for cell in cells)} |"


def _pairs(pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    return (f"- {escape(name)}: {escape(value)}" for name, value in pairs)


def escape(text: str) -> str:
    """The text on one line, escaped so that none of it becomes markup, a link or a mention that notifies somebody."""
    return _EMPHASIS.sub(r"\\_", _LINK.sub(f"\\g<0>{ZERO_WIDTH_SPACE}", text).translate(_SPECIAL))
