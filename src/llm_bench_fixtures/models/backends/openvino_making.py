"""Exports to OpenVINO and what is quantized from them, made once and kept in the artifact store."""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import BackendUnavailable
from llm_bench_fixtures.models.backends.torch import check_memory
from llm_bench_fixtures.models.conversion import key_of, unavailable_where_it_fails
from llm_bench_fixtures.models.trial import Trial, logits_of

if TYPE_CHECKING:
    from pathlib import Path

    from llm_bench_fixtures.models.artifacts import Artifact, Key, KeyValue
    from llm_bench_fixtures.models.loading import LoadRequest

TASK = "text-generation-with-past"
LIBRARIES = ("torch", "transformers", "optimum", "optimum-intel", "openvino", "nncf")
TELEMETRY = "openvino_telemetry"
QUANTIZATIONS: dict[str, dict[str, Any]] = {  # as Optimum's command line has them
    "int8": {"bits": 8, "sym": False},
    "int4": {"bits": 4, "sym": False, "group_size": 128, "ratio": 1.0, "group_size_fallback": "adjust"},
}


def import_silently() -> None:
    """Import Optimum's part for OpenVINO.

    OpenVINO and NNCF send their makers word of each import and conversion, unless the module for that can't be found.
    NNCF sets its own level when it is imported, past `quiet_libraries`.
    """
    sys.modules.setdefault(TELEMETRY, None)  # type: ignore[arg-type]  # which makes its import fail
    with _silence():
        importlib.import_module("optimum.intel.openvino")
    logging.getLogger("nncf").setLevel(logging.ERROR)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep off the terminal what OpenVINO logs as errors and goes on from, and what NNCF draws of its progress."""
    logger = logging.getLogger("openvino")  # its own level: an export ends what `logging.disable` does
    level, disabled = logger.level, logging.root.manager.disable
    logger.setLevel(logging.CRITICAL)
    logging.disable(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(disabled)
        logger.setLevel(level)


def check_exportable(model_type: str) -> None:
    """Raise BackendUnavailable for an architecture that Optimum has no export for."""
    from optimum.exporters.tasks import TasksManager

    importlib.import_module("optimum.exporters.openvino.model_configs")  # which registers them
    try:
        tasks = TasksManager.get_supported_tasks_for_model_type(model_type, "openvino", library_name="transformers")
    except KeyError:
        tasks = {}
    if TASK not in tasks:
        raise BackendUnavailable(f"Optimum has no OpenVINO export for {model_type} models")


def _key(request: LoadRequest) -> dict[str, KeyValue]:
    from llm_bench_fixtures.models.backends.openvino_graphs import COUNTS

    return key_of(request, LIBRARIES, COUNTS)


def export(request: LoadRequest) -> Artifact:
    """The source's model as a graph that holds its cache. Raises BackendUnavailable where it can't be made or run."""
    from llm_bench_fixtures.progress import Phase

    name, model_type = request.source.name, request.source.load_config().model_type

    def build(folder: Path) -> None:
        exporting = request.progress.activity(Phase.EXPORTING, f"exporting {name} to OpenVINO")
        with exporting, unavailable_where_it_fails(f"Optimum can't export {model_type} models to OpenVINO"):
            trial = _export(request, folder)
        _finish(request, folder, trial)

    return request.store.get("openvino-export", _key(request), build)


def _export(request: LoadRequest, folder: Path) -> Trial:
    """Of what the source loads, in float32: Optimum itself would quantize a model of over 10⁹ weights."""
    import torch
    from optimum.exporters.openvino import export_from_model
    from optimum.intel.openvino import OVConfig

    check_memory(request, torch.float32.itemsize)
    module = request.source.load_model(dtype=torch.float32)
    trial = Trial.of(module)
    with _silence():
        export_from_model(module, folder, task=TASK, ov_config=OVConfig(dtype="fp32"), stateful=True)
    return trial


def quantize(request: LoadRequest, exported: Artifact, quantization: str) -> Artifact:
    """The exported graph with weights in fewer bits. Raises BackendUnavailable where it can't be made or run."""
    from llm_bench_fixtures.progress import Phase

    name, model_type = request.source.name, request.source.load_config().model_type
    key: Key = {**_key(request), "config": str(QUANTIZATIONS[quantization])}

    def build(folder: Path) -> None:
        quantizing = request.progress.activity(Phase.QUANTIZING, f"quantizing {name} to {quantization} for OpenVINO")
        with quantizing, unavailable_where_it_fails(f"OpenVINO can't quantize {model_type} models"):
            _quantize(exported.folder, folder, quantization)
        _finish(request, folder)

    return request.store.get(f"openvino-{quantization}", key, build)


def _quantize(source: Path, target: Path, quantization: str) -> None:
    """From the weights alone, without calibration."""
    from optimum.intel.openvino import OVModelForCausalLM, OVWeightQuantizationConfig

    config = OVWeightQuantizationConfig(**QUANTIZATIONS[quantization])
    with _silence():
        module = OVModelForCausalLM.from_pretrained(source, compile=False, quantization_config=config)
        module.save_pretrained(target)


def _finish(request: LoadRequest, folder: Path, trial: Trial | None = None) -> None:
    """Count the weights of the graph in the folder, and try it, so that one that doesn't run isn't kept.

    trial: of one in float32. Raises AnotherModel where it fails that.
    """
    from llm_bench_fixtures.models.backends import openvino_graphs as graphs

    model_type = request.source.load_config().model_type
    with unavailable_where_it_fails(f"OpenVINO doesn't run {model_type} models as converted"):
        graphs.count_weights(folder)
        module = graphs.try_generating(folder, request.source.load_tokenizer(), is_float32=trial is not None)
        if trial is not None:
            trial.check("OpenVINO's conversion", partial(logits_of, module))
