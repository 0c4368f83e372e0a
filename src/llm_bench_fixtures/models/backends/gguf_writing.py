"""A model's weights as a GGUF file, in float32 and without a tokenizer, as llama.cpp is given token ids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import BackendUnavailable

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt
    import torch
    from gguf import GGUFWriter

    Array = npt.NDArray[np.float32]

SUFFIXES = (".weight", ".bias")
TRANSPOSED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")  # of GPT-2, whose layers hold columns for rows
NO_TOKENIZER = "no_vocab"  # as llama.cpp calls it
ROPE_FACTORS = "rope_freqs.weight"


@dataclass(frozen=True)
class Layout:
    """How GGUF holds a family of models."""

    architecture: str
    """llama.cpp's name."""

    interleaves: bool = False
    """Whether rotary embeddings turn neighbouring numbers, where transformers turns those of two halves."""

    scales_rope: bool = False
    """Whether factors of the rotary frequencies may stand beside the weights."""


LAYOUTS = {
    "gpt2": Layout("gpt2"),
    "llama": Layout("llama", interleaves=True, scales_rope=True),
    "mistral": Layout("llama", interleaves=True, scales_rope=True),
    "qwen2": Layout("qwen2"),
    "qwen3": Layout("qwen3"),
}
"""By the config's model_type."""

EXPECTED = {  # of configs, where they name it: what llama.cpp computes
    "activation_function": ("gelu_new",),
    "hidden_act": ("silu",),
    "add_cross_attention": (False,),
    "reorder_and_upcast_attn": (False,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "scale_attn_weights": (True,),
    "use_sliding_window": (False,),
}


def check_convertible(config: Any) -> Layout:
    """How the config's model is laid out. Raises BackendUnavailable for one that llama.cpp would run in another way."""
    layout = LAYOUTS.get(config.model_type)
    if layout is None:
        known = ", ".join(LAYOUTS)
        raise BackendUnavailable(
            f"models of type {config.model_type} aren't converted to GGUF here (those of {known} are); "
            "name a GGUF file of it with --llm-gguf"
        )
    for name, accepted in EXPECTED.items():
        value = getattr(config, name, accepted[0])
        if value not in accepted:
            raise BackendUnavailable(f"llama.cpp doesn't run {config.model_type} models with {name}={value}")
    window = getattr(config, "sliding_window", None) if config.model_type == "mistral" else None
    if window is not None and window < config.max_position_embeddings:
        raise BackendUnavailable(f"llama.cpp runs {config.model_type} models without their sliding window")
    return layout


def write_gguf(module: Any, path: Path) -> None:
    """Write the weights of a transformers model. Raises BackendUnavailable for one that GGUF can't hold as it is."""
    import gguf

    writer = gguf.GGUFWriter(path, check_convertible(module.config).architecture)
    writer.add_tokenizer_model(NO_TOKENIZER)
    write_model(writer, module)


def write_model(writer: GGUFWriter, module: Any) -> None:
    """Write what the writer has and the weights of a transformers model, and close it. Raises as `write_gguf`."""
    import gguf
    import torch

    config = module.config
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    _add_sizes(writer, config)
    with torch.inference_mode():
        for name, tensor in _tensors(module, config, check_convertible(config)):
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_sizes(writer: GGUFWriter, config: Any) -> None:
    """The numbers that llama.cpp builds the graph from."""
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    if config.model_type == "gpt2":
        writer.add_feed_forward_length(config.n_inner or 4 * config.n_embd)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
        return
    width = _head_width(config)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(_rope_base(config))
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)


def _head_width(config: Any) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _rope_base(config: Any) -> float:
    parameters = getattr(config, "rope_parameters", None) or {}  # transformers 5
    return float(parameters.get("rope_theta") or config.rope_theta)


def _tensors(module: Any, config: Any, layout: Layout) -> Iterator[tuple[str, Array]]:
    """GGUF's name and the weights of each, a table that is the output layer's matrix too once."""
    import gguf

    architecture = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == layout.architecture)
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    table = module.get_input_embeddings().weight
    for name, tensor in module.state_dict().items():
        if name.startswith("lm_head.") and tensor.data_ptr() == table.data_ptr():
            continue
        found = names.get_name(name, SUFFIXES)
        if found is None:
            raise BackendUnavailable(f"GGUF has no place for {name} of {config.model_type} models")
        yield found, _laid_out(name, tensor, config, layout)
    if hasattr(module.base_model, "rotary_emb"):
        yield from _rope_factors(module.base_model.rotary_emb, config, layout)


def _laid_out(name: str, tensor: torch.Tensor, config: Any, layout: Layout) -> Array:
    if config.model_type == "gpt2" and name.endswith(TRANSPOSED):
        tensor = tensor.T
    if layout.interleaves and ".q_proj." in name:
        tensor = _interleaved(tensor, config.num_attention_heads)
    if layout.interleaves and ".k_proj." in name:
        tensor = _interleaved(tensor, config.num_key_value_heads)
    array: Array = tensor.float().contiguous().numpy()
    return array


def _interleaved(tensor: torch.Tensor, heads: int) -> torch.Tensor:
    """The rows of each head in the order 0, n/2, 1, n/2 + 1, ..., so that what is turned together is neighbours."""
    halves = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:])
    return halves.swapaxes(1, 2).reshape(tensor.shape)


def _rope_factors(rotary: Any, config: Any, layout: Layout) -> Iterator[tuple[str, Array]]:
    """What the rotary frequencies are divided by, where a config scales them. Raises BackendUnavailable where that
    depends on more than the frequency."""
    import torch

    width = _head_width(config)
    plain = _rope_base(config) ** -(torch.arange(0, width, 2, dtype=torch.float32) / width)
    factors = plain / rotary.inv_freq.float()
    kind = getattr(rotary, "rope_type", "default")
    if kind == "default" and torch.allclose(factors, torch.ones_like(factors)):
        return
    if kind not in ("linear", "llama3") or not layout.scales_rope or rotary.attention_scaling != 1:
        raise BackendUnavailable(
            f"rotary embeddings of type {kind} in {config.model_type} models aren't converted to GGUF here; "
            "name a GGUF file of it with --llm-gguf"
        )
    yield ROPE_FACTORS, factors.numpy()
