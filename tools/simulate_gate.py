"""How often the stored gate calls a speed-up changed, and which slowdowns it finds: simulated runs, no model.

python tools/simulate_gate.py --comparisons 600

Each comparison has two runs of 11 variants with 24 tests each, of some rounds. The logarithm of a round's ratio
scatters by 3 %, and that of a test by 1.8 % from run to run, as two processes do on a single workload. Given a process
deviation, each variant of each run is off by so much in all of its tests alike, besides, and so is the reference.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from llm_bench_fixtures.gate.margins import SpeedupChange, SpeedupChanges, speedup_changes
from llm_bench_fixtures.results.metrics import METRICS
from llm_bench_fixtures.results.record import Record, Status
from llm_bench_fixtures.results.speedup import with_expected_variance

VARIANTS, TESTS = 11, 24
SLOWER = (1.05, 1.075, 1.10, 1.15, 1.20, 1.25, 1.30)
TOLERANCE = next(metric.default_tolerance.relative for metric in METRICS if metric.name == "speedup")
Floats = NDArray[np.float64]


def run_of(random: np.random.Generator, rounds: int, deviation: float, slower: Floats) -> Iterator[Record]:
    """A run whose reference takes a second in each round. slower: (VARIANTS, TESTS), factors of the others' times."""
    logs = 0.03 * random.standard_normal((VARIANTS, TESTS, rounds))
    logs += 0.018 * random.standard_normal((VARIANTS, TESTS, 1)) + deviation * random.standard_normal((VARIANTS, 1, 1))
    logs -= deviation * random.standard_normal()  # what the reference's process is off by
    times_s: Floats = slower[:, :, None] * np.exp(logs)
    for variant, test in np.ndindex(VARIANTS, TESTS):
        yield Record(
            test=f"{variant}-{test}",
            scenario="",
            case=str(test),
            variant=str(variant),
            status=Status.MEASURED,
            rounds_s=tuple(times_s[variant, test].tolist()),
            reference_s=(1.0,) * rounds,
        )


def compared(random: np.random.Generator, rounds: int, deviation: float, slower: Floats) -> SpeedupChanges:
    """A run against one in which some tests take longer."""
    same = np.ones((VARIANTS, TESTS))
    runs = (with_expected_variance(run_of(random, rounds, deviation, factors)) for factors in (same, slower))
    return speedup_changes(zip(*runs, strict=True), "reference")


def is_slower(change: SpeedupChange, tolerance: float) -> bool:
    return math.log(change.base / change.head) > max(change.margin, math.log1p(tolerance))


def is_changed(found: SpeedupChanges, tolerance: float) -> bool:
    """Whether anything is called regressed or improved."""
    both = (*found.tests.values(), *found.variants.values())
    return any(abs(math.log(one.base / one.head)) > max(one.margin, math.log1p(tolerance)) for one in both)


def alarms(random: np.random.Generator, rounds: int, deviation: float, comparisons: int) -> str:
    """Shares of comparisons of equal versions that call anything changed: without a tolerance, and with it."""
    equal = np.ones((VARIANTS, TESTS))
    found = [compared(random, rounds, deviation, equal) for _ in range(comparisons)]
    shares = (sum(is_changed(one, tolerance) for one in found) / comparisons for tolerance in (0.0, TOLERANCE))
    return "  ".join(f"{share:6.1%}" for share in shares)


def detections(random: np.random.Generator, rounds: int, deviation: float, comparisons: int) -> Iterator[str]:
    """How often one variant with a slowdown is found, and one test of another variant, for each slowdown."""
    for factor in SLOWER:
        slower = np.ones((VARIANTS, TESTS))
        slower[0], slower[1, 0] = factor, factor
        found = [compared(random, rounds, deviation, slower) for _ in range(comparisons)]
        variant = sum(is_slower(one.variants["0"], TOLERANCE) for one in found) / comparisons
        test = sum(is_slower(one.tests["1-0"], TOLERANCE) for one in found) / comparisons
        yield f"+{factor - 1:.1%}: {variant:.2f} {test:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comparisons", type=int, default=100)
    parser.add_argument("--rounds", type=int, nargs="+", default=[3, 6, 10])
    parser.add_argument("--deviations", type=float, nargs="+", default=[0.0, 0.01, 0.02])
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    random = np.random.default_rng(given.seed)
    print("rounds  deviation  false alarms without and with the tolerance  slowdown: found in a variant, in a test")
    for rounds in given.rounds:
        for deviation in given.deviations:
            wrong = alarms(random, rounds, deviation, given.comparisons)
            print(f"{rounds:6}  {deviation:9.0%}  {wrong}", *detections(random, rounds, deviation, given.comparisons))


if __name__ == "__main__":
    main()
