"""The rows that a run's tasks add to the registry of metrics."""

from __future__ import annotations

import pytest

from llm_bench_fixtures.measure.tasks import TaskFacts, TaskMetric
from llm_bench_fixtures.results.formatting import notation_of, written
from llm_bench_fixtures.results.metrics import Direction, Force, registry
from llm_bench_fixtures.results.metrics.tasks import task_metrics, value_name, with_tasks


def task(*metrics: TaskMetric, name: str = "arc_easy") -> TaskFacts:
    return TaskFacts(name, metrics, 10, 10, 0, "")


ACC = TaskMetric("acc", higher_is_better=True, is_share=True)
PERPLEXITY = TaskMetric("word_perplexity", higher_is_better=False, is_share=False)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("arc_easy", "acc"), "task_arc_easy_acc"),
        (("gsm8k", "exact_match,strict-match"), "task_gsm8k_exact_match_strict_match"),
        (("my task::part", "chrf++"), "task_my_task_part_chrf_"),
    ],
)
def test_a_metric_is_named_so_that_rules_can_name_it(names: tuple[str, str], expected: str) -> None:
    assert value_name(*names) == expected


def test_a_share_is_written_and_judged_as_one() -> None:
    found = task_metrics([task(ACC)])
    assert set(found) == {f"task_arc_easy_acc{end}" for end in ("", "_change", "_change_error", "_lost", "_gained")}
    row = found["task_arc_easy_acc"]
    assert (row.column, row.direction) == ("arc_easy acc", Direction.HIGHER_IS_BETTER)
    assert written(0.625, notation_of(row)) == "62.5 %"
    assert (row.default_tolerance.absolute, row.default_tolerance.force) == (0.02, Force.ADVISORY)
    assert all(one.default_tolerance.force is Force.OFF for name, one in found.items() if one is not row)


def test_what_is_no_share_is_judged_as_quality_is() -> None:
    row = task_metrics([task(PERPLEXITY, name="wikitext")])["task_wikitext_word_perplexity"]
    assert (row.direction, written(25.5, notation_of(row))) == (Direction.LOWER_IS_BETTER, "25.500")
    assert row.default_tolerance.relative == 0.01


def test_what_has_no_better_way_is_never_judged() -> None:
    neither = TaskMetric("length", higher_is_better=None, is_share=False)
    assert task_metrics([task(neither)])["task_arc_easy_length"].default_tolerance.force is Force.OFF


def test_a_projects_own_metric_of_the_same_name_stays() -> None:
    own = registry()["perplexity"]
    found = with_tasks({"task_arc_easy_acc": own, "loss": own}, [task(ACC)])
    assert found["task_arc_easy_acc"] is own
    assert list(found)[:2] == ["task_arc_easy_acc", "loss"]
    assert "task_arc_easy_acc_change" in found
