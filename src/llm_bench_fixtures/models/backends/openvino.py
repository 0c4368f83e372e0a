"""OpenVINO through Optimum: exported with its KV cache inside, as it is or with weights in 8 or 4 bits, on CPU.

ov-fp32 is told to compute in float32. Of the quantized variants OpenVINO chooses by the processor what to compute in;
what it chose is asked of the compiled model, and stands in the label. The cache is in what is computed in. Exports and
quantized models are kept in the artifact store.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import TYPE_CHECKING

from llm_bench_fixtures.models.backend import Backend, Chosen
from llm_bench_fixtures.models.needs import Storage
from llm_bench_fixtures.models.variants import Variant

if TYPE_CHECKING:
    from llm_bench_fixtures.models.artifacts import Artifact
    from llm_bench_fixtures.models.backends.openvino_graphs import OpenVinoModel
    from llm_bench_fixtures.models.loading import LoadRequest


VARIANTS = (
    Variant("ov-fp32", "openvino", "OpenVINO export with KV cache, computed in float32"),
    Variant(
        "ov-int8",
        "openvino",
        "ov-fp32 with int8 weights, computed as OpenVINO chooses",
        quantization="int8",
        base="ov-fp32",
    ),
    Variant(
        "ov-int4",
        "openvino",
        "ov-fp32 with int4 weights in groups of 128 (embedding and output int8), computed as OpenVINO chooses",
        quantization="int4",
        base="ov-fp32",
    ),
)


def prepare(request: LoadRequest) -> None:
    importlib.import_module("llm_bench_fixtures.models.backends.openvino_graphs").import_silently()
    optimum = importlib.import_module("llm_bench_fixtures.models.backends.optimum_models")
    optimum.check_exportable(request.source.load_config().model_type, "OpenVINO")


def load(request: LoadRequest) -> OpenVinoModel:
    from llm_bench_fixtures.models.backends import openvino_graphs as graphs
    from llm_bench_fixtures.models.conversion import converted_facts
    from llm_bench_fixtures.models.device import resident_at_rest

    quantization = request.variant.quantization
    made: tuple[Artifact, ...] = (graphs.export(request),)
    if quantization is not None:
        made += (graphs.quantize(request, made[0], quantization),)
    before_bytes = resident_at_rest(request.device)
    folder = made[-1].folder
    module = graphs.open_model(folder, is_float32=quantization is None)
    chosen = graphs.chosen_by(module, is_float32=quantization is None)
    facts = converted_facts(
        request,
        made,
        before_bytes,
        label=f"OpenVINO {quantization or 'float32'} weights ({chosen.label})",
        weight_bytes=(folder / graphs.WEIGHTS_FILE).stat().st_size,
    )
    facts = replace(facts, compute=chosen.compute, tolerance=chosen.tolerance)
    return graphs.OpenVinoModel(request.variant, request.device, module, request.source.load_tokenizer(), facts)


STORED = {
    None: Storage(4.0, 4.0, has_all_logits=True, loading=4.0, making=12.0),
    "int8": Storage(1.0, 1.0, has_all_logits=True, loading=1.0, making=12.0),
    "int4": Storage(0.6, 1.0, has_all_logits=True, loading=1.0, making=12.0),
}


BACKEND = Backend(
    load,
    prepare=prepare,
    devices=("cpu",),
    chosen=Chosen.INSTALLED,
    modules=("optimum", "optimum.intel", "openvino", "nncf"),
    extra="openvino",
    storage=lambda variant, _: STORED[variant.quantization],
    variants=VARIANTS,
    libraries=("openvino", "optimum-intel", "nncf"),
    takes_attention=False,
    loggers=("optimum", "nncf", "openvino", "torch.onnx"),
)
