"""Differences and intervals, by hand and by their symmetries."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_bench_fixtures.paired.differences import (
    JUDGED,
    estimate,
    pair_difference,
)
from llm_bench_fixtures.paired.protocol import Times

BY_NAME = {metric.name: metric for metric in JUDGED}
LATENCY, THROUGHPUT = BY_NAME["latency_s"], BY_NAME["decode_tokens_per_s"]
ALPHA = 0.01

seconds = st.floats(1e-6, 1e3)


def times(latency_s: float) -> Times:
    return Times(latency_s, latency_s / 4, latency_s / 20, 20 / latency_s)


def test_the_four_metrics_are_judged() -> None:
    assert list(BY_NAME) == ["latency_s", "ttft_s", "tpot_s", "decode_tokens_per_s"]


def test_twice_as_slow_is_log_2_in_every_metric() -> None:
    rows = [(times(1.0), times(2.0))] * 3
    assert [pair_difference(metric, rows) for metric in JUDGED] == pytest.approx([math.log(2)] * 4)


def test_fewer_tokens_per_second_are_worse() -> None:
    base, head = Times(1.0, None, None, 100.0), Times(1.0, None, None, 50.0)
    assert pair_difference(THROUGHPUT, [(base, head)]) == pytest.approx(math.log(2))


def test_a_metric_that_a_round_lacks_has_no_difference() -> None:
    without = Times(1.0, 1.0, None, None)
    assert pair_difference(THROUGHPUT, [(times(1.0), times(1.0)), (without, without)]) is None
    assert pair_difference(LATENCY, []) is None


def test_the_interval_of_three_pairs_by_hand() -> None:
    """Mean 0.02, deviation 0.01, error 0.01 / sqrt 3; Student's 97.5 % quantile with 2 degrees is 4.3027."""
    found = estimate([0.01, 0.02, 0.03], alpha=0.05)
    assert found is not None
    assert found.mean == pytest.approx(0.02)
    assert found.high - found.mean == pytest.approx(4.3027 * 0.01 / math.sqrt(3), rel=1e-4)
    assert found.mean - found.low == pytest.approx(found.high - found.mean)


def test_p_is_alpha_where_the_interval_touches_zero() -> None:
    found = estimate([0.01, 0.02, 0.03], alpha=0.05)
    assert found is not None
    touching = estimate([0.01, 0.02, 0.03], alpha=found.p)
    assert touching is not None
    assert touching.low == pytest.approx(0, abs=1e-12)


def test_fewer_than_three_pairs_say_nothing() -> None:
    assert estimate([0.5, 0.5], ALPHA) is None


def test_a_disturbed_step_of_a_round_hardly_counts() -> None:
    """Steps of 10 ms, of which one took 100 ms; the mean over the steps would be 1.9 times as long."""
    calm, disturbed = (0.01,) * 10, (*(0.01,) * 9, 0.1)
    base, head = (Times(1.0, 0.1, sum(steps) / 10, 1.0, (0.1,), steps) for steps in (calm, disturbed))
    assert pair_difference(BY_NAME["tpot_s"], [(base, head)]) == 0.0


def test_each_batch_of_a_prefill_is_compared_by_itself() -> None:
    """Four of five batches were twice as slow, and one met a disturbance; so were ten of fifteen means of two."""
    base = Times(1.0, 0.1, None, None, (0.1,) * 5)
    head = Times(1.0, 2.0, None, None, (*(0.2,) * 4, 9.0))
    assert pair_difference(BY_NAME["ttft_s"], [(base, head)]) == pytest.approx(math.log(2))


@given(st.lists(st.lists(st.tuples(seconds, seconds), min_size=1, max_size=5), min_size=3, max_size=8))
def test_swapping_the_sides_of_rounds_turns_each_difference(pairs: list[list[tuple[float, float]]]) -> None:
    for rows in pairs:
        for metric in JUDGED:
            there = pair_difference(metric, [(times(base), times(head)) for base, head in rows])
            back = pair_difference(metric, [(times(head), times(base)) for base, head in rows])
            assert there is not None
            assert back == -there


@given(
    st.lists(st.lists(st.tuples(seconds, seconds), min_size=1, max_size=5), min_size=3, max_size=8),
    st.integers(-20, 20),
)
def test_scaling_all_times_changes_no_difference(pairs: list[list[tuple[float, float]]], exponent: int) -> None:
    """A machine twice as slow."""
    scale = 2.0**exponent

    def differences_of(factor: float) -> list[float]:
        found = [
            pair_difference(LATENCY, [(times(base * factor), times(head * factor)) for base, head in rows])
            for rows in pairs
        ]
        return [value for value in found if value is not None]

    assert differences_of(scale) == pytest.approx(differences_of(1.0), abs=1e-9)
