"""A checkpoint whose weights are quantized already, run by transformers as it is stored.

It is a variant of its own, because the others' ids name what they make of the weights: float32, bfloat16, nf4. None of
that can be had of such a checkpoint without changing it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import BackendUnavailable, LlmBenchError, reason_of
from llm_bench_fixtures.models import weights
from llm_bench_fixtures.models.backend import Backend, Chosen, LoadRequest, installed_versions, unavailable_where
from llm_bench_fixtures.models.backends import bitsandbytes
from llm_bench_fixtures.models.backends import torch as torch_backend
from llm_bench_fixtures.models.device import Device, ResolvedPrecision, resolve_precision
from llm_bench_fixtures.models.source import StoredQuantization, local_config, stored_quantization
from llm_bench_fixtures.models.transformers import TransformersModel, torch_model
from llm_bench_fixtures.models.variants import Precision, Variant, parse_precision
from llm_bench_fixtures.options.parsers import LoadFormat

if TYPE_CHECKING:
    import torch

    from llm_bench_fixtures.options.settings import Settings

CHECKPOINT = Variant("checkpoint", "checkpoint", "a quantized checkpoint as it is stored", quantization="as stored")

NEEDS: Mapping[str, tuple[str, ...]] = {
    "gptq": ("optimum", "gptqmodel"),
    **{name: (name,) for name in ("auto-round", "bitsandbytes", "compressed-tensors", "hqq", "torchao")},
}
"""Libraries that transformers runs each method with, by the names that pip installs them by; their modules have "_" for
"-". For other methods transformers names the module itself."""

FLOAT_PRODUCTS = ("awq", "bitsandbytes", "compressed-tensors", "gptq")
"""Methods whose weights are multiplied in a float dtype by transformers; bitsandbytes' int8 aside."""

FLOAT32_ONLY = ("hqq",)
"""Methods that transformers multiplies in float32 whatever dtype is asked for: activations in another one don't fit."""


def with_reference(settings: Settings) -> Settings:
    """The settings, with the checkpoint as it is for the reference where --llm-model is a folder with a quantized one
    and no other reference is named: nothing else can be made of it to compare with."""
    is_free = "reference" not in settings.given and settings.load_format is not LoadFormat.DUMMY
    if is_free and stored_quantization(local_config(settings.model[0])) is not None:
        return replace(settings, reference=CHECKPOINT.id)
    return settings


def prepare(request: LoadRequest) -> None:
    method = _stored(request).method
    needed = ("accelerate", *NEEDS.get(method, ()))
    missing = [name for name in needed if importlib.util.find_spec(name.replace("-", "_")) is None]
    if missing:
        raise BackendUnavailable(
            f"transformers runs {method} with {' and '.join(missing)}: pip install {' '.join(missing)}"
        )
    torch_backend.prepare(request)


def _stored(request: LoadRequest) -> StoredQuantization:
    """Raises BackendUnavailable for weights that aren't quantized."""
    if request.source.quantized is None:
        raise BackendUnavailable(f"the weights of {request.source.name} are not quantized: other variants run them")
    return request.source.quantized


def load(request: LoadRequest) -> TransformersModel:
    from llm_bench_fixtures.models.loading import translate_out_of_memory

    stored, precision = _stored(request), _precision(request)
    with unavailable_where(partial(_why_not_run, stored)), translate_out_of_memory(CHECKPOINT.id):
        module = torch_backend.load_module(request, precision, 1, device_map={"": request.device.name})
        _use_once(module, stored, request.device)
    layers = _quantized_layers(module)
    compute = _compute(stored, layers, precision, request.device)
    share = None
    if layers:
        share = weights.share_of(layers, module)
        classes = ", ".join(sorted({type(layer).__name__ for layer in layers}))
        how = f"computes in {compute.label}" if compute else f"{precision.label} elsewhere"
        label = f"{stored} ({classes}){weights.lesser_share(share)}, {how}"
    else:
        label = f"{stored}, unpacked by transformers to {precision.label}"
    model = torch_model(
        request,
        module,
        precision.actual,
        label=label,
        compute=compute.actual if compute else None,
        scales=bitsandbytes.scales_of(module),
        quantized_share=share,
    )
    buffers = weights.storage_bytes([tensor for layer in layers for _, tensor in layer.named_buffers(recurse=False)])
    read, most = model.facts.weight_bytes_read, model.facts.weight_bytes_most
    model.facts = replace(
        model.facts,
        weight_bytes_read=None if read is None else read + buffers,
        weight_bytes_most=None if most is None else most + buffers,
    )
    return model


