"""Saved runs: a list of them, for people and for programs; the steps between their metrics' levels, in words; and the
page that shows how metrics changed from run to run: for each fingerprint its charts and its tables."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llm_bench_fixtures.grouping import grouped
from llm_bench_fixtures.history.headings import LONG_AGO, Heading, Unreadable, run_facts
from llm_bench_fixtures.history.storage import Storage
from llm_bench_fixtures.history.together import Fingerprint, fingerprint_of
from llm_bench_fixtures.history.trend import LEAST_RUNS, LEAST_STEP, Group, Level, TrendFilter, TrendLine
from llm_bench_fixtures.report.agreement import short_machine
from llm_bench_fixtures.report.charts import spec
from llm_bench_fixtures.report.charts.plotly import figures_of
from llm_bench_fixtures.report.charts.variants import numbered_looks
from llm_bench_fixtures.report.page.tables import Chip, PageTable
from llm_bench_fixtures.report.renderers.html import render_page
from llm_bench_fixtures.report.tables.table import Cell, Column, Table
from llm_bench_fixtures.results.formatting import MISSING, Notation, count, format_change, with_unit
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME, Direction, Kind, Metric, Unit
from llm_bench_fixtures.results.provenance import Provenance
from llm_bench_fixtures.statistics.spread import exactly
from llm_bench_fixtures.text import encodable, printable, some_of

COMMIT_DIGITS = 8
DIRTY = "*"
AUTOSAVED = re.compile(r"(\d+)_[^_]*_\d{8}_\d{6}(_uncommitted-changes)?", re.ASCII)  # as --benchmark-autosave names it
COLUMNS = (
    *map(Column, ("run", "started (UTC)", "branch", "commit")),
    *(Column(name, droppable=place) for name, place in (("model", 3), ("machine", 4), ("fingerprint", 2))),
    Column("state"),
    Column("measured", Notation.TEXT, droppable=1),
)
MOST_SENTENCES = 12  # in the terminal and at the head of the page; the tables have all
NO_STEP = "No step found."
ADVICE = "Advice, not a verdict: the runs were measured at different times."
SHARED = ("model", "machine", "fingerprint")  # columns of runs, which those of a group have in common
MOST_LINES = 12  # in a chart: more can't be told apart
MOST_DRAWN = 8  # groups with charts: those that were measured last
COMMIT = re.compile(r"[0-9a-f]{7,64}")  # an id that may stand in an address
FAINT, CLEAR = 0.4, 0.8  # how opaque the runs are beside their levels, and alone
MOST_TICKS = 6
POINTS_UP_TO = 60  # runs that are each shown as a point


def table_of_runs(runs: Iterable[tuple[str, Heading]]) -> Table:
    """A row for each run, in their order. runs: each after its file's name."""
    return Table(COLUMNS, tuple(tuple(map(Cell, _row(run, file))) for file, run in runs))


def _row(run: Heading, file: str) -> tuple[str, ...]:
    where = run.provenance
    names = (run_name(file), time_cell(run), where.branch or MISSING, commit_cell(where))
    model = f"{where.model} (random weights)" if where.random_weights else where.model
    state = f"{run.state}, blessed: {run.blessing.reason}" if run.blessing else str(run.state)
    measured = str(run.measured) if run.measured == run.records else f"{run.measured} of {run.records}"
    return (*names, model, where.hardware, fingerprint_of(where).digest, state, measured)


def run_name(file: str) -> str:
    """The name that a user types for the run: the number alone where --benchmark-autosave gave the rest of the name."""
    folder, slash, name = file.removesuffix(".json").rpartition("/")
    autosaved = AUTOSAVED.fullmatch(name)
    return folder + slash + (autosaved[1] if autosaved else name)


def time_cell(run: Heading) -> str:
    """When the run started, in UTC."""
    return MISSING if run.started == LONG_AGO else f"{run.started:%Y-%m-%d %H:%M}"


def commit_cell(provenance: Provenance) -> str:
    """The commit's id, shortened, with a mark where there were uncommitted changes."""
    short = provenance.commit[:COMMIT_DIGITS] or MISSING
    return short + DIRTY if provenance.dirty else short


def history_json(runs: Sequence[Heading], unreadable: Sequence[Unreadable], storage: Storage) -> dict[str, Any]:
    """The list for programs."""
    entries = []
    for run in runs:
        facts = run_facts(storage.name(run.place), run.provenance, run.state)
        blessed = run.blessing.reason if run.blessing else None
        entries.append({**facts, "blessed": blessed, "measured": run.measured, "records": run.records})
    passed_over = [{"file": storage.name(item.place), "reason": encodable(item.reason)} for item in unreadable]
    return {"storage": encodable(str(storage)), "runs": entries, "unreadable": passed_over}


