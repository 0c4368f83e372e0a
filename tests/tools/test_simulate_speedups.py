"""The script that simulates speed-ups: how often an interval holds the truth, which the docs promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import simulate_speedups


@pytest.mark.parametrize("pairs", [5, 10, 15])
@pytest.mark.parametrize(
    ("noise", "least"), [("plain", 0.93), ("10 % spikes", 0.9), ("20 % spikes", 0.9), ("regimes in all", 0.9)]
)
def test_intervals_of_a_run_hold_the_truth(noise: str, least: float, pairs: int) -> None:
    """As tools/simulate_speedups.py has it, with 1000 intervals: 95 % of them, less what comes by chance."""
    held, (alone, shrunk) = simulate_speedups.coverage(
        np.random.default_rng(pairs), simulate_speedups.NOISES[noise], pairs, runs=5
    )
    assert least <= held[1] <= (0.97 if noise == "plain" else 1.0)
    assert shrunk < alone


def test_the_centre_that_is_used_is_near_the_best_under_each_noise() -> None:
    """Spikes and regimes break the mean, and plain noise costs the median more than a tenth."""
    random = np.random.default_rng(1)
    plain, spikes, regimes = (
        simulate_speedups.errors(random, simulate_speedups.NOISES[name], pairs=10, runs=1)
        for name in ("plain", "10 % spikes", "regimes in all")
    )
    assert plain["trimmed"] < 1.1 * plain["mean"]
    assert plain["median"] > 1.1 * plain["mean"]
    assert spikes["mean"] > 1.5 * spikes["trimmed"]
    assert regimes["mean"] > 1.1 * regimes["trimmed"]


def test_hubers_location_of_values_within_its_bound_is_their_mean() -> None:
    assert simulate_speedups.huber([1.0, 2.0, 6.0], 10.0) == pytest.approx(3.0)
    assert math.isclose(simulate_speedups.huber([0.0] * 9 + [1e6], 0.1), 0.15 / 9)
