"""What one round of a workload makes the machine do: counts that are the same from run to run, and the least time for
them.

FLOPs are those of matrix products, two a multiply-add, as the model's plain ("eager") attention computes them: masked
positions are in them. Sources: torch.utils.flop_counter for the counting; Williams, Waterman and Patterson, "Roofline:
an insightful visual performance model for multicore architectures", 2009, for the least time.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from llm_bench_fixtures.measure.memory import cache_bytes
from llm_bench_fixtures.measure.timing import run_round
from llm_bench_fixtures.workloads import CacheKind

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from transformers import PretrainedConfig

    from llm_bench_fixtures.models.loaded import LoadedModel
    from llm_bench_fixtures.workloads import TokenIds, Workload


_Count = TypeVar("_Count")


@dataclass(frozen=True)
class Observed:
    """What one round was seen to do.

    forward_passes: 0 where the backend's model doesn't run through `forward`, and the cache's bytes too.
    cache_bytes: of the keys and values, the most that one batch held. cache_bytes_read: summed over the decode steps.
    output_digest: of the new tokens of each prompt in order; batching and padding aren't in it.
    """

    forward_passes: int
    cache_bytes: int
    cache_bytes_read: int
    output_digest: str


@dataclass(frozen=True)
class Work:
    """Exact counts of one round. prompt_tokens: padding not counted. cache_bytes and after: as in `Observed`.

    prefill_flops, decode_flops: None where they can't be counted, and flops_reason says why.
    weight_bytes_read: by each forward pass; None where the backend doesn't tell.
    """

    prompt_tokens: int
    new_tokens: int
    batches: int
    forward_passes: int
    prefill_flops: int | None
    decode_flops: int | None
    flops_reason: str
    weight_bytes_read: int | None
    cache_bytes: int
    cache_bytes_read: int
    output_digest: str

    @property
    def decode_passes(self) -> int:
        """Forward passes after each batch's first."""
        return self.forward_passes - self.batches


def count_work(workload: Workload, observed: Observed, flops: FlopCounter, weight_bytes_read: int | None) -> Work:
    counts = flops.round(workload)
    return Work(
        workload.prompt_tokens,
        workload.new_tokens * len(workload.prompts),
        len(workload.groups),
        observed.forward_passes,
        counts.prefill if counts else None,
        counts.decode if counts else None,
        flops.reason,
        weight_bytes_read,
        observed.cache_bytes,
        observed.cache_bytes_read,
        observed.output_digest,
    )


def observe_round(model: LoadedModel, workload: Workload) -> Observed:
    """Generate each batch once and watch its forward passes, each batch with a cache of its own."""
    passes = largest = read = 0
    rows: list[TokenIds] = []
    for group in workload.groups:
        model.forget_static_cache()
        with watch_forward_passes(model.module) as held:
            rows += run_round(model, replace(workload, prompts=group, batch_size=len(group))).continuations
        passes += len(held)
        largest = max(largest, *held, 0)
        read += sum(held[1:])
    digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]
    return Observed(passes, largest, read, digest)


@contextmanager
def watch_forward_passes(module: Any) -> Iterator[list[int]]:
    """A list that gets the bytes of keys and values that each forward pass in the block attended to and left behind.

    Works for torch modules and for Optimum's models; for one without `forward` it stays empty.
    """
    import torch

    held: list[int] = []
    with ExitStack() as watching:
        if isinstance(module, torch.nn.Module):
            _watch_torch(module, held, watching)
        elif hasattr(module, "forward"):
            watched = _noting(module.forward, held)
            watching.enter_context(_replaced(module, "forward", watched))
        yield held


def _watch_torch(module: Any, held: list[int], watching: ExitStack) -> None:
    """By a hook; and the compiled pass, which goes past hooks, where `generate` gets it."""
    import torch

    def after(_module: object, _inputs: object, output: object) -> None:
        if not torch.compiler.is_compiling():
            held.append(_bytes_after(output))

    watching.callback(module.register_forward_hook(after).remove)
    if hasattr(module, "get_compiled_call"):
        get = module.get_compiled_call
        watching.enter_context(
            _replaced(module, "get_compiled_call", lambda config: _noting(get(config), held)),
        )


def _noting(call: Callable[..., Any], held: list[int]) -> Callable[..., Any]:
    """The same function, which notes one forward pass a call, whatever was noted meanwhile."""

    @functools.wraps(call)  # `generate` reads the signature
    def noting(*arguments: Any, **named: Any) -> Any:
        before = len(held)
        output = call(*arguments, **named)
        held[before:] = [_bytes_after(output)]
        return output

    return noting


def _bytes_after(output: object) -> int:
    return cache_bytes(getattr(output, "past_key_values", None))


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


@dataclass(frozen=True)
class RoundFlops:
    """prefill: of the forward passes that give each batch's first token. decode: of all others."""

    prefill: int
    decode: int


class _Shape(NamedTuple):
    """Of one forward pass: `new` positions a row, which has `cached` ones in the cache."""

    rows: int
    new: int
    cached: int

    def fits(self, other: _Shape) -> bool:
        return all(mine <= its for mine, its in zip(self, other, strict=True))


