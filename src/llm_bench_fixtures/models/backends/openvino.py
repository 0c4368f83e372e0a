"""OpenVINO through Optimum: exported with its KV cache inside, as it is or with weights in 8 or 4 bits, on CPU.

ov-fp32 is told to compute in float32. Of the quantized variants OpenVINO chooses by the processor what to compute in;
what it chose is asked of the compiled model, and stands in the label. The cache is in what is computed in. Exports and
quantized models are kept in the artifact store.
"""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from llm_bench_fixtures.models.backend import Backend, Chosen
from llm_bench_fixtures.models.variants import Precision, Variant

if TYPE_CHECKING:
    from llm_bench_fixtures.models.artifacts import Artifact
    from llm_bench_fixtures.models.backends.openvino_graphs import OpenVinoModel
    from llm_bench_fixtures.models.loading import LoadRequest


class Quantization(StrEnum):
    INT8 = "int8"
    INT4 = "int4"


VARIANTS = (
    Variant("ov-fp32", "openvino", "OpenVINO export with KV cache, computed in float32"),
    Variant(
        "ov-int8",
        "openvino",
        "ov-fp32 with int8 weights, computed as OpenVINO chooses",
        quantization=Quantization.INT8,
        base="ov-fp32",
    ),
    Variant(
        "ov-int4",
        "openvino",
        "ov-fp32 with int4 weights in groups of 128 (embedding and output int8), computed as OpenVINO chooses",
        quantization=Quantization.INT4,
        base="ov-fp32",
    ),
)


def prepare(request: LoadRequest) -> None:
    making = importlib.import_module("llm_bench_fixtures.models.backends.openvino_making")
    making.import_silently()
    making.check_exportable(request.source.load_config().model_type)


def _make(request: LoadRequest) -> tuple[Artifact, Artifact]:
    """The export, and what is run of it."""
    from llm_bench_fixtures.models.backends import openvino_making as making

    exported = making.export(request)
    if request.variant.quantization is None:
        return exported, exported
    return exported, making.quantize(request, exported, Quantization(request.variant.quantization))


def load(request: LoadRequest) -> OpenVinoModel:
    from llm_bench_fixtures.models.artifacts import made_s_of
    from llm_bench_fixtures.models.backends import openvino_graphs as graphs
    from llm_bench_fixtures.models.device import ResolvedPrecision, resident_at_rest
    from llm_bench_fixtures.models.experts import told_of_reading
    from llm_bench_fixtures.models.transformers import source_facts
    from llm_bench_fixtures.models.trial import uncompared
    from llm_bench_fixtures.workloads import CacheKind

    exported, artifact = _make(request)
    before_bytes = resident_at_rest(request.device)
    is_float32 = request.variant.quantization is None
    module = graphs.open_model(artifact.folder, is_float32=is_float32)
    chosen = graphs.chosen_by(module, is_float32=is_float32)
    stored = ResolvedPrecision(Precision.FLOAT32, Precision.FLOAT32)
    weight_bytes = (artifact.folder / graphs.WEIGHTS_FILE).stat().st_size
    label = f"OpenVINO {request.variant.quantization or 'float32'} weights ({chosen.label})"
    counted = json.loads((artifact.folder / graphs.FACTS_FILE).read_text())
    facts = replace(
        source_facts(request.variant, module.config, stored, label=label, weight_bytes=weight_bytes),
        weight_bytes_read=told_of_reading(module.config, counted["weight_bytes_read"]),
        quantized_share=counted["quantized_share"] if request.variant.quantization else None,
        compute=chosen.compute,
        tolerance=chosen.tolerance,
        cache_kinds=frozenset({CacheKind.DYNAMIC}),
        notes=tuple(dict.fromkeys((exported.note, artifact.note, *uncompared(module.config)))),
        conversion_s=made_s_of(exported, artifact),
        resident_before_load_bytes=before_bytes,
    )
    return graphs.OpenVinoModel(request.variant, request.device, module, request.source.load_tokenizer(), facts)


BACKEND = Backend(
    load,
    prepare=prepare,
    devices=("cpu",),
    chosen=Chosen.INSTALLED,
    modules=("optimum", "optimum.intel", "openvino", "nncf"),
    extra="openvino",
    variants=VARIANTS,
    libraries=("openvino", "optimum-intel", "nncf"),
    takes_attention=False,
    loggers=("optimum", "nncf", "openvino", "torch.onnx"),
)
