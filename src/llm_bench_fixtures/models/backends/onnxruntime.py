"""ONNX Runtime through Optimum: exported with its KV cache, as it is or quantized to int8.

Exports and quantized models are kept in the artifact store.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import re
from collections import defaultdict
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import BackendUnavailable
from llm_bench_fixtures.models.backend import Backend
from llm_bench_fixtures.models.variants import Precision, Variant, check_quantization

if TYPE_CHECKING:
    from llm_bench_fixtures.models.artifacts import Artifact, Key
    from llm_bench_fixtures.models.device import Device
    from llm_bench_fixtures.models.loading import LoadRequest
    from llm_bench_fixtures.models.transformers import TransformersModel


class Quantization(StrEnum):
    INT8_DYNAMIC = "int8-dynamic"
    INT8_STATIC = "int8-static"


VARIANTS = (
    Variant("ort-fp32", "onnxruntime", "ONNX export with KV cache, run by ONNX Runtime"),
    Variant(
        "ort-int8-dynamic",
        "onnxruntime",
        "ort-fp32 with int8 weights, activations quantized as they come",
        quantization=Quantization.INT8_DYNAMIC,
        base="ort-fp32",
    ),
    Variant(
        "ort-int8-static",
        "onnxruntime",
        "ort-fp32 with int8 weights and activation ranges calibrated beforehand",
        quantization=Quantization.INT8_STATIC,
        base="ort-fp32",
    ),
)
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}  # by kind of device
STATIC_OPERATORS = ["MatMul", "Gemm"]
FACTS_FILE = "facts.json"  # beside each graph, so that no load has to read it
ONE_FILE_LIMIT_BYTES = 1_500_000_000  # protobuf holds 2 GB; above this the weights go to a file of their own


FAILED_ALLOCATION = re.compile(
    r"(?:\[ONNXRuntimeError\].*?(?:out of memory|(?:failed|unable) to allocate)|failed to allocate memory for)"
    r"(?:.*?buffer of size (\d+))?",
    re.IGNORECASE | re.DOTALL,
)


def check(variant: Variant, device: Device) -> None:
    check_quantization(variant, (None, *Quantization))
    if device.kind not in PROVIDERS:
        raise BackendUnavailable("Optimum's ONNX Runtime models run on CPU and CUDA only")
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


def _make(request: LoadRequest) -> tuple[Artifact, Artifact, str]:
    """The export, what is run of it, and a label for that."""
    exported = _export(request)
    if request.variant.quantization == Quantization.INT8_DYNAMIC:
        return exported, _quantize_dynamic(request, exported), f"ONNX Runtime int8 dynamic ({instruction_set()})"
    if request.variant.quantization == Quantization.INT8_STATIC:
        return exported, _quantize_static(request, exported), f"ONNX Runtime int8 static ({instruction_set()})"
    return exported, exported, "ONNX Runtime float32"


def load(request: LoadRequest) -> TransformersModel:
    from llm_bench_fixtures.models.device import ResolvedPrecision, resident_bytes
    from llm_bench_fixtures.models.transformers import greedy_model, source_facts
    from llm_bench_fixtures.workloads import CacheKind

    exported, artifact, label = _make(request)
    request.device.release_cached_memory()
    before_bytes = resident_bytes()  # here, so that what an export leaves behind isn't taken for the model's memory
    module = open_model(artifact.folder, request.device)
    files = [path for path in artifact.folder.iterdir() if ".onnx" in path.suffixes or ".onnx_data" in path.suffixes]
    weight_bytes = sum(path.stat().st_size for path in files)
    precision = ResolvedPrecision(Precision.FLOAT32, Precision.FLOAT32)
    facts = replace(
        source_facts(request.variant, module.config, precision, label=label, weight_bytes=weight_bytes),
        weight_bytes_read=json.loads((artifact.folder / FACTS_FILE).read_text())["weight_bytes_read"],
        compute=None if request.variant.quantization else Precision.FLOAT32,
        tolerance=tolerance(request.variant),
        cache_kinds=frozenset({CacheKind.DYNAMIC, CacheKind.OFF}),
        notes=tuple(dict.fromkeys((exported.note, artifact.note))),
        resident_before_load_bytes=before_bytes,
    )
    return greedy_model(request, module, facts)


def tolerance(variant: Variant) -> float:
    """The scale of dynamic quantization's activations depends on all rows of a batch."""
    from llm_bench_fixtures.models.arithmetic import TOLERANCES, Arithmetic

    of_int8 = {
        Quantization.INT8_DYNAMIC: Arithmetic.INT8_PER_BATCH,
        Quantization.INT8_STATIC: Arithmetic.INT8,
    }
    return TOLERANCES[of_int8[Quantization(variant.quantization)] if variant.quantization else Arithmetic.FLOAT32]


def open_model(folder: Path, device: Device) -> Any:
    """Optimum's generation model over the ONNX file in the folder, with as many threads as torch uses."""
    import torch
    from onnxruntime import SessionOptions
    from optimum.onnxruntime import ORTModelForCausalLM

    place = {"device_id": device.index} if device.kind == "cuda" else None
    options = SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    if os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive":  # this pool has no such variable of its own
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3  # errors only
    return ORTModelForCausalLM.from_pretrained(
        folder,
        file_name=only_graph(folder).name,
        provider=PROVIDERS[device.kind],
        provider_options=place,
        session_options=options,
        local_files_only=True,
    )


