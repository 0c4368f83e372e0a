"""FLOPs of one architecture, counted without running the model.

They are those of matrix products, two a multiply-add, as the model's plain ("eager") attention computes them: masked
positions are in them. Of a mixture of experts, those that the positions use are in them. Source:
torch.utils.flop_counter.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from llm_bench_fixtures.errors import first_line
from llm_bench_fixtures.models.experts import simplify_routing, stand_ins
from llm_bench_fixtures.workloads import CacheKind

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from transformers import PretrainedConfig

    from llm_bench_fixtures.workloads import Workload

_Count = TypeVar("_Count")

_SHARED: dict[str, FlopCounter] = {}  # by the digest of the config

MAKES_MASKS = ("_update_mamba_mask", "_update_causal_mask")  # methods of transformers' hybrid models


@dataclass(frozen=True)
class RoundFlops:
    """FLOPs of one round of a workload."""

    prefill: int
    """Of the forward passes that give each batch's first token."""
    decode: int
    """Of all other forward passes."""


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
        self._fits_routing = False
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
            self.reason = f"the FLOPs of {self._config.model_type} can't be counted: {first_line(error)}"
            return None

    def _round(self, workload: Workload) -> RoundFlops:
        sizes = zip(workload.groups, workload.widths, workload.new_tokens_by_batch, strict=True)
        batches = [self._batch(len(group), width, tokens - 1, workload.cache) for group, width, tokens in sizes]
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
            self._fit_routing()
            past = self._past(shape) if shape.cached else None
            with FlopCounterMode(display=False) as counter:
                self._run(shape, past)
        return int(counter.get_total_flops())

    def _fit_routing(self) -> None:
        """Have mixtures of experts return what their layers expect: in some models a pair, with the router's logits."""
        if not self._fits_routing and any(stand_ins(self._module)):
            try:
                self._run(_Shape(1, 1, 0), None)
            except ValueError:  # one row can't be taken for a pair
                for part in stand_ins(self._module):
                    part.returns_pair = True
        self._fits_routing = True

    def _past(self, shape: _Shape) -> object:
        """The cache that `shape` finds. Raises LookupError where the model hands on none."""
        import torch

        before = _Shape(shape.rows, shape.cached, 0)
        made = None
        if self._is_hybrid:  # `generate` makes a cache for a model of recurrent layers, in transformers 4
            ids = torch.zeros((before.rows, before.new), dtype=torch.int64)
            made = self._module.prepare_inputs_for_generation(ids, use_cache=True).get("past_key_values")
        past = self._run(before, made)
        kept = getattr(past, "past_key_values", None)
        if kept is None:
            raise LookupError("outside of generate it hands on no cache, so that no decode step can be told from it")
        return kept

    def _run(self, shape: _Shape, past: object) -> Any:
        import torch

        ids = torch.zeros((shape.rows, shape.new), dtype=torch.int64)
        mask = torch.ones((shape.rows, shape.cached + shape.new), dtype=torch.int64)
        optional = {"position_ids": ids, "logits_to_keep": 1}
        if self._is_hybrid and shape.cached:
            optional["cache_position"] = torch.tensor([shape.cached])  # of one number, torch knows the value here too
        accepted = {name: value for name, value in optional.items() if name in self._parameters}
        return self._module(input_ids=ids, attention_mask=mask, past_key_values=past, use_cache=True, **accepted)

    @cached_property
    def _fake_mode(self) -> FakeTensorMode:
        """Not torch's meta device: transformers 4 enters autocast for a tensor's device, and meta has none."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        return FakeTensorMode()

    @cached_property
    def _module(self) -> Any:
        import torch
        from transformers import AutoModelForCausalLM

        with torch.no_grad(), self._fake_mode:
            module = AutoModelForCausalLM.from_config(
                copy.deepcopy(self._config), trust_remote_code=self._trust_remote_code, attn_implementation="eager"
            ).eval()
            simplify_routing(module)
            for part in module.modules():  # masks of recurrent layers, whose sizes hang on values, take no FLOPs
                if hasattr(part, MAKES_MASKS[0]):
                    for name in MAKES_MASKS:
                        setattr(part, name, lambda *_, **__: None)
            return module

    @cached_property
    def _parameters(self) -> frozenset[str]:
        return frozenset(inspect.signature(self._module.forward).parameters)

    @cached_property
    def _is_hybrid(self) -> bool:
        """Whether it has recurrent layers beside attention, as transformers 4 makes such models."""
        return any(hasattr(part, MAKES_MASKS[0]) for part in self._module.modules())


def flop_counter(config: PretrainedConfig, trust_remote_code: bool = False) -> FlopCounter:
    """A counter for the architecture. Sessions of one process share it where transformers' own code computes."""
    if trust_remote_code:  # which may have changed
        return FlopCounter(config, trust_remote_code)
    digest = hashlib.sha256(config.to_json_string(use_diff=False).encode()).hexdigest()
    return _SHARED.setdefault(digest, FlopCounter(config))
