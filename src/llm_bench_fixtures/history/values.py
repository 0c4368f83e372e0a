"""A run's metrics as arrays, since a long history has millions of values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING

from llm_bench_fixtures.history.headings import Heading, PassOver, heading_of, readable
from llm_bench_fixtures.history.saved import read_run_of
from llm_bench_fixtures.results.record import RecordHead

if TYPE_CHECKING:
    from llm_bench_fixtures.history.steps import Floats


@dataclass(frozen=True)
class Values:
    """Values of some metrics in one run."""

    heading: Heading
    benchmarks: tuple[tuple[str, str], ...]
    """The test and the variant of each record."""
    values: Floats
    """(records, metrics), NaN where there is none."""


@dataclass(frozen=True)
class _Record(RecordHead):
    metrics: Mapping[str, float]


def read_values(paths: Iterable[Path], metrics: Sequence[str], pass_over: PassOver) -> Iterator[Values]:
    """Values from the files that can be read, in their order; `pass_over` is called with each of the others."""
    import numpy as np

    for path, run in readable(paths, lambda path: read_run_of(path, _Record), pass_over):
        values = [[one.metrics.get(name, nan) for name in metrics] for one in run.records]
        shaped = np.array(values, dtype=np.float64).reshape(len(values), len(metrics))
        benchmarks = tuple((one.test, one.variant) for one in run.records)
        yield Values(heading_of(path, run), benchmarks, shaped)
