"""How the weights of a checkpoint are quantized, as its config.json tells it: read without any library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KEYS = ("quantization_config", "compression_config")  # keys of a config.json; older compressed-tensors wrote the latter
LONGEST = 60  # characters of a text that stands in a label


@dataclass(frozen=True)
class StoredQuantization:
    """Quantization that a checkpoint's config states."""

    method: str
    """transformers' name for the format: "gptq"."""

    scheme: str
    """Bits, groups and the like, for people; empty where the config doesn't say."""

    def __str__(self) -> str:
        return f"{self.method}, {self.scheme}" if self.scheme else self.method


def stored_quantization(config: object) -> StoredQuantization | None:
    """Quantization that a config.json states; None for weights that aren't quantized."""
    found = _quantization_in(config)
    if found is None:
        return None
    is_4_bit, is_8_bit = (bool(found.get(f"load_in_{bits}bit")) for bits in (4, 8))
    method = "bitsandbytes" if is_4_bit or is_8_bit else str(found.get("quant_method") or "of an unknown method")
    if method == "bitsandbytes":
        scheme = str(found.get("bnb_4bit_quant_type") or "4 bits") if is_4_bit else "int8"
    elif method == "compressed-tensors":
        scheme = _scheme_of_groups(found)
    else:
        scheme = _scheme_of_bits(found)
    return StoredQuantization(method[:LONGEST], scheme[:LONGEST])


def _quantization_in(config: object) -> Mapping[str, Any] | None:
    """Quantization of a config, also of a model of several media, whose decoder has a config of its own."""
    for part in (config, config.get("text_config") if isinstance(config, dict) else None):
        found = [part.get(key) for key in KEYS] if isinstance(part, dict) else []
        first = next((one for one in found if isinstance(one, dict) and one), None)
        if first is not None:
            return first
    return None


def _scheme_of_bits(found: Mapping[str, Any]) -> str:
    bits, size = found.get("bits"), found.get("group_size")
    groups = f" in groups of {size}" if isinstance(size, int) and size > 0 else ""
    return f"{bits} bits{groups}" if isinstance(bits, int) else ""


def _scheme_of_groups(found: Mapping[str, Any]) -> str:
    """Scheme of compressed-tensors: its format, and the bits of the first group of layers."""
    groups = found.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = first.get("weights") if isinstance(first, dict) else None
    bits = weights.get("num_bits") if isinstance(weights, dict) else None
    known = (str(found.get("format") or ""), f"{bits} bits" if isinstance(bits, int) else "")
    return ", ".join(filter(None, known))
