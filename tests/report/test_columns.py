"""Tables in columns."""

from llm_bench_fixtures.report.columns import columns
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
