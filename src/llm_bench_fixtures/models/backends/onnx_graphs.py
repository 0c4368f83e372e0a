"""An ONNX graph in a folder: opened, its weights counted, and the ranges of its activations found for static
quantization, from what the model is really fed while it generates."""

from __future__ import annotations

import hashlib
import math
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

from llm_bench_fixtures.errors import QualityCollapsed
from llm_bench_fixtures.models.backend import first_missing
from llm_bench_fixtures.models.conversion import HoardingModel, write_counts
from llm_bench_fixtures.models.transformers import prepare_for_greedy

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerBase

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


Feed: TypeAlias = "dict[str, np.ndarray[Any, Any]]"

STATIC_OPERATORS = ["MatMul", "Gemm"]  # those whose inputs and outputs are quantized by ranges
PROMPTS = 16  # of the calibration
PROMPT_TOKENS = 64
NEW_TOKENS = 8
KL_LIMIT = 0.1  # nats per token, mean over the feeds that are checked


def calibration_recipe(texts: Sequence[str]) -> str:
    """Names the calibration: another text or other counts give another name."""
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()
    return (
        f"{PROMPTS} x {PROMPT_TOKENS}+{NEW_TOKENS} tokens, none of which ends a text, of {digest}, KL below {KL_LIMIT}"
    )


@dataclass(frozen=True)
class Pass:
    """A forward pass in float32."""

    feed: Feed
    logits: NDArray[np.float32]
    """(1, T, V)"""


def calibrate(
    module: Any, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], graph: Path, scratch: Path
) -> tuple[Any, list[Pass]]:
    """Ranges of the activations, and what tells whether the quantized model still works.

    The ranges, as ONNX Runtime's quantizer takes them, are over all forward passes of real `generate` calls: each
    prompt's prefill, and its decode steps. The passes are each prompt's prefill and last step.

    module: generates over the graph, and gets its session back. scratch: a folder for files of that size.
    """
    import torch
    from onnxruntime import InferenceSession
    from onnxruntime.quantization.calibrate import MinMaxCalibrater

    prepare_for_greedy(module, tokenizer)
    session, weights = module.session, graph.with_suffix(".onnx_data")
    files = [path for path in (graph, weights) if path.exists()]
    with TemporaryDirectory(dir=scratch) as folder:
        copies = [Path(copyfile(path, Path(folder, path.name))) for path in files]  # the library writes next to them
        augmented = str(Path(folder, "augmented.onnx"))
        calibrator = MinMaxCalibrater(copies[0], STATIC_OPERATORS, augmented, use_external_data_format=len(copies) > 1)
        for path in copies:
            path.unlink()
        calibrator.augment_graph()
        del calibrator.model  # it holds the weights
        # The library's own session is not optimized, and transposes tied weights in each run.
        calibrator.infer_session = InferenceSession(augmented, session_options(), [PROVIDERS["cpu"]])
        module.session = recorder = _Recorder(calibrator)
        try:
            for prompt in _prompts(tokenizer, texts):
                ids = torch.tensor([prompt])
                module.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS)
        finally:
            module.session = session
        return calibrator.compute_data(), recorder.checked


class _Recorder:
    """Stands in for an inference session: runs the calibrator's, which gives the ranges, too."""

    def __init__(self, calibrator: Any) -> None:
        self._calibrator = calibrator
        self._outputs = [output.name for output in calibrator.infer_session.get_outputs()]
        self._runs = 0
        self.checked: list[Pass] = []

    def run(self, outputs: Sequence[str] | None, feed: Feed) -> Any:
        found = dict(zip(self._outputs, self._calibrator.infer_session.run(None, feed), strict=True))
        own = self._calibrator.model_original_outputs
        self._calibrator.intermediate_outputs.append([None if name in own else found[name] for name in self._outputs])
        if self._runs % NEW_TOKENS in (0, NEW_TOKENS - 1):
            self.checked.append(Pass({name: value.copy() for name, value in feed.items()}, found["logits"].copy()))
        self._runs += 1
        return [found[name] for name in outputs or (name for name in self._outputs if name in own)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._calibrator.infer_session, name)


def _prompts(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    """Equal stretches from all over the texts."""
    ids = [token for text in texts for token in tokenizer(text, verbose=False)["input_ids"]]
    step = max((len(ids) - PROMPT_TOKENS) // PROMPTS, 1)
    return [ids[start : start + PROMPT_TOKENS] for start in range(0, step * PROMPTS, step)]


def check_close(passes: Sequence[Pass], quantized: Any) -> None:
    """Raise QualityCollapsed where the quantized session's next-token distributions are far from those in float32."""
    divergence = sum(_divergence(one, quantized) for one in passes) / len(passes)
    if not divergence < KL_LIMIT:
        raise QualityCollapsed(
            f"static quantization broke the model: KL divergence from float32 of {divergence:.3f} nats per token over "
            f"the calibration text, more than {KL_LIMIT}"
        )


def _divergence(reference: Pass, quantized: Any) -> float:
    """Mean over the pass' positions of KL(reference || quantized), in nats."""
    import torch

    logits = map(torch.from_numpy, (reference.logits, quantized.run(["logits"], reference.feed)[0]))
    p, q = (torch.log_softmax(values.double(), dim=-1) for values in logits)
    return float((p.exp() * (p - q)).sum(-1).mean())
