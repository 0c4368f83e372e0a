"""Tests that need a CUDA device; elsewhere they are skipped. `python tools/first_gpu_run.py` runs them first."""

from __future__ import annotations

import pytest
import torch
from pytester_bench import (  # noqa: F401  # pytest finds fixtures by their names in a conftest.py
    Bench,
    bench,
    bench_cache,
    plot_settings,
    short_corpus,
)

from llm_bench_fixtures.models.device import Device, resolve_device


def pytest_runtest_setup(item: pytest.Item) -> None:
    marker = item.get_closest_marker("cuda")
    if marker is not None and not torch.cuda.is_available():
        pytest.skip(f"needs a CUDA device: {marker.args[0]}")


@pytest.fixture(scope="session")
def gpu() -> Device:
    return resolve_device("cuda")


@pytest.fixture(scope="session")
def real_gpu(gpu: Device) -> Device:
    """Not one that tests/cuda/pretend pretends, which has no memory and no kernels of its own."""
    if "pretended" in gpu.hardware:
        pytest.skip("the device is pretended")
    return gpu


@pytest.fixture(scope="session")
def imported_libraries() -> None:
    """Nothing: runs are in processes of their own here."""
