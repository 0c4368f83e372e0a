"""The page's tables: explained, sortable, and of the report's own cells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_runs import chart_findings, chart_run

from llm_bench_fixtures.report.document import Table
from llm_bench_fixtures.report.page.glossary import WORDS, glossary
from llm_bench_fixtures.report.page.tables import (
    SHORT,
    page_table,
    sort_key,
    summary_table,
    unranked,
    without,
    without_zeros,
)
from llm_bench_fixtures.report.page.values import Cell, Head, PageTable, Row
from llm_bench_fixtures.results.formatting import MISSING, format_bytes, format_seconds, three_digits
from llm_bench_fixtures.results.metrics import METRICS, registry


@pytest.mark.parametrize(
    ("cell", "key"),
    [
        ("33.8 ms ± 393 µs", 0.0338),
        ("573 µs", 573e-6),
        ("1.25 s", 1.25),
        ("0.996× (0.968–1.03)", 0.996),
        ("18.4 MB", 18.4e6),
        ("512 B", 512),
        ("2.05 GFLOP", 2.05e9),
        ("+0.36 % ± 0.08 %", 0.36),
        ("-0.1 %", -0.1),
        ("−0.1 %", -0.1),
        ("<0.01 %", 0.01),
        ("5.7e-05", 5.7e-5),
        ("3,810.9", 3810.9),
        ("diverges: 0.3", None),
        (MISSING, None),
        ("", None),
    ],
)
def test_a_cell_is_sorted_by_its_first_number_in_its_base_unit(cell: str, key: float | None) -> None:
    assert sort_key(cell) == (None if key is None else pytest.approx(key))


@given(st.floats(1e-6, 1e4))
def test_times_and_numbers_keep_their_order_whatever_their_unit(value: float) -> None:
    assert sort_key(format_seconds(value)) == pytest.approx(value, rel=6e-3)
    assert sort_key(three_digits(value)) == pytest.approx(value, rel=6e-3, abs=6e-4)


@given(st.integers(1, 10**13))
def test_bytes_keep_their_order_whatever_their_unit(count: int) -> None:
    assert sort_key(format_bytes(count)) == pytest.approx(count, rel=6e-3)


def test_only_columns_of_numbers_are_sorted_by_number() -> None:
    table = page_table(Table(("case", "latency"), (("16", "20 ms"),), frozenset({1})), "", {})
    (row,) = table.rows
    assert [cell.sort for cell in row.cells] == [None, pytest.approx(0.02)]


def test_rows_know_their_variant_and_where_a_group_starts() -> None:
    rows = (("1", "fp32"), ("1", "bf16"), ("2", "fp32"))
    table = page_table(Table(("case", "variant"), rows), "", {})
    assert [row.variant for row in table.rows] == ["fp32", "bf16", "fp32"]
    assert [row.starts_group for row in table.rows] == [False, False, True]


def test_a_table_of_single_rows_has_no_groups() -> None:
    table = page_table(Table(("variant", "x"), (("a", "1"), ("b", "2"))), "", {})
    assert not any(row.starts_group for row in table.rows)


def test_columns_that_are_not_wanted_or_say_nothing_are_left_out() -> None:
    table = Table(
        ("case", "what ran", "TTFT", "latency", "remarks"), (("16", "float32", MISSING, "1 s", ""),), frozenset({2, 3})
    )
    expected = Table(("case", "TTFT", "latency"), (("16", MISSING, "1 s"),), frozenset({1, 2}))
    assert without(table, "what ran") == expected


def test_the_summary_has_the_variants_that_ran_and_what_ran_below_their_ids() -> None:
    table = summary_table(chart_findings(), glossary(SHORT, registry()))
    assert [head.text for head in table.heads] == [
        "variant", "latency, ms", "speed-up", "batched, tokens/s", "weights, MB", "peak, MB",
        "perplexity",
    ]  # fmt: skip
    assert [(row.cells[0].text, row.cells[0].detail) for row in table.rows][:2] == [
        ("fp32", "float32"),
        ("bf16", "float32"),
    ]
    assert [head.is_number for head in table.heads] == [False] + [True] * 6
    assert all(head.term for head in table.heads[1:])


def test_the_summary_marks_what_is_shown_to_be_better_or_worse() -> None:
    """bf16 is slower and needs half the memory; its perplexity is near-lossless."""
    table = summary_table(chart_findings(), {})
    tones = {head.text: cell.tone for head, cell in zip(table.heads, table.rows[1].cells, strict=True)}
    assert (tones["speed-up"], tones["peak, MB"], tones["perplexity"]) == ("worse", "better", "")
    assert {cell.tone for cell in table.rows[0].cells} == {""}


def test_the_reference_has_no_change_of_perplexity_to_be_sorted_by() -> None:
    """Its own perplexity stands there, and the others' change."""
    table = summary_table(chart_findings(), {})
    assert [(row.cells[-1].text, row.cells[-1].sort) for row in table.rows][:2] == [
        ("20.000", 0.0),
        ("≈ +0.10 %", 0.0),
    ]
    assert table.rows[1].cells[-1].detail == "± 0.05 %"


