"""ONNX Runtime through Optimum: exported with its KV cache, as it is or quantized to int8.

Exports and quantized models are kept in the artifact store.
"""

from __future__ import annotations

import importlib
import platform
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from llm_bench_fixtures.errors import BackendUnavailable
from llm_bench_fixtures.models import conversion
from llm_bench_fixtures.models.artifacts import Artifact, Key
from llm_bench_fixtures.models.backend import Backend, LoadRequest, Storage, first_missing
from llm_bench_fixtures.models.backends import onnx_graphs as graphs
from llm_bench_fixtures.models.backends.torch import load_float32
from llm_bench_fixtures.models.device import Device, processor_flags
from llm_bench_fixtures.models.transformers import prepare_for_greedy
from llm_bench_fixtures.models.variants import TOLERANCES, Arithmetic, Variant, quantized_from
from llm_bench_fixtures.progress import Phase
from llm_bench_fixtures.workloads import CALIBRATION_FOLDER, CacheKind, read_corpus

DYNAMIC, STATIC = "int8-dynamic", "int8-static"
FULL = Variant("ort-fp32", "onnxruntime", "ONNX export with KV cache, run by ONNX Runtime")
VARIANTS = (
    FULL,
    quantized_from(FULL, "ort-int8-dynamic", "int8 weights, activations quantized as they come", DYNAMIC),
    quantized_from(FULL, "ort-int8-static", "int8 weights and activation ranges calibrated beforehand", STATIC),
)

# ONNX Runtime by default keeps a file below ~/.cache, runs a thread of its own meanwhile, and reports to its maker.
NO_TELEMETRY = {"ORT_DISABLE_TELEMETRY": "1"}

FAILED_ALLOCATION = re.compile(
    r"(?:\[ONNXRuntimeError\].*?(?:out of memory|(?:failed|unable) to allocate)|failed to allocate memory for)"
    r"(?:.*?buffer of size (\d+))?",
    re.IGNORECASE | re.DOTALL,
)

LIBRARIES = ("torch", "transformers", "optimum", "optimum-onnx", "onnxscript", "onnxruntime", "onnxruntime-gpu", "onnx")

_of_text = partial(Storage, is_known=True, is_text_only=True, has_windows=False, has_all_logits=True)
_stored = partial(_of_text, cache_copies=2, scores=2, making=14.0)
STORED = {
    None: _stored(4.0, 4.0, loading=4.0),
    DYNAMIC: _stored(1.0, 1.0, loading=1.0),
    STATIC: _stored(1.0, 4.0, output=1.0, made_output=1.0, loading=1.0),
}


def check(variant: Variant, device: Device) -> None:
    if variant.quantization is not None and device.kind != "cpu":
        raise BackendUnavailable("ONNX Runtime runs int8 operators on CPU only; choose it with --llm-device cpu")
    if graphs.USES_EXPORTER and device.kind != "cpu":
        raise BackendUnavailable("without Optimum ONNX Runtime runs on CPU only; choose it with --llm-device cpu")
    import onnxruntime

    provider = graphs.PROVIDERS[device.kind]
    if provider not in onnxruntime.get_available_providers():
        raise BackendUnavailable(f"this build of onnxruntime has no {provider}: pip install onnxruntime-gpu")


def prepare(request: LoadRequest) -> None:
    if graphs.USES_EXPORTER:
        if first_missing(("transformers.exporters",)):
            raise BackendUnavailable("without Optimum, ONNX exports need transformers 5.23 or newer")
        return
    # optimum sets its own level when first imported, past quiet_libraries
    importlib.import_module("optimum.utils.logging").set_verbosity_error()
    conversion.check_exportable(request.source.model_type, "ONNX")


