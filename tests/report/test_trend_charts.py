"""The charts of a history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_factory import make_provenance

from llm_bench_fixtures.history.headings import Heading
from llm_bench_fixtures.history.together import fingerprint_of
from llm_bench_fixtures.history.trend import Group, Level, TrendLine
from llm_bench_fixtures.report.charts.plotly import plotly_json
from llm_bench_fixtures.report.charts.spec import Chart
from llm_bench_fixtures.report.charts.variants import numbered_looks
from llm_bench_fixtures.report.history import trend_charts
from llm_bench_fixtures.results.record import RunState

STEADY = TrendLine("latency_s", "fp32", 1, (0, 1, 2, 3), (1.0, 1.1, 0.9, 1.0), (Level(0, 3, 4, 1.0),))
STEPPING = TrendLine(
    "latency_s", "bf16", 1, (0, 1, 2, 3), (0.5, 0.5, 1.0, 1.0), (Level(0, 1, 2, 0.5), Level(2, 3, 2, 1.0))
)
OTHER = TrendLine("ttft_s", "fp32", 1, (1, 3), (2.0, 3.0), (Level(1, 3, 2, 2.5),))


def make_group(*lines: TrendLine, commit: str = "0123456789abcdef") -> Group:
    provenance = make_provenance(commit=commit)
    runs = tuple(
        Heading(Path(f"{number}.json"), provenance, RunState.COMPLETE, is_baseline=True, measured=1, records=1)
        for number in range(4)
    )
    return Group(fingerprint_of(provenance), runs, lines)


def charts(*lines: TrendLine, commit: str = "0123456789abcdef", links: dict[str, str] | None = None) -> list[Chart]:
    looks = numbered_looks(("fp32", "bf16"))
    return list(trend_charts(make_group(*lines, commit=commit), looks, links or {}))


def test_a_chart_is_a_metric_and_a_line_a_variant() -> None:
    latency, ttft = charts(STEADY, STEPPING, OTHER)
    assert latency.title == "Latency"
    assert [one.variant for one in latency.series] == ["fp32", "bf16"]
    assert [one.variant for one in ttft.series] == ["fp32"]


def test_a_run_is_its_change_against_the_first_level() -> None:
    """1.1 s is 10 % above 1 s; twice the first level is 100 % above it."""
    (chart,) = charts(STEADY)
    assert [point.y.value for point in chart.series[0].points] == pytest.approx([0, 10, -10, 0])
    assert chart.lines == ()
    (chart,) = charts(STEPPING)
    assert [point.y.value for point in chart.series[0].points] == pytest.approx([0, 0, 100, 100])
    before, after, step = (line.places for line in chart.lines)
    assert before == ((0, pytest.approx(0)), (1, pytest.approx(0)))
    assert after == ((2, pytest.approx(100)), (3, pytest.approx(100)))
    assert [x for x, _ in step] == [1.5, 1.5]


def test_runs_are_labelled_with_their_commits_or_their_days() -> None:
    assert [text for _, text in charts(STEADY)[0].x.ticks] == ["01234567"] * 4
    assert charts(STEADY, commit="")[0].x.ticks[0] == (0, "2026-01-02")


def test_the_pointer_sees_the_value_the_run_and_the_commit_and_a_click_opens_it() -> None:
    (chart,) = charts(STEADY, links={"0123456789abcdef": "https://example.org/c"})
    data: Any = plotly_json(chart)["data"]
    (trace,) = data
    assert trace["hovertext"][1].startswith("<b>fp32</b><br>Latency: 1.10 s (+10.0 %)<br>run: 1, 2026-01-02 03:04<br>")
    assert trace["hovertext"][1].endswith("commit: 01234567")
    assert trace["customdata"] == ["https://example.org/c"] * 4


def test_it_can_be_zoomed_and_is_known_to_plotly() -> None:
    from plotly.graph_objects import Figure

    found = tuple(charts(STEPPING, OTHER))
    layout: Any = plotly_json(found[0])["layout"]
    assert layout["dragmode"] == "zoom"
    Figure(plotly_json(found[0]))  # raises ValueError for what plotly doesn't know
