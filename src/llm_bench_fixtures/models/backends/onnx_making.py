"""Exports to ONNX and quantized graphs, made once and kept in the artifact store."""

from __future__ import annotations

import platform
from functools import partial
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.models.backends import onnx_calibration as calibration
from llm_bench_fixtures.models.backends.onnx_graphs import (
    COUNTS,
    FATAL_ERRORS,
    count_weights,
    only_graph,
    open_model,
)
from llm_bench_fixtures.models.backends.optimum_models import TASK, try_generating
from llm_bench_fixtures.models.backends.torch import check_memory
from llm_bench_fixtures.models.conversion import TextTrial, key_of, logits_of, unavailable_where_it_fails
from llm_bench_fixtures.models.transformers import prepare_for_greedy
from llm_bench_fixtures.progress import Phase
from llm_bench_fixtures.workloads import CALIBRATION_FOLDER, read_corpus

if TYPE_CHECKING:
    from pathlib import Path

    from llm_bench_fixtures.models.artifacts import Artifact, Key
    from llm_bench_fixtures.models.loading import LoadRequest

STATIC_OPERATORS = ["MatMul", "Gemm"]
ONE_FILE_LIMIT_BYTES = 1_500_000_000  # protobuf holds 2 GB; above this the weights go to a file of their own
LIBRARIES = ("torch", "transformers", "optimum", "optimum-onnx", "onnxruntime", "onnxruntime-gpu", "onnx")


def export(request: LoadRequest) -> Artifact:
    """The source's model as a graph with its cache. Raises BackendUnavailable where that can't be made or run."""

    def build(folder: Path) -> None:
        exporting = request.progress.activity(Phase.EXPORTING, f"exporting {request.source.name} to ONNX")
        with exporting, unavailable_where_it_fails(f"Optimum can't export {_architecture(request)} models to ONNX"):
            trial = _export(request, folder)
            count_weights(folder)
        _try(request, folder, trial)

    return request.store.get("onnx-export", key_of(request, LIBRARIES, COUNTS), build)


def _export(request: LoadRequest, folder: Path) -> TextTrial:
    """Of what the source loads: Optimum's own load fills weights that the files lack with random numbers."""
    import torch
    from optimum.exporters.onnx import onnx_export_from_model

    check_memory(request, torch.float32.itemsize)
    module = request.source.load_model(dtype=torch.float32)
    module.config.use_cache = True
    trial = TextTrial.of(module)
    onnx_export_from_model(module, folder, task=TASK, do_validation=False)
    return trial


def _architecture(request: LoadRequest) -> str:
    return str(request.source.load_config().model_type)


def _try(request: LoadRequest, folder: Path, trial: TextTrial | None = None) -> None:
    """Raise BackendUnavailable for a graph that doesn't run, AnotherModel for one that fails the trial, so that it
    isn't kept."""
    with unavailable_where_it_fails(f"ONNX Runtime doesn't run {_architecture(request)} models as converted"):
        module = open_model(folder, request.device, log_severity=FATAL_ERRORS)  # what is raised says it all
        try_generating(module, request.source.load_tokenizer(), request.device.name)
        if trial is not None:
            trial.check("ONNX Runtime's conversion", partial(logits_of, module))


def instruction_set() -> str:
    """The instruction set that Optimum's quantization presets are named after, and that this processor has."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return "arm64"
    from llm_bench_fixtures.models.device import processor_flags

    flags = processor_flags()
    if flags & {"avx512_vnni", "avx512vnni"}:
        return "avx512_vnni"
    return "avx512" if "avx512f" in flags else "avx2"


def quantize_dynamic(request: LoadRequest, exported: Artifact) -> Artifact:
    """The exported graph with weights in int8, whose activations are quantized as they come."""
    from optimum.onnxruntime import AutoQuantizationConfig

    config = getattr(AutoQuantizationConfig, instruction_set())(is_static=False, per_channel=True)
    key: Key = {**key_of(request, LIBRARIES, COUNTS), "config": str(config)}

    def build(folder: Path) -> None:
        with request.progress.activity(Phase.QUANTIZING, f"quantizing {request.source.name} to int8, dynamic"):
            _quantize(request, exported.folder, folder, config, ranges=None)

    return request.store.get("onnx-int8-dynamic", key, build)


def quantize_static(request: LoadRequest, exported: Artifact) -> Artifact:
    """The exported graph in int8, with ranges of its activations that are calibrated beforehand."""
    from optimum.onnxruntime import AutoQuantizationConfig

    preset = getattr(AutoQuantizationConfig, instruction_set())
    config = preset(is_static=True, per_channel=False, operators_to_quantize=STATIC_OPERATORS)
    texts = read_corpus(CALIBRATION_FOLDER).texts
    key: Key = {
        **key_of(request, LIBRARIES, COUNTS),
        "config": f"{config} {STATIC_OPERATORS}",
        "calibration": calibration.recipe(texts),
    }
    name = request.source.name

    def build(folder: Path) -> None:
        with request.progress.activity(Phase.CALIBRATING, f"calibrating {name} on generated text"):
            float_model = open_model(exported.folder, request.device)
            tokenizer = request.source.load_tokenizer()
            prepare_for_greedy(float_model, tokenizer)
            feeds = calibration.record_feeds(float_model, tokenizer, texts)
            ranges = calibration.tensor_ranges(only_graph(exported.folder), feeds, folder, STATIC_OPERATORS)
        with request.progress.activity(Phase.QUANTIZING, f"quantizing {name} to int8, static"):
            _quantize(request, exported.folder, folder, config, ranges)
        with request.progress.activity(Phase.CALIBRATING, f"checking {name} in int8 against float32"):
            calibration.check_close(float_model.session, open_model(folder, request.device).session, feeds)

    return request.store.get("onnx-int8-static", key, build)


def _quantize(request: LoadRequest, source: Path, target: Path, config: Any, ranges: Any) -> None:
    """Raises BackendUnavailable where the quantized graph can't be made or run."""
    from optimum.onnxruntime import ORTQuantizer

    size = sum(path.stat().st_size for path in source.glob("*.onnx*"))
    with unavailable_where_it_fails(f"ONNX Runtime can't quantize {_architecture(request)} models"):
        ORTQuantizer.from_pretrained(source).quantize(
            config,
            target,
            calibration_tensors_range=ranges,
            use_external_data_format=size > ONE_FILE_LIMIT_BYTES,
        )
        count_weights(target)
    _try(request, target)
