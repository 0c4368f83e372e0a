"""The forward passes of models that run through transformers, watched as they happen, and what each leaves behind for
the next one: keys and values, and the states of recurrent layers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from llm_bench_fixtures.errors import reason_of

if TYPE_CHECKING:
    import torch

# How transformers' caches, their layers, and models with caches of their own name what they hold.
KEYS_AND_VALUES = frozenset(
    {"keys", "values", "key_cache", "value_cache", "shared_layers", "_quantized_keys", "_quantized_values"}
)
# Names in an output: attention's cache, the states of Mamba's kind, and those of RWKV's.
CACHE, STATES = "past_key_values", ("cache_params", "state")

_Held: TypeAlias = "tuple[bool, torch.Tensor]"  # whether it is keys or values, and the tensor


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
        return _sizes(*held_after(output))
    except Exception as error:  # whatever a model's own cache does when it is looked into
        return CacheBytes(reason=f"its cache can't be counted: {reason_of(error)}")


def held_after(output: object) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The keys and values, and the states, that the output of a forward pass holds for the next one."""
    return _held(getattr(output, CACHE, None), *(getattr(output, name, None) for name in STATES))


def cache_bytes(cache: object, *states: object) -> CacheBytes:
    """Bytes of a cache, and of further objects that hold nothing but states.

    cache: one of transformers' caches, one of a model's own, a tuple of tensors or of tuples of them (Optimum's ONNX
    Runtime models), or None. Of a storage that tensors share, no more than the whole is counted.
    """
    return _sizes(*_held(cache, *states))


def _sizes(keys: Sequence[torch.Tensor], states: Sequence[torch.Tensor]) -> CacheBytes:
    return CacheBytes(sum(bytes_by_storage(keys)), sum(bytes_by_storage(states)))


def _held(cache: object, *states: object) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    held = [*_tensors(cache, is_key=True, seen=set())]
    held += [(False, tensor) for state in states for _, tensor in _tensors(state, is_key=False, seen=set())]
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


@contextmanager
def watch_forward_passes(module: Any) -> Iterator[list[CacheBytes]]:
    """A list that gets the bytes of the cache that each forward pass in the block attended to and left behind.

    Works for torch modules and for Optimum's models; for anything without `forward` it stays empty.
    """
    import torch

    held: list[CacheBytes] = []
    with ExitStack() as watching:
        if isinstance(module, torch.nn.Module):
            _watch_torch(module, held, watching)
        elif hasattr(module, "forward"):
            watched = _noting(module.forward, held)
            watching.enter_context(_replaced(module, "forward", watched))
        yield held


def _watch_torch(module: Any, held: list[CacheBytes], watching: ExitStack) -> None:
    """Watch a torch module by a hook, and its compiled pass, which bypasses hooks, where `generate` gets it."""
    import torch

    def after(_module: object, _inputs: object, output: object) -> None:
        if not torch.compiler.is_compiling():
            held.append(bytes_after(output))

    watching.callback(module.register_forward_hook(after).remove)
    if hasattr(module, "get_compiled_call"):
        get = module.get_compiled_call
        watching.enter_context(
            _replaced(module, "get_compiled_call", lambda config: _noting(get(config), held)),
        )


def _noting(call: Callable[..., Any], held: list[CacheBytes]) -> Callable[..., Any]:
    """Wrap a function so that each call notes exactly one forward pass."""

    @functools.wraps(call)  # `generate` reads the signature
    def noting(*arguments: Any, **named: Any) -> Any:
        before = len(held)
        output = call(*arguments, **named)
        held[before:] = [bytes_after(output)]
        return output

    return noting


@contextmanager
def _replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    """An attribute of the object itself, for the length of the block."""
    own = vars(owner).get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        delattr(owner, name)
        if own is not None:
            setattr(owner, name, own)
