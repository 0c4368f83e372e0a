"""The page that shows how metrics changed from run to run: for each fingerprint its charts and its tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from llm_bench_fixtures.grouping import grouped
from llm_bench_fixtures.history.headings import Heading, Unreadable
from llm_bench_fixtures.history.storage import Storage
from llm_bench_fixtures.history.trend import LEAST_RUNS, LEAST_STEP, Group, TrendFilter, TrendLine
from llm_bench_fixtures.report import history
from llm_bench_fixtures.report.charts import spec
from llm_bench_fixtures.report.charts.plotly import figures_of
from llm_bench_fixtures.report.charts.variants import numbered_looks
from llm_bench_fixtures.report.page.tables import Chip, PageTable
from llm_bench_fixtures.report.renderers.html import render_page
from llm_bench_fixtures.report.tables.table import Cell, Column, Table
from llm_bench_fixtures.results.formatting import Notation, count, format_change, with_unit
from llm_bench_fixtures.results.metrics import Direction
from llm_bench_fixtures.text import printable

SHARED = ("model", "machine", "fingerprint")  # columns of runs, which those of a group have in common
MOST_LINES = 12  # in a chart: more can't be told apart
MOST_DRAWN = 8  # groups with charts: those that were measured last
COMMIT = re.compile(r"[0-9a-f]{7,64}")  # an id that may stand in an address
FAINT, CLEAR = 0.4, 0.8  # how opaque the runs are beside their levels, and alone
MOST_TICKS = 6
POINTS_UP_TO = 60  # runs that are each shown as a point


def render_trend(
    groups: Sequence[Group], chosen: TrendFilter, unreadable: Sequence[Unreadable], storage: Storage, commits: str = ""
) -> str:
    """The page. commits: the address of the repository's commits, before a commit's id; empty where it isn't known."""
    looks = numbered_looks(dict.fromkeys(line.variant for group in groups for line in group.lines))
    runs = [run for group in groups for run in group.runs]
    known = dict.fromkeys(run.provenance.commit for run in runs if COMMIT.fullmatch(run.provenance.commit))
    links = {commit: f"{commits}{commit}" for commit in known if commits}
    charts = [list(trend_charts(group, looks, links)) if at < MOST_DRAWN else [] for at, group in enumerate(groups)]
    titles = history.titles_of(groups).values()
    sentences = history.sentences_of(groups) or [[history.NO_STEP]]
    page = {
        "title": "Metrics over time",
        "header": history.header_of(groups) + _what(chosen),
        "warnings": [f"Not in it: {item.reason}" for item in unreadable],
        "advice": history.ADVICE,
        "sentences": [[_linked_piece(one, links) for one in sentence] for sentence in sentences],
        "chips": [Chip(variant, look.colour, variant) for variant, look in looks.items()],
        "sections": [_section(*one, links) for one in zip(titles, groups, charts, strict=True)],
        "footnotes": list(_footnotes(storage)),
        "glossary": [],
        "figures": figures_of(chart for drawn in charts for chart in drawn),
    }
    return render_page("trend.html", page)


def _footnotes(storage: Storage) -> Iterator[str]:
    yield f"Runs in {storage}, grouped by machine, libraries, model and corpus."
    yield (
        "A line is the geometric mean of the metric over the variant's tests, as it would be had every run run all of "
        "them. The runs are thin lines, and the levels of a line that steps thick ones; a step is dotted."
    )
    yield (
        f"A step is where the level changes, by {LEAST_STEP:.1%} or more; each level has {LEAST_RUNS} runs at least, "
        "unless most runs don't differ at all. docs/explanation/trend.md says how it is found, and how often noise "
        "alone gives one."
    )


def _what(chosen: TrendFilter) -> str:
    parts = {"branch": chosen.branch, "tests": chosen.tests, "variants": ", ".join(chosen.variants)}
    return "".join(f"; {name}: {value}" for name, value in parts.items() if value)


