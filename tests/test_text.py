"""Nothing that is printed can steer a terminal."""

from __future__ import annotations

import pytest

from llm_bench_fixtures.text import printable, printable_lines


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


def test_lines_stay_lines() -> None:
    assert printable_lines("a\n\x1b[2Jb") == "a\n\ufffd[2Jb"