class FlopCounter:
    """FLOPs of one architecture, from its config alone: it runs on torch's fake tensors, which have no values.

    It runs as transformers' `generate` runs it, with the logits of the last position only where the model can do so.
    reason: why this architecture can't be counted; empty where it can.
    """

    def __init__(self, config: PretrainedConfig, trust_remote_code: bool = False) -> None:
        self._config = config
        self._trust_remote_code = trust_remote_code
        self._counted: dict[_Shape, int] = {}
        self._lawful: list[_Shape] = []
        self.reason = ""

    def forward(self, rows: int, new: int, cached: int) -> int | None:
        """Of one pass over `new` positions a row that has `cached` ones in the cache. None where it can't be told."""
        return self._if_countable(lambda: self._forward(_Shape(rows, new, cached)))

    def round(self, workload: Workload) -> RoundFlops | None:
        """Of one round. None where it can't be told."""
        return self._if_countable(lambda: self._round(workload))

    def _if_countable(self, count: Callable[[], _Count]) -> _Count | None:
        if self.reason:
            return None
        try:
            return count()
        except Exception as error:  # what a model's code raises where it needs values has no narrower base
            first_line = str(error).strip().partition("\n")[0]
            self.reason = f"the FLOPs of {self._config.model_type} can't be counted: {first_line}"
            return None

    def _round(self, workload: Workload) -> RoundFlops:
        pairs = zip(workload.groups, workload.widths, strict=True)
        batches = [self._batch(len(group), width, workload.new_tokens - 1, workload.cache) for group, width in pairs]
        return RoundFlops(sum(one.prefill for one in batches), sum(one.decode for one in batches))

    def _batch(self, rows: int, width: int, steps: int, cache: CacheKind) -> RoundFlops:
        """The last new token is in no pass, so the prompt and the others make the longest sequence."""
        longest = width + steps
        for largest in (_Shape(rows, longest, 0), _Shape(rows, 1, longest - 1)):
            self._forward(largest)  # where the law holds for these, little else needs counting; they fit the context
        prefill = self._forward(_Shape(rows, width, steps if cache is CacheKind.STATIC else 0))
        if cache is CacheKind.OFF:
            decode = [self._forward(_Shape(rows, new, 0)) for new in range(width + 1, longest + 1)]
        elif cache is CacheKind.STATIC:  # each pass attends to the whole buffer
            decode = [self._forward(_Shape(rows, 1, longest - 1))] * steps
        else:
            decode = [self._forward(_Shape(rows, 1, cached)) for cached in range(width, longest)]
        return RoundFlops(prefill, sum(decode))

    def _forward(self, shape: _Shape) -> int:
        """By the law of the architecture up to where it is known to hold; else counted.

        An architecture with a limit (a sliding window) departs from the law where that is reached, and doesn't come
        back; so where the law holds for a shape it holds for all that are smaller.
        """
        if any(shape.fits(known) for known in self._lawful):
            return self._law(shape)
        if shape not in self._counted:
            self._counted[shape] = self._count(shape)
            if self._counted[shape] == self._law(shape):
                self._lawful.append(shape)
        return self._counted[shape]

    @cached_property
    def _law(self) -> Callable[[_Shape], int]:
        """FLOPs = rows x (a + b x new + c x new x attended): output layer, layers, and attention between two positions.

        Three small counts give a, b and c.
        """
        one, two, one_more = (self._count(_Shape(1, new, cached)) for new, cached in ((1, 0), (2, 0), (1, 1)))
        c = one_more - one
        b = two - one - 3 * c
        a = one - b - c
        return lambda shape: shape.rows * (a + b * shape.new + c * shape.new * (shape.new + shape.cached))

    def _count(self, shape: _Shape) -> int:
        import torch
        from torch.utils.flop_counter import FlopCounterMode

        with torch.no_grad(), self._fake_mode:
            past = None
            if shape.cached:
                past = self._run(_Shape(shape.rows, shape.cached, 0), None).past_key_values
            with FlopCounterMode(display=False) as counter:
                self._run(shape, past)
        return int(counter.get_total_flops())

    def _run(self, shape: _Shape, past: object) -> Any:
        import torch

        ids = torch.zeros((shape.rows, shape.new), dtype=torch.int64)
        mask = torch.ones((shape.rows, shape.cached + shape.new), dtype=torch.int64)
        optional = {"position_ids": ids, "logits_to_keep": 1}
        accepted = {name: value for name, value in optional.items() if name in self._parameters}
        return self._module(input_ids=ids, attention_mask=mask, past_key_values=past, use_cache=True, **accepted)

    @cached_property
    def _fake_mode(self) -> FakeTensorMode:
        """Not torch's meta device: transformers 4 enters autocast for a tensor's device, and meta has none."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        return FakeTensorMode()

    @cached_property
    def _module(self) -> Any:
        from transformers import AutoModelForCausalLM

        with self._fake_mode:
            return AutoModelForCausalLM.from_config(
                copy.deepcopy(self._config), trust_remote_code=self._trust_remote_code, attn_implementation="eager"
            ).eval()

    @cached_property
    def _parameters(self) -> frozenset[str]:
        return frozenset(inspect.signature(self._module.forward).parameters)


def roofline_s(flops: float, moved_bytes: float, flops_per_s: float, bytes_per_s: float) -> float:
    """The least time for the work: that of computing or of moving, whichever is longer (Williams et al. 2009)."""
    return max(flops / flops_per_s, moved_bytes / bytes_per_s)