def _why_not_run(stored: StoredQuantization, error: Exception) -> str:
    """Libraries that don't go with each other, with what they raise; empty for a full disk or memory."""
    if isinstance(error, (LlmBenchError, OSError)):
        return ""
    versions = installed_versions(("transformers", *NEEDS.get(stored.method, ())))
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"{named} can't run {stored}: {reason_of(error)}"


def _precision(request: LoadRequest) -> ResolvedPrecision:
    """Precision of all that isn't quantized: the config's, as far as the device has a fast path for it."""
    named = getattr(request.source.load_config(), "dtype", None)
    asked = parse_precision(str(named)) if named else Precision.FLOAT32
    method = _stored(request).method
    if method in FLOAT32_ONLY:
        return ResolvedPrecision(Precision.FLOAT32, asked, method)
    return resolve_precision(asked, request.device)


def _use_once(module: Any, stored: StoredQuantization, device: Device) -> None:
    """Run each layer once, as some pack or unpack their weights when they are first used, and let go of the files."""
    import torch

    if stored.method == "bitsandbytes" and bitsandbytes.repacks_on(device):
        bitsandbytes.repack(module)
        weights.unmap(bitsandbytes.other_weights(module))
        return
    one = torch.ones(1, 1, dtype=torch.int64, device=device.name)
    with torch.inference_mode():
        module(input_ids=one, attention_mask=one, use_cache=False)
    weights.fault_in(weights.weight_tensors(module))


def _quantized_layers(module: torch.nn.Module) -> list[Any]:
    """Linear layers whose largest tensor holds integers, 8-bit floats, or is of a class of tensors of its own.

    Layers that were unpacked may keep the packed weights, or their shape in integers, next to the floats.
    """
    import torch

    linear = [part for part in module.modules() if hasattr(part, "in_features") and hasattr(part, "out_features")]
    largest = {layer: max(weights.own_tensors(layer).values(), key=torch.numel, default=None) for layer in linear}
    return [layer for layer, tensor in largest.items() if tensor is not None and weights.is_packed(tensor)]


def _compute(
    stored: StoredQuantization, layers: list[Any], precision: ResolvedPrecision, device: Device
) -> ResolvedPrecision | None:
    """The dtype that matrices are multiplied in; None for integers, and where it isn't known."""
    if not layers or stored.method in FLOAT32_ONLY:
        return precision
    if stored.method not in FLOAT_PRODUCTS or stored.scheme == "int8":
        return None
    if stored.method != "bitsandbytes":
        return precision
    if bitsandbytes.repacks_on(device):
        return replace(precision, actual=Precision.BFLOAT16, reason="AVX512-BF16")
    own = next((parse_precision(str(layer.compute_dtype)) for layer in layers if layer.compute_dtype), None)
    return replace(precision, actual=own, requested=own, reason="") if own else precision


BACKEND = Backend(
    load,
    prepare=prepare,
    variants=(CHECKPOINT,),
    chosen=Chosen.NAMED,
    takes_quantized=True,
    libraries=("auto-round", "autoawq", "compressed-tensors", "gptqmodel", "hqq"),
    loggers=("compressed_tensors", "gptqmodel", "auto_round"),
)
