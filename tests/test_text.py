"""Nothing that is printed can steer a terminal."""

from __future__ import annotations

import json

import pytest

from llm_bench_fixtures.errors import LlmBenchError
from llm_bench_fixtures.text import (
    csv_text,
    encodable,
    harmless,
    harmless_json,
    harmless_text,
    in_encoding,
    printable,
    printable_lines,
    readable,
    some_of,
    well_formed,
    without_passwords,
)


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
        ("::error::x", ": :error::x"),
    ],
)
def test_no_cell_of_csv_is_a_formula(text: str, cell: str) -> None:
    """A tab or a carriage return before one is replaced, so that the cell begins with the replacement."""
    assert csv_text(text) == cell


def test_what_stands_for_a_byte_that_is_no_text_is_replaced() -> None:
    assert encodable("caf\udce9 → Straße 𝄞") == "caf\ufffd → Straße 𝄞"


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


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("::error::x", ": :error::x"),
        ("\u3000::stop-commands::x", "\u3000: :stop-commands::x"),
        ("a ##[error]x", "a ## [error]x"),
        ("##vso[task.setvariable variable=a]b", "## vso[task.setvariable variable=a]b"),
        ("###[group]x", "### [group]x"),
        ("tests/test_a.py::test_b", "tests/test_a.py::test_b"),
        ("## Heading", "## Heading"),
        ("a\r::error::x", "a\ufffd::error::x"),
    ],
)
def test_no_line_is_a_command_to_a_ci_runner(line: str, shown: str) -> None:
    """And what is harmless already stays as it is."""
    assert list(harmless([line])) == [shown]
    assert list(harmless([shown])) == [shown]


def test_a_text_of_several_lines_is_harmless_in_each() -> None:
    assert harmless_text("a\n::b\n\tc\x07") == "a\n: :b\n    c\ufffd"


def test_what_our_errors_quote_is_harmless() -> None:
    assert str(LlmBenchError("no \x1b]52;c;aGk=\x07\n::error::x")) == "no \ufffd]52;c;aGk=\ufffd\n: :error::x"


def test_printed_json_is_the_same_value() -> None:
    value = {"a": "##[error]\x1b\u202e é"}
    text = harmless_json(value)
    assert "##" not in text
    assert text.isascii()
    assert json.loads(text) == value


def test_a_surrogate_is_replaced_wherever_it_stands() -> None:
    given = {"a\ud800": ["b\udfff", {"c": ("é", 1.0, None)}]}
    assert well_formed(given) == {"a\ufffd": ["b\ufffd", {"c": ["é", 1.0, None]}]}


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("ascii", "a -> b +/- 1 x 2 - ? ?"),
        ("cp1252", "a -> b ± 1 × 2 – ? ?"),
        ("utf-8", "a → b ± 1 × 2 – 漢 ?"),
        (None, "a → b ± 1 × 2 – 漢 \ud800"),
    ],
)
def test_what_an_encoding_lacks_is_written_plainly(encoding: str | None, shown: str) -> None:
    assert in_encoding("a → b ± 1 × 2 – 漢 \ud800", encoding) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:s3cret@h/d", "postgresql://me:***@h/d"),
        ("postgresql://me:s3/@#cret@h/d?password=s3cret&x=1", "postgresql://me:***@h/d?password=***&x=1"),
        ("postgresql://me:pass word@h/d, me@home", "postgresql://me:***@h/d, me@home"),
        ("https://me:s3/cret@h and https://you:s3cret@h", "https://me:***@h and https://you:***@h"),
        ("host=h password='a b' user=me", "host=h password=*** user=me"),
        (r"PASSWORD = 'a\' b' user=me", "PASSWORD = *** user=me"),
        ('password="a b" user=me', "password=*** user=me"),
        ("password='a b", "password=***"),
        *(
            (plain, plain)
            for plain in ("http://localhost:8000/v1/x@y", "http://h:80 me@home", "postgresql://h:5432/d a@b")
        ),
        *(
            (plain, plain)
            for plain in ("git@host:x", "postgresql://me@h/d", "password authentication failed", "a://b:c")
        ),
    ],
)
def test_no_password_is_shown(text: str, shown: str) -> None:
    assert without_passwords(text) == shown


@pytest.mark.parametrize("many", ["://a:", "://a: ", "http://a:1", "password=", "password='", "password ", "://a:b c"])
def test_passwords_are_sought_in_one_go(many: str) -> None:
    """Bug: a long line took minutes, as each part of it was followed to its end. Nothing is timed here: by the square
    of its length, each of these would take hours."""
    text = many * 100_000
    assert len(without_passwords(f"{text} @")) <= len(text) * 2


def test_the_first_of_many_are_named_and_the_others_counted() -> None:
    assert some_of([]) == ""
    assert some_of(["a", "b"], most=2) == "a, b"
    assert some_of(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