def _linked_piece(piece: str | Heading, links: Mapping[str, str]) -> tuple[str, str]:
    """Words, and where a click on them leads."""
    return history.words_of(piece), "" if isinstance(piece, str) else links.get(piece.provenance.commit, "")


def _section(title: str, group: Group, charts: Sequence[spec.Chart], links: Mapping[str, str]) -> dict[str, object]:
    """The part of the page on one fingerprint."""
    linked: dict[str, str] = {}
    for run in group.runs:
        if link := links.get(run.provenance.commit):
            linked |= {history.place_of(run): link, history.commit_cell(run.provenance): link}
    steps, of = _step_table(group), group.fingerprint
    facts = [("machine", of.machine), ("process", of.process), ("libraries", of.libraries), ("corpus", of.corpus)]
    return {
        "title": title,
        "facts": [*facts, ("fingerprint", of.digest)],
        "note": " ".join(_notes(group, is_drawn=bool(charts))),
        "charts": charts,
        "steps": PageTable("Steps", _linked(steps, linked)) if steps else None,
        "now": PageTable("The last level of each", _now_table(group)),
        "runs": PageTable("All runs", _linked(_run_table(group), linked)),
    }


def _linked(table: Table, links: Mapping[str, str]) -> Table:
    """Table with a link wherever a cell's text has one."""
    rows = (tuple(replace(cell, link=links.get(cell.text, "")) for cell in row) for row in table.rows)
    return replace(table, rows=tuple(rows))


def _moved(group: Group) -> list[TrendLine]:
    return [line for line in group.lines if max(line.values) / min(line.values) - 1 >= LEAST_STEP]


def _shown(group: Group) -> list[TrendLine]:
    """The lines that moved, of the variants with the most values, in their order."""
    lines = _moved(group)
    values: Counter[str] = Counter()
    for line in lines:
        values[line.variant] += len(line.values)
    kept = [variant for variant, _ in values.most_common(MOST_LINES)]
    return [line for line in lines if line.variant in kept]


def _notes(group: Group, *, is_drawn: bool) -> Iterator[str]:
    if len(group.runs) < 2:
        yield "One run: nothing to follow yet."
        return
    moved = _moved(group)
    moving = {line.metric for line in moved}
    still = dict.fromkeys(history.metric_of(line).column for line in group.lines if line.metric not in moving)
    if still:
        yield f"The same in all runs: {', '.join(still)}."
    if hidden := {line.variant for line in moved} - {line.variant for line in _shown(group)}:
        yield f"{count(len(hidden), 'variant')} with fewer values are in the tables only."
    if moved and not is_drawn:
        yield "No chart: only the groups that were measured last have one."


def _step_table(group: Group) -> Table | None:
    names = ("variant", "metric", "change", "before", "after", "runs", "last run before", "first run after")
    rows = []
    for step in history.all_steps([group]):
        ranks = (step.ratio, step.before.value, step.after.value)
        figures = (Cell(text, rank=rank) for text, rank in zip((step.change, *step.levels), ranks, strict=True))
        runs = (f"{step.before.runs}, {step.after.runs}", *map(history.place_of, (step.last_before, step.first_after)))
        rows.append((Cell(step.line.variant), Cell(step.metric.column), *figures, *map(Cell, runs)))
    columns = (Column(name, Notation.TEXT if place in (2, 3, 4) else None) for place, name in enumerate(names))
    return Table(tuple(columns), tuple(rows)) if rows else None


def _now_table(group: Group) -> Table:
    """The last level of each line, and its change against the first."""
    heads = {line.metric: history.metric_of(line).column for line in group.lines}
    rows = []
    for variant, lines in grouped(group.lines, lambda line: line.variant).items():
        tests, cells = max(line.tests for line in lines), {line.metric: _now(line) for line in lines}
        rows.append((Cell(variant), Cell(str(tests), rank=tests), *(cells.get(name, Cell()) for name in heads)))
    numbers = (Column(name, Notation.TEXT) for name in ("tests", *heads.values()))
    return Table((Column("variant"), *numbers), tuple(rows))


