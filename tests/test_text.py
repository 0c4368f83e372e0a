"""Nothing that is printed can steer a terminal."""

from __future__ import annotations

import pytest

from llm_bench_fixtures.text import csv_text, encodable, printable, printable_lines, readable


@pytest.mark.parametrize("text", ["", "plain", "µs ± 1 × – é 漢", "</script>"])
def test_what_only_has_a_shape_is_left_alone(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    "text",
    ["\x1b[31mred", "\x9b31mred", "a\rb", "a\nb", "a\tb", "\x07", "\x7f", "\u202eevil", "\u2028", "\ud800", "\x00"],
)
def test_what_a_terminal_obeys_is_replaced(text: str) -> None:
    shown = printable(text)
    assert len(shown) == len(text)
    assert shown.isprintable()
    assert "\ufffd" in shown
    shown.encode()


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=cmd()", "'=cmd()"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        (" =cmd()", "' =cmd()"),
        ("\t=cmd()", "\ufffd=cmd()"),
        ("\r=cmd()", "\ufffd=cmd()"),
        ("\uff1dcmd()", "'\uff1dcmd()"),
        ("a=b", "a=b"),
        ("", ""),
        ("\x1b[31m", "\ufffd[31m"),
    ],
)
def test_no_cell_of_csv_is_a_formula(text: str, cell: str) -> None:
    """A tab or a carriage return before one is replaced, so that the cell begins with the replacement."""
    assert csv_text(text) == cell


def test_what_stands_for_a_byte_that_is_no_text_is_replaced() -> None:
    assert encodable("caf\udce9 → Straße 𝄞") == "caf? → Straße 𝄞"


def test_lines_stay_lines() -> None:
    assert printable_lines("a\n\x1b[2Jb") == "a\n\ufffd[2Jb"


@pytest.mark.parametrize("text", ["", "plain", "a\n\tb", "مرحبا שלום 漢", "\U0001f469\u200d\U0001f52c", "so\u00adft"])
def test_what_only_reads_well_on_a_page_stays(text: str) -> None:
    """Arabic and Hebrew too, and the joiner that makes one sign of two."""
    assert readable(text) == text


@pytest.mark.parametrize("text", ["a\0b", "\u202eevil", "\u2066x", "\u200f", "\u2028", "\x1b[2J", "\ud800", "\x7f"])
def test_what_turns_a_page_around_or_cannot_be_written_is_replaced(text: str) -> None:
    shown = readable(text)
    assert len(shown) == len(text)
    assert "\ufffd" in shown
    shown.encode()
