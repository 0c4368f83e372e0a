"""onnxruntime-genai: graphs that its own builder makes, with fused attention, in its own loop over ONNX Runtime.

What is built is kept in the artifact store.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING

from llm_bench_fixtures.errors import BackendUnavailable
from llm_bench_fixtures.models.backend import Backend, Chosen
from llm_bench_fixtures.models.needs import Storage
from llm_bench_fixtures.models.variants import Variant

if TYPE_CHECKING:
    from llm_bench_fixtures.models.backends.genai_engine import GenaiModel
    from llm_bench_fixtures.models.loading import LoadRequest


VARIANTS = (
    Variant("ortgenai-fp32", "onnxruntime_genai", "ONNX graph of onnxruntime-genai's builder, in its own loop"),
    Variant(
        "ortgenai-int4",
        "onnxruntime_genai",
        "ortgenai-fp32 with 4-bit weights in blocks of 32, multiplied in int8",
        quantization="int4",
        base="ortgenai-fp32",
    ),
)

COMPUTED_IN = {0: "ONNX Runtime's choice", 1: "float32", 2: "float16", 3: "bfloat16", 4: "int8"}
"""What products with matrices in blocks are computed in, by MatMulNBits' accuracy_level."""

NAMED_ARCHITECTURE = re.compile(r'architectures\[0\] == "(\w+)"')  # in the builder's code, a branch for each


def prepare(request: LoadRequest) -> None:
    importlib.import_module("onnxruntime_genai")
    check_buildable(request.source.load_config().architectures or [""])


def check_buildable(architectures: list[str]) -> None:
    """Raise BackendUnavailable for an architecture that the installed builder doesn't name.

    The builder itself would say so only after it has imported torch in a process of its own.
    """
    known = builder_architectures()
    if known and architectures[0] not in known:
        raise BackendUnavailable(f"onnxruntime-genai's model builder doesn't know {architectures[0]}")


def builder_architectures() -> frozenset[str]:
    """Those that the installed builder has a branch for; none where its code is written in another way."""
    spec = importlib.util.find_spec("onnxruntime_genai")
    folder = Path(spec.origin).parent if spec and spec.origin else Path()
    builder = folder / "models" / "builder.py"
    return frozenset(NAMED_ARCHITECTURE.findall(builder.read_text("utf-8"))) if builder.is_file() else frozenset()


def load(request: LoadRequest) -> GenaiModel:
    from llm_bench_fixtures.models.backends.genai_engine import PLAIN, GenaiModel, build, open_engine
    from llm_bench_fixtures.models.conversion import converted_facts, read_counts
    from llm_bench_fixtures.models.device import resident_at_rest

    built = build(request, request.variant.quantization or PLAIN)
    before_bytes = resident_at_rest(request.device)
    tokenizer = request.source.load_tokenizer()
    engine = open_engine(built.folder, tokenizer.eos_token_id)
    facts = converted_facts(
        request,
        (built,),
        before_bytes,
        label=label(request.variant, read_counts(built.folder)["accuracy_levels"]),
        weight_bytes=sum(path.stat().st_size for path in built.folder.glob("*.onnx*")),
    )
    return GenaiModel(request.variant, request.device, engine, tokenizer, facts)


def label(variant: Variant, accuracy_levels: list[int]) -> str:
    """What runs, by what the graph asks of ONNX Runtime, which doesn't report the instructions that it chooses."""
    if variant.quantization is None:
        return "onnxruntime-genai float32"
    types = " and ".join(COMPUTED_IN.get(level, f"accuracy level {level}") for level in accuracy_levels)
    return f"onnxruntime-genai {variant.quantization}, computes in {types or 'float32'}"


STORED = {
    None: Storage(4.0, 4.0, output_copy=4.0, loading=4.0, making=12.0),
    "int4": Storage(0.65, 4.0, output_copy=0.65, loading=1.0, making=12.0),
}


BACKEND = Backend(
    load,
    prepare=prepare,
    devices=("cpu",),
    modules=("onnxruntime", "onnxruntime_genai", "onnx", "onnx_ir"),
    extra="onnxruntime-genai",
    storage=lambda variant, _: STORED[variant.quantization],
    variants=VARIANTS,
    chosen=Chosen.INSTALLED,
    takes_attention=False,
    libraries=("onnxruntime-genai",),
)