def _key(request: LoadRequest) -> dict[str, Any]:
    """What every artifact of this backend depends on."""
    from llm_bench_fixtures.models.versions import installed_versions
    from llm_bench_fixtures.progress import Phase

    names = ("torch", "transformers", "optimum", "optimum-onnx", "onnxruntime", "onnxruntime-gpu", "onnx")
    with request.progress.activity(Phase.CHECKING, f"reading the weights of {request.source.name}"):
        digest = request.source.digest
    return {"model": digest, "holds": FACTS_FILE, **installed_versions(names)}


def _export(request: LoadRequest) -> Artifact:
    from llm_bench_fixtures.progress import Phase

    def build(folder: Path) -> None:
        from optimum.exporters.onnx import main_export

        from llm_bench_fixtures.models.trust import check_trusted

        check_trusted(request.source.folder, request.source.trust_remote_code)
        with request.progress.activity(Phase.EXPORTING, f"exporting {request.source.name} to ONNX"):
            main_export(
                str(request.source.folder),
                folder,
                task="text-generation-with-past",
                library_name="transformers",  # else a file of the folder chooses the library, and with it what runs
                dtype="fp32",
                do_validation=False,
                local_files_only=True,
                trust_remote_code=request.source.trust_remote_code,
            )
            _write_facts(folder)

    return request.store.get("onnx-export", _key(request), build)


def instruction_set() -> str:
    """The instruction set that Optimum's quantization presets are named after, and that this processor has."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return "arm64"
    from llm_bench_fixtures.models.device import processor_flags

    flags = processor_flags()
    if flags & {"avx512_vnni", "avx512vnni"}:
        return "avx512_vnni"
    return "avx512" if "avx512f" in flags else "avx2"


def _quantize_dynamic(request: LoadRequest, exported: Artifact) -> Artifact:
    from optimum.onnxruntime import AutoQuantizationConfig

    from llm_bench_fixtures.progress import Phase

    config = getattr(AutoQuantizationConfig, instruction_set())(is_static=False, per_channel=True)
    key: Key = {**_key(request), "config": str(config)}

    def build(folder: Path) -> None:
        with request.progress.activity(Phase.QUANTIZING, f"quantizing {request.source.name} to int8, dynamic"):
            _quantize(exported.folder, folder, config, ranges=None)

    return request.store.get("onnx-int8-dynamic", key, build)


def _quantize_static(request: LoadRequest, exported: Artifact) -> Artifact:
    from optimum.onnxruntime import AutoQuantizationConfig

    from llm_bench_fixtures.models.backends import onnx_calibration as calibration
    from llm_bench_fixtures.models.transformers import prepare_for_greedy
    from llm_bench_fixtures.progress import Phase
    from llm_bench_fixtures.workloads import CALIBRATION_FOLDER, read_corpus

    preset = getattr(AutoQuantizationConfig, instruction_set())
    config = preset(is_static=True, per_channel=False, operators_to_quantize=STATIC_OPERATORS)
    texts = read_corpus(CALIBRATION_FOLDER).texts
    key: Key = {
        **_key(request),
        "config": f"{config} {STATIC_OPERATORS}",
        "calibration": calibration.recipe(texts),
    }
    name = request.source.name

    def build(folder: Path) -> None:
        with request.progress.activity(Phase.CALIBRATING, f"calibrating {name} on generated text"):
            float_model = open_model(exported.folder, request.device)
            tokenizer = prepare_for_greedy(float_model, request.source.load_tokenizer())
            feeds = calibration.record_feeds(float_model, tokenizer, texts)
            ranges = calibration.tensor_ranges(only_graph(exported.folder), feeds, folder, STATIC_OPERATORS)
        with request.progress.activity(Phase.QUANTIZING, f"quantizing {name} to int8, static"):
            _quantize(exported.folder, folder, config, ranges)
        with request.progress.activity(Phase.CALIBRATING, f"checking {name} in int8 against float32"):
            calibration.check_close(float_model.session, open_model(folder, request.device).session, feeds)

    return request.store.get("onnx-int8-static", key, build)


def _write_facts(folder: Path) -> None:
    (folder / FACTS_FILE).write_text(json.dumps({"weight_bytes_read": weight_bytes_read(only_graph(folder))}))


def weight_bytes_read(graph_file: Path) -> int:
    """Bytes of the weights that each run of the graph reads: of all but the tables that are only looked up.

    Counted from shapes and types, so that weights in a file of their own aren't loaded.
    """
    import math

    import onnx

    graph = onnx.load(graph_file, load_external_data=False).graph
    uses: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for node in graph.node:
        for position, name in enumerate(node.input):
            uses[name].add((node.op_type, position))
    return sum(
        math.prod(weight.dims) * onnx.helper.tensor_dtype_to_np_dtype(weight.data_type).itemsize
        for weight in graph.initializer
        if uses[weight.name] != {("Gather", 0)}
    )


def only_graph(folder: Path) -> Path:
    (graph,) = folder.glob("*.onnx")
    return graph


def _quantize(source: Path, target: Path, config: Any, ranges: Any) -> None:
    from optimum.onnxruntime import ORTQuantizer

    size = sum(path.stat().st_size for path in source.glob("*.onnx*"))
    ORTQuantizer.from_pretrained(source).quantize(
        config,
        target,
        calibration_tensors_range=ranges,
        use_external_data_format=size > ONE_FILE_LIMIT_BYTES,
    )
    _write_facts(target)


BACKEND = Backend(
    load,
    check,
    prepare,
    modules=("optimum", "optimum.onnxruntime", "onnxruntime"),
    extra="onnxruntime",
    imports=("optimum.onnxruntime",),
    variants=VARIANTS,
    libraries=("optimum", "optimum-onnx", "onnxruntime", "onnxruntime-gpu"),
    loggers=("optimum", "onnxruntime", "onnx_ir", "onnxscript", "torch.onnx"),
    failed_allocation=FAILED_ALLOCATION,
)
