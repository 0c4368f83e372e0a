"""Models of onnxruntime-genai's builder, made once and kept in the artifact store."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from llm_bench_fixtures.errors import BackendUnavailable, LlmBenchError, OutOfMemory
from llm_bench_fixtures.models.backends import onnx_graphs
from llm_bench_fixtures.models.conversion import OUT_OF_ROOM, key_of, unavailable_where_it_fails, write_counts
from llm_bench_fixtures.models.trial import Trial
from llm_bench_fixtures.processes.scratch import remove
from llm_bench_fixtures.processes.work_limit import run_within

if TYPE_CHECKING:
    import onnx

    from llm_bench_fixtures.models.artifacts import Artifact
    from llm_bench_fixtures.models.loading import LoadRequest
    from llm_bench_fixtures.models.source import ModelSource

PLAIN = "fp32"
FLOAT32_BYTES = 4
BLOCKS = "MatMulNBits"  # the operator of matrices in few bits
SCRATCH = "scratch"  # of the builder, beside what it makes
BUILDER_S = 7200.0  # of its work, at most; it takes minutes for a large model
COUNTS = (*onnx_graphs.COUNTS, "accuracy_levels")
LIBRARIES = ("torch", "transformers", "onnxruntime", "onnxruntime-genai", "onnx", "onnx-ir")


def build(request: LoadRequest, precision: str) -> Artifact:
    """The source's model as the builder makes it; in fewer bits only where it is right in float32.

    Raises BackendUnavailable where it can't be made or run, AnotherModel where it is another one.
    """
    if precision != PLAIN:
        build(request, PLAIN)

    def make(folder: Path) -> None:
        from llm_bench_fixtures.models.backends.torch import check_memory
        from llm_bench_fixtures.progress import Phase

        check_memory(request, FLOAT32_BYTES)
        trial = Trial.of_source(request.source)  # raises for what the builder would make up, or run
        with request.progress.activity(Phase.EXPORTING, f"building {request.source.name} for onnxruntime-genai"):
            run_builder(request.source, folder, precision)
            count_weights(folder)
            _try(request, folder, trial if precision == PLAIN else None)

    return request.store.get(f"genai-{precision}", key_of(request, LIBRARIES, COUNTS), make)


def run_builder(source: ModelSource, folder: Path, precision: str) -> None:
    """Run the builder in a process of its own, as it prints, changes the path of imports and keeps memory.

    Raises BackendUnavailable with what it says where it fails or takes too long, OutOfMemory where memory
    or the disk was too small.
    """
    from llm_bench_fixtures.processes.environment import off_the_working_folder, setting

    command = [sys.executable, "-m", "onnxruntime_genai.models.builder"]
    command += ["--input", str(source.folder), "--output", str(folder), "--cache_dir", str(folder / SCRATCH)]
    command += ["--precision", precision, "--execution_provider", "cpu"]
    command += ["--extra_options", "hf_token=false", f"hf_remote={source.trust_remote_code}".lower()]
    with off_the_working_folder(), setting("HF_HUB_OFFLINE", "1"):
        done = _run(command)
    if done.returncode:
        raise failure(done.returncode, done.stderr)
    remove(folder / SCRATCH)


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Raises BackendUnavailable where it takes longer than BUILDER_S."""
    try:
        return run_within(BUILDER_S, command)
    except subprocess.TimeoutExpired:
        limit = f"{BUILDER_S / 3600:g} hours"
        raise BackendUnavailable(f"onnxruntime-genai's model builder was stopped, as it took over {limit}") from None


def failure(status: int, stderr: str) -> LlmBenchError:
    """What the builder's exit status and last words mean."""
    reason = stderr.strip().rpartition("\n")[2] or f"exit status {status}"
    if status < 0 or OUT_OF_ROOM.search(reason):
        return OutOfMemory(f"onnxruntime-genai's model builder was ended: {reason}")
    hint = ""
    if "cannot import name" in reason:
        hint = ". Version 0.15.2 works under transformers 4.57, 0.18 under transformers 5"
    return BackendUnavailable(f"onnxruntime-genai's model builder failed: {reason}{hint}")


def _try(request: LoadRequest, folder: Path, trial: Trial | None) -> None:
    """Raise BackendUnavailable for a model that doesn't run, AnotherModel for one that fails the trial, so that it
    isn't kept."""
    from llm_bench_fixtures.models.backends.genai_model import continue_rows, forward, open_engine

    with unavailable_where_it_fails("onnxruntime-genai doesn't run what its builder made"):
        engine = open_engine(folder, request.source.load_tokenizer().eos_token_id)
        continue_rows(engine, [[1, 1, 1], [1, 1]], 3, 2)
        if trial is not None:
            trial.check("onnxruntime-genai's conversion", lambda ids: forward(engine, ids.tolist()))


def count_weights(folder: Path) -> None:
    """Keep COUNTS of the graph in the folder."""
    import onnx

    path = onnx_graphs.only_graph(folder)
    graph = onnx.load(path, load_external_data=False).graph
    read = onnx_graphs.weight_bytes_read(path)
    counts = (read, quantized_share(graph), accuracy_levels(graph))
    write_counts(folder, dict(zip(COUNTS, counts, strict=True)))


def _block_attributes(graph: onnx.GraphProto) -> list[dict[str, int]]:
    """Those of each product with a matrix in blocks."""
    from onnx import helper

    blocks = [node for node in graph.node if node.op_type == BLOCKS]
    return [{item.name: helper.get_attribute_value(item) for item in node.attribute} for node in blocks]


def accuracy_levels(graph: onnx.GraphProto) -> list[int]:
    """In what ONNX Runtime is asked to multiply matrices in blocks: 1 is float32, 4 is int8, 0 leaves it the choice."""
    return sorted({attributes.get("accuracy_level", 0) for attributes in _block_attributes(graph)})


def quantized_share(graph: onnx.GraphProto) -> float:
    """Of all weights of the graph, how many are in MatMulNBits' blocks, whose scales are no weights."""
    from onnx import TensorProto

    quantized = sum(attributes["N"] * attributes["K"] for attributes in _block_attributes(graph))
    beside = {name for node in graph.node if node.op_type == BLOCKS for name in node.input}
    others = sum(
        math.prod(weight.dims)
        for weight in graph.initializer
        if weight.data_type == TensorProto.FLOAT and weight.name not in beside
    )
    return float(quantized / max(quantized + others, 1))