def _now(line: TrendLine) -> Cell:
    first, last = line.levels[0], line.levels[-1]
    change = "" if first is last else format_change(last.value / first.value)
    return Cell(with_unit(last.value, history.metric_of(line)), rank=last.value, note=change)


def _run_table(group: Group) -> Table:
    """The newest first, without what all runs share."""
    table = history.table_of_runs((run.place.name, run) for run in reversed(group.runs))
    return table.with_columns(place for place, name in enumerate(table.names) if name not in SHARED)


def trend_charts(group: Group, looks: Mapping[str, spec.Look], links: Mapping[str, str]) -> Iterator[spec.Chart]:
    """looks: by variant. links: by a run's commit, where its click leads."""
    for name, shown in grouped(_shown(group), lambda line: line.metric).items():
        metric = history.metric_of(shown[0])
        ends = spec.padded(change for line in shown for change in _changes(line))
        yield spec.Chart(
            name=f"{group.fingerprint.digest}-{name}",
            title=metric.title,
            note="" if metric.direction is Direction.NEITHER else f"{metric.direction.capitalize()}.",
            description=f"{metric.title} run by run, a line for each of {', '.join(line.variant for line in shown)}",
            x=spec.Axis("", (-0.5, len(group.runs) - 0.5), ticks=tuple(_ticks(group.runs)), has_grid=False),
            y=spec.Axis("against its first level", ends, suffix=" %"),
            lines=tuple(found for line in shown for found in _levels_and_steps(line, looks[line.variant], ends)),
            series=tuple(_line_series(line, group.runs, looks[line.variant], links) for line in shown),
            can_zoom=True,
        )


def _changes(line: TrendLine) -> list[float]:
    return [_percent(value, line) for value in line.values]


def _percent(value: float, line: TrendLine) -> float:
    return (value / line.levels[0].value - 1) * 100


def _levels_and_steps(line: TrendLine, look: spec.Look, ends: tuple[float, float]) -> Iterator[spec.Line]:
    """Levels, drawn thick, and a dotted line at each step, of a trend line that steps."""
    if len(line.levels) < 2:
        return
    for level in line.levels:
        change = _percent(level.value, line)
        places = ((float(level.first), change), (float(level.last), change))
        yield spec.Line(places, look.colour, width=2.2, variant=line.variant)
    for before, after in line.steps:
        middle = (before.last + after.first) / 2
        yield spec.Line(((middle, ends[0]), (middle, ends[1])), look.colour, "dot", variant=line.variant)


def _line_series(line: TrendLine, runs: Sequence[Heading], look: spec.Look, links: Mapping[str, str]) -> spec.Series:
    metric, points = history.metric_of(line), []
    for position, value, change in zip(line.positions, line.values, _changes(line), strict=True):
        run = runs[position]
        told = f"{with_unit(value, metric)} ({format_change(1 + change / 100)})"
        when = f"{history.run_name(run.place.name)}, {history.time_cell(run)}"
        facts = ((metric.title, told), ("run", when), ("commit", history.commit_cell(run.provenance)))
        link = links.get(run.provenance.commit, "")
        points.append(spec.Point(spec.exactly(position), spec.exactly(change), facts, link))
    size = 4.0 if len(runs) <= POINTS_UP_TO else 0.0
    opacity = FAINT if len(line.levels) > 1 else CLEAR
    return spec.Series(line.variant, tuple(points), look, line.variant, size=size, is_line=True, opacity=opacity)


def _ticks(runs: Sequence[Heading]) -> Iterator[tuple[float, str]]:
    """Ticks of as many runs as there is room for, by commit, or by day if a run has no commit."""
    count = min(len(runs), MOST_TICKS)
    for position in sorted({round(index * (len(runs) - 1) / max(count - 1, 1)) for index in range(count)}):
        run = runs[position]
        yield position, printable(run.provenance.commit[: history.COMMIT_DIGITS]) or f"{run.started:%Y-%m-%d}"
