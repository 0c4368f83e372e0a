"""Whole runs on the device, each in a process of its own as users start them."""

from __future__ import annotations

import pytest
import torch
from pytester_bench import Bench

pytestmark = pytest.mark.cuda("a run measures there")

OWN = "def test_mine(llm_benchmark): llm_benchmark('Hello')"
CONFTEST = """
    from llm_bench_fixtures import Variant

    def pytest_llm_bench_variants():
        return [Variant("too-big", "greedy_backend", "asks for 4 PB")]
"""
BACKEND = """
    from llm_bench_fixtures import Backend

    def load(request):
        import torch

        torch.empty(1 << 50, device=request.device.name)

    BACKEND = Backend(load)
"""


def test_the_variants_take_turns_on_the_device_and_one_that_does_not_fit_is_a_row(bench: Bench) -> None:
    """Each in a process of its own, in whole rounds: nothing is suspended while kernels run."""
    bench.write(conftest=CONFTEST, greedy_backend=BACKEND, test_own=OWN)
    options = ("--llm-device=cuda:0", "--llm-variants=fp32,bf16,fp16,too-big")
    result = bench.pytester.runpytest_subprocess(*bench.in_turns, *bench.short, *options)
    result.assert_outcomes(passed=3, errors=1)
    assert bench.results()["provenance"]["device"] == "cuda:0"
    variants = bench.variants()
    assert variants["too-big"]["status"] == "error"
    assert variants["too-big"]["reason"].startswith("OutOfMemory: too-big: out of memory, ")
    measured = [record for record in bench.records() if record["status"] == "measured"]
    assert [record["variant"] for record in measured] == ["fp32", "bf16", "fp16"]
    assert all(record["memory"]["cuda_allocated_bytes"] > 0 for record in measured)


def test_the_first_device_is_the_default(bench: Bench) -> None:
    bench.write(test_own=OWN)
    result = bench.pytester.runpytest_subprocess(*bench.isolated, *bench.short)
    result.assert_outcomes(passed=1)
    assert bench.results()["provenance"]["device"] == "cuda:0"


def test_a_device_that_is_not_there_is_refused(bench: Bench) -> None:
    bench.write(test_own=OWN)
    beyond = f"cuda:{torch.cuda.device_count()}"
    result = bench.pytester.runpytest_subprocess(*bench.isolated, *bench.short, f"--llm-device={beyond}")
    assert result.ret != 0
    result.stdout.fnmatch_lines([f"*--llm-device {beyond}: torch * finds {torch.cuda.device_count()} CUDA devices*"])
