"""How the metrics changed from run to run: a line for each variant and metric, in a group for each fingerprint.

A line is the geometric mean over the variant's tests, as it would be if every run had run all of them. A mean over the
tests that a run did run would jump whenever a slow test is added.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise

from llm_bench_fixtures.history.headings import Heading
from llm_bench_fixtures.history.together import Fingerprint

DEFAULT_METRICS = (
    *("latency_s", "ttft_s", "tpot_s", "decode_tokens_per_s"),
    *("own_memory_bytes", "weight_bytes", "perplexity"),
)
# A level is one of at least three runs: one run that was slow is no step, and two may be neighbours in time.
LEAST_RUNS = 3
# Smaller changes than this (0.1 %) are of no use to anybody, and float error makes some in what should be constant.
LEAST_STEP = 1e-3


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
