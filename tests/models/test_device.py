from __future__ import annotations

import pytest
import torch

from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.models import device
from llm_bench_fixtures.models.device import Device, DeviceKind, ResolvedPrecision, resolve_device, resolve_precision
from llm_bench_fixtures.models.variants import Precision

CUDA = Device(DeviceKind.CUDA, "cuda:0", "an accelerator")


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: f"accelerator {number}")
    monkeypatch.setattr(device, "_processor_name", lambda: "a processor, 2 cores")


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


def test_float16_on_a_cpu_resolves_to_float32_and_says_so(cpu: Device) -> None:
    resolved = resolve_precision(Precision.FLOAT16, cpu)
    assert resolved.label == "float32 (float16 requested; CPU)"


def test_the_resolved_dtype_is_the_one_that_runs(cpu: Device) -> None:
    assert resolve_precision(Precision.FLOAT16, cpu).torch_dtype is torch.float32


@pytest.mark.parametrize("precision", [Precision.FLOAT32, Precision.BFLOAT16])
def test_other_dtypes_run_on_a_cpu_as_asked(precision: Precision, cpu: Device) -> None:
    assert resolve_precision(precision, cpu) == ResolvedPrecision(precision, precision)


def test_float16_on_an_accelerator_runs_as_asked() -> None:
    assert resolve_precision(Precision.FLOAT16, CUDA).label == "float16"


def test_every_precision_has_its_torch_dtype() -> None:
    dtypes = [ResolvedPrecision(precision, precision).torch_dtype for precision in Precision]
    assert dtypes == [torch.float32, torch.float16, torch.bfloat16]


def test_auto_without_an_accelerator_is_the_cpu(no_gpu: None) -> None:
    found = resolve_device("auto")
    assert (found.kind, found.name) == (DeviceKind.CPU, "cpu")


def test_auto_with_a_gpu_is_the_first_gpu(two_gpus: None) -> None:
    """Bug: the processor that feeds it was not named, on which the time of a small model's steps depends."""
    assert resolve_device("auto") == Device(DeviceKind.CUDA, "cuda:0", "accelerator 0, a processor, 2 cores")


def test_auto_with_apples_device_is_that(no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert resolve_device("auto").kind is DeviceKind.MPS


def test_cuda_alone_is_the_first_gpu(two_gpus: None) -> None:
    assert resolve_device("cuda").name == "cuda:0"


def test_a_numbered_gpu_is_that_one(two_gpus: None) -> None:
    assert resolve_device("cuda:1") == Device(DeviceKind.CUDA, "cuda:1", "accelerator 1, a processor, 2 cores")


def test_a_gpu_beyond_the_last_is_refused_and_the_count_is_said(two_gpus: None) -> None:
    with pytest.raises(InvalidSetting, match=r"--llm-device cuda:2: torch .* finds 2 CUDA devices"):
        resolve_device("cuda:2")


def test_layers_are_spread_over_all_gpus_from_the_chosen_one_on(two_gpus: None) -> None:
    assert resolve_device("auto", {}) == Device(
        DeviceKind.CUDA, "cuda:0", "accelerator 0, accelerator 1, a processor, 2 cores", ("cuda:1",)
    )
    assert resolve_device("cuda:1", {}).names == ("cuda:1",)


def test_a_map_says_which_devices_compute(two_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_device("auto", {"": "cpu", "lm_head": 1}).names == ("cuda:1",)
    assert resolve_device("auto", {"": "cpu", "lm_head": "disk"}).name == "cpu"
    both = resolve_device("cuda", {"": 1, "lm_head": 0})
    assert both.names == ("cuda:0", "cuda:1")
    free, waited = {"cuda:0": 30, "cuda:1": 12}, []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda name: (free[name], 100))
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    both.synchronize()
    assert (both.free_bytes, waited) == (42, ["cuda:0", "cuda:1"])


@pytest.mark.parametrize(
    ("requested", "device_map", "message"),
    [
        ("cpu", {"": 0}, "--llm-device cpu: --llm-device-map computes on cuda:0; leave one of them out"),
        ("cuda", {"": "cpu"}, "--llm-device cuda: --llm-device-map computes on cpu"),
        ("auto", {"": 0, "lm_head": 2}, r"--llm-device-map cuda:2: torch .* finds 2 CUDA devices"),
        ("mps", {}, "the CPU's memory and disk: add --llm-device cpu"),
    ],
)
def test_a_map_that_does_not_go_with_the_devices_is_refused(
    two_gpus: None, requested: str, device_map: dict[str, int | str], message: str
) -> None:
    with pytest.raises(InvalidSetting, match=message):
        resolve_device(requested, device_map)


def test_cuda_without_a_gpu_is_refused(no_gpu: None) -> None:
    with pytest.raises(InvalidSetting, match=r"--llm-device cuda: torch .* finds 0 CUDA devices"):
        resolve_device("cuda")


def test_mps_without_apples_device_is_refused(no_gpu: None) -> None:
    with pytest.raises(InvalidSetting, match="--llm-device mps: torch finds no Apple device"):
        resolve_device("mps")


def test_a_cpu_needs_no_waiting_and_gives_memory_back_without_error(cpu: Device) -> None:
    cpu.synchronize()
    cpu.release_cached_memory()
