"""Device and dtype: what was asked for, what is given, and why."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import InvalidSetting
from llm_bench_fixtures.models.variants import Precision
from llm_bench_fixtures.processes.allocator import trim_heap
from llm_bench_fixtures.processes.environment import off_the_working_folder
from llm_bench_fixtures.processes.memory import free_memory_bytes

if TYPE_CHECKING:
    import torch


class DeviceKind(StrEnum):
    """torch's name for a kind of device."""

    CPU = "cpu"
    CUDA = "cuda"
    MPS = "mps"


@dataclass(frozen=True)
class Device:
    """Where the models run."""

    kind: DeviceKind

    name: str
    """torch's name: `cuda:0`."""

    hardware: str
    """Name for people: an accelerator with the processor that feeds it."""

    others: tuple[str, ...] = ()
    """Further accelerators that a model's layers may lie on."""

    @property
    def names(self) -> tuple[str, ...]:
        """All that compute, the first of which gets a model's inputs."""
        return (self.name, *self.others)

    @property
    def index(self) -> int:
        """Which of several devices of the kind."""
        return int(self.name.partition(":")[2] or 0)

    @property
    def free_bytes(self) -> int:
        """Memory that is free for tensors: the devices' own, or the machine's where they share it."""
        import torch

        if self.kind is DeviceKind.CUDA:
            return sum(int(torch.cuda.mem_get_info(name)[0]) for name in self.names)
        return free_memory_bytes()

    def synchronize(self) -> None:
        """Wait until everything that was queued on the device is done. Nothing to do on a CPU."""
        import torch

        if self.kind is DeviceKind.CUDA:
            for name in self.names:
                torch.cuda.synchronize(name)
        elif self.kind is DeviceKind.MPS:
            torch.mps.synchronize()

    def release_cached_memory(self, *, oldest: bool = True) -> None:
        """Give back what torch and the C library keep of freed memory.

        oldest: look for unused cycles among the oldest objects too, which takes a tenth of a second.
        """
        import gc

        gc.collect(2 if oldest else 1)
        if self.kind is DeviceKind.CUDA:
            import torch

            torch.cuda.empty_cache()
        trim_heap()


def resident_bytes() -> int:
    """Memory of this process that is in RAM now."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def resident_at_rest(device: Device) -> int:
    """Memory of this process that is in RAM once what was freed is given back.

    A backend that converts a model in this process asks for it between that and the load, as else what the conversion
    leaves behind would be taken for the model's memory, or hide it.
    """
    device.release_cached_memory()
    return resident_bytes()


def resolve_device(requested: str, device_map: Mapping[str, int | str] | None = None) -> Device:
    """The device that `requested` ("auto", "cpu", "cuda", "cuda:1", "mps") names on this machine.

    "auto" takes CUDA where there is one, else Apple's device, else the CPU. device_map: that of --llm-device-map, whose
    CUDA devices are all meant, and those from `requested` on where it names none.
    Raises InvalidSetting where it isn't here.
    """
    import torch

    numbers = sorted({place for place in (device_map or {}).values() if isinstance(place, int)})
    if device_map:
        first = f"cuda:{numbers[0]}" if numbers else "cpu"
        if requested not in ("auto", first, first.partition(":")[0]):
            raise InvalidSetting(
                f"--llm-device {requested}: --llm-device-map computes on {first}; leave one of them out"
            )
        requested = first
    if requested == "auto":
        requested = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    kind = DeviceKind(requested.partition(":")[0])
    if kind is DeviceKind.CUDA:
        return _cuda_device(requested, () if device_map is None else numbers or range(torch.cuda.device_count()))
    if kind is DeviceKind.MPS and device_map is not None:
        raise InvalidSetting(
            "--llm-device-map spreads over CUDA devices, the CPU's memory and disk: add --llm-device cpu"
        )
    if kind is DeviceKind.MPS and not torch.backends.mps.is_available():
        raise InvalidSetting("--llm-device mps: torch finds no Apple device here")
    return Device(kind, kind.value, _processor_name())


def _cuda_device(requested: str, spread: Sequence[int]) -> Device:
    """spread: the numbers of all devices that layers may lie on; those before the requested one are left out."""
    import torch

    first = int(requested.partition(":")[2] or 0)
    numbers = [first, *(number for number in spread if number > first)]
    if numbers[-1] >= torch.cuda.device_count():
        flag = f"--llm-device {requested}" if numbers[-1] == first else f"--llm-device-map cuda:{numbers[-1]}"
        raise InvalidSetting(f"{flag}: torch {torch.__version__} finds {torch.cuda.device_count()} CUDA devices here")
    hardware = ", ".join([*map(torch.cuda.get_device_name, numbers), _processor_name()])
    name, *others = (f"cuda:{number}" for number in numbers)
    return Device(DeviceKind.CUDA, name, hardware, tuple(others))


def _processor_name() -> str:
    import os

    return f"{_processor().get('brand_raw', 'unknown processor')}, {os.cpu_count()} cores"


@functools.cache
def _processor() -> dict[str, Any]:
    from cpuinfo import get_cpu_info

    with off_the_working_folder():
        return dict(get_cpu_info())


def processor_flags() -> frozenset[str]:
    """Instruction-set flags of the processor, as the operating system names them."""
    return frozenset(_processor().get("flags", ()))


@dataclass(frozen=True)
class ResolvedPrecision:
    """The dtype that runs, the one that was asked for, and why they differ where they do."""

    actual: Precision
    requested: Precision
    reason: str = ""

    @property
    def label(self) -> str:
        if self.actual is self.requested:
            return self.actual.value
        return f"{self.actual} ({self.requested} requested; {self.reason})"

    @property
    def torch_dtype(self) -> torch.dtype:
        import torch

        dtype: torch.dtype = getattr(torch, self.actual)
        return dtype


def resolve_precision(requested: Precision, device: Device) -> ResolvedPrecision:
    """float16 falls back to float32 on a CPU, where most of its operations are emulated: a prefill takes minutes."""
    if requested is Precision.FLOAT16 and device.kind is DeviceKind.CPU:
        return ResolvedPrecision(Precision.FLOAT32, requested, "CPU")
    return ResolvedPrecision(requested, requested)
