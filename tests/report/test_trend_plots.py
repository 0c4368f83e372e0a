"""The picture of a history."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from run_factory import make_provenance

from llm_bench_fixtures.history.fingerprint import fingerprint_of
from llm_bench_fixtures.history.headings import Heading
from llm_bench_fixtures.history.trend import Group, Level, Line
from llm_bench_fixtures.report.trend_plots import draw_trend, trend_figure
from llm_bench_fixtures.results.metrics import registry
from llm_bench_fixtures.results.record import RunState

STEADY = Line("latency_s", "fp32", 1, (0, 1, 2, 3), (1.0, 1.1, 0.9, 1.0), (Level(0, 3, 4, 1.0),))
STEPPING = Line("latency_s", "bf16", 1, (0, 1, 2, 3), (0.5, 0.5, 1.0, 1.0), (Level(0, 1, 2, 0.5), Level(2, 3, 2, 1.0)))
OTHER = Line("ttft_s", "fp32", 1, (1, 3), (2.0, 3.0), (Level(1, 3, 2, 2.5),))


def make_group(*lines: Line, commit: str = "0123456789abcdef") -> Group:
    provenance = make_provenance(commit=commit)
    runs = tuple(
        Heading(Path(f"{number}.json"), provenance, RunState.COMPLETE, is_baseline=True, measured=1, records=1)
        for number in range(4)
    )
    return Group(fingerprint_of(provenance), runs, lines)


def test_a_panel_is_a_metric_and_a_line_a_variant() -> None:
    figure = trend_figure(make_group(STEADY, STEPPING, OTHER), [STEADY, STEPPING, OTHER], registry())
    latency, ttft = figure.axes
    assert latency.get_title() == "Latency, against its first level"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["fp32", "bf16"]
    assert len(ttft.lines) == 1


def test_a_run_is_its_change_against_the_first_level() -> None:
    """1.1 s is 10 % above 1 s; twice the first level is 100 % above it."""
    (axis,) = trend_figure(make_group(STEADY), [STEADY], registry()).axes
    assert list(axis.lines[0].get_ydata()) == pytest.approx([0, 10, -10, 0])
    (axis,) = trend_figure(make_group(STEPPING), [STEPPING], registry()).axes
    runs, before, after, step = axis.lines
    assert list(runs.get_ydata()) == pytest.approx([0, 0, 100, 100])
    assert list(before.get_xdata()) == [0, 1]
    assert list(before.get_ydata()) == pytest.approx([0, 0])
    assert list(after.get_ydata()) == pytest.approx([100, 100])
    assert list(step.get_xdata()) == [1.5, 1.5]


def test_runs_are_labelled_with_their_commits() -> None:
    (axis,) = trend_figure(make_group(STEADY), [STEADY], registry()).axes
    assert [label.get_text() for label in axis.get_xticklabels()] == ["01234567"] * 4


def test_a_run_without_a_commit_is_labelled_with_its_day() -> None:
    (axis,) = trend_figure(make_group(STEADY, commit=""), [STEADY], registry()).axes
    assert axis.get_xticklabels()[0].get_text() == "2026-01-02"


def test_it_is_a_picture_that_shows_something() -> None:
    from matplotlib import image

    pixels = image.imread(io.BytesIO(draw_trend(make_group(STEADY), [STEADY], registry())))
    assert pixels.shape[1] > 700
    assert pixels[..., :3].std() > 0.05
