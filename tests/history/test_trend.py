"""The lines of a history: what can be compared is together, and no test's coming or going looks like a change."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from run_factory import make_provenance, make_record, make_run, make_variant, skipped_record
from saved_factory import store

from llm_bench_fixtures.history.headings import Unreadable
from llm_bench_fixtures.history.steps import read_trend
from llm_bench_fixtures.history.storage import RunFolder
from llm_bench_fixtures.history.trend import Group, Level, TrendFilter, TrendLine
from llm_bench_fixtures.results.record import Record
from llm_bench_fixtures.results.storage import write_run

LATENCY = TrendFilter(metrics=("latency_s",))


class History:
    """Runs one hour after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.paths: list[Path] = []

    def keep(self, records: Sequence[Record], variants: Any = None, **provenance: Any) -> None:
        number = len(self.paths)
        where = make_provenance(**{"started": f"2026-01-01T{number:02}:00:00+00:00"} | provenance)
        run = make_run(records, variants, provenance=where)
        self.paths.append(store(run, self.folder / f"{number:04}_x.json"))

    def groups(self, chosen: TrendFilter = LATENCY) -> list[Group]:
        return read_trend(RunFolder(self.folder), chosen, pytest.fail)

    def lines(self, chosen: TrendFilter = LATENCY) -> tuple[TrendLine, ...]:
        (group,) = self.groups(chosen)
        return group.lines


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)


def case(name: str, median_s: float, variant: str = "fp32") -> Record:
    return make_record(variant, median_s, case=name)


def test_a_line_is_the_geometric_mean_over_the_tests(history: History) -> None:
    """√(1 × 4) is 2, and √(2 × 8) is 4."""
    history.keep([case("short", 1), case("long", 4)])
    history.keep([case("short", 2), case("long", 8)])
    (line,) = history.lines()
    assert (line.metric, line.variant, line.tests) == ("latency_s", "fp32", 2)
    assert line.positions == (0, 1)
    assert line.values == pytest.approx((2, 4))


def test_a_test_that_comes_or_goes_is_no_change(history: History) -> None:
    """The plain mean over what each run has would go from 1 to 10 and back."""
    history.keep([case("short", 1)])
    history.keep([case("short", 1), case("slow", 100)])
    history.keep([case("slow", 100)])
    (line,) = history.lines()
    assert line.tests == 2
    assert line.values == pytest.approx((10, 10, 10))


def test_a_change_is_seen_through_tests_that_come_and_go(history: History) -> None:
    """From the second run on everything takes twice as long."""
    history.keep([case("a", 1), case("b", 3)])
    history.keep([case("b", 6), case("c", 50)])
    history.keep([case("a", 2), case("c", 50)])
    (line,) = history.lines()
    assert [value / line.values[0] for value in line.values] == pytest.approx([1, 2, 2])


def test_runs_that_no_test_links_to_the_newest_are_not_in_the_line(history: History) -> None:
    """All tests were renamed at once: nobody knows how 1 of the old compares with 2 of the new."""
    history.keep([case("old", 1)])
    history.keep([case("new", 2)])
    history.keep([case("new", 2), case("newer", 8)])
    history.keep([case("newer", 8)])
    (line,) = history.lines()
    assert line.positions == (1, 2, 3)
    assert line.values == pytest.approx((4, 4, 4))


def test_a_run_that_lacks_a_metric_is_a_gap(history: History) -> None:
    history.keep([case("a", 1)])
    history.keep([skipped_record("fp32", "no reason", case="a")])
    history.keep([case("a", 1)])
    (line,) = history.lines()
    assert line.positions == (0, 2)


def test_what_belongs_to_the_variant_is_its_own_value(history: History) -> None:
    for weight_bytes in (4_000_000,) * 2 + (2_000_000,) * 2:  # most of its runs don't differ, so it is no noise
        variant = make_variant(weight_bytes=weight_bytes, quality={"perplexity": 20.0})
        history.keep([case("a", 1), case("b", 9)], [variant])
    weights, perplexity = history.lines(TrendFilter(metrics=("weight_bytes", "perplexity")))
    assert weights.values == pytest.approx((4_000_000, 4_000_000, 2_000_000, 2_000_000))
    assert perplexity.values == pytest.approx((20,) * 4)
    assert [level.value for level in weights.levels] == pytest.approx([4_000_000, 2_000_000])
    assert len(perplexity.levels) == 1


