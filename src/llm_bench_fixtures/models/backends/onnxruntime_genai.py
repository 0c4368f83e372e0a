"""onnxruntime-genai: graphs that its own builder makes, with fused attention, in its own loop over ONNX Runtime.

What is built is kept in the artifact store.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import BackendUnavailable, LlmBenchError, OutOfMemory, WorkloadUnsupported
from llm_bench_fixtures.models import conversion
from llm_bench_fixtures.models.backend import LoadRequest, Storage
from llm_bench_fixtures.models.backends import onnx_graphs
from llm_bench_fixtures.models.backends.torch import load_float32
from llm_bench_fixtures.models.model import EngineModel, OnToken, Rows, Shown
from llm_bench_fixtures.models.variants import Variant, quantized_from
from llm_bench_fixtures.processes.environment import off_the_working_folder, setting
from llm_bench_fixtures.processes.scratch import remove
from llm_bench_fixtures.progress import Phase

if TYPE_CHECKING:
    import onnx
    import torch

    from llm_bench_fixtures.models.artifacts import Artifact
    from llm_bench_fixtures.models.source import ModelSource

FULL = Variant("ortgenai-fp32", "onnxruntime_genai", "ONNX graph of onnxruntime-genai's builder, in its own loop")
VARIANTS = (
    FULL,
    quantized_from(FULL, "ortgenai-int4", "4-bit weights in blocks of 32, multiplied in int8", "int4"),
)

COMPUTED_IN = {0: "ONNX Runtime's choice", 1: "float32", 2: "float16", 3: "bfloat16", 4: "int8"}
"""Precision that products with matrices in blocks are computed in, by MatMulNBits' accuracy_level."""

NAMED_ARCHITECTURE = re.compile(r'architectures\[0\] == "(\w+)"')  # in the builder's code, a branch for each

PLAIN = "fp32"
SCRATCH = "scratch"  # the builder's folder, next to what it makes
BUILDER_S = 7200.0  # seconds that the builder may take; a large model takes minutes
LIBRARIES = ("torch", "transformers", "onnxruntime", "onnxruntime-genai", "onnx", "onnx-ir")
PADDING = -1
"""Stands for no token. The engine takes each place that holds the id of its padding for one, and prompts may hold any
token; looked up in the table of embeddings, it gives the last row, which its mask then hides."""

MOST_ROWS = 32  # rows that the engine runs at a time
GREEDY = {
    "do_sample": False,
    "num_beams": 1,
    "num_return_sequences": 1,
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
}
"""Search options, in place of those published with the model."""

STORED = {
    None: Storage(4.0, 4.0, output_copy=4.0, loading=4.0, making=12.0),
    "int4": Storage(0.65, 4.0, output_copy=0.65, loading=1.0, making=12.0),
}


def prepare(request: LoadRequest) -> None:
    """Raise BackendUnavailable for an architecture that the installed builder has no branch for.

    The builder itself would say so only after it has imported torch in a process of its own.
    """
    import onnxruntime_genai

    architecture = (request.source.load_config().architectures or [""])[0]
    builder = Path(onnxruntime_genai.__file__).parent / "models" / "builder.py"
    # None where its code is written in another way, or is elsewhere.
    known = NAMED_ARCHITECTURE.findall(builder.read_text("utf-8")) if builder.is_file() else []
    if known and architecture not in known:
        raise BackendUnavailable(f"onnxruntime-genai's model builder doesn't know {architecture}")


def load(request: LoadRequest) -> GenaiModel:
    built = build(request, request.variant.quantization or PLAIN)
    named = label(request.variant, conversion.read_counts(built.folder)["accuracy_levels"])
    facts = conversion.converted_facts(request, (built,), named)
    engine = open_engine(built.folder)
    return GenaiModel(request.variant, request.device, engine, request.source.load_tokenizer(), facts)