@dataclass(frozen=True)
class ShownStep:
    """Where a line goes from one level to another, between two runs of its group."""

    group: Group
    line: TrendLine
    metric: Metric
    before: Level
    after: Level

    @property
    def ratio(self) -> float:
        return self.after.value / self.before.value

    @property
    def change(self) -> str:
        """The change in words, and whether it is for the better."""
        if self.metric.direction is Direction.NEITHER:
            return format_change(self.ratio)
        better = (self.ratio > 1) == (self.metric.direction is Direction.HIGHER_IS_BETTER)
        return f"{format_change(self.ratio)} ({'better' if better else 'worse'})"

    @property
    def levels(self) -> tuple[str, str]:
        """Values before and after the step."""
        return with_unit(self.before.value, self.metric), with_unit(self.after.value, self.metric)

    @property
    def last_before(self) -> Heading:
        return self.group.runs[self.before.last]

    @property
    def first_after(self) -> Heading:
        return self.group.runs[self.after.first]


def metric_of(line: TrendLine) -> Metric:
    """The line's metric; bare numbers where the registry lacks it."""
    name = line.metric
    return METRIC_BY_NAME.get(name) or Metric(name, name, name, Unit.NONE, Direction.NEITHER, Kind.TIMING, "")


def all_steps(groups: Sequence[Group]) -> list[ShownStep]:
    """The newest first."""
    found = [(group, line, *step) for group in groups for line in group.lines for step in line.steps]
    steps = [ShownStep(group, line, metric_of(line), before, after) for group, line, before, after in found]
    return sorted(steps, key=lambda step: step.first_after.started, reverse=True)


def trend_lines(groups: Sequence[Group]) -> Iterator[str]:
    """Lines for the terminal."""
    yield header_of(groups)
    sentences = sentences_of(groups)
    yield f"{count(len(all_steps(groups)), 'step')} found. {ADVICE}" if sentences else NO_STEP
    for sentence in sentences:
        yield f"  {''.join(map(words_of, sentence))}"


def titles_of(groups: Sequence[Group]) -> dict[Fingerprint, str]:
    """The model and machine of each group, and what tells it from the first group with the same."""
    titles: dict[Fingerprint, str] = {}
    firsts: dict[str, list[str]] = {}
    for group in groups:
        fingerprint, parts = group.fingerprint, group.fingerprint.parts
        title = f"{', '.join(fingerprint.model)} on {short_machine(group.runs[-1].provenance.hardware)}"
        first = firsts.setdefault(title, parts)
        more = [part for part in parts if part not in first]
        if parts != first:
            title += f"; {some_of(more or [f'without {part}' for part in first if part not in parts])}"
        titles[fingerprint] = f"{title} [{fingerprint.digest}]" if title in titles.values() else title
    return titles


def header_of(groups: Sequence[Group]) -> str:
    runs = sorted((run for group in groups for run in group.runs), key=lambda run: run.started)
    branches = list(dict.fromkeys(run.provenance.branch or "no branch" for run in runs))
    return f"{count(len(runs), 'run')} on {some_of(branches)}, {time_cell(runs[0])} to {time_cell(runs[-1])} UTC"


def sentences_of(groups: Sequence[Group]) -> list[Sequence[str | Heading]]:
    """One sentence, in pieces, for all steps of a variant at the same place. If there are several groups, it names the
    group."""
    together: dict[tuple[Fingerprint, str, int, int], list[ShownStep]] = defaultdict(list)
    for step in all_steps(groups):
        together[step.group.fingerprint, step.line.variant, step.before.last, step.after.first].append(step)
    titles = titles_of(groups) if len(groups) > 1 else {}
    sentences = [_sentence(steps, f"{titles[which]}: " if titles else "") for (which, *_), steps in together.items()]
    left_out = len(sentences) - MOST_SENTENCES
    more = [[f"and at {count(left_out, 'earlier place')}, which the page's tables have"]] if left_out > 0 else []
    return [*sentences[:MOST_SENTENCES], *more]


def _sentence(steps: Sequence[ShownStep], where: str) -> Sequence[str | Heading]:
    """One sentence for steps of one variant at one place. where: what it begins with."""
    changes = (f"{step.metric.column} {step.change}, {' to '.join(step.levels)}" for step in steps)
    first = steps[0]
    start, end = f"{where}{first.line.variant} between ", f": {'; '.join(changes)}"
    return start, first.last_before, " and ", first.first_after, end


def words_of(piece: str | Heading) -> str:
    return piece if isinstance(piece, str) else place_of(piece)


def place_of(run: Heading) -> str:
    return f"{commit_cell(run.provenance)} ({time_cell(run)})"


