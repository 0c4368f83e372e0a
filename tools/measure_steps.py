"""How often the trend page's change points are false alarms, and which steps they find, in simulated histories.

python tools/measure_steps.py [TRIALS]

Runs scatter by 5 % around their level: independently of each other; as neighbours that resemble each other (lag-1
autocorrelation 0.59, as measured between fresh processes on a shared machine); and independently, with one run in
twenty half as slow again. A step is found where a change point lies within three runs of it. Last, the false alarms of
the same search with the usual penalty of 2 x the variance x log(runs), the variance from the differences of neighbours.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from llm_bench_fixtures.history.steps import find_steps, optimal_steps
from llm_bench_fixtures.history.trend import LEAST_RUNS
from llm_bench_fixtures.statistics.robust import robust_deviation

SCATTER = 0.05
SPIKE_SHARE, SPIKE = 0.05, 0.5
NOISES = {"independent": (0.0, False), "autocorrelated": (0.59, False), "with outliers": (0.0, True)}
HISTORIES = (6, 10, 20, 50, 200, 1000)
STEPS = ((20, 0.1), (20, 0.2), (50, 0.05), (50, 0.1), (200, 0.05), (200, 0.1))  # runs, share
NEAR = 3


def noise(random: np.random.Generator, runs: int, autocorrelation: float, *, spikes: bool) -> NDArray[np.float64]:
    """Logarithms of a value around 1."""
    fresh = random.standard_normal(runs) * np.sqrt(1 - autocorrelation**2)
    fresh[0] = random.standard_normal()
    for index in range(1, runs):
        fresh[index] += autocorrelation * fresh[index - 1]
    out = random.random(runs) < SPIKE_SHARE if spikes else np.zeros(runs)
    return fresh * SCATTER + out * SPIKE


def usual_steps(values: NDArray[np.float64]) -> list[int]:
    logs = np.log(values)
    differences = np.diff(logs)
    variance = robust_deviation(differences.tolist()) ** 2 / 2
    return optimal_steps(logs, 2 * variance * np.log(len(logs)), LEAST_RUNS)


def false_alarms(
    trials: int, runs: int, kind: str, find: Callable[[NDArray[np.float64]], list[int]] = find_steps
) -> float:
    """Share of histories without a step in which one is found."""
    random = np.random.default_rng(runs)
    autocorrelation, spikes = NOISES[kind]
    series = (noise(random, runs, autocorrelation, spikes=spikes) for _ in range(trials))
    return sum(bool(find(np.exp(logs))) for logs in series) / trials


def detected(trials: int, runs: int, share: float, kind: str) -> float:
    """Share of histories with a step in the middle in which it is found."""
    random = np.random.default_rng(runs)
    autocorrelation, spikes = NOISES[kind]
    found = 0
    for _ in range(trials):
        logs = noise(random, runs, autocorrelation, spikes=spikes)
        logs[runs // 2 :] += np.log1p(share)
        found += any(abs(step - runs // 2) <= NEAR for step in find_steps(np.exp(logs)))
    return found / trials


def main(trials: int) -> None:
    print(f"{'':24s}" + "".join(f"{kind:>16s}" for kind in NOISES))
    for runs in HISTORIES:
        shares = [false_alarms(trials, runs, kind) for kind in NOISES]
        print(f"{f'no step, {runs} runs':24s}" + "".join(f"{share:16.1%}" for share in shares), flush=True)
    for runs, step in STEPS:
        shares = [detected(trials, runs, step, kind) for kind in NOISES]
        print(f"{f'{step:+.0%}, {runs} runs':24s}" + "".join(f"{share:16.1%}" for share in shares), flush=True)
    for runs in HISTORIES:
        shares = [false_alarms(trials, runs, kind, usual_steps) for kind in NOISES]
        print(f"{f'usual, {runs} runs':24s}" + "".join(f"{share:16.1%}" for share in shares), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
