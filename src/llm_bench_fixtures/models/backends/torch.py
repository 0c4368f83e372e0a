"""Transformers on torch, in one dtype or under autocast."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import BackendUnavailable, InvalidSetting, OutOfMemory
from llm_bench_fixtures.models.architecture import check_architecture
from llm_bench_fixtures.models.attention import attention_choice, check_attention, check_dtype
from llm_bench_fixtures.models.backend import Backend, LoadRequest, Storage, unavailable_where
from llm_bench_fixtures.models.device import Device, ResolvedPrecision, resolve_device, resolve_precision
from llm_bench_fixtures.models.files import check_trusted
from llm_bench_fixtures.models.needs import FLOAT32_BYTES, estimated_weights
from llm_bench_fixtures.models.source import count_weights, local_config, local_folder
from llm_bench_fixtures.models.spread import LEFT_FOR_WEIGHTS, refuse_unfetched, spread_choice, why_not_spread
from llm_bench_fixtures.models.transformers import TransformersModel, torch_model
from llm_bench_fixtures.models.variants import Precision, Variant, tolerance_of
from llm_bench_fixtures.models.weights import fault_in, weight_tensors
from llm_bench_fixtures.options.parsers import LoadFormat
from llm_bench_fixtures.processes.memory import free_memory_bytes
from llm_bench_fixtures.workloads import CacheKind

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from llm_bench_fixtures.options.settings import Settings

HALF_BYTES = 2  # bytes per weight in 16 bits
LARGE_BYTES = 4 * 10**9  # size of a model in float32; how much memory is free is not asked for smaller ones
FLOAT32 = Variant("fp32", "torch", "float32 weights")
BFLOAT16 = Variant("bf16", "torch", "bfloat16 weights", Precision.BFLOAT16)
VARIANTS = (
    FLOAT32,
    Variant("fp16", "torch", "float16 weights; float32 where float16 has no fast path", Precision.FLOAT16),
    BFLOAT16,
    Variant("autocast-bf16", "torch", "float32 weights, bfloat16 autocast", autocast=Precision.BFLOAT16),
    Variant("autocast-fp16", "torch", "float32 weights, float16 autocast", autocast=Precision.FLOAT16),
)


def check(variant: Variant, device: Device) -> None:
    if variant.autocast is Precision.FLOAT16 and device.kind == "cpu":
        raise BackendUnavailable("float16 autocast needs an accelerator; on CPU use autocast-bf16")


def storage(variant: Variant, device: Device) -> Storage:
    """Raises BackendUnavailable as `check` does."""
    check(variant, device)
    precision = resolve_precision(variant.precision, device)
    size = precision.torch_dtype.itemsize
    return Storage(size, size, numbers=size, maps=precision.actual, is_known=True)


def prepare(request: LoadRequest) -> None:
    check_trusted(request.source.folder, request.source.trust_remote_code)
    check_architecture(request.source.load_config(), request.source.trust_remote_code)
    check_attention(request)


def load_source_model(request: LoadRequest) -> TransformersModel:
    """The model of --llm-model in the variant's dtype, run by transformers on torch. Raises OutOfMemory."""
    precision = resolve_precision(request.variant.precision, request.device)
    module = load_module(request, precision, precision.torch_dtype.itemsize)
    if request.settings.device_map is None:
        module = module.to(request.device.name)
    fault_in(weight_tensors(module))
    model = torch_model(request, module, precision.actual, label=precision.label, compute=precision.actual)
    if request.variant.autocast is not None:
        model = with_autocast(model, request.variant.autocast)
    return refuse_unfetched(model)


def load_module(
    request: LoadRequest, precision: ResolvedPrecision, bytes_per_weight: int, **how: Any
) -> PreTrainedModel:
    """The module of --llm-model with the attention that was asked for, over several devices where --llm-device-map is
    given.

    precision: of what isn't quantized. bytes_per_weight: once it is loaded. how: further keywords of transformers'
    loading; those of the map take their place. Raises OutOfMemory, and BackendUnavailable for an attention or a map
    that doesn't go with it.
    """
    check_dtype(request, precision.actual)
    spread = spread_choice(request)
    if not spread:
        check_memory(request, bytes_per_weight)
    with unavailable_where(partial(why_not_spread, request)):
        return request.source.load_model(dtype=precision.torch_dtype, **(how | spread), **attention_choice(request))


def load_float32(request: LoadRequest) -> PreTrainedModel:
    """The model of --llm-model in float32 on a CPU, for an engine that converts it. Raises OutOfMemory."""
    import torch

    check_memory(request, FLOAT32_BYTES)
    return request.source.load_model(dtype=torch.float32)


def with_autocast(model: TransformersModel, compute: Precision) -> TransformersModel:
    """Run each call of the model under autocast to the dtype."""
    import torch

    dtype = ResolvedPrecision(compute, compute).torch_dtype
    facts = replace(
        model.facts,
        label=f"{model.facts.label}, {compute} autocast",
        compute=compute,
        tolerance=tolerance_of(compute),
        # a static cache, made in the weights' dtype, refuses the keys that autocast gives it
        cache_kinds=model.facts.cache_kinds - {CacheKind.STATIC},
    )
    return replace(model, facts=facts, running=lambda: torch.autocast(model.device.kind.value, dtype=dtype))


def check_memory(request: LoadRequest, bytes_per_weight: int) -> None:
    """Raise OutOfMemory before a load that the free memory can't hold: the system would kill the session.

    A model for an accelerator goes through the machine's memory too.
    """
    source, variant, free = request.source, request.variant, free_memory_bytes()
    needed = source.weights * bytes_per_weight + source.footprint.buffer_bytes
    if needed <= free:
        return
    text = f"{variant.id}: out of memory, {needed / 1e9:.1f} GB asked for and {free / 1e9:.1f} GB free"
    halved = source.weights * HALF_BYTES + source.footprint.buffer_bytes
    if variant.id == request.settings.reference and variant.precision is Precision.FLOAT32 and halved <= free:
        text += ". It is the reference, which all others are compared with: try --llm-reference bf16"
    raise OutOfMemory(text)


def with_fitting_reference(settings: Settings) -> Settings:
    """The settings, with bf16 for the reference where the folder of --llm-model takes more memory in float32 than is
    free, less in bfloat16, and no other reference is named."""
    is_free = "reference" not in settings.given and settings.reference == FLOAT32.id
    size = _folder_weights(settings) if is_free else 0
    if size * FLOAT32_BYTES < LARGE_BYTES:
        return settings
    try:
        free = resolve_device(settings.device, settings.device_map).free_bytes * LEFT_FOR_WEIGHTS
    except InvalidSetting:  # finding the device raises it again
        return settings
    return replace(settings, reference=BFLOAT16.id) if size * HALF_BYTES <= free < size * FLOAT32_BYTES else settings


def _folder_weights(settings: Settings) -> int:
    """How many the model of the first folder has; 0 where it is none, or can't be told."""
    try:
        if settings.load_format is LoadFormat.DUMMY:
            return estimated_weights(local_config(settings.model[0]))
        folder = local_folder(settings.model[0])
        return 0 if folder is None else count_weights(folder)
    except Exception:  # a folder from elsewhere can make any library fail in any way, which finding the model says
        return 0


BACKEND = Backend(
    load_source_model,
    check,
    prepare,
    storage,
    imports=("transformers.modeling_utils", "transformers.generation", "transformers.models.auto.modeling_auto"),
    variants=VARIANTS,
    takes_device_map=True,
    libraries=("torch", "transformers"),
    loggers=("transformers", "accelerate"),
)
