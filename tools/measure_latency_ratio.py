"""The latency that a record reports against a bare `generate` loop, alternated with it in one process.

Runs pytest on a file made for the purpose. Each of its tests is a block: some rounds through the `llm_benchmark`
fixture and as many of a bare loop on the same model and tensors, the one first in even blocks and the other in odd
ones. Prints the median over the blocks of (record's latency / bare loop's median), with a 95 % interval.

    python tools/measure_latency_ratio.py [BLOCKS] [any option of pytest]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

BLOCKS = 40
ROUNDS = 10
SUITE = """
import statistics, time
import pytest, torch

RATIOS = []

def bare(model, prompt, rounds):
    ids = torch.tensor([prompt], device=model.device.name)
    mask = torch.ones_like(ids)
    seconds = []
    for _ in range(rounds + 1):
        model.device.synchronize()
        started = time.perf_counter()
        with torch.inference_mode():
            model.model.module.generate(ids, attention_mask=mask, min_new_tokens=16, max_new_tokens=16)
        model.device.synchronize()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[1:])

@pytest.mark.parametrize("block", range({blocks}))
def test_block(llm_benchmark, llm_model, llm_prompts, block):
    prompt = llm_prompts.exact(64)
    bare_s = bare(llm_model, prompt, {rounds}) if block % 2 else None
    record = llm_benchmark(prompt, new_tokens=16)
    bare_s = bare_s or bare(llm_model, prompt, {rounds})
    RATIOS.append(statistics.median(record.rounds_s) / bare_s)
"""


class Ratios:
    """Takes the ratios out of the test module when the run is over."""

    values: list[float]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.values = session.items[0].module.RATIOS  # type: ignore[attr-defined]


def main(arguments: list[str]) -> None:
    blocks = int(arguments.pop(0)) if arguments and arguments[0].isdecimal() else BLOCKS
    ratios = Ratios()
    with tempfile.TemporaryDirectory() as folder:
        suite = Path(folder) / "test_ratio.py"
        suite.write_text(SUITE.format(blocks=blocks, rounds=ROUNDS))
        report = f"--llm-report={folder}/report"
        options = [
            f"--llm-rounds={ROUNDS}",
            "--llm-max-noise=0",
            "--llm-variants=fp32",
            "--rootdir",
            folder,
            report,
            "-p",
            "no:terminal",
        ]
        status = pytest.main([str(suite), *options, *arguments], plugins=[ratios])
    if status:
        sys.exit(f"pytest ended with {status}")
    logs = np.log(ratios.values)
    low, high = stats.t.interval(0.95, len(logs) - 1, loc=logs.mean(), scale=stats.sem(logs))
    print(
        f"record / bare generate: median {statistics.median(ratios.values):.4f}, "
        f"geometric mean {np.exp(logs.mean()):.4f} (95 % interval {np.exp(low):.4f} to {np.exp(high):.4f}), "
        f"{blocks} blocks of {ROUNDS} rounds each"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
