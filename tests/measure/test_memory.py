from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import DynamicCache, StaticCache

from llm_bench_fixtures.measure import memory
from llm_bench_fixtures.measure.memory import MemoryMethod, MemoryPeak, PeakMemory, cache_bytes
from llm_bench_fixtures.models.device import Device, DeviceKind, resident_bytes
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.workloads import Prompts, Side, pad_batch

MIB = 1 << 20
SLACK = 8 * MIB  # what the interpreter and torch take meanwhile


def settled_bytes(device: Device) -> int:
    """What is resident once what earlier tests freed is given back."""
    device.release_cached_memory()
    return resident_bytes()


def touched(mebibytes: int) -> torch.Tensor:
    """Memory of that size, each page of it in RAM."""
    return torch.ones(mebibytes * MIB, dtype=torch.uint8)


@pytest.fixture(params=list(MemoryMethod))
def method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> MemoryMethod:
    if request.param is MemoryMethod.SAMPLED:
        monkeypatch.setattr(memory, "CLEAR_REFS", Path("/no/such/file"))
    elif not memory._reset_high_water_mark():
        pytest.skip("this kernel's high-water mark can't be reset")
    return MemoryMethod(request.param)


def test_64_mib_are_seen_as_64_mib(method: MemoryMethod, cpu: Device) -> None:
    before = settled_bytes(cpu)
    with PeakMemory(cpu) as watched:
        held = touched(64)
    assert 64 * MIB - SLACK < watched.peak.rise_over(before) < 64 * MIB + SLACK
    assert watched.peak.method is method
    assert held.nbytes == 64 * MIB


def test_a_peak_that_is_freed_before_the_end_is_seen(method: MemoryMethod, cpu: Device) -> None:
    before = settled_bytes(cpu)
    with PeakMemory(cpu) as watched:
        held = touched(64)
        time.sleep(10 * memory.SAMPLE_EVERY_S)
        del held
    assert 64 * MIB - SLACK < watched.peak.rise_over(before) < 64 * MIB + SLACK
    assert resident_bytes() < before + SLACK


def test_what_was_taken_before_the_block_is_not_counted(method: MemoryMethod, cpu: Device) -> None:
    """Neither what is still held nor an earlier, higher peak."""
    held = touched(64)
    higher = touched(128)
    del higher
    before = settled_bytes(cpu)
    with PeakMemory(cpu) as watched:
        pass
    assert watched.peak.rise_over(before) < SLACK
    assert watched.peak.resident_bytes > held.nbytes


def test_a_block_that_fails_has_its_peak_too(cpu: Device) -> None:
    watched = PeakMemory(cpu)
    with pytest.raises(ZeroDivisionError), watched:
        _ = 1 / 0
    assert watched.peak.resident_bytes > 0


def test_a_cpu_has_no_cuda_memory(cpu: Device) -> None:
    with PeakMemory(cpu) as watched:
        pass
    assert (watched.peak.cuda_allocated_bytes, watched.peak.cuda_reserved_bytes) == (None, None)


def test_the_peaks_of_cuda_are_reset_first_and_read_when_the_device_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    def noted(name: str, value: int | None = None) -> Callable[..., int | None]:
        return lambda *arguments: events.append(f"{name} {' '.join(arguments)}".strip()) or value

    for name, value in {
        "synchronize": None,
        "empty_cache": None,
        "reset_peak_memory_stats": None,
        "max_memory_allocated": 5,
        "max_memory_reserved": 7,
    }.items():
        monkeypatch.setattr(torch.cuda, name, noted(name, value))
    with PeakMemory(Device(DeviceKind.CUDA, "cuda:1", "an accelerator")) as watched:
        events.append("block")
    assert (watched.peak.cuda_allocated_bytes, watched.peak.cuda_reserved_bytes) == (5, 7)
    assert events == [
        "synchronize cuda:1",
        "empty_cache",
        "reset_peak_memory_stats cuda:1",
        "block",
        "synchronize cuda:1",
        "max_memory_allocated cuda:1",
        "max_memory_reserved cuda:1",
    ]


def test_a_rise_is_never_negative() -> None:
    peak = MemoryPeak(100, None, None, MemoryMethod.SAMPLED)
    assert (peak.rise_over(70), peak.rise_over(130)) == (30, 0)


def test_no_cache_has_no_bytes() -> None:
    assert cache_bytes(None) == 0


def test_tuples_of_keys_and_values_are_summed_and_a_shared_storage_counted_once() -> None:
    """As Optimum returns them: a pair a layer. 2 x 3 float32 have 24 bytes."""
    keys, values = torch.zeros(2, 3), torch.zeros(2, 3)
    assert cache_bytes(((keys, values), (keys, values.T))) == 48


def test_a_layer_that_holds_nothing_yet_has_no_bytes() -> None:
    assert cache_bytes(SimpleNamespace(layers=[SimpleNamespace(keys=None, values=None)])) == 0


def test_a_layer_with_another_state_than_keys_has_the_bytes_of_its_tensors() -> None:
    layer = SimpleNamespace(conv=torch.zeros(4), states=[torch.zeros(2), None], more={0: torch.zeros(1)}, seen=7)
    assert cache_bytes(SimpleNamespace(layers=[layer])) == 28


def test_a_cache_without_layers_has_the_bytes_of_its_tensors() -> None:
    assert cache_bytes(SimpleNamespace(key_cache=[torch.zeros(4)], dtype=torch.float32)) == 16


# The embedded model keeps, for each position, a key and a value of 256 float32 in each of four layers.
POSITION = 4 * 2 * 256 * 4


def test_the_dynamic_cache_of_generate_holds_every_position_but_the_last_token(
    tiny_fp32: TransformersModel, prompts: Prompts
) -> None:
    batch = pad_batch([prompts.exact(10)] * 3, 10, Side.LEFT, 0, "cpu")
    done = tiny_fp32.module.generate(
        batch.input_ids, attention_mask=batch.attention_mask, max_new_tokens=4, return_dict_in_generate=True
    )
    assert isinstance(done.past_key_values, DynamicCache)
    assert cache_bytes(done.past_key_values) == 3 * (10 + 4 - 1) * POSITION


def test_a_static_cache_has_the_bytes_of_its_whole_buffer(tiny_fp32: TransformersModel) -> None:
    cache = StaticCache(config=tiny_fp32.module.config, max_cache_len=32)
    assert cache_bytes(cache) == 0
    with torch.inference_mode():
        tiny_fp32.module(torch.tensor([[1, 2]]), past_key_values=cache, cache_position=torch.arange(2))
    assert cache_bytes(cache) == 32 * POSITION
