from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from llm_bench_fixtures.measure.energy import EnergyMeter
from llm_bench_fixtures.models.device import Device, DeviceKind

CUDA = Device(DeviceKind.CUDA, "cuda:1", "an accelerator")


def write_zone(powercap: Path, zone: str, name: str, energy_uj: int, range_uj: int = 1_000_000_000) -> Path:
    folder = powercap / zone
    folder.mkdir()
    (folder / "name").write_text(f"{name}\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
    return folder / "energy_uj"


def test_two_packages_are_summed_in_joules(tmp_path: Path, cpu: Device) -> None:
    counters = [write_zone(tmp_path, f"intel-rapl:{index}", f"package-{index}", 500) for index in range(2)]
    meter = EnergyMeter(cpu, tmp_path)
    assert meter.read() == 0
    counters[0].write_text("3000500")
    counters[1].write_text("1500500")
    assert meter.read() == pytest.approx(4.5)
    assert (meter.source, meter.reason) == ("RAPL package-0, RAPL package-1", "")


def test_parts_of_a_package_and_the_whole_platform_are_not_counted_again(tmp_path: Path, cpu: Device) -> None:
    names = {
        "intel-rapl:0": "package-0",
        "intel-rapl:0:0": "core",
        "intel-rapl:0:1": "dram",
        "intel-rapl:1": "psys",
        "intel-rapl-mmio:0": "package-0",
    }
    counters = [write_zone(tmp_path, zone, name, 0) for zone, name in names.items()]
    meter = EnergyMeter(cpu, tmp_path)
    for counter in counters:
        counter.write_text("2000000")
    assert meter.read() == pytest.approx(2.0)


def test_a_counter_that_starts_over_goes_on(tmp_path: Path, cpu: Device) -> None:
    """From 9 J to the end of the range at 10 J, and 2 J more; then 3 J more."""
    counter = write_zone(tmp_path, "intel-rapl:0", "package-0", 9_000_000, range_uj=10_000_000)
    meter = EnergyMeter(cpu, tmp_path)
    counter.write_text("2000000")
    assert meter.read() == pytest.approx(3.0)
    counter.write_text("5000000")
    assert meter.read() == pytest.approx(6.0)


def test_a_machine_without_counters_says_so(tmp_path: Path, cpu: Device) -> None:
    meter = EnergyMeter(cpu, tmp_path / "absent")
    assert math.isnan(meter.read())
    assert meter.source == ""
    assert meter.reason == f"no energy counter of the processor: {tmp_path / 'absent'} shows no package"


def test_a_counter_that_can_not_be_read_gives_the_reason(tmp_path: Path, cpu: Device) -> None:
    counter = write_zone(tmp_path, "intel-rapl:0", "package-0", 0)
    counter.unlink()
    counter.mkdir()
    meter = EnergyMeter(cpu, tmp_path)
    assert math.isnan(meter.read())
    assert meter.reason == f"{counter} can't be read (Is a directory)"


def test_a_forbidden_counter_says_who_may_read_it(tmp_path: Path, cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = write_zone(tmp_path, "intel-rapl:0", "package-0", 0)
    read_text = Path.read_text

    def forbidden(path: Path) -> str:
        if path == counter:
            raise PermissionError(13, "Permission denied")
        return read_text(path)

    monkeypatch.setattr(Path, "read_text", forbidden)
    reason = EnergyMeter(cpu, tmp_path).reason
    assert reason == f"{counter} can't be read (Permission denied): only root may, unless its mode is changed"


def test_a_counter_that_vanishes_gives_no_more_joules_and_the_reason(tmp_path: Path, cpu: Device) -> None:
    counter = write_zone(tmp_path, "intel-rapl:0", "package-0", 0)
    meter = EnergyMeter(cpu, tmp_path)
    counter.unlink()
    assert all(math.isnan(meter.read()) for _ in range(2))
    assert meter.source == ""
    assert meter.reason == f"{counter} can't be read (No such file or directory)"


class FakeNvml:
    """A GPU that has taken some millijoules; `broken` fails where it is asked for them."""

    class NVMLError(Exception):
        pass

    def __init__(self, broken: str = "") -> None:
        self.millijoules = 1000
        self.broken = broken

    def nvmlInit(self) -> None:  # noqa: N802  # NVML's names
        if self.broken == "driver":
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        assert uuid == "GPU-1234"
        return "handle"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:  # noqa: N802
        assert handle == "handle"
        if self.broken == "counter":
            raise self.NVMLError("Not Supported")
        return self.millijoules


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda name: SimpleNamespace(uuid="1234"))
    return fake


def test_every_gpu_that_layers_lie_on_is_counted(tmp_path: Path, nvml: FakeNvml) -> None:
    meter = EnergyMeter(replace(CUDA, others=("cuda:2",)), tmp_path)
    nvml.millijoules += 1500
    assert (meter.read(), meter.source) == (3.0, "NVML cuda:1, NVML cuda:2")


def test_a_gpus_joules_and_the_processors_are_summed(tmp_path: Path, nvml: FakeNvml) -> None:
    counter = write_zone(tmp_path, "intel-rapl:0", "package-0", 0)
    meter = EnergyMeter(CUDA, tmp_path)
    nvml.millijoules += 2500
    counter.write_text("1000000")
    assert meter.read() == pytest.approx(3.5)
    assert (meter.source, meter.reason) == ("NVML cuda:1, RAPL package-0", "")


def test_a_gpu_alone_is_counted_and_the_reason_says_what_is_missing(tmp_path: Path, nvml: FakeNvml) -> None:
    meter = EnergyMeter(CUDA, tmp_path)
    nvml.millijoules += 2500
    assert meter.read() == pytest.approx(2.5)
    assert meter.source == "NVML cuda:1"
    assert meter.reason == f"no energy counter of the processor: {tmp_path} shows no package"


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("driver", "NVML can't be used: Driver Not Loaded"),
        ("counter", "NVML gives no energy of cuda:1: Not Supported"),
    ],
)
def test_the_processors_joules_alone_are_not_given_for_a_gpu(
    broken: str, reason: str, tmp_path: Path, nvml: FakeNvml
) -> None:
    write_zone(tmp_path, "intel-rapl:0", "package-0", 0)
    nvml.broken = broken
    meter = EnergyMeter(CUDA, tmp_path)
    assert math.isnan(meter.read())
    assert (meter.source, meter.reason) == ("", reason)


def test_without_pynvml_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert EnergyMeter(CUDA, tmp_path).reason.startswith("the GPU's energy needs pynvml: pip install nvidia-ml-py")


def test_an_apple_device_has_no_known_counter(tmp_path: Path) -> None:
    meter = EnergyMeter(Device(DeviceKind.MPS, "mps", "an Apple device"), tmp_path)
    assert math.isnan(meter.read())
    assert meter.reason.startswith("no energy counter of mps is known")
