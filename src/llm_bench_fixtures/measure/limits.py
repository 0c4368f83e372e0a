"""The machine's limits as torch reaches them: how fast it reads memory, and how fast it multiplies matrices.

The probe is a fixed piece of both that has nothing to do with the model: its time shows how fast the machine is now.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from llm_bench_fixtures.measure.kept import KeptForModel
from llm_bench_fixtures.measure.timing import Clock
from llm_bench_fixtures.models.device import Device, DeviceKind, ResolvedPrecision, resolve_precision
from llm_bench_fixtures.models.model import Model
from llm_bench_fixtures.models.spread import check_fetched, fetch_all
from llm_bench_fixtures.models.variants import Precision

CPU_BUFFER_BYTES = 512 << 20  # many times the last-level cache
ACCELERATOR_BUFFER_BYTES = 4 << 30  # so that starting the kernel takes a small part of the time
COLUMNS = 4096  # columns of the matrix that is read: the vector stays in the nearest cache
ROW_BYTES = 4 * COLUMNS
FREE_MEMORY_SHARE = 8  # at most one part in so many of the free memory is read
SMALLEST_MATRIX = 512
LARGEST_MATRIX = 8192
DOUBLED_TIME = 8  # times as long does a product of matrices of twice the size take


@dataclass(frozen=True)
class MachineLimits:
    """How fast the machine is at what models do most."""

    read_bytes_per_s: float
    """Bytes per second read from memory."""

    matmul_flops_per_s: Mapping[Precision, float]
    """Floating-point operations per second of matrix products in each precision."""


def measure_limits(
    device: Device, precisions: Iterable[Precision], budget_s: float = 2.0, clock: Clock = time.perf_counter
) -> MachineLimits:
    """The best of what fits into about `budget_s` seconds: a limit is what was reached once, not what is usual.

    A precision that falls back to another one on the device (float16 on a CPU), or that it can't multiply, is left
    out. The models run with as many threads and the same settings of torch.
    """
    wanted = [one for one in dict.fromkeys(precisions) if resolve_precision(one, device).actual is one]
    share_s = budget_s / (1 + len(wanted))
    try:
        read = _read_bytes_per_s(device, share_s, clock)
        rates = {one: _matmul_flops_per_s(device, one, share_s, clock) for one in wanted}
        return MachineLimits(read, {one: rate for one, rate in rates.items() if rate})
    finally:
        device.release_cached_memory()


def _read_bytes_per_s(device: Device, share_s: float, clock: Clock) -> float:
    until = clock() + share_s
    most = CPU_BUFFER_BYTES if device.kind is DeviceKind.CPU else ACCELERATOR_BUFFER_BYTES
    rows = max(min(most, device.free_bytes // FREE_MEMORY_SHARE) // ROW_BYTES, 1)
    return rows * ROW_BYTES / _best_s(memory_read(device, rows), device, until, clock)


def measure_places(model: Model, budget_s: float, known: Mapping[str, float]) -> dict[str, float]:
    """Bytes per second at which a spread model's weights come from each place that they lie in: a device that computes
    reads its own, those elsewhere are fetched by accelerate. Nothing without a budget.

    known: by place, what has been measured. Raises BackendUnavailable where the model's code uses weights that are not
    fetched.
    """
    sizes, module, device = model.facts.weight_bytes_by_device, getattr(model, "module", None), model.device
    if not all(place in device.names for place in sizes):
        check_fetched(model)
    rates = dict(known)
    for place, size in sizes.items() if budget_s else ():
        until = time.perf_counter() + budget_s / len(sizes)
        if place not in device.names:
            fetch = partial(fetch_all, module, place)
            rates[place] = size / _best_s(fetch, device, until, time.perf_counter)
        elif place not in rates:
            rates[place] = _read_bytes_per_s(replace(device, name=place), budget_s / len(sizes), time.perf_counter)
    return rates


def rate_of_all(sizes: Mapping[str, int], rates: Mapping[str, float], device: Device) -> float:
    """Bytes per second at which all of a model's weights are read once, place after place. What is fetched is then read
    on the first device, too."""
    fetched = sum(size for place, size in sizes.items() if place not in device.names)
    seconds = sum(size / rates[place] for place, size in sizes.items()) + fetched / rates[device.name]
    return sum(sizes.values()) / seconds


def memory_read(device: Device, rows: int) -> Callable[[], object]:
    """Reads `rows` times ROW_BYTES when called. Allocates them.

    Uses a matrix-vector product: torch's fastest reader, and what decoding one row consists of.
    """
    import torch

    matrix = torch.ones((rows, COLUMNS), dtype=torch.float32, device=device.name)
    vector = torch.ones(COLUMNS, dtype=torch.float32, device=device.name)
    return lambda: torch.mv(matrix, vector)


def _matmul_flops_per_s(device: Device, precision: Precision, share_s: float, clock: Clock) -> float:
    """Floating-point operations per second of square matrix products: the best of sizes that double while time is left.

    0 where the device doesn't multiply the precision.
    """
    until = clock() + share_s
    most_elements = device.free_bytes // FREE_MEMORY_SHARE // 12  # three matrices of at most four bytes
    best = 0.0
    size = SMALLEST_MATRIX
    while True:
        try:
            product = matrix_product(device, precision, size)
            fenced_s(product, device, clock)  # the first run of a shape prepares its kernel
        except RuntimeError:  # torch's, for a dtype that the device doesn't multiply
            return best
        took_s = fenced_s(product, device, clock)
        best = max(best, 2 * size**3 / took_s)
        fits = clock() + 2 * DOUBLED_TIME * took_s < until
        if size == LARGEST_MATRIX or 4 * size**2 > most_elements or not fits:
            break
        size *= 2
    while clock() + took_s < until:
        best = max(best, 2 * size**3 / fenced_s(product, device, clock))
    return best


def matrix_product(device: Device, precision: Precision, size: int) -> Callable[[], object]:
    """Multiplies two square matrices of `size` rows when called. Allocates them.

    An accelerator gets random numbers: with ones it takes less power, and runs faster than with a model's numbers.
    """
    import torch

    dtype = ResolvedPrecision(precision, precision).torch_dtype
    fill = torch.ones if device.kind is DeviceKind.CPU else torch.randn
    left, right, result = (fill((size, size), dtype=dtype, device=device.name) for _ in range(3))
    return lambda: torch.mm(left, right, out=result)


def _best_s(work: Callable[[], object], device: Device, until: float, clock: Clock) -> float:
    """Seconds of the fastest run. The first isn't counted; after it there is at least one, whatever the clock says."""
    fenced_s(work, device, clock)
    best = fenced_s(work, device, clock)
    while clock() < until:
        best = min(best, fenced_s(work, device, clock))
    return best


