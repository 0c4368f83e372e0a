"""Joules, where the machine counts them and lets this process read the count."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llm_bench_fixtures.models.device import Device, DeviceKind

POWERCAP = Path("/sys/class/powercap")
NVML_RANGE_UJ = 1000 * 2**64  # NVML counts millijoules in an unsigned 64-bit number


class EnergyMeter:
    """Energy of the processor packages (RAPL, on Linux), and of the GPU (NVML) where the device is one.

    source: what is counted; empty where nothing is. reason: why nothing, or not all of it, is counted.
    A package's counter starts over after some 65 to 260 kJ: read at least every few minutes.
    """

    def __init__(self, device: Device, powercap: Path = POWERCAP) -> None:
        packages, reason = _find(lambda: _packages(powercap))
        gpu: list[_Counter] = []
        if device.kind is not DeviceKind.CPU:
            gpu, gpu_reason = _find(lambda: _gpus(device))
            reason = "; ".join(filter(None, (gpu_reason, reason)))
            packages = packages if gpu else []  # joules without the accelerator's would mislead
        self._counters = gpu + packages
        self.source = ", ".join(counter.name for counter in self._counters)
        self.reason = reason

    def read(self) -> float:
        """Joules since the meter was made, over all that is counted. NaN where nothing is; `reason` says why."""
        try:
            return sum(counter.joules() for counter in self._counters) if self._counters else math.nan
        except _Uncounted as error:
            self._counters, self.source, self.reason = [], "", str(error)
            return math.nan


energy_meter = functools.cache(EnergyMeter)
"""The process's one meter for a device."""


class _Uncounted(Exception):
    """A counter that isn't there or can't be read, in words."""


class _Counter:
    """A counter of microjoules that starts over at `range_uj`, read as joules since this was made."""

    def __init__(self, name: str, read_uj: Callable[[], int], range_uj: int) -> None:
        self.name = name
        self._read_uj = read_uj
        self._range_uj = range_uj
        self._last_uj = read_uj()
        self._total_uj = 0

    def joules(self) -> float:
        now_uj = self._read_uj()
        self._total_uj += (now_uj - self._last_uj) % self._range_uj
        self._last_uj = now_uj
        return self._total_uj / 1e6


def _find(look: Callable[[], list[_Counter]]) -> tuple[list[_Counter], str]:
    """The counters, or none and the reason."""
    try:
        return look(), ""
    except _Uncounted as error:
        return [], str(error)


def _packages(powercap: Path) -> list[_Counter]:
    """A counter for each package. Its sub-domains (cores, memory) and the whole platform (psys) overlap with it."""
    zones = [zone for zone in sorted(powercap.glob("intel-rapl:*")) if _text(zone / "name").startswith("package")]
    if not zones:
        raise _Uncounted(f"no energy counter of the processor: {powercap} shows no package")
    return [
        _Counter(f"RAPL {_text(zone / 'name')}", _microjoules(zone), int(_text(zone / "max_energy_range_uj")))
        for zone in zones
    ]


def _microjoules(zone: Path) -> Callable[[], int]:
    return lambda: int(_text(zone / "energy_uj"))


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        hint = ": only root may, unless its mode is changed" if isinstance(error, PermissionError) else ""
        raise _Uncounted(f"{path} can't be read ({error.strerror}){hint}") from error


def _gpus(device: Device) -> list[_Counter]:
    if device.kind is not DeviceKind.CUDA:
        raise _Uncounted(f"no energy counter of {device.name} is known")
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        raise _Uncounted("the GPU's energy needs pynvml: pip install nvidia-ml-py") from None
    return [_gpu(nvml, name) for name in device.names]


def _gpu(nvml: Any, name: str) -> _Counter:
    import torch

    def read_uj() -> int:
        try:
            return int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) * 1000
        except nvml.NVMLError as error:
            raise _Uncounted(f"NVML gives no energy of {name}: {error}") from error

    try:
        nvml.nvmlInit()
        # Its numbers aren't torch's where CUDA_VISIBLE_DEVICES hides some.
        handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(name).uuid}")
    except nvml.NVMLError as error:
        raise _Uncounted(f"NVML can't be used: {error}") from error
    return _Counter(f"NVML {name}", read_uj, NVML_RANGE_UJ)
