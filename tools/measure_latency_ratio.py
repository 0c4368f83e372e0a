"""The latency that a record reports against a bare `generate` loop in the process of the same variant.

Runs pytest on a file made for the purpose. Each of its tests is a block: the variants take turns at some rounds, and
then each of them runs as many rounds of a bare loop on the same tensors, in its own process. So turns and bare loops
alternate. Prints for each variant the geometric mean over the blocks of (median of the record's rounds / median of the
bare loop's), with a 95 % interval. A bare loop's median is the geometric mean of the one before the turns and the one
after them, so that a drift of the machine's speed falls on both.

    python tools/measure_latency_ratio.py [BLOCKS] [any option of pytest]

The variants are those of --llm-variants, by default fp32, bf16, ort-fp32, ort-int8-dynamic and bnb-nf4. With
--llm-in-process each is measured alone, in one process with pytest.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from suites import leading_number, mean_ratio, run_written

BLOCKS = 30
ROUNDS = 10
VARIANTS = "fp32,bf16,ort-fp32,ort-int8-dynamic,bnb-nf4"
SUITE = """
import statistics
import time

import pytest
import torch

from llm_bench_fixtures.processes.calm import fall_asleep

FOUND = {{}}

def bare(model, prompt, rounds):
    ids = torch.tensor([prompt], device=model.device.name)
    mask = torch.ones_like(ids)
    seconds = []
    for _ in range(rounds + 1):
        model.device.synchronize()
        started = time.perf_counter()
        with torch.inference_mode():
            output = model.module.generate(ids, attention_mask=mask, max_new_tokens=16)
        model.device.synchronize()
        seconds.append(time.perf_counter() - started)
        assert output.shape[1] == ids.shape[1] + 16, "the text ended"
    fall_asleep()
    return statistics.median(seconds[1:])

@pytest.mark.parametrize("block", range({blocks}))
def test_block(llm_benchmark, llm_model, llm_prompts, block):
    prompt = llm_prompts.exact(64)
    found = FOUND.setdefault(llm_model.variant.id, [])
    record = llm_benchmark(prompt, new_tokens=16)
    found.append((statistics.median(record.rounds_s), llm_model.call(bare, prompt, {rounds})))
"""


class Block(NamedTuple):
    """Medians in seconds."""

    record_s: float
    bare_s: float
    """Median latency of the loop after the record's rounds."""


def main(arguments: list[str]) -> None:
    blocks = leading_number(arguments, BLOCKS)
    text = SUITE.format(blocks=blocks + 1, rounds=ROUNDS)  # the first block isn't counted
    options = (f"--llm-rounds={ROUNDS}", "--llm-max-noise=0", f"--llm-variants={VARIANTS}")
    found = run_written("test_ratio.py", text, *options, *arguments)
    found.check()
    for variant, of_variant in found.by_variant.items():
        print(f"{variant:17s} {describe(ratios([Block(*block) for block in of_variant]))}")


def ratios(blocks: Sequence[Block]) -> list[float]:
    """The first block isn't counted: no bare loop ran before its rounds."""
    return [now.record_s / math.sqrt(before.bare_s * now.bare_s) for before, now in pairwise(blocks)]


def describe(values: Sequence[float]) -> str:
    return (
        f"record / bare generate: {mean_ratio(values)}, median {statistics.median(values):.4f}; "
        f"{len(values)} blocks of {ROUNDS} rounds each"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