def label(variant: Variant, accuracy_levels: list[int]) -> str:
    """What runs, by what the graph asks of ONNX Runtime, which doesn't report the instructions that it chooses."""
    if variant.quantization is None:
        return "onnxruntime-genai float32"
    types = " and ".join(COMPUTED_IN.get(level, f"accuracy level {level}") for level in accuracy_levels)
    return f"onnxruntime-genai {variant.quantization}, computes in {types or 'float32'}"


def build(request: LoadRequest, precision: str) -> Artifact:
    """The source's model as the builder makes it; in fewer bits only where it is right in float32.

    Raises BackendUnavailable where it can't be made or run, AnotherModel where it is another one.
    """
    if precision != PLAIN:
        build(request, PLAIN)

    def make(folder: Path) -> None:
        trial = conversion.TextTrial.of(load_float32(request))  # raises for what the builder would make up, or run
        with request.progress.activity(Phase.EXPORTING, f"building {request.source.name} for onnxruntime-genai"):
            run_builder(request.source, folder, precision)
            end_no_text(folder)
            onnx_graphs.count_weights(folder, accuracy_levels=accuracy_levels)
            _try(folder, trial if precision == PLAIN else None)

    key = {**conversion.key_of(request, LIBRARIES, ["accuracy_levels"]), "ends a text": "no token"}
    return request.store.get(f"genai-{precision}", key, make)


def run_builder(source: ModelSource, folder: Path, precision: str) -> None:
    """Run the builder in a process of its own, as it prints, changes the path of imports and keeps memory.

    Raises BackendUnavailable with what it says where it fails or takes too long, OutOfMemory where memory
    or the disk was too small.
    """
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder"]
    command += ["--input", str(source.folder), "--output", str(folder), "--cache_dir", str(folder / SCRATCH)]
    command += ["--precision", precision, "--execution_provider", "cpu"]
    command += ["--extra_options", "hf_token=false", f"hf_remote={source.trust_remote_code}".lower()]
    try:
        with off_the_working_folder(), setting("HF_HUB_OFFLINE", "1"):
            done = subprocess.run(  # noqa: S603  # our own command
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=BUILDER_S
            )
    except subprocess.TimeoutExpired:
        limit = f"{BUILDER_S / 3600:g} hours"
        raise BackendUnavailable(f"onnxruntime-genai's model builder was stopped, as it took over {limit}") from None
    if done.returncode:
        raise failure(done.returncode, done.stderr)
    remove(folder / SCRATCH)


def failure(status: int, stderr: str) -> LlmBenchError:
    """Error for the builder's exit status and last words."""
    reason = stderr.strip().rpartition("\n")[2] or f"exit status {status}"
    if status < 0 or conversion.OUT_OF_ROOM.search(reason):
        return OutOfMemory(f"onnxruntime-genai's model builder was ended: {reason}")
    hint = ""
    if "cannot import name" in reason:
        hint = ". Version 0.15.2 works under transformers 4.57, 0.18 under transformers 5"
    return BackendUnavailable(f"onnxruntime-genai's model builder failed: {reason}{hint}")


def _try(folder: Path, trial: conversion.TextTrial | None) -> None:
    """Raise BackendUnavailable for a model that doesn't run, AnotherModel for one that fails the trial, so that it
    isn't kept."""
    with conversion.unavailable_where_it_fails("onnxruntime-genai doesn't run what its builder made"):
        engine = open_engine(folder)
        continue_rows(engine, [[1, 1, 1], [1, 1]], 3, 2)
        if trial is not None:
            trial.check("onnxruntime-genai's conversion", lambda ids: forward(engine, ids.tolist()))


def end_no_text(folder: Path) -> None:
    """Let no token end a text. The file itself is changed, because an overlay can only add tokens to its list."""
    path = folder / "genai_config.json"
    config = json.loads(path.read_text("utf-8"))
    config["model"]["eos_token_id"] = []
    path.write_text(json.dumps(config), "utf-8")


