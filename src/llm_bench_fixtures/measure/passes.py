"""The forward passes of models that run through transformers, watched as they happen, and what each leaves behind for
the next one: keys and values, and the states of recurrent layers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import reason_of

if TYPE_CHECKING:
    import torch

# How transformers' caches, their layers, and models with caches of their own name what they hold.
KEYS_AND_VALUES = frozenset(
    {"keys", "values", "key_cache", "value_cache", "shared_layers", "_quantized_keys", "_quantized_values"}
)
# Names in an output: attention's cache, the states of Mamba's kind, and those of RWKV's.
CACHE, STATES = "past_key_values", ("cache_params", "state")


@dataclass(frozen=True)
class CacheBytes:
    """Bytes that one forward pass leaves behind for the next one."""

    keys_and_values: int = 0
    """Bytes that grow with the text, up to a sliding window."""

    states: int = 0
    """Bytes of recurrent layers' states: constant, however long the text is."""

    reason: str = ""
    """Why they couldn't be counted; empty where they were."""


def bytes_after(output: object) -> CacheBytes:
    """What the output of a forward pass holds for the next one. Raises nothing: counting must not cost the round."""
    try:
        keys, states = held_after(output)
        return CacheBytes(sum(bytes_by_storage(keys)), sum(bytes_by_storage(states)))
    except Exception as error:  # whatever a model's own cache does when it is looked into
        return CacheBytes(reason=f"its cache can't be counted: {reason_of(error)}")


def held_after(output: object) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The keys and values, and the states, that the output of a forward pass holds for the next one.

    Its cache is one of transformers', one of a model's own, or a tuple of tensors or of tuples of them (Optimum's ONNX
    Runtime models).
    """
    held = [*_tensors(getattr(output, CACHE, None), is_key=True, seen=set())]
    for name in STATES:
        states = _tensors(getattr(output, name, None), is_key=False, seen=set())
        held += [(False, tensor) for _, tensor in states]
    keys = [tensor for is_key, tensor in held if is_key]
    return keys, [tensor for is_key, tensor in held if not is_key and tensor.is_floating_point()]  # no positions


def bytes_by_storage(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Bytes of the tensors' elements; those that share a storage are one, of at most the storage's.

    A view counts as what it shows: a sliding window keeps the end of a longer tensor, which the next step frees.
    """
    shown: dict[int, dict[object, int]] = {}
    whole: dict[int, int] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        place = storage._cdata if storage.device.type == "meta" else storage.data_ptr()  # fake tensors are nowhere
        whole[place] = storage.nbytes()
        view = (tensor.storage_offset(), tensor.shape, tensor.stride())
        shown.setdefault(place, {})[view] = tensor.numel() * tensor.element_size()
    return [min(whole[place], sum(views.values())) for place, views in shown.items()]


def _tensors(held: object, *, is_key: bool, seen: set[int]) -> Iterator[tuple[bool, torch.Tensor]]:
    """The tensors within an object, each once, and whether it is keys or values.

    is_key: what those are that have no name of their own.
    """
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


@contextmanager
def watch_forward_passes(module: Any) -> Iterator[list[CacheBytes]]:
    """A list that gets the bytes of the cache that each forward pass in the block attended to and left behind.

    Works for torch modules and for Optimum's models; for anything without `forward` it stays empty.
    """
    from unittest.mock import patch

    import torch

    held: list[CacheBytes] = []

    def after(_module: object, _inputs: object, output: object) -> None:
        if not torch.compiler.is_compiling():
            held.append(bytes_after(output))

    with ExitStack() as watching:
        if isinstance(module, torch.nn.Module):
            watching.callback(module.register_forward_hook(after).remove)
            get: Any = getattr(module, "get_compiled_call", None)
            if get is not None:  # a compiled pass bypasses hooks
                compiled = patch.object(module, "get_compiled_call", lambda config: _noting(get(config), held))
                watching.enter_context(compiled)
        elif hasattr(module, "forward"):
            watching.enter_context(patch.object(module, "forward", _noting(module.forward, held)))
        yield held


def _noting(call: Callable[..., Any], held: list[CacheBytes]) -> Callable[..., Any]:
    """Wrap a function so that each call notes exactly one forward pass."""

    @functools.wraps(call)  # `generate` reads the signature
    def noting(*arguments: Any, **named: Any) -> Any:
        before = len(held)
        output = call(*arguments, **named)
        held[before:] = [bytes_after(output)]
        return output

    return noting
