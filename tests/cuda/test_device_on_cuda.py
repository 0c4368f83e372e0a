"""The device itself: which one it is, its memory, and its clocks."""

from __future__ import annotations

import time

import pytest
import torch

from llm_bench_fixtures.measure.energy import EnergyMeter
from llm_bench_fixtures.measure.limits import fenced_s, measure_limits
from llm_bench_fixtures.measure.memory import PeakMemory
from llm_bench_fixtures.measure.timing import TokenClock
from llm_bench_fixtures.models.device import Device, DeviceKind, resolve_device
from llm_bench_fixtures.models.variants import Precision

pytestmark = pytest.mark.cuda("it asks torch.cuda")

MIB = 1 << 20
CYCLES = 300_000_000  # of the device's clock: 0.1 s or more, as none is faster than 3 GHz
LEAST_S = 0.1


def test_auto_takes_the_device(gpu: Device) -> None:
    assert resolve_device("auto") == gpu
    assert (gpu.kind, gpu.name, gpu.index) == (DeviceKind.CUDA, "cuda:0", 0)
    assert gpu.hardware.startswith(torch.cuda.get_device_name(0))


def test_the_free_memory_is_the_devices(gpu: Device) -> None:
    assert 0 < gpu.free_bytes <= torch.cuda.mem_get_info(0)[1]


def test_the_peaks_are_torchs(gpu: Device) -> None:
    with PeakMemory(gpu) as watched:
        tensor = torch.ones(MIB, device=gpu.name)
        del tensor
    assert watched.peak.cuda_allocated_bytes == torch.cuda.max_memory_allocated(0)
    assert watched.peak.cuda_reserved_bytes == torch.cuda.max_memory_reserved(0)


def test_the_peak_rises_by_what_was_allocated_for_a_moment(real_gpu: Device) -> None:
    """A buffer of 64 MiB, freed before the block is over; a larger one before the block doesn't count."""
    larger = torch.empty(128 * MIB, dtype=torch.uint8, device=real_gpu.name)
    del larger
    before = torch.cuda.memory_allocated(0)
    with PeakMemory(real_gpu) as watched:
        moment = torch.empty(64 * MIB, dtype=torch.uint8, device=real_gpu.name)
        del moment
    assert watched.peak.cuda_allocated_bytes == before + 64 * MIB
    assert (watched.peak.cuda_reserved_bytes or 0) >= 64 * MIB


def test_a_fence_waits_for_what_was_queued(gpu: Device) -> None:
    assert fenced_s(lambda: torch.cuda._sleep(CYCLES), gpu, time.perf_counter) >= LEAST_S


def test_a_fence_leaves_out_what_was_queued_before(real_gpu: Device) -> None:
    torch.cuda._sleep(CYCLES)
    assert fenced_s(lambda: None, real_gpu, time.perf_counter) < LEAST_S


def test_tokens_have_the_devices_times_and_nothing_waits(gpu: Device) -> None:
    clock = TokenClock(gpu, time.perf_counter)
    gpu.synchronize()
    clock.start()
    for _ in range(2):
        torch.cuda._sleep(CYCLES)
        clock.tick()
    gpu.synchronize()
    first_s, second_s = clock.tokens_s()
    assert first_s >= LEAST_S
    assert second_s - first_s >= LEAST_S


def test_every_precision_is_multiplied(gpu: Device) -> None:
    found = measure_limits(gpu, Precision, budget_s=1.0)
    assert found.read_bytes_per_s > 0
    assert set(found.matmul_flops_per_s) == set(Precision)


def test_joules_are_counted_or_the_reason_is_told(real_gpu: Device) -> None:
    meter = EnergyMeter(real_gpu)
    if not meter.source:
        assert meter.reason
        return
    before = meter.read()
    torch.cuda._sleep(10 * CYCLES)
    real_gpu.synchronize()
    assert meter.read() > before
