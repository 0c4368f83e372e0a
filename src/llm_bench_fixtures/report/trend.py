"""The page that shows how metrics changed from run to run, and its summary for the terminal."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from llm_bench_fixtures.history.fingerprint import Fingerprint
from llm_bench_fixtures.history.headings import Heading, Unreadable
from llm_bench_fixtures.history.steps import LEAST_RUNS, LEAST_STEP
from llm_bench_fixtures.history.trend import Group, Level, TrendFilter, TrendLine
from llm_bench_fixtures.report.charts.plotly import figures_of
from llm_bench_fixtures.report.charts.spec import Chart, Look
from llm_bench_fixtures.report.charts.trend import trend_charts
from llm_bench_fixtures.report.charts.variants import numbered_looks
from llm_bench_fixtures.report.history import commit_cell, table_of_runs, time_cell
from llm_bench_fixtures.report.page.tables import Chip, PageTable
from llm_bench_fixtures.report.renderers.html import render_page
from llm_bench_fixtures.report.tables.table import Cell, Column, Table
from llm_bench_fixtures.results.formatting import Notation, count, format_change, three_digits, with_unit
from llm_bench_fixtures.results.metrics import Direction, Metric

SHARED = ("model", "machine", "fingerprint")  # columns of runs, which those of a group have in common
MOST_LINES = 12  # in a chart: more can't be told apart
MOST_DRAWN = 8  # groups with charts: those that were measured last
MOST_SENTENCES = 12  # in the terminal and at the head of the page; the tables have all
NO_STEP = "No step found."
COMMIT = re.compile(r"[0-9a-f]{7,64}")  # an id that may stand in an address
ADVICE = "Advice, not a verdict: the runs of a history were not measured side by side."


@dataclass(frozen=True)
class ShownStep:
    """Where a line goes from one level to another, between two runs of its group."""

    group: Group
    line: TrendLine
    before: Level
    after: Level

    @property
    def ratio(self) -> float:
        return self.after.value / self.before.value

    @property
    def last_before(self) -> Heading:
        return self.group.runs[self.before.last]

    @property
    def first_after(self) -> Heading:
        return self.group.runs[self.after.first]


@dataclass(frozen=True)
class Wording:
    """How a metric's values are written. A metric that isn't in the registry has bare numbers."""

    metrics: Mapping[str, Metric]

    def title(self, metric: str) -> str:
        return self.metrics[metric].column if metric in self.metrics else metric

    def value(self, value: float, metric: str) -> str:
        return with_unit(value, self.metrics[metric]) if metric in self.metrics else three_digits(value)

    def change(self, step: ShownStep) -> str:
        metric = step.line.metric
        direction = self.metrics[metric].direction if metric in self.metrics else Direction.NEITHER
        if direction is Direction.NEITHER:
            return format_change(step.ratio)
        better = (step.ratio > 1) == (direction is Direction.HIGHER_IS_BETTER)
        return f"{format_change(step.ratio)} ({'better' if better else 'worse'})"

    def levels(self, step: ShownStep) -> tuple[str, str]:
        """Before and after."""
        return self.value(step.before.value, step.line.metric), self.value(step.after.value, step.line.metric)


def all_steps(groups: Sequence[Group]) -> list[ShownStep]:
    """The newest first."""
    steps = [
        ShownStep(group, line, before, after)
        for group in groups
        for line in group.lines
        for before, after in line.steps
    ]
    return sorted(steps, key=lambda step: step.first_after.started, reverse=True)


def trend_lines(groups: Sequence[Group], words: Wording) -> Iterator[str]:
    """For the terminal."""
    yield _header(groups)
    sentences = _sentences(groups, words)
    yield f"{count(len(all_steps(groups)), 'step')} found. {ADVICE}" if sentences else NO_STEP
    for sentence in sentences:
        yield f"  {sentence}"


def render_trend(
    groups: Sequence[Group],
    chosen: TrendFilter,
    words: Wording,
    unreadable: Sequence[Unreadable],
    storage: Path,
    commits: str = "",
) -> str:
    """The page. commits: the address of the repository's commits, before a commit's id; empty where it isn't known."""
    looks = _looks(groups)
    runs = [run for group in groups for run in group.runs]
    known = dict.fromkeys(run.provenance.commit for run in runs if COMMIT.fullmatch(run.provenance.commit))
    links = {commit: f"{commits}{commit}" for commit in known if commits}
    charts = [
        list(trend_charts(group, _shown(group), words.metrics, looks, links)) if at < MOST_DRAWN else []
        for at, group in enumerate(groups)
    ]
    page = {
        "title": "Metrics over time",
        "header": _header(groups) + _what(chosen),
        "warnings": [f"Not in it: {item.reason}" for item in unreadable],
        "advice": ADVICE,
        "sentences": _sentences(groups, words) or [NO_STEP],
        "chips": [Chip(variant, look.colour, variant) for variant, look in looks.items()],
        "sections": [_section(group, words, links, drawn) for group, drawn in zip(groups, charts, strict=True)],
        "footnotes": list(_footnotes(storage)),
        "glossary": [],
        "figures": figures_of(chart for drawn in charts for chart in drawn),
    }
    return render_page("trend.html", page)


