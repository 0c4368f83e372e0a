"""ONNX Runtime through Optimum: exported with its KV cache, as it is or quantized to int8.

Exports and quantized models are kept in the artifact store.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from llm_bench_fixtures.errors import BackendUnavailable
from llm_bench_fixtures.models.backend import Backend
from llm_bench_fixtures.models.needs import Storage
from llm_bench_fixtures.models.variants import Variant

if TYPE_CHECKING:
    from llm_bench_fixtures.models.artifacts import Artifact
    from llm_bench_fixtures.models.backends.onnx_graphs import OnnxModel
    from llm_bench_fixtures.models.device import Device
    from llm_bench_fixtures.models.loading import LoadRequest


DYNAMIC, STATIC = "int8-dynamic", "int8-static"
VARIANTS = (
    Variant("ort-fp32", "onnxruntime", "ONNX export with KV cache, run by ONNX Runtime"),
    Variant(
        "ort-int8-dynamic",
        "onnxruntime",
        "ort-fp32 with int8 weights, activations quantized as they come",
        quantization=DYNAMIC,
        base="ort-fp32",
    ),
    Variant(
        "ort-int8-static",
        "onnxruntime",
        "ort-fp32 with int8 weights and activation ranges calibrated beforehand",
        quantization=STATIC,
        base="ort-fp32",
    ),
)

# By default it keeps a file below ~/.cache, has a thread of its own while it measures, and sends its maker word.
NO_TELEMETRY = {"ORT_DISABLE_TELEMETRY": "1"}

FAILED_ALLOCATION = re.compile(
    r"(?:\[ONNXRuntimeError\].*?(?:out of memory|(?:failed|unable) to allocate)|failed to allocate memory for)"
    r"(?:.*?buffer of size (\d+))?",
    re.IGNORECASE | re.DOTALL,
)


def check(variant: Variant, device: Device) -> None:
    from llm_bench_fixtures.models.backends.onnx_graphs import PROVIDERS

    if variant.quantization is not None and device.kind != "cpu":
        raise BackendUnavailable("ONNX Runtime runs int8 operators on CPU only; choose it with --llm-device cpu")
    import onnxruntime

    provider = PROVIDERS[device.kind]
    if provider not in onnxruntime.get_available_providers():
        raise BackendUnavailable(f"this build of onnxruntime has no {provider}: pip install onnxruntime-gpu")


def prepare(request: LoadRequest) -> None:
    importlib.import_module("optimum.onnxruntime")
    # optimum sets its own level when first imported, past quiet_libraries
    importlib.import_module("optimum.utils.logging").set_verbosity_error()
    optimum = importlib.import_module("llm_bench_fixtures.models.backends.optimum_models")
    optimum.check_exportable(request.source.load_config().model_type, "ONNX")


def _make(request: LoadRequest) -> tuple[tuple[Artifact, ...], str]:
    """What is made for the variant, what runs last, and a label for that."""
    from llm_bench_fixtures.models.backends import onnx_making as making

    exported = making.export(request)
    if request.variant.quantization is None:
        return (exported,), "ONNX Runtime float32"
    is_dynamic = request.variant.quantization == DYNAMIC
    quantize, how = (making.quantize_dynamic, "dynamic") if is_dynamic else (making.quantize_static, "static")
    return (exported, quantize(request, exported)), f"ONNX Runtime int8 {how} ({making.instruction_set()})"


def load(request: LoadRequest) -> OnnxModel:
    from llm_bench_fixtures.models.arithmetic import TOLERANCES, Arithmetic
    from llm_bench_fixtures.models.backends.onnx_graphs import OnnxModel, open_model
    from llm_bench_fixtures.models.conversion import converted_facts
    from llm_bench_fixtures.models.device import resident_at_rest
    from llm_bench_fixtures.workloads import CacheKind

    made, label = _make(request)
    before_bytes = resident_at_rest(request.device)
    folder = made[-1].folder
    module = open_model(folder, request.device)
    files = [path for path in folder.iterdir() if ".onnx" in path.suffixes or ".onnx_data" in path.suffixes]
    weight_bytes = sum(path.stat().st_size for path in files)
    facts = converted_facts(request, made, before_bytes, label=label, weight_bytes=weight_bytes)
    if request.variant.quantization == DYNAMIC:
        facts = replace(facts, tolerance=TOLERANCES[Arithmetic.INT8_PER_BATCH])
    facts = replace(facts, cache_kinds=frozenset({CacheKind.DYNAMIC, CacheKind.OFF}))
    return OnnxModel(request.variant, request.device, module, request.source.load_tokenizer(), facts)


STORED = {
    None: Storage(4.0, 4.0, output_copy=4.0, has_all_logits=True, loading=4.0, making=16.0),
    DYNAMIC: Storage(1.0, 1.0, output_copy=1.0, has_all_logits=True, loading=1.0, making=16.0),
    STATIC: Storage(1.0, 4.0, output_copy=1.0, has_all_logits=True, loading=1.0, making=16.0),
}


BACKEND = Backend(
    load,
    check,
    prepare,
    devices=("cpu", "cuda"),
    modules=("optimum", "optimum.onnxruntime", "onnxruntime"),
    extra="onnxruntime",
    imports=("optimum.onnxruntime",),
    environment=NO_TELEMETRY,
    storage=lambda variant, _: STORED[variant.quantization],
    variants=VARIANTS,
    libraries=("optimum", "optimum-onnx", "onnxruntime", "onnxruntime-gpu"),
    takes_attention=False,
    loggers=("optimum", "onnxruntime", "onnx_ir", "onnxscript", "torch.onnx"),
    failed_allocation=FAILED_ALLOCATION,
)
