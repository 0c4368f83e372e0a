"""What is particular to some architectures' code in transformers, by the model_type of the config, and to mixtures of
experts.

In a mixture of experts a router sends, in some layers, each position to few of many experts, and the others' weights
are neither read nor multiplied for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn
    from transformers import PretrainedConfig

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


_ALONE = "transformers masks padding in its recurrent states only where two or more rows run together"
_FROM_FIRST_COLUMN = "transformers counts its positions from the first column on, padding included"
PADDING = {
    **dict.fromkeys(("bamba", "falcon_h1", "granitemoehybrid", "mamba2", "qwen3_next"), _ALONE),
    **dict.fromkeys(("ctrl", "openai-gpt"), _FROM_FIRST_COLUMN),
    "lfm2": "transformers doesn't mask padding in its convolutions",
    "minimax": "transformers masks padding in the prompt only, where its first layer has linear attention",
    "recurrent_gemma": "transformers masks padding in its attention, not in its recurrent states",
    "rwkv": "transformers' code for it takes no attention mask: padding goes through its states",
}
"""Why padding changes what follows it."""

OFFSET_POSITIONS = (
    *("camembert", "data2vec-text", "roberta", "roberta-prelayernorm"),
    *("xlm-roberta", "xlm-roberta-xl", "xmod"),
)
"""Model types whose first position is the padding token's id + 1. transformers' `generate` counts from 0 all the
same."""

_OFFSET = "transformers counts its positions from 0 in generate, and from the padding token's id + 1 in a forward pass"
_SHARED = "without a cache transformers shares no keys between its layers"
_BY_LENGTH = "transformers chooses its rotary embedding by the longest of the rows that run together"
_KEPT = "kept keys have the rotary embedding of the shorter text that they were made for"
LONG_ROPE = ("longrope", "su")
LEFT, RIGHT, BATCH, CACHE = "left padding", "right padding", "batch", "cache"  # names of an ExecutionMode


def type_of(config: PretrainedConfig) -> str:
    return str(getattr(config, "model_type", ""))


def divergence_causes(config: PretrainedConfig) -> dict[str, str]:
    """Why the answers depend on how the model is run, where that is known, by the value of the ExecutionMode."""
    causes: dict[str, str] = {}
    kinds = [kind for kind, _ in _rotary_parts(config.get_text_config())]
    if any(kind in LONG_ROPE or "dynamic" in kind for kind in kinds):  # depends on the length of the text
        causes |= {**dict.fromkeys((LEFT, RIGHT, BATCH), _BY_LENGTH), CACHE: _KEPT}
    if note := PADDING.get(type_of(config)):
        causes |= dict.fromkeys((LEFT, BATCH), note)
    if type_of(config) in OFFSET_POSITIONS:
        causes[RIGHT] = _OFFSET
    if shares_keys(config):
        causes[CACHE] = _SHARED
    return causes


def shares_keys(config: PretrainedConfig) -> bool:
    """Whether layers take over the keys of others, as Gemma 3n's do. transformers 4 does that by way of a cache, so
    that a forward pass without one runs another model."""
    return bool(getattr(config.get_text_config(), "num_kv_shared_layers", 0))


def rotary_limit(text: PretrainedConfig) -> int | None:
    """The longest text, in tokens, that gets longrope's short factors; None without longrope, or if unknown.

    transformers 4 goes by the config itself, 5 by `rope_parameters`, which it makes of any config.
    """
    named = "original_max_position_embeddings"
    long = [part for kind, part in _rotary_parts(text) if kind in LONG_ROPE]
    parts = long if hasattr(text, "rope_parameters") else []
    limits = [*(part.get(named) for part in parts), *([getattr(text, named, None)] if long else [])]
    return next((int(limit) for limit in limits if isinstance(limit, int | float) and limit > 1), None)


def _rotary_parts(text: PretrainedConfig) -> list[tuple[str, Mapping[str, Any]]]:
    """The kind of each of its rotary embeddings, and what the config says of it."""
    scaling: Any = getattr(text, "rope_scaling", None) or getattr(text, "rope_parameters", None)
    if not isinstance(scaling, Mapping):  # whatever a config of somebody's own has there
        return []
    parts = [scaling, *(part for part in scaling.values() if isinstance(part, Mapping))]  # a part per kind of layer
    return [(str(part.get("rope_type", part.get("type"))), part) for part in parts]
