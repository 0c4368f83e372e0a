"""Transformers on torch, in one dtype or under autocast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import BackendUnavailable, OutOfMemory
from llm_bench_fixtures.models.device import DeviceKind, resolve_precision
from llm_bench_fixtures.models.loaded import LoadedModel, bytes_read_by_forward, storage_bytes
from llm_bench_fixtures.models.source import check_architecture, safetensors_files
from llm_bench_fixtures.models.variants import Precision
from llm_bench_fixtures.workloads import CacheKind

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from transformers import PreTrainedTokenizerBase

    from llm_bench_fixtures.models.device import Device
    from llm_bench_fixtures.models.loaded import LoadRequest
    from llm_bench_fixtures.models.variants import Variant


def check(variant: Variant, device: Device) -> None:
    if variant.autocast is Precision.FLOAT16 and device.kind is DeviceKind.CPU:
        raise BackendUnavailable("float16 autocast needs an accelerator; on CPU use autocast-bf16")


def prepare(request: LoadRequest) -> None:
    check_architecture(request.source.load_config(), request.source.trust_remote_code)


def load(request: LoadRequest) -> LoadedModel:
    precision = resolve_precision(request.variant.precision, request.device)
    check_memory(request, precision.torch_dtype.itemsize)
    module = request.source.load_model(dtype=precision.torch_dtype).to(request.device.name)
    label = precision.label
    caches = supported_caches(module)
    running = {}
    if request.variant.autocast is not None:
        label += f", {request.variant.autocast} autocast"
        running = {"running": _autocast(request)}
        caches -= {CacheKind.STATIC}  # made in the weights' dtype, it refuses the keys that autocast gives it
    return LoadedModel(
        request.variant,
        request.source,
        request.device,
        precision,
        label,
        module,
        prepare_for_greedy(module, request.source.load_tokenizer()),
        weight_bytes=storage_bytes([*module.parameters(), *module.buffers()]),
        weight_bytes_read=bytes_read_by_forward(module),
        compute=request.variant.autocast or precision.actual,
        cache_kinds=caches,
        **running,
    )


def _autocast(request: LoadRequest) -> Any:
    import torch

    dtype = {Precision.BFLOAT16: torch.bfloat16, Precision.FLOAT16: torch.float16}[
        request.variant.autocast or Precision.BFLOAT16
    ]
    return lambda: torch.autocast(request.device.kind.value, dtype=dtype)


def check_memory(request: LoadRequest, bytes_per_weight: int) -> None:
    """Raise OutOfMemory before a load that this machine's free memory can't hold: the system would kill the session.

    A model for an accelerator goes through the machine's memory too.
    """
    import psutil

    needed = count_weights(request.source.folder) * bytes_per_weight
    free = psutil.virtual_memory().available
    if needed > free:
        raise OutOfMemory(
            f"{request.variant.id}: out of memory, {needed / 1e9:.1f} GB asked for and {free / 1e9:.1f} GB free"
        )


def count_weights(folder: Path) -> int:
    """Number of weights in the folder's safetensors files, read from their headers. 0 for other formats."""
    from math import prod

    from safetensors import safe_open

    count = 0
    for path in safetensors_files(folder):
        with safe_open(path, framework="pt") as tensors:
            count += sum(prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118  # no dict
    return count


def prepare_for_greedy(module: Any, tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Replace the model's published generation settings (sampling, penalties, lengths) by plain greedy search."""
    from transformers import GenerationConfig

    module.generation_config = GenerationConfig(
        do_sample=False,
        num_beams=1,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return tokenizer


def supported_caches(module: torch.nn.Module) -> frozenset[CacheKind]:
    """A static cache needs a model whose forward pass doesn't depend on the cache's length."""
    static = getattr(module, "_can_compile_fullgraph", False) or getattr(module, "_supports_static_cache", False)
    return frozenset(CacheKind) if static else frozenset({CacheKind.DYNAMIC, CacheKind.OFF})
