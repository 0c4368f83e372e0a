"""Tables in columns."""

from wcwidth import width

from llm_bench_fixtures.report.columns import columns, title_line, wrapped
from llm_bench_fixtures.report.document import Table


def test_what_was_cut_stands_whole_below() -> None:
    table = Table(("variant", "what ran", "latency"), (("fp16", "x" * 60, "1 ms"),), frozenset({2}))
    lines = list(columns(table, 40, shortened="what ran"))
    assert "…" in lines[2]
    assert "".join(line.strip() for line in lines[3:]).replace(" ", "") == "fp16:" + "x" * 60


def test_a_column_without_values_is_left_out() -> None:
    table = Table(("variant", "what ran", "latency", "loss"), (("fp32", "float32", "1 ms", "–"),), frozenset({2, 3}))
    assert list(columns(table, 80)) == [
        "variant  what ran  latency",
        "--------------------------",
        "fp32     float32      1 ms",
    ]


def test_numbers_are_flush_right() -> None:
    table = Table(("variant", "what ran", "n"), (("a", "b", "1"), ("a", "b", "100")), frozenset({2}))
    assert [line[-3:] for line in columns(table, 80)] == ["  n", "---", "  1", "100"]


def test_columns_are_given_up_but_nothing_is_cut_unasked() -> None:
    table = Table(("name", "first", "last"), (("a", "123456", "z"), ("bb", "1", "yy")))
    assert list(columns(table, 80, ("first",))) == [
        "name  first   last",
        "------------------",
        "a     123456  z",
        "bb    1       yy",
    ]
    assert list(columns(table, 17, ("first", "last"))) == ["name  last", "----------", "a     z", "bb    yy"]
    assert list(columns(table, 1, ("first", "last"))) == ["name", "----", "a", "bb"]


def test_wide_characters_take_two_cells_and_combining_ones_none() -> None:
    """Each of 漢字 is as wide as two letters, an e and the accent after it as one, and a smile as two."""
    names = ("漢字", "e\u0301", "\N{GRINNING FACE}", "abcd")
    table = Table(("name", "n"), tuple((name, "1") for name in names), frozenset({1}))
    assert list(columns(table, 80)) == [
        "name  n",
        "-------",
        "漢字  1",
        "e\u0301     1",
        "\N{GRINNING FACE}    1",
        "abcd  1",
    ]


def test_a_wide_cell_is_cut_to_its_cells() -> None:
    """43 cells less 7, 7 and two gaps of 2 leave 25: twelve characters of two cells and the ellipsis."""
    table = Table(("variant", "what ran", "latency"), (("fp16", "漢" * 30, "1 ms"),), frozenset({2}))
    lines = list(columns(table, 43, shortened="what ran"))
    assert lines[2] == "fp16     " + "漢" * 12 + "…     1 ms"
    assert "".join(line.strip() for line in lines[3:]) == "fp16: " + "漢" * 30
    assert max(map(width, lines)) <= 43


def test_what_moves_the_cursor_moves_no_column() -> None:
    table = Table(("name", "n"), (("a\x1b[2Jb", "1"), ("c\nd", "2")))
    assert list(columns(table, 80))[2:] == ["a\ufffd[2Jb  1", "c\ufffdd     2"]


def test_lines_are_wrapped_by_their_cells() -> None:
    assert wrapped("漢字 漢字 ab", 7, indent=" ") == ["漢字", " 漢字", " ab"]
    assert wrapped("abc-def 漢字", 3, break_words=False) == ["abc-def", "漢字"]


def test_a_title_stands_in_the_middle_by_its_cells() -> None:
    assert title_line("漢字", 10) == "== 漢字 =="
    assert width(title_line("漢字漢字漢字", 9)) == 9
