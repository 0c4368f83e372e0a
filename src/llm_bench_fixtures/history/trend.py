"""How the metrics changed from run to run: a line for each variant and metric, in a group for each fingerprint.

A line is the geometric mean over the variant's tests, as it would be if every run had run all of them. A mean over the
tests that a run did run would jump whenever a slow test is added. So each value is split into its test's level and its
run's: log(value) = test + run, by least squares. Where every run has every test, that is the geometric mean.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from llm_bench_fixtures.history.headings import Heading, PassOver
from llm_bench_fixtures.history.steps import find_steps
from llm_bench_fixtures.history.together import Fingerprint, fingerprint_of
from llm_bench_fixtures.reading import LARGEST

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from llm_bench_fixtures.history.steps import Floats
    from llm_bench_fixtures.history.storage import Storage, Values

DEFAULT_METRICS = (
    "latency_s",
    "ttft_s",
    "tpot_s",
    "decode_tokens_per_s",
    "own_memory_bytes",
    "weight_bytes",
    "perplexity",
)
CLOSE = 1e-9  # in logarithms: a round of the fit that changes less than this changes nothing that a page shows
MOST_ROUNDS = 200


@dataclass(frozen=True)
class TrendFilter:
    """Filter of what is followed in the runs. An empty field stands for everything."""

    metrics: tuple[str, ...] = DEFAULT_METRICS
    tests: str = ""
    """A pattern as in a shell (`*batch*`), or a part of a test's id."""
    variants: tuple[str, ...] = ()
    branch: str = ""

    def has(self, test: str, variant: str) -> bool:
        """Whether this test on this variant is followed."""
        named = not self.tests or self.tests in test or fnmatchcase(test, self.tests)
        return named and (not self.variants or variant in self.variants)


@dataclass(frozen=True)
class Level:
    """A stretch of a line without a step."""

    first: int
    """The position of its first run among its group's runs."""
    last: int
    """The position of its last run among its group's runs."""
    runs: int
    """How many runs of the stretch have the metric."""
    value: float
    """The geometric mean over these runs, in the metric's unit."""


@dataclass(frozen=True)
class TrendLine:
    """One metric of one variant."""

    metric: str
    variant: str
    tests: int
    """How many tests the geometric mean is over."""
    positions: tuple[int, ...]
    """The positions of the runs that have the metric, among its group's runs."""
    values: tuple[float, ...]
    """The value of each of these runs, in the metric's unit."""
    levels: tuple[Level, ...]
    """The stretches of the line between its steps, in their order."""

    @property
    def steps(self) -> Iterator[tuple[Level, Level]]:
        """Levels before and after each step."""
        return pairwise(self.levels)


@dataclass(frozen=True)
class Group:
    """Runs that can be compared, oldest first, and their lines."""

    fingerprint: Fingerprint
    runs: tuple[Heading, ...]
    lines: tuple[TrendLine, ...]


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


def _group(fingerprint: Fingerprint, runs: Sequence[Values], chosen: TrendFilter) -> Group:
    import numpy as np

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
    import numpy as np

    values = np.where((values > 1 / LARGEST) & (values < LARGEST), values, np.nan)
    positions = _linked_to_newest(~np.isnan(values))
    if not len(positions):
        return None
    values = values[~np.isnan(values[:, positions]).all(axis=1)]
    levels = np.exp(_run_levels(np.log(values[:, positions])))
    points = tuple(positions.tolist()), tuple(levels.tolist())
    return TrendLine(metric, variant, len(values), *points, tuple(_levels(positions, levels)))


def _linked_to_newest(known: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The positions of the runs that share a test with the newest run, or with a run that does, and so on.

    Where no test says how two runs compare, they have no common level. known: (tests, runs), whether a run has a test.
    """
    import numpy as np

    having = np.flatnonzero(known.any(axis=0))
    linked = having[-1:]
    while len(more := np.flatnonzero(known[known[:, linked].any(axis=1)].any(axis=0))) > len(linked):
        linked = more
    return linked


def _run_levels(logs: Floats) -> Floats:
    """The level of each run, in logarithms, as if it had run every test.

    logs: (tests, runs), NaN where a run lacks a test. No row and no column is all NaN.
    """
    import numpy as np

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


def _levels(positions: NDArray[np.int64], values: Floats) -> Iterator[Level]:
    import numpy as np

    for start, end in pairwise((0, *find_steps(values), len(values))):
        level = float(np.exp(np.log(values[start:end]).mean()))
        yield Level(int(positions[start]), int(positions[end - 1]), end - start, level)
