"""What a forward pass leaves behind for the next one: keys and values, and the states of recurrent layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from llm_bench_fixtures.errors import reason_of

if TYPE_CHECKING:
    import torch

# How transformers' caches, their layers, and models with caches of their own name what they hold.
KEYS_AND_VALUES = frozenset(
    {"keys", "values", "key_cache", "value_cache", "shared_layers", "_quantized_keys", "_quantized_values"}
)
# Of an output: attention's cache, the states of Mamba's kind, and those of RWKV's.
CACHE, STATES = "past_key_values", ("cache_params", "state")

_Held: TypeAlias = "tuple[bool, torch.Tensor]"  # whether it is keys or values, and the tensor


@dataclass(frozen=True)
class CacheBytes:
    """Bytes that one forward pass leaves behind for the next one."""

    keys_and_values: int = 0
    """They grow with the text, up to a sliding window."""

    states: int = 0
    """Of recurrent layers: as many however long the text is."""

    reason: str = ""
    """Why they couldn't be counted; empty where they were."""


def bytes_after(output: object) -> CacheBytes:
    """What the output of a forward pass holds for the next one. Raises nothing: counting must not cost the round."""
    try:
        return cache_bytes(getattr(output, CACHE, None), *(getattr(output, name, None) for name in STATES))
    except Exception as error:  # whatever a model's own cache does when it is looked into
        return CacheBytes(reason=f"its cache can't be counted: {reason_of(error)}")


def cache_bytes(cache: object, *states: object) -> CacheBytes:
    """Bytes of a cache, and of further objects that hold nothing but states.

    cache: one of transformers' caches, one of a model's own, a tuple of tensors or of tuples of them (Optimum's ONNX
    Runtime models), or None. Of a storage that tensors share, no more than the whole is counted.
    """
    held = [*_tensors(cache, is_key=True, seen=set())]
    held += [(False, tensor) for state in states for _, tensor in _tensors(state, is_key=False, seen=set())]
    keys = [tensor for is_key, tensor in held if is_key]
    others = [tensor for is_key, tensor in held if not is_key and tensor.is_floating_point()]  # no positions
    return CacheBytes(kept_bytes(keys), kept_bytes(others))


def kept_bytes(tensors: Sequence[torch.Tensor]) -> int:
    """Bytes of the tensors' elements; of those that share a storage, at most the storage's.

    A view counts as what it shows: a sliding window keeps the end of a longer tensor, which the next step frees.
    """
    shown: dict[int, dict[object, int]] = {}
    whole: dict[int, int] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        whole[storage.data_ptr()] = storage.nbytes()
        view = (tensor.storage_offset(), tensor.shape, tensor.stride())
        shown.setdefault(storage.data_ptr(), {})[view] = tensor.numel() * tensor.element_size()
    return sum(min(whole[place], sum(views.values())) for place, views in shown.items())


def _tensors(held: object, *, is_key: bool, seen: set[int]) -> Iterator[_Held]:
    """The tensors within an object, each once. is_key: what those are that have no name of their own."""
    import torch

    if id(held) in seen or isinstance(held, torch.nn.Module | ModuleType | type | str):
        return
    seen.add(id(held))
    if isinstance(held, torch.Tensor):
        yield is_key, held
    elif isinstance(held, Mapping | list | tuple):
        for part in held.values() if isinstance(held, Mapping) else held:
            yield from _tensors(part, is_key=is_key, seen=seen)
    elif hasattr(held, "__dict__"):
        for name, part in vars(held).items():
            yield from _tensors(part, is_key=name in KEYS_AND_VALUES, seen=seen)