def accuracy_levels(graph: onnx.GraphProto) -> list[int]:
    """Levels at which ONNX Runtime is asked to multiply matrices in blocks: 1 is float32, 4 is int8, 0 leaves it the
    choice."""
    return sorted({attributes.get("accuracy_level", 0) for attributes in onnx_graphs.block_attributes(graph)})


def open_engine(folder: Path) -> Any:
    """The engine over a built model, with as many threads as torch uses."""
    import onnxruntime_genai
    import torch

    session: dict[str, int | str | bool] = {
        "intra_op_num_threads": torch.get_num_threads(),
        "log_severity_level": onnx_graphs.ERRORS,
        "enable_cpu_mem_arena": False,  # the arena would keep what the largest run took, and decodes no faster
    }
    if os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive":  # this pool has no such variable of its own
        session["session.intra_op.allow_spinning"] = "0"
    model = {"pad_token_id": PADDING, "decoder": {"session_options": session}}
    config = onnxruntime_genai.Config(str(folder))
    config.overlay(json.dumps({"model": model}))
    return onnxruntime_genai.Model(config)


def start(engine: Any, rows: Sequence[Sequence[int]], width: int, new_tokens: int) -> Any:
    """A generator of the engine's that has run the rows, padded to that width on the right."""
    import numpy as np
    import onnxruntime_genai

    parameters = onnxruntime_genai.GeneratorParams(engine)
    parameters.set_search_options(**GREEDY, batch_size=len(rows), max_length=width + new_tokens)
    generator = onnxruntime_genai.Generator(engine, parameters)
    generator.append_tokens(np.array([[*row, *[PADDING] * (width - len(row))] for row in rows], dtype=np.int32))
    return generator


def forward(engine: Any, rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """Logits of rows of one length: (B, T, V) float32."""
    import torch

    return torch.from_numpy(start(engine, rows, len(rows[0]), 0).get_output("logits"))


def continue_rows(
    engine: Any,
    rows: Sequence[Sequence[int]],
    width: int,
    new_tokens: int,
    on_token: OnToken = None,
    shown: Shown = None,
) -> Rows:
    """The greedy continuation of each row, padded to that width. The last two: as in `EngineModel.continued`.

    A row alone isn't padded: the engine would forget that it is after the first token.
    """
    import numpy as np
    import torch

    generator = start(engine, rows, width if len(rows) > 1 else len(rows[0]), new_tokens)
    steps = []
    for _ in range(new_tokens):
        if shown is not None:
            shown.append(torch.tensor(generator.get_logits())[:, -1])
        generator.generate_next_token()
        if on_token is not None:
            on_token()
        steps.append(generator.get_next_tokens())
    texts: Rows = np.array(steps).T.tolist()
    return texts


class GenaiModel(EngineModel):
    """Runs token ids with onnxruntime-genai, whose attention takes padding on the right only: rows are moved there."""

    def continued(self, rows: Rows, width: int, new_tokens: int, on_token: OnToken, shown: Shown) -> Rows:
        """As `EngineModel.continued`. Raises WorkloadUnsupported for more rows than the engine takes."""
        if len(rows) > MOST_ROWS:
            raise WorkloadUnsupported(f"onnxruntime-genai runs at most {MOST_ROWS} prompts at a time")
        return continue_rows(self.engine, rows, width, new_tokens, on_token, shown)

    def logits(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """As `Model.logits`. Padding on the right needs no mask, as no position before it sees it."""
        import torch

        rows = input_ids.tolist()
        parts = (rows[first : first + MOST_ROWS] for first in range(0, len(rows), MOST_ROWS))
        return torch.cat([forward(self.engine, part) for part in parts])


BACKEND = conversion.engine_on_cpu(
    load,
    prepare=prepare,
    modules=("onnxruntime", "onnxruntime_genai", "onnx", "onnx_ir"),
    extra="onnxruntime-genai",
    storage=lambda variant, _: STORED[variant.quantization],
    variants=VARIANTS,
    threads_setting="intra_op_num_threads",
    libraries=("onnxruntime-genai",),
)