def load(request: LoadRequest) -> graphs.OnnxModel:
    made: tuple[Artifact, ...] = (export(request),)
    label, quantization = "ONNX Runtime float32", request.variant.quantization
    if quantization is not None:
        quantize = quantize_dynamic if quantization == DYNAMIC else quantize_static
        made += (quantize(request, made[0]),)
        label = f"ONNX Runtime {quantization.replace('-', ' ')} ({instruction_set()})"
    facts = conversion.converted_facts(request, made, label)
    module = graphs.open_model(made[-1].folder, request.device)
    if quantization == DYNAMIC:
        facts = replace(facts, tolerance=TOLERANCES[Arithmetic.INT8_PER_BATCH])
    facts = replace(facts, cache_kinds=frozenset({CacheKind.DYNAMIC, CacheKind.OFF}))
    return graphs.OnnxModel(request.variant, request.device, module, request.source.load_tokenizer(), facts)


def export(request: LoadRequest) -> Artifact:
    """The source's model as a graph with its cache. Raises BackendUnavailable where that can't be made or run."""

    def build(folder: Path) -> None:
        exporting = request.progress.activity(Phase.EXPORTING, f"exporting {request.source.name} to ONNX")
        failing = f"{graphs.EXPORTED_BY} can't export {request.source.model_type} models to ONNX"
        with exporting, conversion.unavailable_where_it_fails(failing):
            trial = _export(request, folder)
            graphs.count_weights(folder)
        _try(request, folder, trial)

    return request.store.get("onnx-export", conversion.key_of(request, LIBRARIES), build)


def _export(request: LoadRequest, folder: Path) -> conversion.TextTrial:
    """Export what the source loads: Optimum's own load fills weights that the files lack with random numbers."""
    module = load_float32(request)
    module.config.use_cache = True
    trial = conversion.TextTrial.of(module)
    if graphs.USES_EXPORTER:
        from llm_bench_fixtures.models.backends.onnx_generation import export

        prepare_for_greedy(module, request.source.load_tokenizer())
        export(module, folder)
    else:
        from optimum.exporters.onnx import onnx_export_from_model

        with conversion.plain_embedding(module):
            onnx_export_from_model(module, folder, task=conversion.EXPORT_TASK, do_validation=False)
    return trial


def _try(request: LoadRequest, folder: Path, trial: conversion.TextTrial | None = None) -> Any:
    """Try the graph in the folder, as `try_converted` does, and return it, opened. What is raised says all of what
    fails."""
    open_quietly = partial(graphs.open_model, folder, request.device, log_severity=graphs.FATAL_ERRORS)
    return conversion.try_converted(request, "ONNX Runtime", open_quietly, trial)