def _footnotes(storage: Path) -> Iterator[str]:
    yield f"Runs in {storage}, apart for each set of machine, libraries, model and corpus."
    yield (
        "A line is the geometric mean of the metric over the variant's tests, as it would be had every run run all of "
        "them. The runs are thin lines, and the levels of a line that steps thick ones; a step is dotted."
    )
    yield (
        f"A step is where the level changes, by {LEAST_STEP:.1%} or more; each level has {LEAST_RUNS} runs at least, "
        "unless most runs don't differ at all. docs/explanation/trend.md says how it is found, and how often noise "
        "alone gives one."
    )


def _header(groups: Sequence[Group]) -> str:
    runs = sorted((run for group in groups for run in group.runs), key=lambda run: run.started)
    branches = list(dict.fromkeys(run.provenance.branch or "no branch" for run in runs))
    named = ", ".join(branches[:3]) + (f" and {len(branches) - 3} more" if len(branches) > 3 else "")
    return f"{count(len(runs), 'run')} on {named}, {time_cell(runs[0])} to {time_cell(runs[-1])} UTC"


def _what(chosen: TrendFilter) -> str:
    parts = {"branch": chosen.branch, "tests": chosen.tests, "variants": ", ".join(chosen.variants)}
    return "".join(f"; {name}: {value}" for name, value in parts.items() if value)


def _sentences(groups: Sequence[Group], words: Wording) -> list[str]:
    """One sentence for all steps of a variant at the same place. If there are several groups, it names the group."""
    together: dict[tuple[Fingerprint, str, int, int], list[ShownStep]] = defaultdict(list)
    for step in all_steps(groups):
        together[step.group.fingerprint, step.line.variant, step.before.last, step.after.first].append(step)
    sentences = [
        (f"[{fingerprint.digest}] " if len(groups) > 1 else "") + _sentence(steps, words)
        for (fingerprint, *_), steps in together.items()
    ]
    left_out = len(sentences) - MOST_SENTENCES
    more = [f"and at {count(left_out, 'earlier place')}, which the page's tables have"] if left_out > 0 else []
    return [*sentences[:MOST_SENTENCES], *more]


def _sentence(steps: Sequence[ShownStep], words: Wording) -> str:
    """One sentence for steps of one variant at one place."""
    changes = (
        f"{words.title(step.line.metric)} {words.change(step)}, {' to '.join(words.levels(step))}" for step in steps
    )
    first = steps[0]
    place = f"between {_place(first.last_before)} and {_place(first.first_after)}"
    return f"{first.line.variant} {place}: {'; '.join(changes)}"


def _place(run: Heading) -> str:
    return f"{commit_cell(run.provenance)} ({time_cell(run)})"


def _looks(groups: Sequence[Group]) -> dict[str, Look]:
    """By variant, the same in all groups."""
    variants = list(dict.fromkeys(line.variant for group in groups for line in group.lines))
    return dict(zip(variants, numbered_looks(len(variants)), strict=True))


