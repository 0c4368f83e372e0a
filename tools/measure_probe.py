"""What interleaving the probe changes in the times, and how much steadier dividing by it makes them.

Runs pytest on a file made for the purpose. In one process it times rounds with the probe before them and rounds
without it in turn, either first by a seeded coin. Prints for each variant:

- of the latency and of the time to its first token, the geometric mean over the pairs of (seconds with / seconds
  without), with a 95 % interval;
- the standard deviation of the logarithm of the median latency of 20 rounds, raw and divided by their probe's level.

    python tools/measure_probe.py [PAIRS] [any option of pytest]
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Sequence
from typing import NamedTuple

from suites import leading_number, mean_ratio, run_written

from llm_bench_fixtures.results.noise import probe_level_s, probe_medians_s

PAIRS = 1000
BLOCK = 20
SUITE = """
import random
import sys

from llm_bench_fixtures.measure.limits import run_probe
from llm_bench_fixtures.measure.timing import run_round
from llm_bench_fixtures.workloads import Workload

FOUND = {{}}

def test_pairs(llm_model, llm_prompts):
    name = llm_model.variant.id
    workload = Workload((llm_prompts.exact(64),), 16, batch_size=1)
    coin = random.Random(0)
    FOUND[name] = []
    for number in range({pairs} + 1):
        rounds = {{}}
        for is_probed in coin.sample((True, False), 2):
            if is_probed:
                probe_s = llm_model.call(run_probe)
            rounds[is_probed] = llm_model.call(run_round, workload)
        if number:  # the first pair is not counted
            FOUND[name].append((rounds[True], rounds[False], probe_s))
        if number % 10 == 0:
            print(f"\\r{{name}}: {{number}} of {pairs} pairs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
"""


class Times(NamedTuple):
    latency_s: float
    ttft_s: float


class Pair(NamedTuple):
    """A round with the probe before it, one without, and what the probe took."""

    probed: Times
    bare: Times
    probe_s: tuple[float, float]


def main(arguments: list[str]) -> None:
    pairs = leading_number(arguments, PAIRS)
    found = run_written("test_probe.py", SUITE.format(pairs=pairs), "--llm-variants=fp32", "-s", *arguments)
    found.check()
    for variant, rows in found.by_variant.items():
        of_variant = [
            Pair(*(Times(done.latency_s, done.batches[0].tokens_s[0]) for done in rounds), probe_s)
            for *rounds, probe_s in rows
        ]
        for line in (*cost(of_variant), stability(of_variant)):
            print(f"{variant}: {line}")


def cost(pairs: Sequence[Pair]) -> tuple[str, str]:
    products_s, reads_s = probe_medians_s([pair.probe_s for pair in pairs]) or (math.nan, math.nan)
    bare_ms = statistics.median(pair.bare.latency_s for pair in pairs) * 1000
    latency = mean_ratio([pair.probed.latency_s / pair.bare.latency_s for pair in pairs])
    ttft = mean_ratio([pair.probed.ttft_s / pair.bare.ttft_s for pair in pairs])
    probe = f"its product {products_s * 1000:.2f} ms, its read {reads_s * 1000:.2f} ms"
    return (
        f"with the probe / without, {len(pairs)} pairs: latency {latency}, time to first token {ttft}",
        f"medians: a round without the probe {bare_ms:.1f} ms, {probe}",
    )


def stability(pairs: Sequence[Pair]) -> str:
    """A block stands for a record: its median latency, and that over its probe's level."""
    blocks = [pairs[start : start + BLOCK] for start in range(0, len(pairs) - BLOCK + 1, BLOCK)]
    if len(blocks) < 2:
        return f"the variation isn't known from fewer than {2 * BLOCK} pairs"
    raw = [math.log(statistics.median(pair.probed.latency_s for pair in block)) for block in blocks]
    levels = [math.log(probe_level_s([pair.probe_s for pair in block]) or math.nan) for block in blocks]
    normalized = [log_s - level for log_s, level in zip(raw, levels, strict=True)]
    return (
        f"standard deviation of log latency over {len(blocks)} blocks: raw {statistics.stdev(raw):.1%}, of the probe "
        f"{statistics.stdev(levels):.1%}, normalized {statistics.stdev(normalized):.1%}; correlation "
        f"{statistics.correlation(raw, levels):.2f}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
