"""OpenVINO through Optimum: exported with its KV cache inside, as it is or with weights in 8 or 4 bits, on CPU.

ov-fp32 is told to compute in float32. Of the quantized variants OpenVINO chooses by the processor what to compute in;
what it chose is asked of the compiled model, and stands in the label. The cache is in what is computed in. Exports and
quantized models are kept in the artifact store.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import math
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from llm_bench_fixtures.models import conversion
from llm_bench_fixtures.models.artifacts import Artifact, Key
from llm_bench_fixtures.models.backend import LoadRequest, Storage
from llm_bench_fixtures.models.backends.torch import load_float32
from llm_bench_fixtures.models.variants import Precision, Variant, quantized_from, tolerance_of
from llm_bench_fixtures.progress import Phase

FULL = Variant("ov-fp32", "openvino", "OpenVINO export with KV cache, computed in float32")
IN_INT4 = "int4 weights in groups of 128 (embedding and output int8), computed as OpenVINO chooses"
VARIANTS = (
    FULL,
    quantized_from(FULL, "ov-int8", "int8 weights, computed as OpenVINO chooses", "int8"),
    quantized_from(FULL, "ov-int4", IN_INT4, "int4"),
)

WEIGHTS_FILE = "openvino_model.bin"
GRAPH_FILE = "openvino_model.xml"
FEWER_BITS = frozenset({"u8", "i8", "u4", "i4"})
FLOATS = {"f32": Precision.FLOAT32, "f16": Precision.FLOAT16, "bf16": Precision.BFLOAT16}  # as OpenVINO names them
PRODUCT = "FullyConnected"  # OpenVINO's name for a product with a weight matrix
# What stands between a weight and what uses it: the way back from fewer bits.
DECOMPRESSION = frozenset({"Convert", "Subtract", "Multiply", "Reshape"})
LIBRARIES = ("torch", "transformers", "optimum", "optimum-intel", "openvino", "nncf")
TELEMETRY = "openvino_telemetry"
QUANTIZATIONS: dict[str, dict[str, Any]] = {  # as Optimum's command line has them
    "int8": {"bits": 8, "sym": False},
    "int4": {"bits": 4, "sym": False, "group_size": 128, "ratio": 1.0, "group_size_fallback": "adjust"},
}

STORED = {
    None: Storage(4.0, 4.0, has_all_logits=True, loading=4.0, making=12.0),
    "int8": Storage(1.0, 1.0, has_all_logits=True, loading=1.0, making=12.0),
    "int4": Storage(0.6, 1.0, has_all_logits=True, loading=1.0, making=12.0),
}


def prepare(request: LoadRequest) -> None:
    """Import Optimum's part for OpenVINO.

    OpenVINO and NNCF send their makers word of each import and conversion, unless the module for that can't be found.
    NNCF sets its own level when it is imported, past `quiet_libraries`.
    """
    sys.modules.setdefault(TELEMETRY, None)  # type: ignore[arg-type]  # which makes its import fail
    with _silence():
        importlib.import_module("optimum.intel.openvino")
    logging.getLogger("nncf").setLevel(logging.ERROR)
    conversion.check_exportable(request.source.model_type, "OpenVINO")


def load(request: LoadRequest) -> OpenVinoModel:
    quantization = request.variant.quantization
    made: tuple[Artifact, ...] = (export(request),)
    if quantization is not None:
        made += (quantize(request, made[0], quantization),)
    facts = conversion.converted_facts(request, made)
    module = open_model(made[-1].folder, is_float32=quantization is None)
    chosen = chosen_by(module, is_float32=quantization is None)
    label = f"OpenVINO {quantization or 'float32'} weights ({chosen.label})"
    facts = replace(facts, label=label, compute=chosen.compute, tolerance=tolerance_of(chosen.compute))
    return OpenVinoModel(request.variant, request.device, module, request.source.load_tokenizer(), facts)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep off the terminal what OpenVINO logs as errors and goes on from, and what NNCF draws of its progress."""
    logger = logging.getLogger("openvino")  # a level of its own: an export ends what `logging.disable` does
    level, disabled = logger.level, logging.root.manager.disable
    logger.setLevel(logging.CRITICAL)
    logging.disable(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(disabled)
        logger.setLevel(level)


def export(request: LoadRequest) -> Artifact:
    """The source's model as a graph that holds its cache. Raises BackendUnavailable where it can't be made or run."""
    name, model_type = request.source.name, request.source.model_type

    def build(folder: Path) -> None:
        exporting = request.progress.activity(Phase.EXPORTING, f"exporting {name} to OpenVINO")
        with exporting, conversion.unavailable_where_it_fails(f"Optimum can't export {model_type} models to OpenVINO"):
            trial = _export(request, folder)
            count_weights(folder)
        conversion.try_converted(request, "OpenVINO", partial(open_model, folder, is_float32=True), trial)

    return request.store.get("openvino-export", conversion.key_of(request, LIBRARIES), build)


def _export(request: LoadRequest, folder: Path) -> conversion.TextTrial:
    """Export what the source loads, in float32: Optimum itself would quantize a model of over 10⁹ weights."""
    from optimum.exporters.openvino import export_from_model
    from optimum.intel.openvino import OVConfig

    module = load_float32(request)
    trial = conversion.TextTrial.of(module)
    with _silence():
        export_from_model(module, folder, task=conversion.EXPORT_TASK, ov_config=OVConfig(dtype="fp32"), stateful=True)
    return trial


def quantize(request: LoadRequest, exported: Artifact, quantization: str) -> Artifact:
    """The exported graph with weights in fewer bits. Raises BackendUnavailable where it can't be made or run."""
    name, model_type = request.source.name, request.source.model_type
    key: Key = {**conversion.key_of(request, LIBRARIES), "config": str(QUANTIZATIONS[quantization])}

    def build(folder: Path) -> None:
        quantizing = request.progress.activity(Phase.QUANTIZING, f"quantizing {name} to {quantization} for OpenVINO")
        with quantizing, conversion.unavailable_where_it_fails(f"OpenVINO can't quantize {model_type} models"):
            _quantize(exported.folder, folder, quantization)
            count_weights(folder)
        conversion.try_converted(request, "OpenVINO", partial(open_model, folder, is_float32=False))

    return request.store.get(f"openvino-{quantization}", key, build)


def _quantize(source: Path, target: Path, quantization: str) -> None:
    """Quantize from the weights alone, without calibration."""
    from optimum.intel.openvino import OVModelForCausalLM, OVWeightQuantizationConfig

    config = OVWeightQuantizationConfig(**QUANTIZATIONS[quantization])
    with _silence():
        module = OVModelForCausalLM.from_pretrained(source, compile=False, quantization_config=config)
        module.save_pretrained(target)


class OpenVinoModel(conversion.HoardingModel):
    """One of Optimum's models, whose request keeps the memory that its runs took."""

    def give_back(self) -> None:
        compiled = self.module.request.get_compiled_model()
        self.module.request = None
        compiled.release_memory()
        self.module.request = compiled.create_infer_request()


def open_model(folder: Path, *, is_float32: bool) -> Any:
    """Optimum's generation model over the graph in the folder, with as many threads as torch uses.

    is_float32: compute in float32; else in what OpenVINO chooses by the processor. The cache is in the same, not in the
    8 bits that OpenVINO takes by default: with those, version 2026.4 gives now and then a batch of a GPT-2 or a Llama,
    padded or not, logits that are no numbers.
    """
    import openvino
    import torch
    from optimum.intel.openvino import OVModelForCausalLM

    usual = openvino.Core().get_property("CPU", "INFERENCE_PRECISION_HINT").to_string()
    floats = "f32" if is_float32 else usual
    settings = {
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": str(torch.get_num_threads()),
        "ENABLE_CPU_PINNING": "NO",  # the process' own affinity decides
        "INFERENCE_PRECISION_HINT": floats,
        "KV_CACHE_PRECISION": floats,
    }
    return OVModelForCausalLM.from_pretrained(folder, ov_config=settings)


@dataclass(frozen=True)
class Choices:
    """Types that OpenVINO computes a compiled model in."""

    floats: str
    """The type of what isn't integers, as OpenVINO names it."""

    cache: str
    """The type of keys and values in the cache."""

    kernels: str
    """OpenVINO's name for what computes most matrix products of a token: with the instruction set, and the type of
    `floats` also where it multiplies integers."""

    group: int = 0
    """How many activations share a scale where they are quantized before each product; 0 where they aren't."""

    @property
    def label(self) -> str:
        quantized = f"activations int8 in groups of {self.group}, " if self.group else ""
        return f"{self.kernels}, {quantized}KV cache {self.cache}"

    @property
    def compute(self) -> Precision | None:
        """The dtype that matrices are multiplied in; None for integers."""
        return None if self.group else FLOATS[self.floats]


def chosen_by(module: Any, *, is_float32: bool) -> Choices:
    """Choices that the compiled model reports, after a pass over one token: only then is it settled, and weights have
    their form.

    module: Optimum's. is_float32: whether its weights are floats. Of others, OpenVINO quantizes the activations where
    it computes the rest in float32; where that is bfloat16, as with AMX, it doesn't, whatever group size it tells of
    (version 2026.4, measured: the logits are the same for each).
    """
    import torch

    one = torch.ones(1, 1, dtype=torch.int64)
    module(input_ids=one, attention_mask=one)
    compiled = module.request.get_compiled_model()
    infos = [node.get_rt_info() for node in compiled.get_runtime_model().get_ops()]
    products = Counter(info["primitiveType"].astype(str) for info in infos if info["layerType"].astype(str) == PRODUCT)
    floats = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
    return Choices(
        floats,
        cache=compiled.get_property("KV_CACHE_PRECISION").to_string(),
        kernels=products.most_common(1)[0][0],
        group=0 if is_float32 or floats != "f32" else compiled.get_property("DYNAMIC_QUANTIZATION_GROUP_SIZE"),
    )


def count_weights(folder: Path) -> None:
    """Keep COUNTS of the graph in the folder. Each run of it reads all weights but the tables that are only looked up;
    those in 8 bits or fewer are quantized."""
    import openvino

    nodes = openvino.Core().read_model(folder / GRAPH_FILE).get_ops()
    weights = [node for node in nodes if node.get_type_name() == "Constant"]
    read = sum(node.get_byte_size() for node in weights if not all(_lookups_of(node)))
    numbers = Counter[bool]()
    for node in weights:
        kind = node.get_element_type().get_type_name()
        if kind in FEWER_BITS or kind in FLOATS:
            numbers[kind in FEWER_BITS] += math.prod(node.get_output_shape(0))
    share = numbers[True] / max(numbers.total(), 1)
    conversion.write_counts(folder, ((folder / WEIGHTS_FILE).stat().st_size, read, share))


def _lookups_of(node: Any) -> list[bool]:
    """Whether each use of a constant, past what turns it back to floats, only looks rows up."""
    found = []
    for use in node.output(0).get_target_inputs():
        user = use.get_node()
        if user.get_type_name() in DECOMPRESSION:
            found += _lookups_of(user)
        else:
            found.append(user.get_type_name() == "Gather" and use.get_index() == 0)
    return found


BACKEND = conversion.engine_on_cpu(
    load,
    prepare=prepare,
    modules=("optimum", "optimum.intel", "openvino", "nncf"),
    extra="openvino",
    extra_note=conversion.NEEDS_TRANSFORMERS_4,
    storage=lambda variant, _: STORED[variant.quantization],
    variants=VARIANTS,
    libraries=("openvino", "optimum-intel", "nncf"),
    threads_setting="INFERENCE_NUM_THREADS",
    loggers=("optimum", "nncf", "openvino", "torch.onnx"),
)
