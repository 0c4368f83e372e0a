"""The metric registry: every quantity that is reported is a row of it.

A row says everything about its metric: unit, direction, kind, formula, source, in which of the report's tables it
stands and how finely it is compared. Tables, plots, gates, the report's sentences and docs read it. The arithmetic
over a record's times, and how a value is written, stand outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.results.metrics.latency import LATENCY
from llm_bench_fixtures.results.metrics.memory import EXACT, MEMORY
from llm_bench_fixtures.results.metrics.metric import Direction, Force, Kind, Metric, ReportTable, Tolerance, Unit
from llm_bench_fixtures.results.metrics.quality import CHOICES, QUALITY
from llm_bench_fixtures.results.metrics.tokens import MACHINE, TOKENS

# What others import from here besides the registry.
__all__ = ["Direction", "Force", "Kind", "Metric", "ReportTable", "Tolerance", "Unit"]

METRICS: tuple[Metric, ...] = (*LATENCY, *TOKENS, *MACHINE, *EXACT, *MEMORY, *QUALITY, *CHOICES)
METRIC_BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}


def registry(added: Iterable[Metric] = ()) -> dict[str, Metric]:
    """Metrics by name, a project's own after ours. Raises InvalidSetting for what is no Metric or has a taken name."""
    metrics = dict(METRIC_BY_NAME)
    for metric in added:
        if not isinstance(metric, Metric):
            raise InvalidSetting(f"{metric!r} is no Metric")
        if metric.name in metrics:
            raise InvalidSetting(f"a metric named {metric.name!r} is there already")
        metrics[metric.name] = metric
    return metrics


def shown_in(table: ReportTable, metrics: Mapping[str, Metric]) -> list[Metric]:
    """The metrics of the registry that the table shows, in the order of its columns."""
    shown = [metric for metric in metrics.values() if table in metric.tables]
    return sorted(shown, key=lambda metric: metric.tables[table])
