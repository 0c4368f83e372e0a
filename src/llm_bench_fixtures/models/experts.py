"""Mixtures of experts: in some layers a router sends each position to few of many experts, and the others' weights are
neither read nor multiplied for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn

EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts")  # in configs of mixtures of experts
CHOSEN_COUNTS = ("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "moe_topk", "moe_k")
EXPERTS = "experts"  # what transformers calls the module that holds them
PARALLEL = "ParallelExperts"  # ends the class of one that holds one matrix of each
DENSE = ("Llama4TextExperts",)
MATRIX, STACK = 2, 3  # dimensions of a matrix, and of one for each expert in one tensor


@dataclass(frozen=True)
class Routed:
    """A module that holds all experts of a layer, or one matrix of each, and nothing else."""

    owner: str
    """The name of the module that it is a part of, which routes."""
    part: nn.Module
    experts: int
    chosen: int
    """Number of experts that each position uses."""

    def of_position(self, amount: int) -> int:
        """Part of an amount, which all experts have in equal parts, for the experts of one position."""
        return amount * self.chosen // self.experts

    @property
    def is_dense(self) -> bool:
        """Whether its code multiplies every position with all experts, most of them with zeros."""
        return type(self.part).__name__ in DENSE

    @property
    def matrix_weights(self) -> int:
        """Number of all experts' weights; biases don't count."""
        stacked = any(parameter.dim() == STACK for parameter in self.part.parameters())
        wanted = STACK if stacked else MATRIX
        return sum(parameter.numel() for parameter in self.part.parameters() if parameter.dim() == wanted)


def expert_count(config: object) -> int:
    """Experts of each layer's mixture, by a model's config; 0 where it has none."""
    return _largest(config, EXPERT_COUNTS)


def _largest(config: object, names: tuple[str, ...]) -> int:
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    counts = (getattr(text, name, None) for name in names)
    return max((count for count in counts if isinstance(count, int)), default=0)


def routed_parts(module: Any) -> list[Routed] | None:
    """Modules that hold a model's experts; empty for a model without. None where its code keeps them in another way, or
    its config doesn't say how many of them are chosen."""
    config = getattr(module, "config", None)
    if expert_count(config) < MATRIX:
        return []
    chosen = _largest(config, CHOSEN_COUNTS)
    found = [
        Routed(name.rpartition(".")[0], part, experts, min(chosen, experts))
        for name, part in module.named_modules()
        if (experts := _experts_in(name, part))
    ]
    return found if found and chosen else None


def _experts_in(name: str, part: nn.Module) -> int:
    """How many experts the module holds; 0 for any other module."""
    from torch import nn

    if name.rpartition(".")[2] == EXPERTS and isinstance(part, nn.ModuleList):
        return len(part)
    stacks = [weight.shape[0] for weight in part.parameters(recurse=False) if weight.dim() == STACK]
    is_experts = name.rpartition(".")[2] == EXPERTS or type(part).__name__.endswith(PARALLEL)
    return stacks[0] if stacks and is_experts else 0


def active_weights(module: nn.Module) -> int | None:
    """How many of a model's weights one position uses, tables that are only looked up among them. None where that can't
    be told of its experts."""
    routed = routed_parts(module)
    if routed is None:
        return None
    in_experts = sum(_numbers(one.part) for one in routed)
    return _numbers(module) - in_experts + sum(one.of_position(_numbers(one.part)) for one in routed)


def _numbers(part: nn.Module) -> int:
    return sum(parameter.numel() for parameter in part.parameters())


def simplify_routing(module: Any) -> None:
    """Put in the place of each layer's mixture one product that takes the FLOPs of what a position uses of it.

    Which experts a position uses depends on its values, but not how many, and each of them takes as many FLOPs. So the
    FLOPs can be counted without values. Raises LookupError for a mixture that isn't known well enough.
    """
    routed = routed_parts(module)
    if routed is None:
        raise LookupError("how its mixture of experts computes is not known")
    for owner in dict.fromkeys(one.owner for one in routed):
        parent, _, name = owner.rpartition(".")
        block = module.get_submodule(owner)
        if len(inspect.signature(block.forward).parameters) != 1:
            raise LookupError(f"{type(block).__name__} does more than route to experts")
        weights = _multiplied_weights(block, [one for one in routed if one.owner == owner])
        setattr(module.get_submodule(parent), name, _stand_in(weights))


def _multiplied_weights(block: nn.Module, routed: list[Routed]) -> int:
    """Number of weights in a layer's mixture that each position is multiplied with: its experts, the router, shared
    experts."""
    inside = {id(weight) for one in routed for weight in one.part.parameters()}
    others = (weight for weight in block.parameters() if id(weight) not in inside and weight.dim() == MATRIX)
    return sum(weight.numel() for weight in others) + sum(one.of_position(one.matrix_weights) for one in routed)


def _stand_in(weights: int) -> nn.Module:
    """A module that multiplies each position with so many weights and returns what it got."""
    from torch import nn

    class StandIn(nn.Module):
        returns_pair = False
        """Whether its caller expects the router's logits, too."""

        def forward(self, hidden: torch.Tensor) -> Any:
            width = hidden.shape[-1]
            if weights % width:
                raise LookupError(f"{weights} weights of a mixture of experts are no matrix of {width} columns")
            hidden.reshape(-1, width) @ hidden.new_empty((width, weights // width))
            return (hidden, hidden) if self.returns_pair else hidden

    return StandIn()


def stand_ins(module: nn.Module) -> Iterator[Any]:
    """Modules that `simplify_routing` has put into the model."""
    return (part for part in module.modules() if hasattr(part, "returns_pair"))
