"""The plugin's own hooks. A project implements them in its conftest.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from llm_bench_fixtures.measure.quality import CorpusScore
    from llm_bench_fixtures.models.handle import ModelHandle
    from llm_bench_fixtures.models.variants import Variant
    from llm_bench_fixtures.results.metrics import Metric
    from llm_bench_fixtures.results.record import Record, Run
    from llm_bench_fixtures.workloads import Corpus


@pytest.hookspec
def pytest_llm_bench_variants(config: pytest.Config) -> Sequence[Variant]:  # type: ignore[empty-body]
    """Variants to add to the catalogue. A variant's backend may be the dotted path of a module of one's own.

    An id that another variant has ends the run, and so does what is no Variant.
    """


@pytest.hookspec
def pytest_llm_bench_metrics(config: pytest.Config) -> Sequence[Metric]:  # type: ignore[empty-body]
    """Metrics to add to the registry. They become columns of the tables, where a value comes with their name.

    A name that another metric or a column has ends the run, and so does what is no Metric.
    """


@pytest.hookspec
def pytest_llm_bench_score(  # type: ignore[empty-body]
    config: pytest.Config, model: ModelHandle, corpus: Corpus
) -> Mapping[str, float] | CorpusScore:
    """Quality of a loaded variant, by metric name; called once for each. The plugin's own computes the perplexity.

    A CorpusScore also holds the losses of stretches of the corpus, by whose pairs the gate compares two perplexities.
    Not called for random weights.
    """


@pytest.hookspec
def pytest_llm_bench_measure(  # type: ignore[empty-body]
    config: pytest.Config, model: ModelHandle, record: Record
) -> Mapping[str, float]:
    """Further values of one benchmark, by metric name; called after its timed rounds.

    What it raises, and values under names of the package's own metrics, cost these values and nothing else.
    """


@pytest.hookspec
def pytest_llm_bench_finish(run: Run, report: Path) -> None:
    """The finished results, once their report is written to the folder `report`.

    An error that it raises is reported, and the exit status is then 3 instead of 0.
    """
