"""An ONNX graph in a folder: opened, tried, and its weights counted."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.models.backend import first_missing
from llm_bench_fixtures.models.backends.optimum_models import HoardingModel
from llm_bench_fixtures.models.conversion import write_counts

if TYPE_CHECKING:
    import onnx

    from llm_bench_fixtures.models.device import Device

OPTIMUM, EXPORTER = ("optimum", "optimum.onnxruntime"), ("onnx", "onnxscript")
USES_EXPORTER = first_missing(EXPORTER) is None and first_missing(OPTIMUM) is not None
"""Whether transformers' own exporter makes the graphs, which runs under transformers 5, where Optimum doesn't."""

EXPORTED_BY = "transformers" if USES_EXPORTER else "Optimum"
GENERATION = "llm_bench_fixtures.models.backends.onnx_generation"
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}  # by kind of device
ERRORS, FATAL_ERRORS = 3, 4  # ONNX Runtime's levels of logging
BLOCKS = "MatMulNBits"  # the operator of matrices in few bits
ONE_FILE_LIMIT_BYTES = 1_500_000_000  # protobuf holds 2 GB; above this the weights go to a file of their own
LOOKED_UP = {("Gather", 0), ("GroupQueryAttention", 7), ("GroupQueryAttention", 8)}
"""Operators' inputs that are tables, of which a run reads some rows: of tokens, of cosines and of sines."""


class OnnxModel(HoardingModel):
    """One of Optimum's models, whose session keeps the memory that its runs took."""

    def give_back(self) -> None:
        if self.device.kind == "cpu":
            shrink_arena(self.module)


def session_options(log_severity: int = ERRORS) -> Any:
    """Those of a session that has as many threads as torch."""
    import torch
    from onnxruntime import SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    if os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive":  # this pool has no such variable of its own
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = log_severity
    return options


def open_model(folder: Path, device: Device, *, log_severity: int = ERRORS) -> Any:
    """A generation model over the ONNX file in the folder."""
    from onnxruntime import InferenceSession

    graph, provider, options = only_graph(folder), PROVIDERS[device.kind], session_options(log_severity)
    if USES_EXPORTER:
        from llm_bench_fixtures.models.backends.onnx_generation import GraphModel

        return GraphModel(graph, InferenceSession(graph, options, [provider]))
    from optimum.onnxruntime import ORTModelForCausalLM

    module = ORTModelForCausalLM.from_pretrained(
        folder,
        file_name=graph.name,
        provider=provider,
        provider_options=provider_options(device),
        session_options=options,
        local_files_only=True,
    )
    _take_heads_from_graph(module)
    return module


def provider_options(device: Device) -> dict[str, int] | None:
    """Where the provider runs, and that float32 is multiplied as such: on CUDA it takes TF32 unless told otherwise."""
    return {"device_id": device.index, "use_tf32": 0} if device.kind == "cuda" else None


def _take_heads_from_graph(module: Any) -> None:
    """Optimum takes some architectures' key-value heads to be as many and as wide as those of their queries."""
    shape = module.input_shapes.get("past_key_values.0.key", ())
    if len(shape) == 4 and isinstance(shape[1], int) and isinstance(shape[3], int):
        module.num_key_value_heads, module.embed_size_per_head = shape[1], shape[3]


def shrink_arena(module: Any) -> None:
    """Give back what the session on a CPU kept of earlier, larger runs: a run of one token, which is told to."""
    import onnxruntime
    import torch

    options = onnxruntime.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    session, one = module.session, torch.ones(1, 1, dtype=torch.int64)
    module.session = SimpleNamespace(run=lambda outputs, feed: session.run(outputs, feed, options))
    try:
        module(input_ids=one, attention_mask=one, use_cache=False)
    finally:
        module.session = session


def count_weights(folder: Path, **more: Callable[[onnx.GraphProto], object]) -> None:
    """Keep COUNTS of the graph in the folder, and by their names what further functions tell of it."""
    import onnx

    graph = onnx.load(only_graph(folder), load_external_data=False).graph
    told = {name: tell(graph) for name, tell in more.items()}
    write_counts(folder, (*weight_bytes(graph), quantized_share(graph)), **told)


def weight_bytes(graph: onnx.GraphProto) -> tuple[int, int]:
    """Bytes of the weights, and of those that each run of the graph reads: all but tables that are only looked up.

    Single numbers, and integers that shapes are computed from, are no weights. Counted from shapes and types, so that
    weights in a file of their own aren't loaded.
    """
    import math

    import onnx

    uses: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for node in graph.node:
        for position, name in enumerate(node.input):
            uses[name].add((node.op_type, position))
    sizes = {
        weight.name: math.prod(weight.dims) * onnx.helper.tensor_dtype_to_np_dtype(weight.data_type).itemsize
        for weight in graph.initializer
        if weight.dims and weight.data_type not in (onnx.TensorProto.INT64, onnx.TensorProto.BOOL)
    }
    looked_up = sum(size for name, size in sizes.items() if uses[name] and uses[name] <= LOOKED_UP)
    return sum(sizes.values()), sum(sizes.values()) - looked_up


def quantized_share(graph: onnx.GraphProto) -> float:
    """Share of the graph's weights that are matrices in 8 bits, or in MatMulNBits' blocks, whose scales are no
    weights."""
    import math

    from onnx import TensorProto

    eight_bits = (TensorProto.INT8, TensorProto.UINT8)
    in_blocks = sum(attributes["N"] * attributes["K"] for attributes in block_attributes(graph))
    counts = {True: in_blocks, False: 0}
    beside = {name for node in graph.node if node.op_type == BLOCKS for name in node.input}
    for weight in graph.initializer:
        if weight.name not in beside and weight.data_type in (*eight_bits, TensorProto.FLOAT):
            counts[weight.data_type in eight_bits and len(weight.dims) > 1] += math.prod(weight.dims)
    return counts[True] / max(sum(counts.values()), 1)


def block_attributes(graph: onnx.GraphProto) -> list[dict[str, int]]:
    """Attributes of each product with a matrix in blocks."""
    from onnx import helper

    blocks = [node for node in graph.node if node.op_type == BLOCKS]
    return [{item.name: helper.get_attribute_value(item) for item in node.attribute} for node in blocks]


def only_graph(folder: Path) -> Path:
    (graph,) = folder.glob("*.onnx")
    return graph
