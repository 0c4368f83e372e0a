"""The tables and notes that measure_repeatability.py prints of the runs that it collected."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import repeatability
from repeatability import Speed, SuiteRun, grouped, quantiles, suite_run

from llm_bench_fixtures.gate.rules import Rules
from llm_bench_fixtures.history.saved import read_saved_run
from llm_bench_fixtures.report.document import Table
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.results.storage import RESULTS_FILE

QUIET, NOISY, HIDDEN = KINDS = "quiet", "noisy", "hidden"
COLLECTED_FILE = "collected.json"  # written when a run has finished; a folder without it is passed over
ENOUGH_OTHERS = 6  # runs to pool
NONE = "–"


@dataclass(frozen=True)
class Targets:
    """What the figures of a kind of runs ought to reach. Differences are shares, such as 0.01."""

    differ: tuple[float, float]
    """Median and 90th percentile of how far apart two runs' speed-ups are."""
    identical: tuple[float, float]
    """The same, of identical work's speed-ups from 1."""
    held: float = 0.93
    contradicted: int = 0
    wall_s: float | None = None
    work: float | None = None


TARGETS = {
    QUIET: Targets((0.01, 0.03), (0.005, 0.02), wall_s=240.0, work=0.8),
    NOISY: Targets((0.025, 0.08), (0.015, 0.05)),
    HIDDEN: Targets((0.03, 0.08), (0.02, 0.05)),
}


@dataclass(frozen=True)
class Series:
    """Runs that were made alike."""

    folder: str
    kind: str
    runs: tuple[SuiteRun, ...]

    @property
    def name(self) -> str:
        return f"{self.folder} {self.kind}"


def read_series(folder: Path) -> Iterator[Series]:
    """The quiet runs of a folder and the noisy ones, each kind in its order."""
    for kind in KINDS:
        found = [path.parent for path in folder.glob(f"{kind}-*/{COLLECTED_FILE}")]
        ordered = sorted(found, key=lambda path: int(path.name.rpartition("-")[2]))
        if ordered:
            yield Series(folder.name, kind, tuple(map(read_suite_run, ordered)))


def read_suite_run(folder: Path) -> SuiteRun:
    collected = json.loads((folder / COLLECTED_FILE).read_text(encoding="utf-8"))
    return suite_run(folder.name, read_saved_run(folder / RESULTS_FILE), collected["wall_s"])


def percent(log_ratio: float | None) -> str:
    """How much larger the larger of two is."""
    return NONE if log_ratio is None else f"{math.expm1(log_ratio) * 100:.2f} %"


def two_percents(values: tuple[float | None, float | None]) -> str:
    return " / ".join(map(percent, values))


def at_most(values: tuple[float, float]) -> str:
    return "≤ " + " / ".join(f"{value * 100:g} %" for value in values)


def share(hits: Sequence[bool]) -> str:
    return f"{sum(hits) / len(hits):.1%} of {len(hits)}" if hits else NONE


def figures(series: Series) -> dict[str, tuple[str, str]]:
    """By what a figure says: the figure, and its target."""
    runs, targets = series.runs, TARGETS[series.kind]
    differences = quantiles(value for _, value in repeatability.log_differences(runs))
    identical = quantiles(value for _, value in repeatability.identical_work(runs))
    repeated = quantiles(repeatability.repeated_work(runs))
    held = [holds for _, holds in repeatability.held(runs)]
    wrong = [claim.is_contradicted_by(value) for _, claim, value in repeatability.judged_claims(runs)]
    fastest = list(repeatability.fastest_agrees(runs))
    return {
        "speed-ups of two runs differ, median / 90th percentile": (two_percents(differences), at_most(targets.differ)),
        "identical work, median / 90th percentile": (two_percents(identical), at_most(targets.identical)),
        "the same work in two tests of a run, median / 90th percentile": (two_percents(repeated), ""),
        "95 % intervals that hold the value pooled over the other runs": (share(held), f"≥ {targets.held * 100:g} %"),
        "claims that the pooled value contradicts": (f"{sum(wrong)} of {len(wrong)}", str(targets.contradicted)),
        "claims of a fastest variant that is the fastest by the pooled values": (share(fastest), ""),
        **effort(series),
    }


def effort(series: Series) -> dict[str, tuple[str, str]]:
    """What the runs took, as `figures` gives it."""
    targets, walls_s = TARGETS[series.kind], [run.wall_s for run in series.runs]
    wall = f"{statistics.median(walls_s):.0f} s ({min(walls_s):.0f} to {max(walls_s):.0f})"
    work = f"{repeatability.work_share(series.runs):.0%}"
    return {
        "a run takes, median (least to most)": (wall, f"≤ {targets.wall_s:.0f} s" if targets.wall_s else ""),
        "of it generating, scoring and loading": (work, f"≥ {targets.work:.0%}" if targets.work else ""),
    }


