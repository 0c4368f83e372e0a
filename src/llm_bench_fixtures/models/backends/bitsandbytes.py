"""bitsandbytes: weights in int8 (LLM.int8()) or 4 bits (NF4, FP4), on CPU and CUDA.

On a processor with AVX512-BF16, bitsandbytes repacks 4-bit weights before their first use, rounds their scales to
bfloat16, and multiplies in bfloat16 whatever dtype was asked for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import BackendUnavailable
from llm_bench_fixtures.models.architecture import without_weights
from llm_bench_fixtures.models.backend import Backend
from llm_bench_fixtures.models.backends import bnb_layers
from llm_bench_fixtures.models.backends import torch as torch_backend
from llm_bench_fixtures.models.device import Device, ResolvedPrecision, processor_flags, resolve_precision
from llm_bench_fixtures.models.needs import Storage
from llm_bench_fixtures.models.spread import refuse_unfetched
from llm_bench_fixtures.models.transformers import TransformersModel, torch_model
from llm_bench_fixtures.models.variants import Precision, Variant, parse_precision
from llm_bench_fixtures.models.weights import lesser_share, share_of, unmap
from llm_bench_fixtures.options.parsers import Setting, parse_bool

if TYPE_CHECKING:
    from llm_bench_fixtures.models.loading import LoadRequest


INT8 = "int8"
FOUR_BITS = 0.5 + 4 / 64  # bytes of a weight, with a scale in float32 for each 64
PACKED_FOUR_BITS = 0.5 + 2 / 64  # where they are packed for AVX512-BF16, with scales in bfloat16
VARIANTS = (
    Variant("bnb-int8", "bitsandbytes", "LLM.int8() weights", quantization=INT8, base="fp32"),
    Variant("bnb-nf4", "bitsandbytes", "4-bit NormalFloat weights", quantization="nf4", base="fp32"),
    Variant("bnb-fp4", "bitsandbytes", "4-bit float weights", quantization="fp4", base="fp32"),
)


COMPUTE_DTYPE = Setting("bnb_compute_dtype", lambda text: parse_precision(text) if text else None)
DOUBLE_QUANT = Setting("bnb_double_quant", parse_bool)


def storage(variant: Variant, device: Device) -> Storage:
    """The embedding and the output layer aren't quantized."""
    size = 4 if device.kind == "cpu" else 2
    is_int8 = variant.quantization == INT8
    packs = not is_int8 and device.kind == "cpu" and "avx512_bf16" in processor_flags()
    matrices = 1.0 if is_int8 else PACKED_FOUR_BITS if packs else FOUR_BITS
    return Storage(matrices, size, numbers=size, packs=packs, takes_stacks=False, is_known=True)


def load(request: LoadRequest) -> TransformersModel:
    usual = Precision.FLOAT32 if request.device.kind == "cpu" else Precision.BFLOAT16
    # The dtype of all that isn't quantized, and of the products as far as bitsandbytes has a choice.
    precision = resolve_precision(request.settings.of(COMPUTE_DTYPE) or usual, request.device)
    is_int8 = request.variant.quantization == INT8
    repacks = not is_int8 and bnb_layers.repacks_on(request.device)
    of_products = replace(precision, actual=Precision.BFLOAT16, reason="AVX512-BF16") if repacks else precision
    compute = None if is_int8 else of_products
    is_int8_on_cpu = is_int8 and request.device.kind == "cpu"
    shape = without_weights(request.source.load_config(), request.source.trust_remote_code)
    left_out = bnb_layers.left_out_of(shape, repacks=repacks, is_int8_on_cpu=is_int8_on_cpu)
    module = _load_quantized(request, precision, left_out.names)
    share = share_of(bnb_layers.quantized_layers(module), module)
    if not share:
        raise BackendUnavailable(f"bitsandbytes finds no layer to quantize in {request.source.name}")
    if repacks:
        bnb_layers.repack(module)
    unmap(bnb_layers.other_weights(module))
    model = torch_model(
        request,
        module,
        precision.actual,
        label=_label(request, precision, compute, share),
        compute=compute.actual if compute else None,
        scales=bnb_layers.scales_of(module),
        quantized_share=share,
        notes=left_out.notes,
    )
    return refuse_unfetched(model)


def _load_quantized(request: LoadRequest, precision: ResolvedPrecision, left_out: list[str] | None) -> Any:
    """The quantized module. Where files lack weights, transformers fails at the numbers that it would make."""
    config, device_map = _quantization_config(request, precision, left_out), {"": request.device.name}
    try:
        return torch_backend.load_module(request, precision, 1, quantization_config=config, device_map=device_map)
    except AttributeError:
        request.source.load_model(dtype="auto")  # raises IncompleteWeights where that is why
        raise


def _quantization_config(request: LoadRequest, precision: ResolvedPrecision, left_out: list[str] | None) -> Any:
    from transformers import BitsAndBytesConfig

    if request.variant.quantization == INT8:
        return BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=left_out)
    return BitsAndBytesConfig(
        llm_int8_skip_modules=left_out,
        load_in_4bit=True,
        bnb_4bit_quant_type=str(request.variant.quantization),
        bnb_4bit_compute_dtype=precision.torch_dtype,
        bnb_4bit_use_double_quant=request.settings.of(DOUBLE_QUANT),
    )


def _label(request: LoadRequest, precision: ResolvedPrecision, compute: ResolvedPrecision | None, share: float) -> str:
    part = lesser_share(share)
    if compute is None:
        return f"bitsandbytes int8{part}, {precision.label} elsewhere"
    double = ", double quantization" if request.settings.of(DOUBLE_QUANT) else ""
    return f"bitsandbytes {request.variant.quantization}{part}, computes in {compute.label}{double}"


BACKEND = Backend(
    load,
    prepare=torch_backend.prepare,
    devices=("cpu", "cuda"),
    modules=("bitsandbytes", "accelerate"),
    extra="bitsandbytes",
    imports=("bitsandbytes", "transformers.integrations.bitsandbytes"),
    storage=storage,
    variants=VARIANTS,
    takes_device_map=True,
    libraries=("bitsandbytes",),
    loggers=("bitsandbytes",),
    options=(COMPUTE_DTYPE, DOUBLE_QUANT),
)
