"""What a model's config asks for: built on torch's meta device, where nothing takes memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from llm_bench_fixtures.errors import CandidateFailed, first_line, reason_of
from llm_bench_fixtures.models.trust import unusable

if TYPE_CHECKING:
    from torch import nn
    from transformers import PretrainedConfig

MOST_PARTS = 10_000  # layers, or experts of a layer: the largest published models have some hundreds
UNKNOWN = "Unrecognized configuration class"  # what transformers says of a config that none of its models is made of


@dataclass(frozen=True)
class Footprint:
    """What a model takes in memory."""

    weights: int
    """How many it has; those that two layers share count once."""

    buffer_bytes: int
    """Of tables that are no weights, such as GPT-2's causal masks (positions² in each layer). The largest one counts
    twice, as it is made of another of its size."""


def check_architecture(config: PretrainedConfig, trust_remote_code: bool) -> Footprint:
    """What the model takes. Imports its code. Raises CandidateFailed for one that can't be built, or that doesn't
    continue text."""
    import torch
    from transformers import AutoModelForCausalLM

    if getattr(config, "is_encoder_decoder", False):
        raise CandidateFailed(
            f"{config.model_type} is an encoder-decoder model, which makes one text of another; measured here are "
            "decoder-only models, which continue a text"
        )
    _check_counts(config)
    try:
        with torch.device("meta"):
            module = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
    except Exception as error:  # a config can make a model's code fail in any way
        if UNKNOWN in str(error):
            raise CandidateFailed(f"{config.model_type} is no causal language model: {first_line(error)}") from error
        if "trust_remote_code" in str(error):
            raise unusable("model", error) from error
        raise CandidateFailed(f"its config makes no model: {reason_of(error)}") from error
    return footprint_of(module)


def footprint_of(module: nn.Module) -> Footprint:
    """That of a model whose tensors may be on any device."""
    buffers = [buffer.numel() * buffer.element_size() for buffer in module.buffers()]
    weights = sum(parameter.numel() for parameter in module.parameters())
    return Footprint(weights, sum(buffers) + max(buffers, default=0))


def _check_counts(config: PretrainedConfig) -> None:
    """Each layer is built one by one, which has no end where a config asks for enough of them."""
    from llm_bench_fixtures.models.weights import EXPERT_COUNTS

    text = config.get_text_config()
    for name in ("num_hidden_layers", *EXPERT_COUNTS):
        count = getattr(text, name, None)
        if isinstance(count, int) and count > MOST_PARTS:
            raise CandidateFailed(f"its config asks for {name} of {count:,}, and {MOST_PARTS:,} are the most")