def notes(series: Series) -> Iterator[str]:
    """What the figures rest on, a line each."""
    runs = series.runs
    counts = sorted({len(run.speeds) for run in runs})
    speedups = " or ".join(map(str, counts))
    yield f"{series.name}: {count(len(runs), 'run')}, speed-ups in each: {speedups}, {source(runs)}."
    if len(runs) > 1:
        yield f"{series.name}: {pool(len(runs) - 1)}."
    phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in repeatability.mean_phases_s(runs).items())
    yield f"{series.name}: a run's seconds by phase, mean: {phases}."
    for run, claim, value in repeatability.judged_claims(runs):
        if claim.is_contradicted_by(value):
            said, found = (f"{math.exp(log_ratio):.3f}" for log_ratio in (claim.log_ratio, value))
            yield f"{series.name}: {run.name} claims {claim.variant} {said} times as fast; pooled: {found}."


def pool(others: int) -> str:
    """How far the value pooled over so many other runs can be relied on."""
    few = f", fewer than {ENOUGH_OTHERS}" if others < ENOUGH_OTHERS else ""
    expected = f"exact 95 % intervals would hold {repeatability.expected_held(others):.1%} of them"
    return f"pooled values are of {count(others, 'other run')}{few}; {expected}"


def source(runs: Sequence[SuiteRun]) -> str:
    """Where the speed-ups are from."""
    recorded = sum(run.is_recorded for run in runs)
    if recorded == len(runs):
        return "as the runs store them"
    which = "" if not recorded else f" in {len(runs) - recorded} of the runs"
    return f"quotients of the median latencies{which}, because the runs store none"


def main_table(every: Sequence[Series]) -> Table:
    """A row a figure; for each series the figure and its target."""
    columns = [figures(series) for series in every]
    header = ["", *(cell for series in every for cell in (series.name, "target"))]
    rows = [(name, *(cell for column in columns for cell in column[name])) for name in columns[0]]
    return Table(tuple(header), tuple(rows), frozenset(range(1, len(header))))


BY_RUN = "run"
BREAKDOWNS = ("variant", "scenario", "test", BY_RUN)


def breakdown(series: Series, by: str) -> Table:
    """A row for each variant, scenario or test, that whose speed-ups differ most first; or for each run (`shifts`)."""
    if by == BY_RUN:
        return shifts(series)

    def key(speed: Speed) -> str:
        return str(getattr(speed, by))

    held = grouped(repeatability.held(series.runs), key)
    differences = grouped(repeatability.log_differences(series.runs), key)
    ordered = sorted(differences, key=lambda name: -statistics.median(differences[name]))
    rows = [(name, *map(percent, quantiles(differences[name])), share(held.get(name, []))) for name in ordered]
    header = (by, "differ, median", "90th percentile", "intervals that hold the pooled value")
    return Table(header, tuple(rows), frozenset({1, 2, 3}))


def shifts(series: Series) -> Table:
    """A row for each run: how far each variant's speed-ups are from their means over the runs, on average."""
    found = repeatability.mean_shifts(series.runs)
    variants = sorted(found[0])
    rows = [
        (run.name, *(f"{math.expm1(each[variant]) * 100:+.2f} %" for variant in variants))
        for run, each in zip(series.runs, found, strict=True)
    ]
    return Table((BY_RUN, *variants), tuple(rows), frozenset(range(1, len(variants) + 1)))


def gate_lines(series: Series, rules: Rules) -> Iterator[str]:
    """The stored gate's false alarms among the runs of a series, and what it finds of slowdowns put into them."""
    found = repeatability.gate_trials([run.run for run in series.runs], rules)
    statuses = ", ".join(f"{status.words} {number}" for status, number in found.statuses.most_common())
    pairs = f"{found.red} of {found.statuses.total()} ordered pairs"
    yield f"{series.name}: the stored gate is red in {pairs} ({statuses})."
    if found.regressed:
        metrics = ", ".join(f"{name} {number}" for name, number in found.regressed.most_common())
        yield f"{series.name}: pairs with a regression of {metrics}."
    for factor in repeatability.SLOWER:
        whole, single = repeatability.found_slowdowns([run.run for run in series.runs], rules, factor)
        slow = f"{series.name}: slower by {factor - 1:.0%}"
        yield f"{slow}, one variant is found in {share(whole)}, one test in {share(single)}."
