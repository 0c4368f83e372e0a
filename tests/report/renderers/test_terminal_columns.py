"""Tables in columns."""

from wcwidth import width

from llm_bench_fixtures.report.renderers.terminal import columns, fitting, title_line, wrapped
from llm_bench_fixtures.report.tables.table import Cell, Column, Table, Tone
from llm_bench_fixtures.results.formatting import Notation


def test_a_column_without_values_is_left_out() -> None:
    table = Table.of_texts(("variant", "what ran", "latency", "loss"), (("fp32", "float32", "1 ms", "–"),), {2, 3})
    assert list(columns(table, 80)) == [
        "variant  what ran  latency",
        "--------------------------",
        "fp32     float32      1 ms",
    ]


def test_numbers_are_flush_right() -> None:
    table = Table.of_texts(("variant", "what ran", "n"), (("a", "b", "1"), ("a", "b", "100")), {2})
    assert [line[-3:] for line in columns(table, 80)] == ["  n", "---", "  1", "100"]


def test_columns_are_given_up_but_nothing_is_cut_unasked() -> None:
    shown = (Column("name"), Column("first", droppable=2), Column("last", droppable=1))
    table = Table(shown, (tuple(map(Cell, ("a", "123456", "z"))), tuple(map(Cell, ("bb", "1", "yy")))))
    assert list(columns(table, 80)) == [
        "name  first   last",
        "------------------",
        "a     123456  z",
        "bb    1       yy",
    ]
    assert list(columns(table, 17)) == ["name  last", "----------", "a     z", "bb    yy"]
    assert list(columns(table, 1)) == ["name", "----", "a", "bb"]


def test_what_does_not_fit_stands_in_tables_below_each_other_and_no_number_is_cut() -> None:
    rows = (("fp32", "0.1562", "0.99", "–"), ("bf16", "0.1563", "0.98", "x"))
    numeric = Table.of_texts(("name", "loss", "top-1", "what"), rows, {1, 2})
    assert list(columns(numeric, 17)) == [
        "name    loss",
        "------------",
        "fp32  0.1562",
        "bf16  0.1563",
        "",
        "name  top-1  what",
        "-----------------",
        "fp32   0.99  –",
        "bf16   0.98  x",
    ]


def test_a_long_name_gives_way_to_a_number() -> None:
    """The name has the eight cells that are left it at least, a remark what is left beside it."""
    table = Table.of_texts(("name", "loss", "note"), (("a-very-long-name", "0.156234", "no logits, so none"),), {1})
    assert list(columns(table, 18)) == [
        "name          loss",
        "------------------",
        "a-very-…  0.156234",
        "",
        "name      note",
        "------------------",
        "a-very-…  no logi…",
    ]


def test_wide_characters_take_two_cells_and_combining_ones_none() -> None:
    """Each of 漢字 is as wide as two letters, an e and the accent after it as one, and a smile as two."""
    names = ("漢字", "e\u0301", "\N{GRINNING FACE}", "abcd")
    table = Table.of_texts(("name", "n"), tuple((name, "1") for name in names), {1})
    assert list(columns(table, 80)) == [
        "name  n",
        "-------",
        "漢字  1",
        "e\u0301     1",
        "\N{GRINNING FACE}    1",
        "abcd  1",
    ]


def test_what_moves_the_cursor_moves_no_column() -> None:
    table = Table.of_texts(("name", "n"), (("a\x1b[2Jb", "1"), ("c\nd", "2")))
    assert list(columns(table, 80))[2:] == ["a\ufffd[2Jb  1", "c\ufffdd     2"]


def test_lines_are_wrapped_by_their_cells() -> None:
    assert wrapped("漢字 漢字 ab", 7, indent=" ") == ["漢字", " 漢字", " ab"]
    assert wrapped("abc-def 漢字", 3, break_words=False) == ["abc-def", "漢字"]


def test_a_number_stays_on_one_line_with_its_unit() -> None:
    """Bug: lines ended between a number and its unit. Without the rule, "1.2" and "±" would fit on the lines before."""
    assert wrapped("takes 1.2 GB", 9) == ["takes", "1.2 GB"]
    assert wrapped("grows 3 %", 7) == ["grows", "3 %"]
    assert wrapped("+2.0 % ± 0.1 % of it", 9) == ["+2.0 %", "± 0.1 %", "of it"]
    assert wrapped("in 4 seconds", 4) == ["in 4", "seco", "nds"]


def test_a_title_stands_in_the_middle_by_its_cells() -> None:
    assert title_line("漢字", 10) == "== 漢字 =="
    assert width(title_line("漢字漢字漢字", 9)) == 9


def test_cells_are_painted_by_their_tone_and_stay_aligned() -> None:
    rows = ((Cell("1", tone=Tone.BETTER), Cell("10")), (Cell("2"), Cell("3", tone=Tone.WORSE)))
    table = Table((Column("n", Notation.TEXT), Column("m", Notation.TEXT)), rows)
    painted = list(columns(table, 80, lambda text, tone: f"<{tone}{text}>"))
    assert painted == ["n   m", "-----", "<better1>  10", "2  <worse 3>"]
    assert list(columns(table, 80))[2:] == ["1  10", "2   3"]


def test_which_columns_fit() -> None:
    """Two columns of four cells and the gap between them are ten cells wide."""
    shown = (Column("name"), Column("left", droppable=1), Column("gone"))
    table = Table(shown, (tuple(map(Cell, ("a", "b", "–"))),))
    assert fitting(table, 10) == ("name", "left")
    assert fitting(table, 9) == ("name",)
