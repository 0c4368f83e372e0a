"""How far off simulated speed-ups are, and how often their intervals hold the truth: centres and noises compared.

python tools/simulate_speedups.py

A run has 200 comparisons, each of so many pairs of rounds. The logarithm of a pair's ratio scatters normally, with a
standard deviation of 3 to 10 % that each comparison has for itself. On top of it come

- spikes: one round in 20, 10 or 5 of the variant takes 1.5 to 3 times as long;
- regimes: in one comparison of two, or in each, one to three pairs in a row are off by 10 to 30 %, to either side.

In a further run one comparison of ten is of a variant that holds itself up: each of its rounds takes twice as long with
a probability of a half. There the truth is the mean logarithm, and it is told how often the ratio of the two mean
latencies lies within the interval. What processes differ by is left out.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from llm_bench_fixtures.statistics.ratio import trimmed_mean, trimmed_variance
from llm_bench_fixtures.statistics.robust import NORMAL_MAD, hodges_lehmann, robust_deviation
from llm_bench_fixtures.statistics.shrinkage import estimate_prior

COMPARISONS = 200
Floats = NDArray[np.float64]
Noise = Callable[[np.random.Generator, Floats], Floats]
"""Noise that is added to logarithms of shape (comparisons, pairs)."""


def spikes(share: float) -> Noise:
    def noise(random: np.random.Generator, logs: Floats) -> Floats:
        return (random.random(logs.shape) < share) * -np.log(random.uniform(1.5, 3, logs.shape))

    return noise


def regimes(share: float) -> Noise:
    """share: of the comparisons, that have one."""

    def noise(random: np.random.Generator, logs: Floats) -> Floats:
        comparisons, pairs = logs.shape
        start, length = random.integers(0, pairs, (comparisons, 1)), random.integers(1, 4, (comparisons, 1))
        number = np.arange(pairs)
        shift = random.choice([-1, 1], (comparisons, 1)) * random.uniform(0.1, 0.3, (comparisons, 1))
        has_one = random.random((comparisons, 1)) < share
        return has_one * (number >= start) * (number < start + length) * shift

    return noise


NOISES: Mapping[str, Noise] = {
    "plain": lambda _, logs: np.zeros_like(logs),
    "5 % spikes": spikes(0.05),
    "10 % spikes": spikes(0.1),
    "20 % spikes": spikes(0.2),
    "regimes in half": regimes(0.5),
    "regimes in all": regimes(1.0),
}


def run_of(random: np.random.Generator, noise: Noise, pairs: int, comparisons: int = COMPARISONS) -> Floats:
    """The logarithms of a run's pairs, (comparisons, pairs), about a truth of 0."""
    deviations = np.exp(random.uniform(math.log(0.03), math.log(0.1), (comparisons, 1)))
    logs: Floats = deviations * random.standard_normal((comparisons, pairs))
    return logs + noise(random, logs)


def held_up(random: np.random.Generator, logs: Floats) -> Floats:
    """Log offsets that a variant's own threads add to a tenth of the comparisons, about its mean."""
    mine = np.arange(len(logs))[:, None] < len(logs) // 10
    return mine * math.log(2) * (0.5 - (random.random(logs.shape) < 0.5))


def huber(values: Sequence[float], scale: float) -> float:
    """Huber's location (1964) with the bound at 1.5 times the scale."""
    known = np.asarray(values)
    centre = float(np.median(known))
    for _ in range(50):
        centre += float(np.clip(known - centre, -1.5 * scale, 1.5 * scale).mean())
    return centre


CENTRES: Mapping[str, Callable[[Sequence[float], float], float]] = {
    "mean": lambda values, _: float(np.mean(values)),
    "median": lambda values, _: float(np.median(values)),
    "trimmed": lambda values, _: trimmed_mean(values).centre,
    "Hodges-Lehmann": lambda values, _: hodges_lehmann(values),
    "Huber, run's scale": huber,
    "Huber, larger scale": lambda values, scale: huber(values, max(robust_deviation(values), scale)),
}


def errors(
    random: np.random.Generator, noise: Noise, pairs: int, runs: int, first: int = COMPARISONS
) -> dict[str, float]:
    """Root mean square error of each centre's logarithm in the first comparisons of each run."""
    squares: dict[str, list[float]] = {name: [] for name in CENTRES}
    for _ in range(runs):
        logs = run_of(random, noise, pairs)
        scale = NORMAL_MAD * float(np.median(np.abs(logs - np.median(logs, axis=1, keepdims=True))))
        for values in logs[:first].tolist():
            for name, centre in CENTRES.items():
                squares[name].append(centre(values, scale) ** 2)
    return {name: math.sqrt(np.mean(found)) for name, found in squares.items()}


def coverage(
    random: np.random.Generator, noise: Noise, pairs: int, runs: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The share of 95 % intervals that hold the truth, and their median half-width: of each comparison alone, and with
    what the run leads to expect."""
    found: list[tuple[float, float, float, float]] = []
    for _ in range(runs):
        logs = run_of(random, noise, pairs).tolist()
        prior = estimate_prior(map(trimmed_variance, logs))
        for values in logs:
            alone, shrunk = trimmed_mean(values), trimmed_mean(values, prior)
            margins = alone.margin(0.95), shrunk.margin(0.95)
            found.append((abs(alone.centre) <= margins[0], abs(alone.centre) <= margins[1], *margins))
    held, widths = np.asarray(found)[:, :2], np.asarray(found)[:, 2:]
    return tuple(held.mean(axis=0).tolist()), tuple(np.median(widths, axis=0).tolist())


def agreement(random: np.random.Generator, pairs: int, runs: int) -> float:
    """The share of intervals of variants that hold themselves up in which the ratio of the mean latencies lies."""
    agree: list[bool] = []
    for _ in range(runs):
        logs = run_of(random, held_up, pairs)
        prior = estimate_prior(map(trimmed_variance, logs.tolist()))
        for values in logs[: len(logs) // 10]:
            found = trimmed_mean(values.tolist(), prior)
            agree.append(abs(found.centre + math.log(np.exp(-values).mean())) <= found.margin(0.95))
    return float(np.mean(agree))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--pairs", type=int, nargs="+", default=[3, 5, 7, 10, 15])
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    random = np.random.default_rng(given.seed)
    print("error of each centre")
    for name, noise in NOISES.items():
        for pairs in given.pairs:
            each = errors(random, noise, pairs, given.runs)
            print(f"{name:16} {pairs:3} ", *(f"{centre} {error:.1%} " for centre, error in each.items()))
    for pairs in given.pairs:
        each = errors(random, held_up, pairs, given.runs, COMPARISONS // 10)
        print(f"{'held up':16} {pairs:3} ", *(f"{centre} {error:.1%} " for centre, error in each.items()))
        print(f"ratio of mean latencies within its interval {agreement(random, pairs, given.runs):.1%}")
    print("intervals that hold the truth, alone and with the run's others; median half-width, alone and with them")
    for name, noise in NOISES.items():
        for pairs in given.pairs:
            held, widths = coverage(random, noise, pairs, given.runs)
            print(f"{name:16} {pairs:3} ", *(f"{share:6.1%}" for share in (*held, *widths)))


if __name__ == "__main__":
    main()