def fenced_s(work: Callable[[], object], device: Device, clock: Clock) -> float:
    """Seconds that the work takes, the device idle before and after it."""
    device.synchronize()
    started = clock()
    work()
    device.synchronize()
    return clock() - started


# Rows of each of the two square float32 matrices that the probe multiplies, and bytes of the float32 numbers that it
# reads. Runs are compared by these times, so a change of sizes ends the comparison with every run saved before it. They
# are some milliseconds on a small machine, and more bytes than the last-level cache of most holds.
CPU_SIZE = 512, 64 << 20
ACCELERATOR_SIZE = 2048, 512 << 20  # so that starting the kernels takes a small part of the time


def make_probe(device: Device, clock: Clock = time.perf_counter) -> Callable[[], tuple[float, float]]:
    """One matrix product and one read of memory, always of the same sizes on the same kind of device. When called, it
    gives the seconds of each.

    They run as the models do: in the same process, with the threads and settings of torch that it has.
    """
    matrix_rows, read_bytes = CPU_SIZE if device.kind is DeviceKind.CPU else ACCELERATOR_SIZE
    multiply = matrix_product(device, Precision.FLOAT32, matrix_rows)
    read = memory_read(device, read_bytes // ROW_BYTES)

    def probe() -> tuple[float, float]:
        return fenced_s(multiply, device, clock), fenced_s(read, device, clock)

    probe()  # the first run of a shape prepares its kernel
    return probe


_PROBES: KeptForModel[Callable[[], tuple[float, float]]] = KeptForModel()


def run_probe(model: Model) -> tuple[float, float]:
    """Run the probe where the model is; it is allocated when first asked for, and again after it was dropped."""
    return _PROBES.get_or_make(model, lambda: make_probe(model.device))()


def drop_probe(model: Model) -> None:
    """Release the probe's memory."""
    _PROBES.pop(model)
