"""What comparing with a reference loses where its probabilities are sampled because there is no room for all.

Keeps the embedded model's distributions over the embedded corpus in files of several sizes, and prints how far other
variants are from it by each, with the stated errors.

    python tools/measure_reference.py [VARIANT,...]
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path
from unittest import mock

from embedded import load_embedded

from llm_bench_fixtures.measure import quality
from llm_bench_fixtures.measure.reference_files import BUDGET_BYTES, plan_layout
from llm_bench_fixtures.measure.windows import WindowPlan
from llm_bench_fixtures.workloads import read_corpus

BUDGETS = (BUDGET_BYTES, 8 << 20, 1 << 20)
SHOWN = (("kld_mean", "kld_error"), ("kld_p99", "kld_p99_error"))


def main(variants: str) -> None:
    corpus, plan = read_corpus(None), WindowPlan()
    with tempfile.TemporaryDirectory() as name:
        reference = load_embedded()
        for budget in BUDGETS:
            with mock.patch.object(quality, "plan_layout", partial(plan_layout, budget_bytes=budget)):
                quality.score_part(reference, corpus, plan, keep=Path(name) / str(budget))
        for variant in variants.split(","):
            model = load_embedded(variant)
            for budget in BUDGETS:
                part = quality.score_part(model, corpus, plan, compare_with=Path(name) / str(budget))
                found = quality.corpus_metrics(part)
                cells = [f"{value} {found[value]:.3g} ± {found.get(error, 0.0):.2g}" for value, error in SHOWN]
                print(f"{variant:8s} {budget >> 20:4d} MiB   " + "   ".join(cells), flush=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "bf16,bnb-nf4")
