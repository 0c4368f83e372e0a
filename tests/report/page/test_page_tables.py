"""The page's tables: explained, sortable, and of the report's own cells."""

from __future__ import annotations

import pytest
from page_runs import chart_findings, chart_run

from llm_bench_fixtures.report.page.tables import (
    SHORT,
    WORDS,
    glossary,
    page_table,
    summary_table,
    unranked,
    without,
    without_zeros,
)
from llm_bench_fixtures.report.tables.table import Cell, Column, Table, metric_column
from llm_bench_fixtures.results.formatting import MISSING, Notation
from llm_bench_fixtures.results.metrics import METRICS, registry


def test_a_column_is_sorted_by_its_values_and_not_by_what_is_written() -> None:
    """1.05 s stand as "1.05 s", and 20 ms as "20.0 ms"; the rate has a rank beside its words."""
    columns = (Column("case"), Column("latency", Notation.SECONDS), Column("rate", Notation.TEXT))
    row = (Cell("16"), Cell(value=1.05, error=0.02), Cell("4/s", rank=4.0))
    (shown,) = page_table(Table(columns, (row,)), "", {}).rows
    assert [(cell.text, cell.sort) for cell in shown.cells] == [("16", None), ("1.05 s", 1.05), ("4/s", 4.0)]


def test_rows_know_their_variant_and_where_a_group_starts() -> None:
    rows = (("1", "fp32"), ("1", "bf16"), ("2", "fp32"))
    table = page_table(Table.of_texts(("case", "variant"), rows), "", {})
    assert [row.variant for row in table.rows] == ["fp32", "bf16", "fp32"]
    assert [row.starts_group for row in table.rows] == [False, False, True]


def test_a_table_of_single_rows_has_no_groups() -> None:
    table = page_table(Table.of_texts(("variant", "x"), (("a", "1"), ("b", "2"))), "", {})
    assert not any(row.starts_group for row in table.rows)


def test_columns_that_are_not_wanted_or_say_nothing_are_left_out() -> None:
    cells = ("16", "float32", MISSING, "1 s", "")
    table = Table.of_texts(("case", "what ran", "TTFT", "latency", "remarks"), (cells,), {2, 3})
    expected = Table.of_texts(("case", "TTFT", "latency"), (("16", MISSING, "1 s"),), {1, 2})
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
        ("20.000", 1.0),
        ("≈ +0.10 %", 1.0),
    ]
    assert table.rows[1].cells[-1].detail == "± 0.05 %"


def test_near_lossless_variants_share_one_place_in_an_order_by_quality() -> None:
    """bf16 has +0.1 % and ort-fp32 nothing; ort-int8, with 2 %, is beyond them."""
    table = summary_table(chart_findings(), {})
    assert [row.cells[-1].sort for row in table.rows] == [1.0, 1.0, 1.0, pytest.approx(1.02)]
    columns = (Column("variant"), Column("KLD", Notation.FINE), Column("TTFT", Notation.SECONDS))
    cells = {"fp32": (None, 1.0), "bf16": (1e-5, 2.0), "ort-fp32": (2e-6, 3.0), "ort-int8": (1e-7, 4.0)}
    rows = [(Cell(one), Cell(value=kld), Cell(value=ttft)) for one, (kld, ttft) in cells.items()]
    shared = unranked(Table(columns, tuple(rows)), chart_run())
    assert [row[1].key for row in shared.rows] == [2e-6, 2e-6, 2e-6, 1e-7]
    assert [row[2].key for row in shared.rows] == [1.0, 2.0, 3.0, 4.0]


def test_on_a_narrow_window_stays_what_decides() -> None:
    table = summary_table(chart_findings(), {})
    assert [head.text for head in table.heads if not head.is_minor] == ["variant", "speed-up", "peak, MB", "perplexity"]


@pytest.mark.parametrize(
    ("cell", "shown", "detail"),
    [
        (Cell(value=0.98, low=0.951, high=1.01, notation=Notation.TIMES), "0.980×", "0.951–1.01"),
        (Cell(value=0.0342, error=0.00114, notation=Notation.SECONDS), "34.2 ms", "± 1.14 ms"),
        (Cell(value=3, of=190, low=0.00327, high=0.0454), "3/190", "0.33–4.5 %"),
        (Cell(value=754, mark=" (8)"), "754 (8)", ""),
        (Cell(value=1, low=1, high=1, notation=Notation.TIMES), "1.00×", ""),
        (Cell(value=3, note="2 lost"), "3.00", "2 lost"),
    ],
)
def test_an_interval_or_an_error_stands_below_its_figure(cell: Cell, shown: str, detail: str) -> None:
    (row,) = page_table(Table((Column("x", Notation.NUMBER),), ((cell,),)), "", {}).rows
    assert (row.cells[0].text, row.cells[0].detail) == (shown, detail)


def test_a_column_of_errors_that_are_all_zero_is_left_out() -> None:
    columns = (
        Column("variant"),
        *(metric_column(registry()[name]) for name in ("kld_error", "ppl_ratio_error", "kld_mean")),
    )
    values = (("fp32", None, None, 0.0), ("bf16", 0.0, 0.1, 0.0))
    table = Table(columns, tuple((Cell(name), *(Cell(value=one) for one in them)) for name, *them in values))
    assert without_zeros(table).names == ("variant", "ppl ratio ±", "KLD")


def test_a_head_with_its_unit_has_the_term_of_what_stands_before_it() -> None:
    terms = glossary(["latency"], registry())
    (head,) = page_table(Table((Column("latency", Notation.SECONDS, unit="ms"),), ()), "", terms).heads
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
