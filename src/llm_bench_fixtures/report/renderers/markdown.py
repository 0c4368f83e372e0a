"""GitHub-flavoured Markdown: the one place that makes any of it, and that escapes what comes from elsewhere.

Generated texts, ids of models and tests, paths and messages may be anything. None of it becomes markup, a link, a
mention that notifies somebody, or a control character.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator

from llm_bench_fixtures.report.renderers.figures import head, legend, texts
from llm_bench_fixtures.report.tables.table import Table
from llm_bench_fixtures.text import printable

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
    yield _row(map(head, table.columns))
    yield f"| {' | '.join('---:' if column.is_numeric else '---' for column in table.columns)} |"
    yield from map(_row, texts(table))


def explained_table(table: Table) -> Iterator[str]:
    """The table's lines, and a paragraph on its figures."""
    if table.rows:
        yield from (*markdown_table(table), "")
    if means := "; ".join(legend(table)):
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
