"""Numbers as people read them."""

from __future__ import annotations

import pytest

from llm_bench_fixtures.results.formatting import (
    MISSING,
    Notation,
    change_and_error,
    five_digits,
    format_bytes,
    format_change,
    format_seconds,
    notation_of,
    three_digits,
    with_unit,
    written,
)
from llm_bench_fixtures.results.metrics import METRICS

BY_NAME = {metric.name: metric for metric in METRICS}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0000123, "12.3 µs"), (0.0123, "12.3 ms"), (1.5, "1.50 s"), (90, "90.0 s"), (1234, "1,234 s"), (0, "0 s")],
)
def test_seconds(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(12, "12 B"), (1500, "1.50 kB"), (18_400_000, "18.4 MB"), (2.5e9, "2.50 GB"), (999_600, "1.00 MB")],
)
def test_bytes_are_in_powers_of_1000(count: float, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.25, "0.250"), (1, "1.00"), (23.45, "23.4"), (345.6, "346"), (-4567.8, "-4,568")]
)
def test_three_digits(value: float, text: str) -> None:
    assert three_digits(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.9996, "1.00"), (9.996, "10.0"), (99.96, "100"), (99.94, "99.9")])
def test_what_is_rounded_up_has_no_digit_more_than_its_neighbour(value: float, text: str) -> None:
    assert three_digits(value) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.9996, "1.00 s"), (0.9994, "999 ms"), (0.0009996, "1.00 ms")])
def test_seconds_that_are_rounded_up_to_a_whole_unit_are_in_that_unit(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.5, "0.5000"), (2.9957, "2.9957"), (35.784, "35.784"), (123456.7, "123,457")]
)
def test_five_digits(value: float, text: str) -> None:
    assert five_digits(value) == text


@pytest.mark.parametrize(("ratio", "text"), [(1.013, "+1.3 %"), (1.0, "+0.0 %"), (0.5, "−50.0 %")])
def test_change(ratio: float, text: str) -> None:
    assert format_change(ratio) == text


@pytest.mark.parametrize(
    ("ratio", "error", "text"),
    [
        (1.0004, 0.0002, ("+0.04 %", "0.02 %")),
        (1.0042, 0.0015, ("+0.4 %", "0.1 %")),
        (0.9, 0.03, ("−10.0 %", "3.0 %")),
        (1.0, 0.00000099, ("+0.0 %", "")),
        (1.0, 0.0, ("+0.0 %", "")),
    ],
)
def test_change_has_the_digits_of_its_error(ratio: float, error: float, text: tuple[str, str]) -> None:
    assert change_and_error(ratio, error) == text


@pytest.mark.parametrize("notation", Notation)
def test_no_value_is_a_dash(notation: Notation) -> None:
    assert written(None, notation) == MISSING


def test_tokens_are_whole() -> None:
    assert written(1234.0, notation_of(BY_NAME["new_tokens"])) == "1,234"


@pytest.mark.parametrize(
    ("name", "value", "cell", "alone"),
    [
        ("perplexity", 35.784, "35.784", "35.784"),
        ("flips", 0.0421, "4.21 %", "4.21 %"),
        ("flips_lost", 5, "5", "5"),
        ("loss", 2.9957, "2.9957", "2.9957 nats/token"),
        ("output_tokens_per_s", 392.4, "392", "392 tokens/s"),
        ("ms_per_token", 2.5, "2.50", "2.50 ms/token"),
        ("latency_s", 0.005, "5.00 ms", "5.00 ms"),
        ("weight_bytes", 4e6, "4.00 MB", "4.00 MB"),
    ],
)
def test_a_metric_in_its_column_and_alone(name: str, value: float, cell: str, alone: str) -> None:
    assert written(value, notation_of(BY_NAME[name])) == cell
    assert with_unit(value, BY_NAME[name]) == alone


def test_a_metric_without_value_has_no_unit() -> None:
    assert with_unit(None, BY_NAME["ms_per_token"]) == MISSING
