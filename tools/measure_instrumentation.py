"""What taking each token's time costs, as `benchmarks/test_overhead.py` measures it, over as many pairs as wanted.

Alternates `generate` of the embedded model with its tokens' times taken and without, and prints the geometric mean of
(seconds with / seconds without) over the pairs, with a 95 % interval.

    python tools/measure_instrumentation.py [PAIRS]
"""

from __future__ import annotations

import math
import sys

from embedded import load_embedded

from llm_bench_fixtures.measure.timing import instrumentation_ratios
from llm_bench_fixtures.statistics.spread import interval
from llm_bench_fixtures.workloads import Prompts, Workload

PAIRS = 1000
PROMPT_TOKENS = 64
NEW_TOKENS = 16


def main(pairs: int) -> None:
    model = load_embedded()
    workload = Workload((Prompts(model.tokenizer).exact(PROMPT_TOKENS),), NEW_TOKENS, batch_size=1)
    ratios = instrumentation_ratios(model, workload, pairs, math.inf)
    found = interval(ratios)
    mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    if found is None:
        sys.exit("two pairs at least")
    print(f"with / without: {mean:.4f} (95 % interval {found.low:.4f} to {found.high:.4f}, {len(ratios)} pairs)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS)
