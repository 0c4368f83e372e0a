"""Metrics of lm-evaluation-harness's tasks: which there are, a run tells itself.

A variant's value of a metric has the name that `value_name` gives; what is compared with the reference has that name
and an ending of `COMPARED`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from llm_bench_fixtures.measure.tasks import TaskFacts, TaskMetric
from llm_bench_fixtures.results.metrics.metric import Direction, Metric, Unit
from llm_bench_fixtures.results.metrics.quality import FLIPS, POINTS
from llm_bench_fixtures.results.metrics.rows import quality_row

PREFIX = "task_"
DIRECTIONS = {True: Direction.HIGHER_IS_BETTER, False: Direction.LOWER_IS_BETTER, None: Direction.NEITHER}
CHANGE, CHANGE_ERROR, LOST, GAINED = COMPARED = ("change", "change_error", "lost", "gained")


def value_name(task: str, metric: str) -> str:
    """arc_easy and acc: `task_arc_easy_acc`."""
    return re.sub(r"\W+", "_", f"{PREFIX}{task}_{metric}")


def task_metrics(tasks: Iterable[TaskFacts]) -> dict[str, Metric]:
    """The rows of the tasks' metrics, by name."""
    return {row.name: row for task in tasks for metric in task.metrics for row in _rows(task, metric)}


def with_tasks(metrics: Mapping[str, Metric], tasks: Iterable[TaskFacts]) -> dict[str, Metric]:
    """The registry with the tasks' metrics after the others, and a project's own of the same name in place of them."""
    return {**metrics, **{name: row for name, row in task_metrics(tasks).items() if name not in metrics}}


def _rows(task: TaskFacts, metric: TaskMetric) -> Iterator[Metric]:
    name, head = value_name(task.name, metric.name), f"{task.name} {metric.name}"
    unit = Unit.SHARE if metric.is_share else Unit.NONE
    yield quality_row(
        *(name, f"{task.name}, {metric.name}", head),
        unit=unit,
        direction=DIRECTIONS[metric.higher_is_better],
        formula=f"{metric.name} of the task {task.name}, as lm-evaluation-harness computes it",
        source="lm-evaluation-harness",
        tolerance=POINTS if metric.is_share else None,
    )
    row = partial(quality_row, direction=Direction.NEITHER, unit=unit)
    yield row(
        name=f"{name}_{CHANGE}",
        title=f"Change of {head}",
        column=f"{head} Δ",
        formula=f"{name} less the reference's, on the same items",
    )
    yield row(
        name=f"{name}_{CHANGE_ERROR}",
        title=f"Standard error of the change of {head}",
        column=f"{head} Δ ±",
        formula="of the items' paired differences; of what is no mean, the delete-a-group jackknife's",
    )
    for way, to in ((LOST, "wrong, and right under the reference"), (GAINED, "right, and wrong under the reference")):
        yield row(
            name=f"{name}_{way}",
            title=f"Answers {way}, {head}",
            column=f"{head} {way}",
            unit=Unit.COUNT,
            formula=f"items that are {to}",
            source=FLIPS,
        )
