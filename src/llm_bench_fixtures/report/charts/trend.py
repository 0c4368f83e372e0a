"""Runs of a history: a chart for each metric that moved, a line for each variant, against its first level."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from llm_bench_fixtures.history.headings import Heading
from llm_bench_fixtures.history.trend import Group, TrendLine
from llm_bench_fixtures.report.charts.spec import Axis, Chart, Line, Look, Point, Series, exactly, padded
from llm_bench_fixtures.report.history import COMMIT_DIGITS, commit_cell, run_name, time_cell
from llm_bench_fixtures.results.formatting import format_change, three_digits, with_unit
from llm_bench_fixtures.results.metrics import Metric
from llm_bench_fixtures.text import printable

FAINT, CLEAR = 0.4, 0.8  # how opaque the runs are beside their levels, and alone
MOST_TICKS = 6
POINTS_UP_TO = 60  # runs that are each shown as a point


def trend_charts(
    group: Group,
    lines: Sequence[TrendLine],
    metrics: Mapping[str, Metric],
    looks: Mapping[str, Look],
    links: Mapping[str, str],
) -> Iterator[Chart]:
    """lines: those of the group to show. looks: by variant. links: by a run's commit, where its click leads."""
    for name in dict.fromkeys(line.metric for line in lines):
        shown = [line for line in lines if line.metric == name]
        title = metrics[name].title if name in metrics else name
        ends = padded(change for line in shown for change in _changes(line))
        yield Chart(
            name=f"{group.fingerprint.digest}-{name}",
            title=title,
            note=f"{metrics[name].direction.capitalize()}." if name in metrics else "",
            description=f"{title} run by run, a line for each of {', '.join(line.variant for line in shown)}",
            x=Axis("", (-0.5, len(group.runs) - 0.5), ticks=tuple(_ticks(group.runs)), has_grid=False),
            y=Axis("against its first level", ends, suffix=" %"),
            lines=tuple(found for line in shown for found in _levels_and_steps(line, looks[line.variant], ends)),
            series=tuple(_series(line, group.runs, metrics.get(name), looks[line.variant], links) for line in shown),
            can_zoom=True,
        )


def _changes(line: TrendLine) -> list[float]:
    return [_percent(value, line) for value in line.values]


def _percent(value: float, line: TrendLine) -> float:
    return (value / line.levels[0].value - 1) * 100


def _levels_and_steps(line: TrendLine, look: Look, ends: tuple[float, float]) -> Iterator[Line]:
    """Of a line that steps: each level thick, and a dotted line at each step."""
    if len(line.levels) < 2:
        return
    for level in line.levels:
        change = _percent(level.value, line)
        places = ((float(level.first), change), (float(level.last), change))
        yield Line(places, look.colour, width=2.2, variant=line.variant)
    for before, after in line.steps:
        middle = (before.last + after.first) / 2
        yield Line(((middle, ends[0]), (middle, ends[1])), look.colour, "dot", variant=line.variant)


def _series(
    line: TrendLine, runs: Sequence[Heading], metric: Metric | None, look: Look, links: Mapping[str, str]
) -> Series:
    points = []
    for position, value, change in zip(line.positions, line.values, _changes(line), strict=True):
        run, shown = runs[position], with_unit(value, metric) if metric else three_digits(value)
        facts = (
            (metric.title if metric else line.metric, f"{shown} ({format_change(1 + change / 100)})"),
            ("run", f"{run_name(run.path.name)}, {time_cell(run)}"),
            ("commit", commit_cell(run.provenance)),
        )
        points.append(Point(exactly(position), exactly(change), facts, links.get(run.provenance.commit, "")))
    size = 4.0 if len(runs) <= POINTS_UP_TO else 0.0
    opacity = FAINT if len(line.levels) > 1 else CLEAR
    return Series(line.variant, tuple(points), look, line.variant, size=size, is_line=True, opacity=opacity)


def _ticks(runs: Sequence[Heading]) -> Iterator[tuple[float, str]]:
    """As many runs as there is room for, by commit, or by day if a run has no commit."""
    count = min(len(runs), MOST_TICKS)
    for position in sorted({round(index * (len(runs) - 1) / max(count - 1, 1)) for index in range(count)}):
        run = runs[position]
        yield position, printable(run.provenance.commit[:COMMIT_DIGITS]) or f"{run.started:%Y-%m-%d}"
