"""Memory at its peak, and what it takes to load a variant."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from llm_bench_fixtures.results.metrics.metric import (
    NEVER_JUDGED,
    Direction,
    Kind,
    Metric,
    ReportTable,
    Tolerance,
    Unit,
    Value,
)
from llm_bench_fixtures.results.record import MemoryFacts


def _of_memory(value: Callable[[MemoryFacts], float | None]) -> Value:
    return lambda record, _: value(record.memory) if record.memory else None


# What a row does not say.
_row = partial(Metric, unit=Unit.BYTES, direction=Direction.LOWER_IS_BETTER, kind=Kind.MEMORY)
_seconds = partial(_row, unit=Unit.SECONDS, kind=Kind.TIMING)

MEMORY: tuple[Metric, ...] = (
    _row(
        name="libraries_bytes",
        title="Libraries",
        column="libraries",
        formula=(
            "resident memory of the variant's own process before it loads the model; the peak comes on top of it. "
            "Processes that are forked share most of it"
        ),
        value=lambda _, variant: variant.resident_before_load_bytes,
        tables={ReportTable.MEMORY: 5},
        tolerance=NEVER_JUDGED,  # it depends on which variants' libraries were imported before the fork
    ),
    _row(
        name="own_memory_bytes",
        title="Peak memory",
        column="peak memory",
        formula=(
            "rise from before the load to the peak during a round: anonymous memory and mapped model files, without "
            "pages of libraries' code, which processes share (with them where the system doesn't tell them apart); in "
            "a pass of its own"
        ),
        value=_of_memory(lambda memory: memory.own_bytes),
        tables={ReportTable.MEMORY: 50},
    ),
    _row(
        name="peak_rss_bytes",
        title="Peak memory with libraries' pages",
        column="with libraries' pages",
        formula=(
            "rise of the process's resident memory from before the load to the peak during a round; in a pass of its "
            "own"
        ),
        source="optimum-benchmark's max_ram",
        value=_of_memory(lambda memory: memory.peak_resident_bytes),
        tables={ReportTable.MEMORY: 55},
        tolerance=NEVER_JUDGED,  # which libraries' pages were touched before decides
    ),
    _row(
        name="cuda_max_allocated_bytes",
        title="Peak of CUDA memory, allocated",
        column="CUDA allocated",
        formula="torch.cuda.max_memory_allocated during a round, in a pass of its own",
        source="optimum-benchmark's max_allocated",
        value=_of_memory(lambda memory: memory.cuda_allocated_bytes),
        tables={ReportTable.MEMORY: 60},
    ),
    _row(
        name="cuda_max_reserved_bytes",
        title="Peak of CUDA memory, reserved",
        column="CUDA reserved",
        formula="torch.cuda.max_memory_reserved during a round, in a pass of its own",
        source="optimum-benchmark's max_reserved",
        value=_of_memory(lambda memory: memory.cuda_reserved_bytes),
        tables={ReportTable.MEMORY: 70},
    ),
    _seconds(
        name="first_generate_s",
        title="First generate",
        column="first generate",
        formula="the first generate of a fresh process, of one prompt; not with --llm-in-process",
        value=lambda _, variant: variant.first_generate_s,
        tables={ReportTable.VARIATION: 70},
    ),
    _seconds(
        name="load_s",
        title="Load time",
        column="load",
        formula=(
            "from files on disk to a model that can run, its weights read into memory; exporting and quantizing to a "
            "cache not counted"
        ),
        source="optimum-benchmark",
        value=lambda _, variant: variant.load_s,
        tables={ReportTable.VARIATION: 60},
    ),
    _seconds(
        name="compile_s",
        title="Compile time",
        column="compile",
        formula=(
            "from a loaded model to one that runs compiled in every shape, before anything else is timed; with code "
            "from the cache, the seconds that compiling took then"
        ),
        value=lambda _, variant: variant.compile_s,
        tables={ReportTable.VARIATION: 62},
        tolerance=NEVER_JUDGED,  # measured once, by whatever run filled the cache
    ),
    _seconds(
        name="conversion_s",
        title="Conversion time",
        column="conversion",
        formula=(
            "what making the engine's own form of the model took: exporting, converting, calibrating, quantizing, and "
            "trying it once; measured when it was made and kept with it in the cache"
        ),
        value=lambda _, variant: variant.conversion_s,
        tables={ReportTable.VARIATION: 65},
        tolerance=NEVER_JUDGED,  # measured once, on whatever machine filled the cache
    ),
    _row(
        name="weight_bytes",
        title="Weights",
        column="weights",
        formula=(
            "bytes of the parameters, of the buffers that a checkpoint holds, and of quantization scales, shared "
            "storage counted once; buffers made with the model, such as causal masks and tables of angles, are no "
            "weights; for ONNX, of its files"
        ),
        source="llama-bench's model_size",
        value=lambda _, variant: variant.weight_bytes,
        tables={ReportTable.MEMORY: 10},
        tolerance=Tolerance(),
    ),
    _row(
        name="quantized_share",
        title="Share of the weights quantized",
        column="quantized",
        unit=Unit.SHARE,
        direction=Direction.NEITHER,
        kind=Kind.EXACT,
        formula=(
            "weights in quantized layers / all weights, in numbers, not bytes: what the engine leaves as it is (norms, "
            "most embeddings and output layers, routers, experts that it doesn't know) counts as not quantized"
        ),
        value=lambda _, variant: variant.quantized_share,
        tables={ReportTable.MEMORY: 15},
    ),
)
