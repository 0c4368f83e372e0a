"""The page's tables: explained, sortable, and of the report's own cells."""

from __future__ import annotations

import pytest
from page_runs import chart_findings, chart_run
from shown_table import header, rows

from llm_bench_fixtures.report.page.tables import (
    WORDS,
    PageTable,
    glossary,
    summary_table,
    unranked,
    without,
    without_zeros,
)
from llm_bench_fixtures.report.tables.by_variant import SHORT
from llm_bench_fixtures.report.tables.table import Cell, Column, Table, Tone
from llm_bench_fixtures.results.formatting import MISSING, Notation
from llm_bench_fixtures.results.metrics import METRICS, registry


def test_a_column_is_sorted_by_its_values_and_not_by_what_is_written() -> None:
    """1.05 s stand as "1.05 s"; the rate has a rank beside its words."""
    assert [cell.key for cell in (Cell("16"), Cell(value=1.05), Cell("4/s", rank=4.0))] == [None, 1.05, 4.0]


def test_rows_know_their_variant_and_where_a_group_starts() -> None:
    table = PageTable("", Table.of_texts(("case", "variant"), (("1", "fp32"), ("1", "bf16"), ("2", "fp32"))))
    assert table.variants == ["fp32", "bf16", "fp32"]
    assert table.group_starts == {2}


def test_a_table_of_single_rows_has_no_groups() -> None:
    table = PageTable("", Table.of_texts(("variant", "x"), (("a", "1"), ("b", "2"))))
    assert not table.group_starts


def test_columns_that_are_not_wanted_or_say_nothing_are_left_out() -> None:
    cells = ("16", "float32", MISSING, "1 s", "")
    table = Table.of_texts(("case", "what ran", "TTFT", "latency", "remarks"), (cells,), {2, 3})
    expected = Table.of_texts(("case", "TTFT", "latency"), (("16", MISSING, "1 s"),), {1, 2})
    assert without(table, "what ran") == expected


def test_the_summary_has_the_variants_that_ran_and_what_ran_below_their_ids() -> None:
    shown = summary_table(chart_findings(), glossary(SHORT, registry()))
    assert header(shown.table) == (
        "variant", "latency, ms", "speed-up", "batched, tokens/s", "weights, MB", "peak, MB",
        "perplexity",
    )  # fmt: skip
    assert [(row[0].words, row[0].note) for row in shown.rows][:2] == [("fp32", "float32"), ("bf16", "float32")]
    assert [column.is_numeric for column in shown.table.columns] == [False] + [True] * 6
    assert all(column.name in shown.terms for column in shown.table.columns[1:])


def test_the_summary_marks_what_is_shown_to_be_better_or_worse() -> None:
    """bf16 is slower and needs half the memory; its perplexity is near-lossless."""
    table = summary_table(chart_findings(), {}).table
    tones = {name: cell.tone for name, cell in zip(table.names, table.rows[1], strict=True)}
    assert (tones["speed-up"], tones["peak"], tones["perplexity"]) == (Tone.WORSE, Tone.BETTER, Tone.ALIKE)
    assert {cell.tone for cell in table.rows[0]} == {None}


def test_the_reference_has_no_change_of_perplexity_to_be_sorted_by() -> None:
    """Its own perplexity stands there, and the others' change."""
    table = summary_table(chart_findings(), {}).table
    assert [row[-1] for row in rows(table)][:2] == ["20.000", "+0.10 % ± 0.05 %"]
    assert [cell.key for cell in table.cells("perplexity")][:2] == [1.0, 1.0]


def test_near_lossless_variants_share_one_place_in_an_order_by_quality() -> None:
    """bf16 has +0.1 % and ort-fp32 nothing; ort-int8, with 2 %, is beyond them."""
    table = summary_table(chart_findings(), {}).table
    assert [cell.key for cell in table.cells("perplexity")] == [1.0, 1.0, 1.0, pytest.approx(1.02)]
    columns = (Column("variant"), Column("KLD", Notation.FINE), Column("TTFT", Notation.SECONDS))
    cells = {"fp32": (None, 1.0), "bf16": (1e-5, 2.0), "ort-fp32": (2e-6, 3.0), "ort-int8": (1e-7, 4.0)}
    them = [(Cell(one), Cell(value=kld), Cell(value=ttft)) for one, (kld, ttft) in cells.items()]
    shared = unranked(Table(columns, tuple(them)), chart_run())
    assert [row[1].key for row in shared.rows] == [2e-6, 2e-6, 2e-6, 1e-7]
    assert [row[2].key for row in shared.rows] == [1.0, 2.0, 3.0, 4.0]


def test_on_a_narrow_window_stays_what_decides() -> None:
    shown = summary_table(chart_findings(), {})
    assert [name for name in shown.table.names if name in shown.narrow] == ["variant", "speed-up", "peak", "perplexity"]


@pytest.mark.parametrize(
    ("cell", "shown", "detail"),
    [
        (Cell(value=0.98, low=0.951, high=1.01, notation=Notation.TIMES), "0.980×", "0.951–1.01"),
        (Cell(value=0.0342, error=0.00114, notation=Notation.SECONDS), "34.2 ms", "± 1.14 ms"),
        (Cell(value=3, of=190, low=0.00327, high=0.0454), "3/190", "0.33–4.5 %"),
        (Cell(value=754, mark=" (8)"), "754 (8)", ""),
        (Cell(value=1, low=1, high=1, notation=Notation.TIMES), "1.00×", ""),
    ],
)
def test_an_interval_or_an_error_stands_below_its_figure(cell: Cell, shown: str, detail: str) -> None:
    column = Column("x", Notation.NUMBER)
    assert (cell.figure(column), cell.spread(column)) == (shown, detail)


def test_a_column_of_errors_that_are_all_zero_is_left_out() -> None:
    columns = (
        Column("variant"),
        *(Column.of(registry()[name]) for name in ("kld_error", "ppl_ratio_error", "kld_mean")),
    )
    values = (("fp32", None, None, 0.0), ("bf16", 0.0, 0.1, 0.0))
    table = Table(columns, tuple((Cell(name), *(Cell(value=one) for one in them)) for name, *them in values))
    assert without_zeros(table).names == ("variant", "ppl ratio ±", "KLD")


def test_every_column_of_a_metric_has_its_formula_and_direction() -> None:
    heads = {metric.column for metric in METRICS}
    terms = glossary(heads, registry())
    assert set(terms) == heads
    ttft = terms["TTFT"]
    assert (ttft.name, ttft.better) == ("Time to first token", "lower is better")
    assert ttft.meaning.startswith("start of a prompt's batch")
    assert terms["rounds"].better == ""


def test_a_head_that_several_metrics_share_has_the_first_ones_words() -> None:
    assert glossary(["from"], registry())["from"].name == "Latency, lower bound"


def test_heads_without_a_meaning_are_left_out_and_keys_differ() -> None:
    terms = glossary(["variant", "what nobody knows", "TTFT", "variant"], registry())
    assert list(terms) == ["variant", "TTFT"]
    assert terms["variant"].meaning == WORDS["variant"]
    assert len({term.key for term in terms.values()}) == 2
