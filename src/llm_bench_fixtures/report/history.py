"""Saved runs in words: a list of them, for people and for programs, and the steps between their metrics' levels."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from llm_bench_fixtures.history.headings import LONG_AGO, Heading, Unreadable, run_facts
from llm_bench_fixtures.history.storage import Storage
from llm_bench_fixtures.history.together import Fingerprint, fingerprint_of
from llm_bench_fixtures.history.trend import Group, Level, TrendLine
from llm_bench_fixtures.report.agreement import short_machine
from llm_bench_fixtures.report.tables.table import Cell, Column, Table
from llm_bench_fixtures.results.formatting import MISSING, Notation, count, format_change, with_unit
from llm_bench_fixtures.results.metrics import METRIC_BY_NAME, Direction, Kind, Metric, Unit
from llm_bench_fixtures.results.provenance import Provenance
from llm_bench_fixtures.text import encodable, some_of

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
        title = f"{fingerprint.model} on {short_machine(group.runs[-1].provenance.hardware)}"
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