def render_trend(
    groups: Sequence[Group], chosen: TrendFilter, unreadable: Sequence[Unreadable], storage: Storage, commits: str = ""
) -> str:
    """The page. commits: the address of the repository's commits, before a commit's id; empty where it isn't known."""
    looks = numbered_looks(dict.fromkeys(line.variant for group in groups for line in group.lines))
    runs = [run for group in groups for run in group.runs]
    known = dict.fromkeys(run.provenance.commit for run in runs if COMMIT.fullmatch(run.provenance.commit))
    links = {commit: f"{commits}{commit}" for commit in known if commits}
    charts = [list(trend_charts(group, looks, links)) if at < MOST_DRAWN else [] for at, group in enumerate(groups)]
    titles = titles_of(groups).values()
    sentences = sentences_of(groups) or [[NO_STEP]]
    page = {
        "title": "Metrics over time",
        "header": header_of(groups) + _what(chosen),
        "warnings": [f"Not in it: {item.reason}" for item in unreadable],
        "advice": ADVICE,
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
    return words_of(piece), "" if isinstance(piece, str) else links.get(piece.provenance.commit, "")


def _section(title: str, group: Group, charts: Sequence[spec.Chart], links: Mapping[str, str]) -> dict[str, object]:
    """The part of the page on one fingerprint."""
    linked: dict[str, str] = {}
    for run in group.runs:
        if link := links.get(run.provenance.commit):
            linked |= {place_of(run): link, commit_cell(run.provenance): link}
    steps, of = _step_table(group), group.fingerprint
    facts = [(name, ", ".join(getattr(of, name))) for name in ("machine", "process", "libraries", "corpus")]
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
    rows = (tuple(replace(cell, link=links.get(cell.words, "")) for cell in row) for row in table.rows)
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
    still = dict.fromkeys(metric_of(line).column for line in group.lines if line.metric not in moving)
    if still:
        yield f"The same in all runs: {', '.join(still)}."
    if hidden := {line.variant for line in moved} - {line.variant for line in _shown(group)}:
        yield f"{count(len(hidden), 'variant')} with fewer values are in the tables only."
    if moved and not is_drawn:
        yield "No chart: only the groups that were measured last have one."


def _step_table(group: Group) -> Table | None:
    names = ("variant", "metric", "change", "before", "after", "runs", "last run before", "first run after")
    rows = []
    for step in all_steps([group]):
        ranks = (step.ratio, step.before.value, step.after.value)
        figures = (Cell(text, rank=rank) for text, rank in zip((step.change, *step.levels), ranks, strict=True))
        runs = (f"{step.before.runs}, {step.after.runs}", *map(place_of, (step.last_before, step.first_after)))
        rows.append((Cell(step.line.variant), Cell(step.metric.column), *figures, *map(Cell, runs)))
    columns = (Column(name, Notation.TEXT if place in (2, 3, 4) else None) for place, name in enumerate(names))
    return Table(tuple(columns), tuple(rows)) if rows else None


def _now_table(group: Group) -> Table:
    """The last level of each line, and its change against the first."""
    heads = {line.metric: metric_of(line).column for line in group.lines}
    rows = []
    for variant, lines in grouped(group.lines, lambda line: line.variant).items():
        tests, cells = max(line.tests for line in lines), {line.metric: _now(line) for line in lines}
        rows.append((Cell(variant), Cell(str(tests), rank=tests), *(cells.get(name, Cell()) for name in heads)))
    numbers = (Column(name, Notation.TEXT) for name in ("tests", *heads.values()))
    return Table((Column("variant"), *numbers), tuple(rows))


def _now(line: TrendLine) -> Cell:
    first, last = line.levels[0], line.levels[-1]
    change = "" if first is last else format_change(last.value / first.value)
    return Cell(with_unit(last.value, metric_of(line)), rank=last.value, note=change)


def _run_table(group: Group) -> Table:
    """The newest first, without what all runs share."""
    table = table_of_runs((run.place.name, run) for run in reversed(group.runs))
    return table.with_columns(place for place, name in enumerate(table.names) if name not in SHARED)


def trend_charts(group: Group, looks: Mapping[str, spec.Look], links: Mapping[str, str]) -> Iterator[spec.Chart]:
    """looks: by variant. links: by a run's commit, where its click leads."""
    for name, shown in grouped(_shown(group), lambda line: line.metric).items():
        metric = metric_of(shown[0])
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
    metric, points = metric_of(line), []
    for position, value, change in zip(line.positions, line.values, _changes(line), strict=True):
        run = runs[position]
        told = f"{with_unit(value, metric)} ({format_change(1 + change / 100)})"
        when = f"{run_name(run.place.name)}, {time_cell(run)}"
        facts = ((metric.title, told), ("run", when), ("commit", commit_cell(run.provenance)))
        link = links.get(run.provenance.commit, "")
        points.append(spec.Point(exactly(position), exactly(change), facts, link))
    size = 4.0 if len(runs) <= POINTS_UP_TO else 0.0
    opacity = FAINT if len(line.levels) > 1 else CLEAR
    return spec.Series(line.variant, tuple(points), look, line.variant, size=size, is_line=True, opacity=opacity)


def _ticks(runs: Sequence[Heading]) -> Iterator[tuple[float, str]]:
    """Ticks of as many runs as there is room for, by commit, or by day if a run has no commit."""
    count = min(len(runs), MOST_TICKS)
    for position in sorted({round(index * (len(runs) - 1) / max(count - 1, 1)) for index in range(count)}):
        run = runs[position]
        yield position, printable(run.provenance.commit[:COMMIT_DIGITS]) or f"{run.started:%Y-%m-%d}"
