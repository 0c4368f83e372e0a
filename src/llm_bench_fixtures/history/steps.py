"""Reads a trend: computes its lines, and finds where a series of runs steps from one level to another.

A step is advice for the reader of a page, never a verdict: the runs were not measured side by side, so a machine that
became slower looks like a commit that became slower. tools/measure_steps.py measures how often noise alone gives a
step, and which steps are found; docs/explanation/trend.md has its figures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from llm_bench_fixtures.history.headings import PassOver
from llm_bench_fixtures.history.storage import Storage, Values
from llm_bench_fixtures.history.together import Fingerprint, fingerprint_of
from llm_bench_fixtures.history.trend import LEAST_RUNS, LEAST_STEP, Group, Level, TrendFilter, TrendLine
from llm_bench_fixtures.reading import LARGEST
from llm_bench_fixtures.statistics.robust import NORMAL_MAD

Floats: TypeAlias = NDArray[np.float64]

CLOSE = 1e-9  # in logarithms: a round of the fit that changes less than this changes nothing that a page shows
MOST_ROUNDS = 200
FLOAT_ERROR = 1e-9  # in logarithms
LEAST_SCATTER = 1e-4  # in logarithms: what a series is taken to scatter by that doesn't scatter at all

# A step must lower the sum of squares by PENALTY × the long-run variance × log(runs). 2 would be the Bayesian
# information criterion's, for the place and the level that a step adds; 3, and the rest of these, are what brought the
# false alarms in simulated histories down to some per cent while steps of twice the scatter were still found.
PENALTY = 3.0
FIRST_PENALTY = 12.0  # for the first pass, which only has to take away the steps that would look like autocorrelation
# Runs that follow each other resemble each other (0.59 between fresh processes on a shared machine), which a short
# series can't show: its own autocorrelation is averaged with this one as if that came from so many runs.
PRIOR_AUTOCORRELATION, PRIOR_RUNS = 0.6, 20
MOST_AUTOCORRELATION = 0.9
OUTLIER = 3.0  # times the scatter around the median of so many runs: farther out, a run counts as if it were there
MEDIAN_RUNS = 7


def read_trend(storage: Storage, chosen: TrendFilter, pass_over: PassOver) -> list[Group]:
    """A group for each fingerprint. The group with the newest run comes first.

    pass_over: called with each run that can't be read.
    """
    groups: dict[Fingerprint, list[Values]] = defaultdict(list)
    for one in storage.values(chosen.metrics, pass_over):
        if chosen.branch in ("", one.heading.provenance.branch):
            groups[fingerprint_of(one.heading.provenance)].append(one)
    for runs in groups.values():
        runs.sort(key=lambda one: one.heading.started)
    newest_first = sorted(groups.items(), key=lambda group: group[1][-1].heading.started, reverse=True)
    return [_group(fingerprint, runs, chosen) for fingerprint, runs in newest_first]


def find_steps(values: Sequence[float] | Floats) -> list[int]:
    """The positions at which a new level begins, ascending. values: positive, in the order of the runs.

    A series most of whose runs don't differ at all, such as the bytes of the weights, steps wherever it changes.
    """
    logs = np.log(np.asarray(values, dtype=np.float64))
    if len(logs) < 2 or np.ptp(logs) < LEAST_STEP:
        return []
    differences = np.abs(np.diff(logs))  # of neighbours, nearly all of which have no step between them
    is_constant = (differences < FLOAT_ERROR).sum() * 2 >= len(differences)
    least_runs = 1 if is_constant else LEAST_RUNS
    if len(logs) < 2 * least_runs:
        return []
    deviation = float(np.median(differences) * NORMAL_MAD / np.sqrt(2))  # of a run around its level
    scatter = LEAST_SCATTER if is_constant else max(deviation, LEAST_SCATTER)
    calm = logs if is_constant else _without_outliers(logs, scatter)
    runs = np.log(len(calm))
    found = optimal_steps(calm, FIRST_PENALTY * scatter**2 * runs, least_runs)
    variance = max(_long_run_variance(calm, found), LEAST_SCATTER**2)
    found = optimal_steps(calm, PENALTY * variance * runs, least_runs)
    levels = _levels(logs, found)
    return [step for step in found if abs(levels[step] - levels[step - 1]) >= LEAST_STEP]


def _without_outliers(logs: Floats, scatter: float) -> Floats:
    """The series with each run moved to within OUTLIER × scatter of the median of the runs around it."""
    half = MEDIAN_RUNS // 2
    around = np.lib.stride_tricks.sliding_window_view(np.pad(logs, half, mode="reflect"), MEDIAN_RUNS)
    middle = np.median(around, axis=1)
    return np.clip(logs, middle - OUTLIER * scatter, middle + OUTLIER * scatter)


def optimal_steps(series: Floats, penalty: float, least: int) -> list[int]:
    """Where the levels begin, but the first, that make the sum of squares around them + penalty × steps smallest.

    The exact search of Jackson et al., An algorithm for optimal partitioning of data on an interval (2005). Its time
    grows with the square of the length. least: how many values a level has at least.
    """
    centred = series - series.mean()
    sums = np.concatenate(([0.0], np.cumsum(centred)))
    saved = np.full(len(series) + 1, np.inf)  # the best sum up to each position, without the squares of the values
    saved[0] = -penalty
    begins = np.zeros(len(series) + 1, dtype=np.intp)  # begin of the last level there
    lengths = np.arange(len(series), 0, -1.0)
    for end in range(least, len(series) + 1):
        starts = slice(end - least + 1)
        costs = sums[end] - sums[starts]
        costs *= costs
        costs /= lengths[len(series) - end :][starts]
        np.subtract(saved[starts], costs, out=costs)
        begins[end] = costs.argmin()
        saved[end] = costs[begins[end]] + penalty
    steps, position = [], int(begins[-1])
    while position:
        steps.append(position)
        position = int(begins[position])
    return steps[::-1]


def _long_run_variance(logs: Floats, steps: Sequence[int]) -> float:
    """The variance around the levels, made larger by the factor by which autocorrelation makes a mean less certain."""
    levels = len(steps) + 1
    residuals = logs - _levels(logs, steps)
    squares = float((residuals**2).sum())
    if not squares or len(logs) <= levels:
        return 0.0
    own = float((residuals[1:] * residuals[:-1]).sum()) / squares + levels / len(logs)  # too small for few runs
    shared = (len(logs) * own + PRIOR_RUNS * PRIOR_AUTOCORRELATION) / (len(logs) + PRIOR_RUNS)
    shared = min(max(shared, 0.0), MOST_AUTOCORRELATION)
    return squares / (len(logs) - levels) * (1 + shared) / (1 - shared)


def _levels(logs: Floats, steps: Sequence[int]) -> Floats:
    """Mean of the level that each run is in."""
    parts = [logs[start:end] for start, end in pairwise((0, *steps, len(logs)))]
    return np.concatenate([np.full(len(part), part.mean()) for part in parts])


def _group(fingerprint: Fingerprint, runs: Sequence[Values], chosen: TrendFilter) -> Group:
    numbers: dict[tuple[str, str], int] = {}  # of each test and variant that is followed

    @cache  # most runs have the same benchmarks
    def numbers_of(benchmarks: tuple[tuple[str, str], ...]) -> NDArray[np.int64]:
        """(N,): the number of each; -1 for one that isn't followed."""
        found = [numbers.setdefault(name, len(numbers)) if chosen.has(*name) else -1 for name in benchmarks]
        return np.array(found, dtype=np.int64)

    rows = np.concatenate([numbers_of(run.benchmarks) for run in runs])
    columns = np.repeat(np.arange(len(runs)), [len(run.benchmarks) for run in runs])
    values = np.concatenate([run.values for run in runs])
    followed = rows >= 0
    of_variant: dict[str, list[int]] = defaultdict(list)
    for (_, variant), number in numbers.items():
        of_variant[variant].append(number)
    lines = []
    for index, metric in enumerate(chosen.metrics):
        matrix = np.full((len(numbers), len(runs)), np.nan)
        matrix[rows[followed], columns[followed]] = values[followed, index]
        for variant, own in of_variant.items():
            line = _line(metric, variant, matrix[own])
            lines += [line] if line else []
    return Group(fingerprint, tuple(run.heading for run in runs), tuple(lines))


