"""How often a variant that is exactly at the limit on quality is called within it, or beyond it, where scoring stops
once the limit is decided.

    python tools/measure_stopping.py [RUNS] [VARIANT,…]

The losses are those of the embedded model on the embedded corpus, each variant's shifted so that its perplexity is the
limit's. A run draws stretches of STRETCH tokens from them with replacement, looks at samples that double, and stops by
the rule of a session. Prints the share of runs that claim either side, of which the report's 95 % interval allows 2.5 %
each, and the looks 0.1 % more.
"""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
from embedded import load_embedded
from numpy.typing import NDArray

from llm_bench_fixtures.answer.need import DEFAULT_LIMIT, DEFAULT_NEED
from llm_bench_fixtures.answer.standings import is_decided
from llm_bench_fixtures.measure.quality import score_part
from llm_bench_fixtures.measure.windows import FIRST_TOKENS, WindowPlan
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.session.samples import ENOUGH
from llm_bench_fixtures.statistics.spread import NORMAL_95
from llm_bench_fixtures.workloads import read_corpus

RUNS = 10_000
REFERENCE, VARIANTS = "fp32", "bf16,bnb-int8,bnb-nf4,bnb-fp4"
STRETCH = 32  # tokens, so that what neighbours have in common stays


def losses(variant: str) -> NDArray[np.float64]:
    """(n,) nats of the corpus' tokens, in its order."""
    with quiet_libraries():
        return score_part(load_embedded(variant), read_corpus(None), WindowPlan()).score.nll.astype(float)


def claim(gaps: NDArray[np.float64]) -> str:
    """What the report says of a variant whose tokens have these gaps, once the session stops scoring."""
    end, look = FIRST_TOKENS, 1
    while True:
        seen = gaps[:end]
        ratio = float(np.exp(seen.mean()))
        error = ratio * float(seen.std(ddof=1)) / len(seen) ** 0.5
        quality = {"ppl_ratio": ratio, "ppl_ratio_error": error}
        is_enough = error <= ENOUGH * ratio or is_decided(quality, DEFAULT_NEED.limits, look)
        if is_enough or end >= len(gaps):
            break
        end, look = 2 * end, look + 1
    if ratio + NORMAL_95 * error <= DEFAULT_LIMIT.bound:
        return "within"
    return "beyond" if ratio - NORMAL_95 * error > DEFAULT_LIMIT.bound else "undecided"


def main(arguments: list[str]) -> None:
    runs, names = int(arguments[0]) if arguments else RUNS, (arguments[1:] or [VARIANTS])[0].split(",")
    reference, coin = losses(REFERENCE), np.random.default_rng(0)
    for name in names:
        gaps = losses(name) - reference
        gaps += np.log(DEFAULT_LIMIT.bound) - gaps.mean()
        starts = coin.integers(len(gaps) - STRETCH, size=(runs, len(gaps) // STRETCH))
        found = Counter(claim(gaps[np.add.outer(drawn, range(STRETCH)).ravel()]) for drawn in starts)
        shares = ", ".join(f"{share}: {found[share] / runs:.2%}" for share in ("within", "beyond", "undecided"))
        print(f"{name}: {shares} of {runs:,} runs", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