def test_a_level_tells_which_runs_are_in_it(history: History) -> None:
    for median_s in (*(1, 1.01, 0.99, 1.005), *(2, 2.02, 1.98, 2.01)):
        history.keep([case("a", median_s)])
    (line,) = history.lines()
    before, after = line.levels
    assert (before.first, before.last, before.runs) == (0, 3, 4)
    assert (after.first, after.last, after.runs) == (4, 7, 4)
    assert after.value / before.value == pytest.approx(2, rel=0.02)
    assert list(line.steps) == [(before, after)]


def test_one_run_is_a_line_of_one_point(history: History) -> None:
    history.keep([case("a", 1)])
    (line,) = history.lines()
    assert line.values == pytest.approx((1,))
    assert line.levels == (Level(0, 0, 1, line.values[0]),)


def test_runs_that_cannot_be_compared_are_apart_the_last_measured_first(history: History) -> None:
    history.keep([case("a", 1)], hardware="old")
    history.keep([case("a", 5)], hardware="new")
    history.keep([case("a", 1)], hardware="old")
    groups = history.groups()
    assert [group.fingerprint.machine[0] for group in groups] == ["old", "new"]
    assert [len(group.runs) for group in groups] == [2, 1]
    assert groups[0].lines[0].positions == (0, 1)


def test_the_order_is_that_of_the_time(history: History) -> None:
    for median_s, started in ((1, "2026-01-03"), (2, "2026-01-01"), (3, "2026-01-02")):
        history.keep([case("a", median_s)], started=f"{started}T00:00:00+00:00")
    (line,) = history.lines()
    assert line.values == pytest.approx((2, 3, 1))


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        ({"variants": ("bf16",)}, {"bf16"}),
        ({"tests": "[a-"}, {"fp32"}),
        ({"tests": "*-bf16]"}, {"bf16"}),
        ({"tests": "*nothing*"}, set()),
    ],
)
def test_what_is_followed_can_be_chosen(history: History, chosen: dict[str, Any], found: set[str]) -> None:
    history.keep([case("a", 1), case("b", 1, "bf16")])
    assert {line.variant for line in history.lines(TrendFilter(("latency_s",), **chosen))} == found


def test_runs_of_a_branch_can_be_chosen(history: History) -> None:
    history.keep([case("a", 1)], branch="main")
    history.keep([case("a", 2)], branch="topic")
    (group,) = history.groups(TrendFilter(("latency_s",), branch="topic"))
    assert [run.provenance.branch for run in group.runs] == ["topic"]
    assert history.groups(TrendFilter(branch="nothing")) == []


def test_a_metric_of_the_projects_own_can_be_followed(history: History) -> None:
    """Whatever its name; nothing needs to know it."""
    for value in (3.0, 6.0):
        history.keep([make_record(extra={"my-own metric": value})])
    (line,) = history.lines(TrendFilter(metrics=("my-own metric",)))
    assert line.values == pytest.approx((3, 6))


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_what_has_no_logarithm_is_left_out(history: History, value: float) -> None:
    history.keep([make_record(extra={"mine": value})])
    history.keep([make_record(extra={"mine": 1.0})])
    (line,) = history.lines(TrendFilter(metrics=("mine",)))
    assert line.positions == (1,)


def test_a_results_file_is_a_run_too(history: History) -> None:
    history.paths.append(history.folder / "results.json")
    write_run(make_run([case("a", 1)]), history.paths[0])
    assert history.lines()[0].values == pytest.approx((1,))


def test_a_damaged_file_is_passed_over_with_its_reason(history: History) -> None:
    history.keep([case("a", 1)])
    for name, text in (("cut.json", '{"benchmarks": ['), ("other.json", "{}")):
        history.paths.append(history.folder / name)
        history.paths[-1].write_text(text, encoding="utf-8")
    told: list[Unreadable] = []
    assert len(read_trend(RunFolder(history.folder), LATENCY, told.append)) == 1
    assert [item.place.name for item in told] == ["cut.json", "other.json"]
    assert all(str(item.place) in item.reason for item in told)