def test_near_lossless_variants_share_one_place_in_an_order_by_quality() -> None:
    """bf16 has +0.1 % and ort-fp32 nothing; ort-int8, with 2 %, is beyond them."""
    table = summary_table(chart_findings(), {})
    assert [row.cells[-1].sort for row in table.rows] == [0.0, 0.0, 0.0, pytest.approx(2.0)]
    heads = (Head("variant"), Head("KLD", is_number=True), Head("TTFT", is_number=True))
    cells = {"fp32": (None, 1.0), "bf16": (1e-5, 2.0), "ort-fp32": (2e-6, 3.0), "ort-int8": (1e-7, 4.0)}
    rows = [Row((Cell(one), Cell("", kld), Cell("", ttft)), one) for one, (kld, ttft) in cells.items()]
    shared = unranked(PageTable("", heads, tuple(rows)), chart_run())
    assert [row.cells[1].sort for row in shared.rows] == [2e-6, 2e-6, 2e-6, 1e-7]
    assert [row.cells[2].sort for row in shared.rows] == [1.0, 2.0, 3.0, 4.0]


def test_on_a_narrow_window_stays_what_decides() -> None:
    table = summary_table(chart_findings(), {})
    assert [head.text for head in table.heads if not head.is_minor] == ["variant", "speed-up", "peak, MB", "perplexity"]


@pytest.mark.parametrize(
    ("text", "value", "detail"),
    [
        ("0.980× (0.951–1.01)", "0.980×", "0.951–1.01"),
        ("34.2 ms ± 1.14 ms", "34.2 ms", "± 1.14 ms"),
        ("3/190 (0.33–4.5 %)", "3/190", "0.33–4.5 %"),
        ("3 (1.58 %; 0.327 % to 4.54 %)", "3", "1.58 %; 0.327 % to 4.54 %"),
        ("754 (8)", "754 (8)", ""),
    ],
)
def test_an_interval_or_an_error_stands_below_its_figure(text: str, value: str, detail: str) -> None:
    (row,) = page_table(Table(("x",), ((text,),), frozenset({0})), "", {}).rows
    assert (row.cells[0].text, row.cells[0].detail) == (value, detail)


def test_a_column_of_errors_that_are_all_zero_is_left_out() -> None:
    rows = (("fp32", MISSING, MISSING, "0"), ("bf16", "0", "0.1", "0"))
    table = Table(("variant", "KLD ±", "ppl ratio ±", "KLD"), rows)
    assert without_zeros(table).header == ("variant", "ppl ratio ±", "KLD")


def test_a_head_with_its_unit_has_the_term_of_what_stands_before_it() -> None:
    terms = glossary(["latency"], registry())
    (head,) = page_table(Table(("latency, ms",), ()), "", terms).heads
    assert head.term is terms["latency"]


def test_every_column_of_a_metric_has_its_formula_and_direction() -> None:
    heads = {metric.column for metric in METRICS}
    terms = glossary(heads, registry())
    assert set(terms) == heads
    ttft = terms["TTFT"]
    assert (ttft.name, ttft.better) == ("Time to first token", "lower is better")
    assert ttft.meaning.startswith("start of a prompt's batch")
    assert ttft.hint.startswith("Time to first token. Lower is better. Start of a prompt's batch")
    assert terms["rounds"].better == ""


def test_a_head_that_several_metrics_share_has_the_first_ones_words() -> None:
    assert glossary(["from"], registry())["from"].name == "Latency, lower bound"


def test_heads_without_a_meaning_are_left_out_and_keys_differ() -> None:
    terms = glossary(["variant", "what nobody knows", "TTFT", "variant"], registry())
    assert list(terms) == ["variant", "TTFT"]
    assert terms["variant"].meaning == WORDS["variant"]
    assert len({term.key for term in terms.values()}) == 2
