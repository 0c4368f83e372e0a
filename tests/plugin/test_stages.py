"""When the variants that are loaded are scored, by the places of a test and of the one after it."""

from __future__ import annotations

import pytest

from llm_bench_fixtures.plugin.stages import _is_time_for_quality
from llm_bench_fixtures.session.plan import Case, Place, Plan

CASES = [Case(name, name, frozenset("ab"), 8.0) for name in ("prompt_length", "batch", "cache")]
PLAN = Plan([*CASES, Case("longer", "prompt_length", frozenset("ab"), 9.0)], ["a", "b"])
FIRST, BATCH, LENGTH, OTHER = (PLAN.place(case, "b") for case in ("prompt_length", "batch", "longer", "cache"))


@pytest.mark.parametrize(
    ("place", "after", "is_time"),
    [
        (FIRST, BATCH, False),
        (FIRST, OTHER, True),
        (BATCH, LENGTH, True),
        (BATCH, OTHER, True),
        (FIRST, PLAN.place("prompt_length", "a"), False),  # it comes again
        (BATCH, PLAN.place("batch", "a"), True),
        (LENGTH, PLAN.place("batch", "a"), True),  # without a batch
        (OTHER, PLAN.place("cache", "a"), False),  # it was scored before
    ],
)
def test_quality_comes_after_the_batch_or_where_the_group_leaves_without_one(
    place: Place, after: Place, is_time: bool
) -> None:
    assert _is_time_for_quality(PLAN, place, after) is is_time
