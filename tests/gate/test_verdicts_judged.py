"""One value against another, both at the speed of the baseline's machine."""

from __future__ import annotations

import pytest

from llm_bench_fixtures.gate.verdicts import at_base_speed
from llm_bench_fixtures.results.metrics import METRICS, Direction

METRIC = {metric.name: metric for metric in METRICS}


@pytest.mark.parametrize(
    ("name", "expected"),
    [("latency_s", 2.0), ("ms_per_token", 2.0), ("decode_tokens_per_s", 8.0), ("energy_j", 4.0), ("mbu", 4.0)],
)
def test_only_what_a_clock_measured_is_taken_to_the_baselines_speed(name: str, expected: float) -> None:
    assert at_base_speed(4.0, METRIC[name], slowdown=2.0) == expected
    assert METRIC[name].direction is not Direction.NEITHER
