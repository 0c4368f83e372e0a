"""A fixed piece of work that has nothing to do with the model: how long it takes tells how fast the machine is now."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llm_bench_fixtures.measure.kept import KeptForModel
from llm_bench_fixtures.measure.limits import ROW_BYTES, fenced_s, matrix_product, memory_read
from llm_bench_fixtures.measure.timing import Clock
from llm_bench_fixtures.models.device import DeviceKind
from llm_bench_fixtures.models.variants import Precision

if TYPE_CHECKING:
    from llm_bench_fixtures.models.device import Device
    from llm_bench_fixtures.models.model import Model


@dataclass(frozen=True)
class ProbeSize:
    """How much the probe works on."""

    matrix_rows: int
    """Of each of the two square float32 matrices that are multiplied."""

    read_bytes: int
    """Of the float32 numbers that are read."""


# Runs are compared by these times, so a change of sizes ends the comparison with every run saved before it. They are
# some milliseconds on a small machine, and more bytes than the last-level cache of most holds.
CPU_SIZE = ProbeSize(512, 64 << 20)
ACCELERATOR_SIZE = ProbeSize(2048, 512 << 20)  # so that starting the kernels takes a small part of the time


class Probe:
    """One matrix product and one read of memory, always of the same sizes on the same kind of device.

    They run as the models do: in the same process, with the threads and settings of torch that it has.
    """

    def __init__(self, device: Device, clock: Clock = time.perf_counter) -> None:
        """Allocate what is multiplied and read, and run once: the first run of a shape prepares its kernel."""
        size = CPU_SIZE if device.kind is DeviceKind.CPU else ACCELERATOR_SIZE
        self._device = device
        self._clock = clock
        self._multiply = matrix_product(device, Precision.FLOAT32, size.matrix_rows)
        self._read = memory_read(device, size.read_bytes // ROW_BYTES)
        self.run()

    def run(self) -> tuple[float, float]:
        """Seconds of the matrix product, and of the read."""
        return fenced_s(self._multiply, self._device, self._clock), fenced_s(self._read, self._device, self._clock)


_PROBES: KeptForModel[Probe] = KeptForModel()


def run_probe(model: Model) -> tuple[float, float]:
    """As Probe.run, where the model is; allocated when it is first asked for, and again after it was dropped."""
    return _PROBES.get_or_make(model, lambda: Probe(model.device)).run()


def drop_probe(model: Model) -> None:
    """Release the probe's memory."""
    _PROBES.drop(model)
