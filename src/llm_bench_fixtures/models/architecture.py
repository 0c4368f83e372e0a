"""What a model's config asks for: built on torch's meta device, where nothing takes memory."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from llm_bench_fixtures.errors import CandidateFailed, first_line, reason_of
from llm_bench_fixtures.models.files import unusable
from llm_bench_fixtures.models.peculiarities import MATRIX, active_weights
from llm_bench_fixtures.models.weights import linear_layers

if TYPE_CHECKING:
    from torch import nn
    from transformers import PretrainedConfig, PreTrainedModel

UNKNOWN = "Unrecognized configuration class"  # what transformers says of a config that none of its models is made of
PACKED_ROWS, SCALED_COLUMNS = 32, 64  # rows that bitsandbytes' kernel for AVX512-BF16 packs, columns that share a scale


@dataclass(frozen=True)
class Footprint:
    """Size of a model in memory: weights by kind, and buffers."""

    weights: int
    """Number of weights; a tensor that two layers share counts once."""

    buffer_bytes: int = 0
    """Bytes of tables that are no weights, such as GPT-2's causal masks (positions² in each layer). The largest one
    counts twice, as it is made of another of its size."""

    matrices: int = 0
    """Number of weights in linear layers, which engines quantize; without the output layer's."""

    odd_matrices: int = 0
    """Number of linear layers' weights whose matrix doesn't have a multiple of PACKED_ROWS rows and of
    SCALED_COLUMNS columns."""

    experts: int = 0
    """Number of weights in stacked matrices, as some mixtures of experts have."""

    tables: int = 0
    """Number of weights in the tokens' embedding, and in the output layer where that has its own."""

    output: int = 0
    """Number of the output layer's weights among `tables`. 0: it shares the embedding's matrix."""

    positions: int = 0
    """Number of weights in lookup tables other than the tokens' embedding."""

    of_text: Footprint | None = None
    """Footprint of the part that reads text, in a model of images or sound besides."""

    active_weights: int | None = None
    """Number of weights that one position uses: fewer in a mixture of experts. None where that can't be told."""

    @property
    def others(self) -> int:
        """Number of weights that no engine quantizes, in norms and biases; 0 where no matrices were counted."""
        matrices = self.matrices + self.experts
        return self.weights - self.tables - self.positions - matrices if matrices else 0

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the report."""
        if self.active_weights in (None, self.weights):
            return ()
        return (f"a mixture of experts: each position uses {self.active_weights:,} of its {self.weights:,} weights",)


def check_architecture(config: PretrainedConfig, trust_remote_code: bool) -> Footprint:
    """Footprint of the model. Imports its code. Raises CandidateFailed for one that can't be built, or that doesn't
    continue text."""
    if getattr(config, "is_encoder_decoder", False):
        raise CandidateFailed(
            f"{config.model_type} is an encoder-decoder model, which makes one text of another; measured here are "
            "decoder-only models, which continue a text"
        )
    try:
        return footprint_of(without_weights(config, trust_remote_code))
    except Exception as error:  # a config can make a model's code fail in any way
        if UNKNOWN in str(error):
            raise CandidateFailed(f"{config.model_type} is no causal language model: {first_line(error)}") from error
        if "trust_remote_code" in str(error):
            raise unusable("model", error) from error
        raise CandidateFailed(f"its config makes no model: {reason_of(error)}") from error


def without_weights(config: PretrainedConfig, trust_remote_code: bool, **how: Any) -> PreTrainedModel:
    """The model that `from_pretrained` makes of the config, its weights on torch's meta device.

    how: as in `from_config`.
    """
    import torch
    from transformers.integrations import accelerate

    config = copy.deepcopy(config)  # transformers writes into it
    try:
        with torch.device("meta"):
            return _made_of(config, trust_remote_code, how)
    except (NotImplementedError, RuntimeError) as error:
        if "meta tensor" not in str(error) or not hasattr(accelerate, "init_empty_weights"):  # transformers 5
            raise
    # Code that reads numbers while it builds, as that of transformers 4 for Apertus, needs real tables.
    with accelerate.init_empty_weights():
        made = _made_of(config, trust_remote_code, how)
    made.tie_weights()  # it replaces tied parameters by one each
    return made


def _made_of(config: PretrainedConfig, trust_remote_code: bool, how: Mapping[str, Any]) -> PreTrainedModel:
    """Make the model of a config; of several media, from the text's config where the causal model takes that.
    `from_pretrained` does so, and `from_config` doesn't."""
    from transformers import AutoModelForCausalLM

    of_text = config.sub_configs.get("text_config")
    found = AutoModelForCausalLM._model_mapping.get(type(config), None)
    if of_text is not None and getattr(found, "config_class", None) is of_text:
        return found._from_config(config.get_text_config(), **how)
    return AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code, **how)


def footprint_of(module: nn.Module) -> Footprint:
    """Footprint of a model whose tensors may be on any device."""
    buffers = [buffer.numel() * buffer.element_size() for buffer in module.buffers()]
    buffer_bytes = sum(buffers) + max(buffers, default=0)
    output = getattr(module, "get_output_embeddings", lambda: None)()
    found = replace(_counted(module, output), buffer_bytes=buffer_bytes, active_weights=active_weights(module))
    config = getattr(module, "config", None)
    if config is None or config.get_text_config() is config:
        return found
    return replace(found, of_text=_counted(cast("PreTrainedModel", module).get_decoder(), output))


def _counted(module: nn.Module, output: nn.Module | None) -> Footprint:
    """Weights of the module and of the output layer."""
    from torch import nn

    parts = [*module.parameters(), *(output.parameters() if output else ())]
    tokens = getattr(module, "get_input_embeddings", lambda: None)()
    looked_up = [one for one in module.modules() if isinstance(one, nn.Embedding) and one is not tokens]
    embedding, made = (getattr(one, "weight", None) for one in (tokens, output))
    of_output = 0 if made is None or made is embedding else made.numel()
    others = [one for one in module.modules() if not isinstance(one, nn.Conv1d | nn.Conv2d | nn.Conv3d)]
    matrices = [(rows, columns) for _, layer, rows, columns in linear_layers(module) if layer is not output]
    return Footprint(
        sum({id(part): part.numel() for part in parts}.values()),
        matrices=sum(rows * columns for rows, columns in matrices),
        odd_matrices=sum(
            rows * columns for rows, columns in matrices if rows % PACKED_ROWS or columns % SCALED_COLUMNS
        ),
        experts=sum(part.numel() for one in others for part in one.parameters(recurse=False) if part.ndim > MATRIX),
        tables=of_output + (0 if embedding is None else embedding.numel()),
        output=of_output,
        positions=sum(one.weight.numel() for one in looked_up),
    )
