"""bitsandbytes: weights in int8 (LLM.int8()) or 4 bits (NF4, FP4), on CPU and CUDA."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.backends import require
from llm_bench_fixtures.backends import torch as torch_backend
from llm_bench_fixtures.backends.torch import (
    check_memory,
    load_pretrained,
    prepare_for_greedy,
    supported_caches,
)
from llm_bench_fixtures.device import DeviceKind, ResolvedPrecision, resolve_precision
from llm_bench_fixtures.errors import BackendUnavailable
from llm_bench_fixtures.models import LoadedModel, bytes_read_by_forward, storage_bytes
from llm_bench_fixtures.variants import Precision, Quantization

if TYPE_CHECKING:
    import torch

    from llm_bench_fixtures.device import Device
    from llm_bench_fixtures.models import LoadRequest
    from llm_bench_fixtures.variants import Variant


def check(variant: Variant, device: Device) -> None:
    require(("bitsandbytes", "accelerate"), extra="bitsandbytes")
    if device.kind is DeviceKind.MPS:
        raise BackendUnavailable("bitsandbytes has no kernels for Apple's device")


def prepare(request: LoadRequest) -> None:
    torch_backend.prepare(request)
    importlib.import_module("bitsandbytes")
    importlib.import_module("transformers.integrations.bitsandbytes")


def load(request: LoadRequest) -> LoadedModel:
    precision = _compute_precision(request)
    check_memory(request, bytes_per_weight=1)
    module = load_pretrained(
        request,
        dtype=precision.torch_dtype,
        quantization_config=_quantization_config(request, precision),
        device_map={"": request.device.name},
    )
    scales = _scales(module)
    return LoadedModel(
        request.variant,
        request.source,
        request.device,
        precision,
        _label(request, precision),
        module,
        prepare_for_greedy(module, request.source.load_tokenizer()),
        weight_bytes=storage_bytes([*module.parameters(), *module.buffers(), *scales]),
        weight_bytes_read=bytes_read_by_forward(module, scales),
        compute=None if request.variant.quantization is Quantization.BNB_INT8 else precision.actual,
        cache_kinds=supported_caches(module),
    )


def _compute_precision(request: LoadRequest) -> ResolvedPrecision:
    asked = request.settings.bnb_compute_dtype
    usual = Precision.FLOAT32 if request.device.kind is DeviceKind.CPU else Precision.BFLOAT16
    return resolve_precision(asked or usual, request.device)


def _quantization_config(request: LoadRequest, precision: ResolvedPrecision) -> Any:
    from transformers import BitsAndBytesConfig

    if request.variant.quantization is Quantization.BNB_INT8:
        return BitsAndBytesConfig(load_in_8bit=True)
    kinds = {Quantization.BNB_NF4: "nf4", Quantization.BNB_FP4: "fp4"}
    if request.variant.quantization not in kinds:
        raise BackendUnavailable(f"bitsandbytes knows no quantization {request.variant.quantization}")
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=kinds[request.variant.quantization],
        bnb_4bit_compute_dtype=precision.torch_dtype,
        bnb_4bit_use_double_quant=request.settings.bnb_double_quant,
    )


def _label(request: LoadRequest, precision: ResolvedPrecision) -> str:
    if request.variant.quantization is Quantization.BNB_INT8:
        return f"bitsandbytes int8, {precision.label} elsewhere"
    double = ", double quantization" if request.settings.bnb_double_quant else ""
    return f"bitsandbytes {request.variant.quantization}, {precision.label} compute{double}"


def _scales(module: torch.nn.Module) -> list[torch.Tensor]:
    """The scales that bitsandbytes keeps beside its quantized weights, and what they are made of."""
    tensors = []
    for parameter in module.parameters():
        scales = getattr(parameter, "SCB", None)
        tensors += [scales] if scales is not None else []
        state = getattr(parameter, "quant_state", None)
        while state is not None:
            tensors += [state.absmax, state.code]
            state = state.state2 if state.nested else None
    return tensors