def _line(metric: str, variant: str, values: Floats) -> TrendLine | None:
    """The line of one variant and metric; None where no run has it.

    values: (tests, runs), NaN where there is none. Values that have no logarithm, or that no measurement gives, are
    left out, and so are runs that no test links to the newest.
    """
    values = np.where((values > 1 / LARGEST) & (values < LARGEST), values, np.nan)
    positions = _linked_to_newest(~np.isnan(values))
    if not len(positions):
        return None
    values = values[~np.isnan(values[:, positions]).all(axis=1)]
    levels = np.exp(_run_levels(np.log(values[:, positions])))
    points = tuple(positions.tolist()), tuple(levels.tolist())
    return TrendLine(metric, variant, len(values), *points, tuple(_stretches(positions, levels)))


def _linked_to_newest(known: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The positions of the runs that share a test with the newest run, or with a run that does, and so on.

    Where no test says how two runs compare, they have no common level. known: (tests, runs), whether a run has a test.
    """
    having = np.flatnonzero(known.any(axis=0))
    linked = having[-1:]
    while len(more := np.flatnonzero(known[known[:, linked].any(axis=1)].any(axis=0))) > len(linked):
        linked = more
    return linked


def _run_levels(logs: Floats) -> Floats:
    """The level of each run, in logarithms, as if it had run every test: log(value) = test + run, by least squares.
    Where every run has every test, that is the geometric mean.

    logs: (tests, runs), NaN where a run lacks a test. No row and no column is all NaN.
    """
    known = ~np.isnan(logs)
    filled = np.where(known, logs, 0.0)
    tests = filled.sum(axis=1) / known.sum(axis=1)
    for _ in range(MOST_ROUNDS):
        runs = (filled.sum(axis=0) - tests @ known) / known.sum(axis=0)
        before, tests = tests, (filled.sum(axis=1) - known @ runs) / known.sum(axis=1)
        if np.abs(tests - before).max() < CLOSE:
            break
    levels: Floats = tests.mean() + runs
    return levels


def _stretches(positions: NDArray[np.int64], values: Floats) -> Iterator[Level]:
    for start, end in pairwise((0, *find_steps(values), len(values))):
        level = float(np.exp(np.log(values[start:end]).mean()))
        yield Level(int(positions[start]), int(positions[end - 1]), end - start, level)
