"""Memory at its peak, and what it takes to load a variant; and exact counts of a workload and of its forward passes,
which are the same in every run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from llm_bench_fixtures.measure.work import Work
from llm_bench_fixtures.results.metrics.metric import Direction, Metric, ReportTable, Tolerance, Unit, Value
from llm_bench_fixtures.results.metrics.rows import NEVER_JUDGED, exact_row, memory_row, timing_row
from llm_bench_fixtures.results.record import MemoryFacts, WorkloadFacts


def _of_memory(value: Callable[[MemoryFacts], float | None]) -> Value:
    return lambda record, _: value(record.memory) if record.memory else None


MEMORY: tuple[Metric, ...] = (
    memory_row(
        name="libraries_bytes",
        title="Libraries",
        column="libraries",
        formula=(
            "resident memory of the variant's own process before it loads the model; the peak comes on top of it. "
            "Processes that are forked share most of it"
        ),
        value=lambda _, variant: variant.resident_before_load_bytes,
        tables={ReportTable.MEMORY: 5},
        tolerance=NEVER_JUDGED,  # depends on which variants' libraries were imported before the fork
    ),
    memory_row(
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
    memory_row(
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
        tolerance=NEVER_JUDGED,  # depends on which libraries' pages were touched before
    ),
    memory_row(
        name="cuda_max_allocated_bytes",
        title="Peak of CUDA memory, allocated",
        column="CUDA allocated",
        formula="torch.cuda.max_memory_allocated during a round, in a pass of its own",
        source="optimum-benchmark's max_allocated",
        value=_of_memory(lambda memory: memory.cuda_allocated_bytes),
        tables={ReportTable.MEMORY: 60},
    ),
    memory_row(
        name="cuda_max_reserved_bytes",
        title="Peak of CUDA memory, reserved",
        column="CUDA reserved",
        formula="torch.cuda.max_memory_reserved during a round, in a pass of its own",
        source="optimum-benchmark's max_reserved",
        value=_of_memory(lambda memory: memory.cuda_reserved_bytes),
        tables={ReportTable.MEMORY: 70},
    ),
    timing_row(
        name="first_generate_s",
        title="First generate",
        column="first generate",
        formula="the first generate of a fresh process, of one prompt; not with --llm-in-process",
        value=lambda _, variant: variant.first_generate_s,
        tables={ReportTable.VARIATION: 70},
    ),
    timing_row(
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
    timing_row(
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
    timing_row(
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
    memory_row(
        name="weight_bytes",
        title="Weights",
        column="weights",
        formula=(
            "bytes of the parameters, of the buffers that a checkpoint holds, and of quantization scales, shared "
            "storage counted once; buffers made with the model, such as causal masks and tables of angles, are no "
            "weights; for ONNX, of the graph's tensors"
        ),
        source="llama-bench's model_size",
        value=lambda _, variant: variant.weight_bytes,
        tables={ReportTable.MEMORY: 10},
        tolerance=Tolerance(),
    ),
    exact_row(
        name="quantized_share",
        title="Share of the weights quantized",
        column="quantized",
        unit=Unit.SHARE,
        direction=Direction.NEITHER,
        formula=(
            "weights in quantized layers / all weights, in numbers, not bytes: what the engine leaves as it is (norms, "
            "most embeddings and output layers, routers, experts that it doesn't know) counts as not quantized"
        ),
        value=lambda _, variant: variant.quantized_share,
        tables={ReportTable.MEMORY: 15},
    ),
)


def _of_workload(value: Callable[[WorkloadFacts], float | None]) -> Value:
    return lambda record, _: value(record.workload) if record.workload else None


def _of_work(value: Callable[[Work], float | None]) -> Value:
    """None for a backend whose model doesn't run through transformers' `generate`: nothing of it was seen."""
    return lambda record, _: value(record.work) if record.work and record.work.forward_passes else None


_flops_row = partial(exact_row, unit=Unit.FLOPS, source="torch.utils.flop_counter")
_tokens_row = partial(exact_row, unit=Unit.TOKENS)

EXACT: tuple[Metric, ...] = (
    _tokens_row(
        name="new_tokens",
        title="New tokens",
        column="new tokens",
        direction=Direction.NEITHER,
        formula="tokens generated in a round, over all prompts",
        value=_of_workload(lambda workload: workload.new_tokens),
        tables={ReportTable.SCENARIO: 50},
    ),
    _tokens_row(
        name="prompt_tokens",
        title="Prompt tokens",
        column="prompt tokens",
        direction=Direction.NEITHER,
        formula="tokens of the prompts of a round, padding not counted",
        value=_of_workload(lambda workload: workload.prompt_tokens),
        tables={ReportTable.SCENARIO: 40},
    ),
    _tokens_row(
        name="padded_tokens",
        title="Padding tokens",
        column="padding tokens",
        formula="positions of a round's batches that hold padding",
        value=_of_workload(lambda workload: workload.padded_tokens),
    ),
    exact_row(
        name="padding_share",
        title="Share of padding",
        column="padding share",
        unit=Unit.SHARE,
        formula="padded_tokens / (padded_tokens + prompt_tokens)",
        value=_of_workload(lambda workload: workload.padded_tokens / (workload.padded_tokens + workload.prompt_tokens)),
    ),
    exact_row(
        name="forward_passes",
        title="Forward passes",
        column="forward passes",
        unit=Unit.COUNT,
        formula="calls of the model in a round, counted in a pass of its own",
        value=_of_work(lambda work: work.forward_passes),
        tables={ReportTable.MEMORY: 80},
    ),
    _flops_row(
        name="prefill_flops",
        title="FLOPs of the prefill",
        column="prefill FLOPs",
        formula=(
            "floating-point operations of the architecture's matrix multiplications, "
            "padding and masked positions included; for a mixture of experts, those of the experts that a position uses"
        ),
        value=_of_work(lambda work: work.prefill_flops),
        tables={ReportTable.MEMORY: 90},
    ),
    _flops_row(
        name="decode_flops",
        title="FLOPs of the decode",
        column="decode FLOPs",
        formula="prefill_flops' count, for all forward passes after the first of each batch",
        value=_of_work(lambda work: work.decode_flops),
        tables={ReportTable.MEMORY: 100},
    ),
    exact_row(
        name="weight_bytes_read",
        title="Weights read",
        column="weights read",
        formula=(
            "bytes of the weights that each forward pass reads, without tables that are only looked up; for a mixture "
            "of experts, what one position reads, and positions that run together may read more"
        ),
        value=_of_work(lambda work: work.weight_bytes_read),
        tables={ReportTable.MEMORY: 20},
    ),
    exact_row(
        name="cache_bytes_read",
        title="Cache read",
        column="cache read",
        formula="bytes of keys and values that the decode's forward passes read; none where the model keeps none",
        value=_of_work(lambda work: work.cache_bytes_read),
        tables={ReportTable.MEMORY: 40},
    ),
    exact_row(
        name="cache_bytes",
        title="KV cache",
        column="KV cache",
        formula=(
            "most bytes of keys and values that a batch keeps for its next step; a sliding window's are those in the "
            "window; none where the model keeps none"
        ),
        value=_of_work(lambda work: work.cache_bytes),
        tables={ReportTable.MEMORY: 30},
    ),
    exact_row(
        name="state_bytes",
        title="Recurrent state",
        column="state",
        formula=(
            "most bytes of recurrent layers' states (state spaces, convolutions) that a batch keeps for its next step, "
            "which reads them whole, however long the text is; none where the model has no such layers"
        ),
        value=_of_work(lambda work: work.state_bytes or None),
        tables={ReportTable.MEMORY: 35},
    ),
)
