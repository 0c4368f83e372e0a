"""What a workload takes in memory, seen in a pass of its own: watching it takes time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Self

from llm_bench_fixtures.models.device import Device, DeviceKind, resident_bytes
from llm_bench_fixtures.processes.memory import library_bytes, status_bytes

CLEAR_REFS = Path("/proc/self/clear_refs")
SAMPLE_EVERY_S = 0.002


class MemoryMethod(StrEnum):
    """How the peak of the resident memory was found."""

    HIGH_WATER_MARK = "kernel's high-water mark"
    SAMPLED = "sampled every 2 ms"


@dataclass(frozen=True)
class MemoryPeak:
    """The most memory that was taken at any one time during a block."""

    resident_bytes: int
    """Memory of the whole process."""

    cuda_allocated_bytes: int | None
    """Bytes that torch had handed out to tensors; of several devices the sum of their peaks. None without CUDA."""

    cuda_reserved_bytes: int | None
    """Bytes that torch had taken from the device, with what it kept for later. None without CUDA."""

    method: MemoryMethod
    """How resident_bytes was found."""

    library_bytes: int | None = None
    """Pages of libraries' files in the process, at the end. None where the system doesn't report it."""

    cuda_by_device: Mapping[str, int] = field(default_factory=dict)
    """`cuda_allocated_bytes` of each device."""

    def rise_over(self, before_bytes: int) -> int:
        """The part of the resident peak above `before_bytes`; 0 where it stayed below."""
        return max(self.resident_bytes - before_bytes, 0)


class PeakMemory:
    """The peak of the memory during a `with` block, as `peak` once the block is over.

    What was freed before the block is given back to the system first, so that it hides nothing of the rise. The kernel
    has one high-water mark a process, so these blocks can't be nested.
    """

    peak: MemoryPeak

    def __init__(self, device: Device) -> None:
        self._device = device

    def __enter__(self) -> Self:
        self._device.synchronize()
        self._device.release_cached_memory(oldest=False)
        if self._device.kind is DeviceKind.CUDA:
            import torch

            for name in self._device.names:
                torch.cuda.reset_peak_memory_stats(name)
        self._sampler = None if _reset_high_water_mark() else _Sampler()
        return self

    @property
    def takes_time(self) -> bool:
        """Whether watching slows what runs in the block; the kernel keeps its mark in any case."""
        return self._sampler is not None

    def __exit__(self, *_: object) -> None:
        self._device.synchronize()
        if self._sampler:
            resident, method = self._sampler.stop(), MemoryMethod.SAMPLED
        else:
            resident, method = status_bytes()["VmHWM"], MemoryMethod.HIGH_WATER_MARK
        if self._device.kind is not DeviceKind.CUDA:
            self.peak = MemoryPeak(resident, None, None, method, library_bytes())
            return
        from torch import cuda

        allocated = {name: cuda.max_memory_allocated(name) for name in self._device.names}
        reserved = sum(cuda.max_memory_reserved(name) for name in self._device.names)
        self.peak = MemoryPeak(resident, sum(allocated.values()), reserved, method, library_bytes(), allocated)


def _reset_high_water_mark() -> bool:
    """Set the kernel's mark to what is resident now. False where there is none (not Linux) or it can't be set."""
    try:
        CLEAR_REFS.write_text("5")  # proc(5): "reset the peak resident set size"
        return "VmHWM" in status_bytes()  # a sandbox's kernel may show none
    except OSError:
        return False


class _Sampler:
    """Looks at the resident memory from a thread of its own; it can miss a peak that is shorter than the interval."""

    def __init__(self) -> None:
        self._most = resident_bytes()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="memory sampler", daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_EVERY_S):
            self._most = max(self._most, resident_bytes())

    def stop(self) -> int:
        """The peak of the resident bytes since this was made."""
        self._over.set()
        self._thread.join()
        return max(self._most, resident_bytes())
