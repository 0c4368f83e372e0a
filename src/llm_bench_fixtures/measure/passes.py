"""The forward passes of models that run through transformers, watched as they happen."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from llm_bench_fixtures.measure.caches import CacheBytes, bytes_after


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
    """By a hook; and the compiled pass, which goes past hooks, where `generate` gets it."""
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
    """The same function, which notes one forward pass a call, whatever was noted meanwhile."""

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
