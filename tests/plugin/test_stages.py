"""When the variants that are loaded are scored, by the places of a test and of the one after it."""

from __future__ import annotations

import pytest

from llm_bench_fixtures.plugin.stages import _is_time_for_quality
from llm_bench_fixtures.session.plan import Place, Stage, Trip

FIRST, BATCH, LENGTH = (
    Place(trip, 0, stage)
    for trip, stage in ((Trip.FIRST, Stage.LATENCY), (Trip.ANSWER, Stage.THROUGHPUT), (Trip.ANSWER, Stage.LENGTHS))
)
OTHER = Place(Trip.REST, 0, Stage.OTHER)
NEXT = Place(Trip.ANSWER, 1, Stage.THROUGHPUT, group=1)


@pytest.mark.parametrize(
    ("place", "after", "is_time"),
    [
        (FIRST, BATCH, False),
        (FIRST, OTHER, True),
        (BATCH, LENGTH, True),
        (BATCH, OTHER, True),
        (FIRST, Place(Trip.FIRST, 1, Stage.LATENCY, group=1), False),  # it comes again
        (BATCH, NEXT, True),
        (LENGTH, NEXT, True),  # without a batch
        (OTHER, Place(Trip.REST, 1, Stage.OTHER, group=1), False),  # it was scored before
    ],
)
def test_quality_comes_after_the_batch_or_where_the_group_leaves_without_one(
    place: Place, after: Place, is_time: bool
) -> None:
    assert _is_time_for_quality(place, after) is is_time
