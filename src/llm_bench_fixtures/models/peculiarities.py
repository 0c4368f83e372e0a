"""What is particular to some architectures' code in transformers, by the config's model_type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PretrainedConfig

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
