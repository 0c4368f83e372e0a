"""A model's own code on torch's fake tensors, which have shapes and no values: what its passes make can be seen from
its config alone, in no memory and next to no time."""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from llm_bench_fixtures.models.peculiarities import simplify_routing, stand_ins
from llm_bench_fixtures.models.variants import Precision

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from transformers import PretrainedConfig

PLAIN = "eager"
MAKES_MASKS = ("_update_mamba_mask", "_update_causal_mask")  # methods of transformers' hybrid models


class PassSize(NamedTuple):
    """Size of one forward pass: `rows` rows of `new` positions, each with `cached` positions in the cache."""

    rows: int
    new: int
    cached: int = 0

    def fits(self, other: PassSize) -> bool:
        return all(mine <= its for mine, its in zip(self, other, strict=True))


@dataclass(eq=False)
class FakeModel:
    """One architecture, run as transformers' `generate` runs it, with the logits of the last position only where the
    model can do so. Each of its mixtures of experts is one product.

    Its methods raise whatever the model's code does where it needs values.
    """

    config: PretrainedConfig
    trust_remote_code: bool = False
    dtype: Precision = Precision.FLOAT32
    attention: str = PLAIN
    """Attention implementation by transformers' name; where the model can't run it, it is plain."""
    knows_start: bool = field(default=False, kw_only=True)
    """Whether all positions are told as the first one, for code that looks at its value, which torch knows of a single
    number."""
    _fits_routing: bool = field(default=False, init=False)

    @contextmanager
    def faking(self) -> Iterator[None]:
        """Tensors that are made within are fake; so is whatever `run` makes, which needs it."""
        import torch

        logger = logging.getLogger("torch._subclasses.fake_tensor")  # logs a traceback for each failure
        was_disabled, logger.disabled = logger.disabled, True
        try:
            with torch.no_grad(), self._mode:
                self._fit_routing()
                yield
        finally:
            logger.disabled = was_disabled

    def run(self, shape: PassSize, past: object = None) -> Any:
        """The output of a pass. past: the cache that it finds, of `shape.cached` positions."""
        import torch

        ids = torch.zeros((shape.rows, shape.new), dtype=torch.int64)
        # Plain attention alone doesn't look into it for padding, and without padding needs none.
        mask = torch.ones((shape.rows, shape.cached + shape.new), dtype=torch.int64) if self.is_plain else None
        optional = {"position_ids": ids, "logits_to_keep": 1}
        if self.knows_start:
            optional["position_ids"] = torch.tensor([[shape.cached]])
        if self.knows_start or (self._is_hybrid and shape.cached):
            optional["cache_position"] = torch.tensor([shape.cached])
        accepted: dict[str, Any] = {name: value for name, value in optional.items() if name in self._parameters}
        if past is not None:
            accepted["past_key_values"] = past
        return self.module(input_ids=ids, attention_mask=mask, use_cache=True, **accepted)

    def prefilled(self, rows: int, positions: int) -> Any:
        """The output of a first pass over so many positions, whose cache `generate` would go on with."""
        import torch

        made = None
        if self._is_hybrid:  # `generate` makes a cache for a model of recurrent layers, in transformers 4
            ids = torch.zeros((rows, positions), dtype=torch.int64)
            made = self.module.prepare_inputs_for_generation(ids, use_cache=True).get("past_key_values")
        return self.run(PassSize(rows, positions), made)

    @cached_property
    def module(self) -> Any:
        """Module that transformers makes of the config, without weights."""
        import torch

        with torch.no_grad(), self._mode:
            try:
                module = self._made(self.attention)
            except (ImportError, ValueError):
                if self.attention == PLAIN:
                    raise
                module = self._made(PLAIN)
            module.config.pad_token_id = None  # else ids are looked at, to warn of padding without a mask
            simplify_routing(module)
            for part in module.modules():  # masks of recurrent layers, whose sizes hang on values, take no FLOPs
                if hasattr(part, MAKES_MASKS[0]):
                    for name in MAKES_MASKS:
                        setattr(part, name, lambda *_, **__: None)
            return module

    def _made(self, attention: str) -> Any:
        from unittest.mock import patch

        import torch
        from transformers import AutoModelForCausalLM, PreTrainedModel

        with patch.object(PreTrainedModel, "initialize_weights"):  # some of it looks at values
            made = AutoModelForCausalLM.from_config(
                copy.deepcopy(self.config),
                trust_remote_code=self.trust_remote_code,
                attn_implementation=attention,
                dtype=getattr(torch, self.dtype),
            )
        return made.eval()

    @property
    def is_plain(self) -> bool:
        """Whether its attention is."""
        return bool(self.module.config._attn_implementation == PLAIN)

    @property
    def has_experts(self) -> bool:
        """Whether there are mixtures of experts, which are not run by their own code."""
        return any(stand_ins(self.module))

    def _fit_routing(self) -> None:
        """Have mixtures of experts return what their layers expect: in some models a pair, with the router's logits."""
        if not self._fits_routing and self.has_experts:
            try:
                self.run(PassSize(1, 1))
            except ValueError:  # one row can't be taken for a pair
                for part in stand_ins(self.module):
                    part.returns_pair = True
        self._fits_routing = True

    @cached_property
    def _mode(self) -> FakeTensorMode:
        """Fake tensors rather than torch's meta device: transformers 4 enters autocast for a tensor's device, and meta
        has none."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        return FakeTensorMode()

    @cached_property
    def _parameters(self) -> frozenset[str]:
        return frozenset(inspect.signature(self.module.forward).parameters)

    @cached_property
    def _is_hybrid(self) -> bool:
        """Whether it has recurrent layers beside attention, as transformers 4 makes such models."""
        return any(hasattr(part, MAKES_MASKS[0]) for part in self.module.modules())
