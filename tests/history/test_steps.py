"""Steps are found where there are some, and noise has few."""

from __future__ import annotations

import importlib.util
import math
import random
from itertools import combinations, pairwise
from pathlib import Path
from statistics import pvariance
from types import ModuleType

import numpy as np
import pytest

from llm_bench_fixtures.history.steps import find_steps, optimal_steps

ROOT = Path(__file__).resolve().parent.parent.parent


def around(level: float, runs: int, seed: int, scatter: float = 0.02) -> list[float]:
    generator = random.Random(seed)  # noqa: S311
    return [level * math.exp(generator.gauss(0, scatter)) for _ in range(runs)]


@pytest.mark.parametrize(
    "values", [[], [1.0], [1.0, 1.0], [1.0] * 50, [3.0, 2.0, 4.0, 3.0, 5.0], [10.0, 11.0], [10.0, 11.0] * 3]
)
def test_nothing_to_find(values: list[float]) -> None:
    """Bug: a line of two runs had a step, and one that goes to and fro had one at each run."""
    assert find_steps(values) == []


@pytest.mark.parametrize("least", [1, 2])
@pytest.mark.parametrize("seed", range(20))
def test_the_search_finds_what_trying_all_finds(seed: int, least: int) -> None:
    generator = random.Random(seed)  # noqa: S311
    values = [generator.choice([1.0, 1.5]) + generator.gauss(0, 0.2) for _ in range(9)]
    penalty = generator.choice([0.05, 0.2, 0.5])

    def cost(steps: tuple[int, ...]) -> float:
        levels = [values[start:end] for start, end in pairwise((0, *steps, len(values)))]
        if min(map(len, levels)) < least:
            return math.inf
        return sum(len(level) * pvariance(level) for level in levels) + penalty * len(steps)

    every = (steps for count in range(9) for steps in combinations(range(1, 9), count))
    assert optimal_steps(np.array(values), penalty, least) == list(min(every, key=cost))


@pytest.mark.parametrize("factor", [1.2, 1 / 1.2])
def test_a_level_ends_where_another_begins(factor: float) -> None:
    assert find_steps([*around(1, 20, 1), *around(factor, 15, 2)]) == [20]


def test_several_steps_are_found() -> None:
    values = [*around(1, 20, 3), *around(1.3, 20, 4), *around(0.9, 20, 5)]
    assert find_steps(values) == [20, 40]


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_the_unit_does_not_matter(unit: float) -> None:
    values = [*around(1, 20, 1), *around(1.2, 15, 2)]
    assert find_steps([value * unit for value in values]) == find_steps(values) == [20]


@pytest.mark.parametrize("at", [3, 200, 374, 375, 376, 600, 625, 700, 1190])
def test_a_long_series_is_searched_as_a_whole(at: int) -> None:
    """1,193 runs, more than are searched at a time; the step may lie where two of the windows meet."""
    assert find_steps([*around(1, at, 1), *around(1.3, 1193 - at, 2)]) == [at]


def test_a_small_step_where_two_windows_meet_is_found_once() -> None:
    """Which run it begins with can't be told exactly, so the windows need not agree on it."""
    for seed in range(40):
        values = [*around(1, 375, seed, 0.05), *around(1.08, 818, seed + 100, 0.05)]
        (step,) = find_steps(values)
        assert step == pytest.approx(375, abs=15)


def test_one_run_that_was_slow_is_no_step() -> None:
    values = around(1, 40, 6)
    values[20] *= 3
    assert find_steps(values) == []


def test_the_newest_runs_can_be_a_level_but_the_newest_one_alone_is_none() -> None:
    values = [*around(1, 40, 7), *around(1.3, 3, 8)]
    assert find_steps(values) == [40]
    assert find_steps(values[:-2]) == []


def test_what_does_not_scatter_steps_wherever_it_changes() -> None:
    """Bytes of weights: one run is enough, and so is a percent."""
    assert find_steps([100.0, 100.0, 101.0]) == [2]
    assert find_steps([100.0] * 10 + [101.0] * 10 + [100.0]) == [10, 20]


def test_float_error_is_no_step() -> None:
    assert find_steps([1.0] * 10 + [1.0 + 1e-12] * 10) == []
    assert find_steps([1.0] * 10 + [1.0005] * 10) == []


@pytest.fixture(scope="module")
def simulation() -> ModuleType:
    spec = importlib.util.spec_from_file_location("measure_steps", ROOT / "tools" / "measure_steps.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("kind", "most"), [("independent", 0.03), ("autocorrelated", 0.12), ("with outliers", 0.06)])
@pytest.mark.parametrize("runs", [10, 50])
def test_noise_alone_seldom_steps(simulation: ModuleType, kind: str, most: float, runs: int) -> None:
    """The documented shares, which come from more trials, with room for chance."""
    assert simulation.false_alarms(200, runs, kind) <= most


@pytest.mark.parametrize("kind", ["independent", "autocorrelated"])
def test_a_step_of_four_times_the_scatter_is_found(simulation: ModuleType, kind: str) -> None:
    assert simulation.detected(100, 50, 0.2, kind) >= 0.9
