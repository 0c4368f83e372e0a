"""A model's layers in several places, as its users run it."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("accelerate")

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Bench

SUITE = """
def test_own(llm_benchmark):
    llm_benchmark("Hello")
"""
HALF = '{"": "cpu", "transformer.h.1": "disk"}'


@pytest.mark.parametrize("in_process", [False, True])
def test_weights_memory_and_bandwidth_are_reported_by_place(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_process: bool
) -> None:
    """What can't be spread is skipped with its reason, and no folder is left of the weights on disk."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    bench.write(test_own=SUITE)
    run = bench.run if in_process else bench.run_in_turns
    result = run("--llm-device-map", HALF, "--llm-variants=fp32,compile-fp32", "--llm-limits-time=0.1", "-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*compiled keeps a model on one device: leave --llm-device-map out"])
    found = bench.variants()["fp32"]
    assert found["weight_bytes_by_device"].keys() == found["read_bytes_per_s_by_device"].keys() == {"cpu", "disk"}
    assert sum(found["weight_bytes_by_device"].values()) == found["weight_bytes"]
    assert found["read_bytes_per_s"] < found["read_bytes_per_s_by_device"]["cpu"]
    assert bench.results()["provenance"]["options"]["device_map"] == HALF
    assert "accelerate" in bench.results()["provenance"]["libraries"]
    assert "Weights, memory and bandwidth by device" in bench.page()
    assert not list(tmp_path.glob("llm-bench-offload-*"))


def test_a_map_of_another_model_is_refused_before_anything_is_loaded(bench: Bench) -> None:
    bench.write(test_own=SUITE)
    result = bench.run("--llm-device-map", '{"": "cpu", "model.layers.0": "disk"}')
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*--llm-device-map: unknown part of the model 'model.layers.0'.*"])
