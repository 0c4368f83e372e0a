"""What a model's passes keep and take in memory, seen on fake tensors: of any architecture that transformers runs, in
each dtype, without the names that its config happens to have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from llm_bench_fixtures.measure.fake_model import PLAIN, FakeModel
from llm_bench_fixtures.measure.passes import bytes_by_storage, held_after
from llm_bench_fixtures.models.backend import Storage
from llm_bench_fixtures.models.needs import FLOAT32_BYTES, LayerCache, PassMemory, Taken
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.transformers import context_of
from llm_bench_fixtures.models.variants import Precision, Variant

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig

FEW = 2  # positions of the shortest text: some models take one for a step of a longer one
LONG = 4096  # positions of the long text, doubled twice later: so many take more memory than the logits of one
STEPS = 8  # positions of the long text where states go from one to the next in a loop of Python
WINDOWS = re.compile(r"window|attention_chunk")  # in the names by which configs say how far back layers look
FUSED = "sdpa"
UNSEEN = ("flash", "flex")  # attention that needs a device of its own; it takes what a fused one does


class Running(NamedTuple):
    """How a model's passes are run."""

    dtype: Precision = Precision.FLOAT32
    """Precision of the weights."""

    autocast: Precision | None = None
    attention: str = ""
    """Attention implementation by transformers' name. Empty: fused where the model can do so."""


def running_of(variant: Variant, storage: Storage, attention: str = "") -> Running:
    """Running of a variant in the model's own code, whichever engine runs it. attention: the implementation asked
    for."""
    dtype = Precision.FLOAT32 if storage.numbers == FLOAT32_BYTES else Precision.BFLOAT16  # as large as any other
    return Running(dtype, variant.autocast, attention)


class _Pass(NamedTuple):
    """Bytes that a first pass over some positions keeps and takes."""

    keys: Sequence[int]
    """Bytes of each tensor of keys or values."""

    states: Sequence[int]
    taken: int
    """Most bytes taken, besides what is kept."""


_SHARED: dict[tuple[str, Running], PassMemory | None] = {}  # by the whole config as JSON


def pass_memory(config: PretrainedConfig, running: Running, trust_remote_code: bool = False) -> PassMemory | None:
    """Memory that is kept by position and row, and that a pass takes besides. None where that can't be seen."""
    key = config.to_json_string(use_diff=False), running
    if key not in _SHARED or trust_remote_code:  # remote code may have changed
        _SHARED[key] = None
        with quiet_libraries(), suppress(Exception):  # whatever a model's code raises where it needs values
            _SHARED[key] = see_passes(config, running, trust_remote_code)
    return _SHARED[key]


def see_passes(config: PretrainedConfig, running: Running, trust_remote_code: bool = False) -> PassMemory:
    """As `pass_memory`. Raises LookupError where the model hands on nothing, or doesn't grow evenly with its text; and
    whatever its code raises."""
    attention = FUSED if running.attention.startswith(UNSEEN) else running.attention or FUSED
    made = partial(FakeModel, config, trust_remote_code, running.dtype)
    with suppress(Exception):
        return _seen(made(attention), running)
    with suppress(Exception):  # what looks at the values of a mask, or of positions, keeps the same without
        return replace(_seen(made(PLAIN), running), taken=None)
    return replace(_seen(made(attention, knows_start=True), running), taken=None)


def _seen(model: FakeModel, running: Running) -> PassMemory:
    import torch

    casts = torch.autocast("cpu", getattr(torch, running.autocast)) if running.autocast else nullcontext()
    with model.faking(), casts:
        few = _first_pass(model, FEW)
        some = _long_text(model, has_states=bool(few.states))
        one, two, four = (_first_pass(model, times * some) for times in (1, 2, 4))
    if not few.keys and not few.states:
        raise LookupError("it keeps nothing that can be seen")
    kept = [_kept(*sizes, some) for sizes in zip(few.keys, one.keys, strict=True) if any(sizes)]
    kept += [LayerCache(size, is_state=True) for size in one.states]
    taken = None if model.has_experts else _taken(few.taken, some, one.taken, two.taken, four.taken)
    return PassMemory(_together(kept), taken)


def _long_text(model: FakeModel, *, has_states: bool) -> int:
    """Positions of a text that is longer than any layer looks back, and takes more than the logits of one position.

    Raises LookupError where that would take minutes.
    """
    text = model.config.get_text_config()
    named = (value for name, value in vars(text).items() if type(value) is int and WINDOWS.search(name))
    window = max(named, default=0)
    if has_states and window:
        raise LookupError("a window and states in one model would take minutes to see")
    longest = min(LONG, context_of(text) // 4) if model.is_plain else LONG  # masks are as long as the context
    return STEPS if has_states else max(longest, 2 * FEW, window + FEW)


def _kept(few: int, many: int, positions: int) -> LayerCache:
    """few, many: bytes of the same tensor after FEW and after so many positions."""
    of_one, left = divmod(few, FEW)
    if few == many:
        return LayerCache(few, is_state=True)
    if left or not of_one or many % of_one:
        raise LookupError(f"what it keeps grows from {few} to {many} bytes in {positions - FEW} positions")
    seen = many // of_one
    return LayerCache(of_one, window=None if seen == positions else seen)


def _together(kept: Sequence[LayerCache]) -> tuple[LayerCache, ...]:
    """Join entries that differ only in size."""
    sizes: dict[tuple[int | None, bool], int] = {}
    for one in kept:
        sizes[one.window, one.is_state] = sizes.get((one.window, one.is_state), 0) + one.bytes
    return tuple(LayerCache(size, window, is_state) for (window, is_state), size in sizes.items() if size)


def _taken(least: int, positions: int, once: int, twice: int, four_times: int) -> Taken:
    """Formula that gives these bytes for so many positions, for twice and for four times as many.

    Where something else takes the most of a short text than of a long one, the first and the last alone count.
    """
    pair = max(four_times - twice - 2 * (twice - once), 0) // (6 * positions**2)
    position = (twice - once) // positions - 3 * pair * positions
    base = once - position * positions - pair * positions**2
    if position < 0 or base < 0:
        pair = max(four_times - 4 * once, 0) // (12 * positions**2)
        base, position = 0, max(once // positions - pair * positions, 0)
    return Taken(least, base, position, pair)


def _first_pass(model: FakeModel, positions: int) -> _Pass:
    known = [*model.module.parameters(), *model.module.buffers()]
    with _live_bytes(known) as live:
        output = model.prefilled(1, positions)
    keys, states = map(bytes_by_storage, held_after(output))
    return _Pass(keys, states, max(live.most - sum(keys) - sum(states), 0))


class _Live:
    """Bytes of tensors that live, and the most that there were at any one time."""

    now = most = 0

    def add(self, size: int) -> None:
        self.now += size
        self.most = max(self.most, self.now)


@contextmanager
def _live_bytes(known: Sequence[torch.Tensor]) -> Iterator[_Live]:
    """Counts the storages that are made within. known: tensors that were there before."""
    import weakref

    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    live = _Live()
    seen = weakref.WeakSet(tensor.untyped_storage() for tensor in known)

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # it has no types
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = function(*args, **(kwargs or {}))
            storages = [leaf.untyped_storage() for leaf in tree_leaves(made) if isinstance(leaf, torch.Tensor)]
            for storage in storages:
                if storage not in seen:
                    seen.add(storage)
                    live.add(storage.nbytes())
                    weakref.finalize(storage, live.add, -storage.nbytes())
            return made

    with Watch():  # type: ignore[no-untyped-call]
        yield live
