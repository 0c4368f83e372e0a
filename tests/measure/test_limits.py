from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import psutil
import pytest
import torch

from llm_bench_fixtures.measure import limits
from llm_bench_fixtures.measure.limits import measure_limits, rate_of_all
from llm_bench_fixtures.models.device import Device, DeviceKind
from llm_bench_fixtures.models.variants import Precision

if TYPE_CHECKING:
    from conftest import FakeClock

FLOAT32, FLOAT16, BFLOAT16 = Precision.FLOAT32, Precision.FLOAT16, Precision.BFLOAT16


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CPU_BUFFER_BYTES", 1 << 20)
    monkeypatch.setattr(limits, "SMALLEST_MATRIX", 16)
    monkeypatch.setattr(limits, "LARGEST_MATRIX", 64)


class StepClock:
    """Each reading is 10 ms after the one before it; or as many as `steps_s` says."""

    def __init__(self, *steps_s: float) -> None:
        self.steps_s = itertools.chain(steps_s, itertools.repeat(0.010))
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += next(self.steps_s)
        return self.now_s


def test_a_mebibyte_read_in_10_ms_is_100_mebibytes_a_second(cpu: Device) -> None:
    assert measure_limits(cpu, (), budget_s=1, clock=StepClock()).read_bytes_per_s == pytest.approx(100 * 2**20)


def test_a_product_of_64_in_10_ms_is_2_times_64_cubed_a_hundred_times_a_second(cpu: Device) -> None:
    """Twice the size, eight times as long, twice: that fits each time, so the largest is the last."""
    found = measure_limits(cpu, [FLOAT32], budget_s=1, clock=StepClock())
    assert found.matmul_flops_per_s[FLOAT32] == pytest.approx(2 * 64**3 * 100)


def test_a_product_that_takes_long_is_large_enough(cpu: Device) -> None:
    """Half a second for the products; each takes 100 ms, and one of twice the size would take 800."""
    clock = StepClock(*itertools.repeat(0.1, 100))
    found = measure_limits(cpu, [FLOAT32], budget_s=1, clock=clock)
    assert found.matmul_flops_per_s[FLOAT32] == pytest.approx(2 * 16**3 * 10)


def test_a_limit_is_the_best_run_and_the_first_is_not_counted(cpu: Device) -> None:
    """Readings: the share's start, then start and end of each run, and the check of the time left after it."""
    first, slow, fast = (0.01, 0.001), (0.01, 0.05), (0.01, 0.02)
    clock = StepClock(0.01, *first, *slow, 0.01, *fast, 0.01, *slow)
    assert measure_limits(cpu, (), budget_s=0.12, clock=clock).read_bytes_per_s == pytest.approx(2**20 / 0.02)


def test_there_is_a_figure_however_small_the_budget(cpu: Device) -> None:
    found = measure_limits(cpu, [FLOAT32, BFLOAT16], budget_s=0)
    rates = [found.read_bytes_per_s, *found.matmul_flops_per_s.values()]
    assert len(rates) == 3
    assert all(math.isfinite(rate) and rate > 0 for rate in rates)


def test_the_time_stays_near_the_budget(cpu: Device) -> None:
    clock = StepClock(*itertools.repeat(0.001, 10_000))
    measure_limits(cpu, [FLOAT32, BFLOAT16], budget_s=0.6, clock=clock)
    assert clock.now_s == pytest.approx(0.6, abs=0.05)


@pytest.mark.parametrize("smallest_s", [0.0001, 0.0007, 0.003, 0.01, 0.05])
def test_a_size_that_does_not_fit_is_not_tried(
    smallest_s: float, cpu: Device, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of products that take eight times as long at twice the size; reading takes no time to speak of."""
    monkeypatch.setattr(limits, "LARGEST_MATRIX", 8192)
    monkeypatch.setattr(limits, "memory_read", lambda device, rows: lambda: clock.advance(0.01))
    monkeypatch.setattr(
        limits, "matrix_product", lambda device, precision, size: lambda: clock.advance(smallest_s * (size / 16) ** 3)
    )
    found = measure_limits(cpu, [FLOAT32, BFLOAT16], budget_s=2, clock=clock)
    assert clock.now_s == pytest.approx(2, rel=0.1)
    assert found.matmul_flops_per_s[FLOAT32] == pytest.approx(2 * 16**3 / smallest_s)


def test_float16_on_a_cpu_has_no_ceiling(cpu: Device) -> None:
    found = measure_limits(cpu, [FLOAT16, FLOAT32, FLOAT32], budget_s=0)
    assert set(found.matmul_flops_per_s) == {FLOAT32}


def test_no_more_than_an_eighth_of_the_free_memory_is_read(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=8 << 16))
    assert measure_limits(cpu, (), budget_s=0, clock=StepClock()).read_bytes_per_s == pytest.approx(100 << 16)


def test_each_clock_reading_of_a_run_comes_when_the_device_is_idle() -> None:
    events: list[str] = []

    def clock() -> float:
        events.append("clock")
        return float(len(events))

    class WatchedDevice:
        kind, name, free_bytes = DeviceKind.CPU, "cpu", 1 << 30

        def synchronize(self) -> None:
            events.append("synchronize")

        def release_cached_memory(self) -> None:
            events.append("release")

    measure_limits(cast(Device, WatchedDevice()), (), budget_s=0, clock=clock)
    one_run = ["synchronize", "clock", "synchronize", "clock"]
    assert events == ["clock", *one_run, *one_run, "clock", "release"]


def test_weights_in_several_places_are_read_one_place_after_the_other(cpu: Device) -> None:
    """100 bytes in memory take 2 s; 100 on disk 10 s until they are in memory, and then 2 s more."""
    assert rate_of_all({"cpu": 100, "disk": 100}, {"cpu": 50.0, "disk": 10.0}, cpu) == pytest.approx(200 / 14)
    two = Device(DeviceKind.CUDA, "cuda:0", "two accelerators", ("cuda:1",))
    assert rate_of_all({"cuda:0": 100, "cuda:1": 300}, {"cuda:0": 50.0, "cuda:1": 100.0}, two) == pytest.approx(80)


def test_the_models_own_settings_of_torch_are_left_alone(cpu: Device) -> None:
    before = torch.get_num_threads(), torch.get_float32_matmul_precision()
    measure_limits(cpu, [FLOAT32], budget_s=0)
    assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == before


def test_an_accelerator_multiplies_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: it multiplied ones, which take less power than a model's numbers."""
    factors: list[torch.Tensor] = []
    monkeypatch.setattr(torch, "mm", lambda left, right, out: factors.extend((left, right)))
    limits.matrix_product(Device(DeviceKind.CUDA, "cpu", "an accelerator"), FLOAT32, 64)()
    assert all(factor.std() > 0.5 for factor in factors)
