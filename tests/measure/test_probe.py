from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
import torch

from llm_bench_fixtures.measure import limits
from llm_bench_fixtures.measure.limits import drop_probe, make_probe, run_probe
from llm_bench_fixtures.measure.work import observe
from llm_bench_fixtures.models.device import Device, DeviceKind
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.workloads import Workload


class StepClock:
    """The nth distance between two readings is n milliseconds."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.step_s = 0.0

    def __call__(self) -> float:
        self.now_s += self.step_s
        self.step_s += 0.001
        return self.now_s


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CPU_SIZE", (8, 1 << 14))


@pytest.fixture
def model(tiny_fp32: TransformersModel) -> Iterator[TransformersModel]:
    yield tiny_fp32
    drop_probe(tiny_fp32)


@pytest.mark.usefixtures("small")
def test_the_product_and_the_read_are_timed_apart_and_the_first_of_each_is_not_counted(cpu: Device) -> None:
    """The first run takes the distances 1 to 4; 5 and 7 are the next products' and reads', 6 lies between the two."""
    assert make_probe(cpu, StepClock())() == pytest.approx((0.005, 0.007))


@pytest.mark.usefixtures("small")
def test_each_clock_reading_comes_when_the_device_is_idle() -> None:
    events: list[str] = []

    def clock() -> float:
        events.append("clock")
        return 0.0

    class WatchedDevice:
        kind, name = DeviceKind.CPU, "cpu"

        def synchronize(self) -> None:
            events.append("synchronize")

    watched = make_probe(cast(Device, WatchedDevice()), clock)
    del events[:]
    watched()
    assert events == ["synchronize", "clock"] * 4


def test_its_work_is_of_the_stated_size(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product of 512 x 512 matrices, and a read of 64 MiB of float32, which are 2^24 numbers."""
    shapes: list[tuple[int, ...]] = []
    for name in ("mm", "mv"):
        work = getattr(torch, name)
        monkeypatch.setattr(
            torch, name, lambda left, *rest, work=work, **how: shapes.append((*left.shape,)) or work(left, *rest, **how)
        )
    subject = make_probe(cpu)
    del shapes[:]
    subject()
    product, (rows, columns) = shapes
    assert product == (512, 512)
    assert rows * columns == 2**24


def test_it_leaves_the_models_settings_of_torch_alone(cpu: Device) -> None:
    before = torch.get_num_threads(), torch.get_float32_matmul_precision()
    make_probe(cpu)()
    assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == before


@pytest.mark.usefixtures("small")
def test_the_probe_of_a_model_is_allocated_once(model: TransformersModel, monkeypatch: pytest.MonkeyPatch) -> None:
    product_s, read_s = run_probe(model)
    assert min(product_s, read_s) > 0
    monkeypatch.setattr(limits, "make_probe", None)
    run_probe(model)


@pytest.mark.usefixtures("small")
def test_a_pass_for_memory_finds_no_probe(model: TransformersModel) -> None:
    run_probe(model)
    assert limits._PROBES.get(model) is not None
    observe(model, Workload(((1, 2, 3),), 2, 1))
    assert limits._PROBES.get(model) is None
