"""Markdown in which no text from elsewhere has any power."""

from __future__ import annotations

import pytest

from llm_bench_fixtures.report.renderers.markdown import bullets, escape, escape_html, folded, markdown_table
from llm_bench_fixtures.report.tables.table import Table


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a|b", "a\\|b"),
        ("a\nb", "a ↵ b"),
        ("a\r\nb", "a  ↵ b"),
        ("a\tb", "a b"),
        ("\\|", "\\\\\\|"),
        ("<b>&", "&lt;b&gt;&amp;"),
        ("snake_case", "snake_case"),
        ("_emphasis_", "\\_emphasis\\_"),
        ("![x](y)", "!\\[x\\](y)"),
        ("$x^2$", "\\$x^2\\$"),
        ("plain 1.5 – ×", "plain 1.5 – ×"),
    ],
)
def test_escape(text: str, escaped: str) -> None:
    assert escape(text) == escaped


@pytest.mark.parametrize(
    "link", ["@someone", "me@example.org", "#12", "GH-12", "!12", "https://example.org", "www.example.org"]
)
def test_nobody_is_notified_and_nothing_is_linked(link: str) -> None:
    """A space without width stands in what a forge would make a link or a mention of."""
    escaped = escape(f"see {link}")
    assert escaped.replace("\u200b", "") == f"see {link}"
    assert link not in escaped


@pytest.mark.parametrize("character", ["\x1b", "\x00", "\x7f", "\u202e", "\u2028", "\ud800", "\u200b"])
def test_control_characters_are_replaced(character: str) -> None:
    assert escape(f"a{character}b") == "a\ufffdb"
    escape(character).encode()


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("# title", "\\# title"),
        ("###### title", "\\###### title"),
        ("- item", "\\- item"),
        ("+ item", "\\+ item"),
        ("-", "\\-"),
        ("---", "\\---"),
        ("===", "\\==="),
        ("- - -", "\\- - -"),
        ("1. item", "1\\. item"),
        ("12) item", "12\\) item"),
        (" # title", "\\# title"),
        ("      code", " code"),
        (":--", "\\:--"),
        ("-1.5", "-1.5"),
        ("+0.1 %", "+0.1 %"),
        ("1.5 s", "1.5 s"),
        ("#tag", "#tag"),
    ],
)
def test_no_line_begins_a_block(text: str, escaped: str) -> None:
    """Figures with a sign stay as they are."""
    assert escape(text) == escaped


def test_within_a_tag_no_other_begins() -> None:
    assert escape_html("<b>&\n@a \x1b'\"") == "&lt;b&gt;&amp; ↵ @\u200ba \ufffd&#x27;&quot;"


def test_a_table() -> None:
    table = Table.of_texts(("name", "n|m"), (("a", "1"), ("b", "2")), {1})
    assert list(markdown_table(table)) == ["| name | n\\|m |", "| --- | ---: |", "| a | 1 |", "| b | 2 |"]


def test_lists() -> None:
    assert list(bullets(["a", "# b"])) == ["- a", "- \\# b"]


def test_what_is_folded_has_blank_lines_around_it() -> None:
    """Without them Markdown between the tags is not read."""
    assert list(folded("a <b>", ["- c"])) == [
        "<details><summary>a &lt;b&gt;</summary>", "", "- c", "", "</details>", "",
    ]  # fmt: skip


def test_nothing_is_folded_where_there_is_nothing() -> None:
    assert list(folded("a", [])) == []