def instruction_set() -> str:
    """The best of those that ONNX Runtime's int8 operators differ by, that this processor has."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return "arm64"
    flags = processor_flags()
    if flags & {"avx512_vnni", "avx512vnni"}:
        return "avx512_vnni"
    return "avx512" if "avx512f" in flags else "avx2"


def quantize_dynamic(request: LoadRequest, exported: Artifact) -> Artifact:
    """The exported graph with weights in int8, whose activations are quantized as they come."""
    key: Key = {**conversion.key_of(request, LIBRARIES), "config": f"dynamic {instruction_set()}"}

    def build(folder: Path) -> None:
        with request.progress.activity(Phase.QUANTIZING, f"quantizing {request.source.name} to int8, dynamic"):
            _quantize(request, exported.folder, folder)

    return request.store.get("onnx-int8-dynamic", key, build)


def quantize_static(request: LoadRequest, exported: Artifact) -> Artifact:
    """The exported graph in int8, with ranges of its activations that are calibrated beforehand."""
    texts = read_corpus(CALIBRATION_FOLDER).texts
    key: Key = {
        **conversion.key_of(request, LIBRARIES),
        "config": f"static {instruction_set()} {graphs.STATIC_OPERATORS}",
        "calibration": graphs.calibration_recipe(texts),
    }
    name = request.source.name

    def build(folder: Path) -> None:
        with request.progress.activity(Phase.CALIBRATING, f"calibrating {name} on generated text"):
            module, tokenizer = graphs.open_model(exported.folder, request.device), request.source.load_tokenizer()
            graph = graphs.only_graph(exported.folder)
            ranges, passes = graphs.calibrate(module, tokenizer, texts, graph, folder)
            del module  # its session holds the weights
        with request.progress.activity(Phase.QUANTIZING, f"quantizing {name} to int8, static"):
            module = _quantize(request, exported.folder, folder, ranges)
        with request.progress.activity(Phase.CALIBRATING, f"checking {name} in int8 against float32"):
            graphs.check_close(passes, module.session)

    return request.store.get("onnx-int8-static", key, build)


def _quantize(request: LoadRequest, source: Path, target: Path, ranges: Any = None) -> Any:
    """The quantized model, opened. ranges: of the activations; None to quantize them as they come.

    Raises BackendUnavailable where the quantized graph can't be made or run.
    """
    size = sum(path.stat().st_size for path in source.glob("*.onnx*"))
    with conversion.unavailable_where_it_fails(f"ONNX Runtime can't quantize {request.source.model_type} models"):
        graph = quantized(graphs.only_graph(source), ranges)
        graph.save_model_to_file(str(target / "model_quantized.onnx"), size > graphs.ONE_FILE_LIMIT_BYTES)
        for settings in source.glob("*config.json"):
            shutil.copy(settings, target)
        graphs.count_weights(target)
    return _try(request, target)


def quantized(graph_file: Path, ranges: Any) -> Any:
    """The graph as ONNX Runtime's quantizer for this processor makes it. ranges: as `_quantize` has them.

    Only a dynamic one quantizes each channel by itself.
    """
    import onnx
    from onnxruntime.quantization import QuantType
    from onnxruntime.quantization.onnx_quantizer import ONNXQuantizer
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
    from onnxruntime.quantization.quant_utils import QuantizationMode
    from onnxruntime.quantization.registry import IntegerOpsRegistry

    model = onnx.load(graph_file)
    settings: dict[str, Any] = {
        "reduce_range": False,
        "weight_qType": QuantType.QUInt8 if instruction_set() == "avx2" else QuantType.QInt8,
        "activation_qType": QuantType.QUInt8,
        "tensors_range": ranges,
        "nodes_to_quantize": [],
        "nodes_to_exclude": [],
        "extra_options": {"WeightSymmetric": True},
    }
    if ranges is not None:
        quantizer = QDQQuantizer(model, per_channel=False, op_types_to_quantize=graphs.STATIC_OPERATORS, **settings)
    else:
        operators, mode = list(IntegerOpsRegistry), QuantizationMode.IntegerOps
        quantizer = ONNXQuantizer(
            model, per_channel=True, mode=mode, static=False, op_types_to_quantize=operators, **settings
        )
    quantizer.quantize_model()
    return quantizer.model


BACKEND = Backend(
    load,
    check,
    prepare,
    devices=("cpu", "cuda"),
    modules=(*(graphs.EXPORTER if graphs.USES_EXPORTER else graphs.OPTIMUM), "onnxruntime"),
    extra="onnxruntime",
    extra_note=f"{conversion.NEEDS_TRANSFORMERS_4}; under transformers 5 take [onnxruntime-transformers5]",
    imports=("onnxruntime", graphs.GENERATION) if graphs.USES_EXPORTER else ("optimum.onnxruntime",),
    environment=NO_TELEMETRY,
    storage=lambda variant, _: STORED[variant.quantization],
    variants=VARIANTS,
    libraries=("optimum", "optimum-onnx", "onnxscript", "onnxruntime", "onnxruntime-gpu"),
    takes_attention=False,
    threads_setting="SessionOptions.intra_op_num_threads",
    loggers=("optimum", "onnxruntime", "onnx_ir", "onnxscript", "torch.onnx"),
    failed_allocation=FAILED_ALLOCATION,
)