def _section(group: Group, words: Wording, links: Mapping[str, str], charts: Sequence[Chart]) -> dict[str, object]:
    """The part of the page on one fingerprint."""
    linked = {
        text: links[run.provenance.commit]
        for run in group.runs
        if run.provenance.commit in links
        for text in (_place(run), commit_cell(run.provenance))
    }
    steps = _step_table(group, words)
    return {
        "title": f"{group.fingerprint.model} on {group.fingerprint.machine}; {group.fingerprint.process}",
        "facts": [
            ("libraries", group.fingerprint.libraries),
            ("corpus", group.fingerprint.corpus),
            ("fingerprint", group.fingerprint.digest),
        ],
        "note": " ".join(_notes(group, words, is_drawn=bool(charts))),
        "charts": charts,
        "steps": PageTable("Steps", _linked(steps, linked)) if steps else None,
        "now": PageTable("The last level of each", _now_table(group, words)),
        "runs": PageTable("All runs", _linked(_run_table(group), linked)),
    }


def _linked(table: Table, links: Mapping[str, str]) -> Table:
    """With a link wherever a cell's text has one."""
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


def _notes(group: Group, words: Wording, *, is_drawn: bool) -> Iterator[str]:
    if len(group.runs) < 2:
        yield "One run: nothing to follow yet."
        return
    moved = _moved(group)
    moving = {line.metric for line in moved}
    still = dict.fromkeys(words.title(line.metric) for line in group.lines if line.metric not in moving)
    if still:
        yield f"The same in all runs: {', '.join(still)}."
    hidden = {line.variant for line in moved} - {line.variant for line in _shown(group)}
    if hidden:
        yield f"{count(len(hidden), 'variant')} with fewer values are in the tables only."
    if moved and not is_drawn:
        yield "No chart: only the groups that were measured last have one."


def _step_table(group: Group, words: Wording) -> Table | None:
    steps = all_steps([group])
    names = ("variant", "metric", "change", "before", "after", "runs", "last run before", "first run after")
    rows = []
    for step in steps:
        ranks = (step.ratio, step.before.value, step.after.value)
        texts = (words.change(step), *words.levels(step))
        rows.append((
            Cell(step.line.variant),
            Cell(words.title(step.line.metric)),
            *(Cell(text, rank=rank) for text, rank in zip(texts, ranks, strict=True)),
            Cell(f"{step.before.runs}, {step.after.runs}"),
            Cell(_place(step.last_before)),
            Cell(_place(step.first_after)),
        ))  # fmt: skip
    columns = (Column(name, Notation.TEXT if place in (2, 3, 4) else None) for place, name in enumerate(names))
    return Table(tuple(columns), tuple(rows)) if rows else None


def _now_table(group: Group, words: Wording) -> Table:
    """The last level of each line, and its change against the first."""
    names = list(dict.fromkeys(line.metric for line in group.lines))
    cells = {(line.variant, line.metric): _now(line, words) for line in group.lines}
    tests = {line.variant: line.tests for line in sorted(group.lines, key=lambda line: line.tests)}
    rows = (
        (
            Cell(variant),
            Cell(str(tests[variant]), rank=tests[variant]),
            *(cells.get((variant, name), Cell()) for name in names),
        )
        for variant in dict.fromkeys(line.variant for line in group.lines)
    )
    numbers = (Column(name, Notation.TEXT) for name in ("tests", *map(words.title, names)))
    return Table((Column("variant"), *numbers), tuple(rows))


def _now(line: TrendLine, words: Wording) -> Cell:
    first, last = line.levels[0], line.levels[-1]
    change = "" if first is last else format_change(last.value / first.value)
    return Cell(words.value(last.value, line.metric), rank=last.value, note=change)


def _run_table(group: Group) -> Table:
    """The newest first, without what all runs share."""
    table = table_of_runs((run.path.name, run) for run in reversed(group.runs))
    return table.with_columns(place for place, name in enumerate(table.names) if name not in SHARED)
