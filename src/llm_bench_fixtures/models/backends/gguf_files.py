"""GGUF files: what one can hold, and how it holds it; written from a model of transformers', checked, and counted.

Those that are written are without a tokenizer, as llama.cpp is given token ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import BackendUnavailable, first_line
from llm_bench_fixtures.models.conversion import MOST_GAP, write_counts
from llm_bench_fixtures.models.variants import Precision
from llm_bench_fixtures.reading import refusal

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt
    import torch
    from gguf import GGUFWriter

    Array = npt.NDArray[np.float32]

TABLES = ("token_embd.weight", "position_embd.weight", "token_types.weight")  # tables that are looked up
OUTPUT = "output.weight"  # where it is missing, the table of tokens is the output layer's matrix too
FLOATS = {"F32": Precision.FLOAT32, "F16": Precision.FLOAT16, "BF16": Precision.BFLOAT16}  # by gguf's names
Q8_0_BLOCK = 32  # weights of a row
BLOCKS = {"f32": (), "q8_0": ("Q8_0",), "q4_k_m": ("Q4_K", "Q5_K", "Q6_K")}
"""The types of blocks that each quantization puts matrices in, where their rows fill them."""
SUFFIXES = (".weight", ".bias")
TRANSPOSED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")  # GPT-2's layers hold columns for rows
NO_TOKENIZER = "no_vocab"  # as llama.cpp calls it
ROPE_FACTORS = "rope_freqs.weight"
LLAMA = "llama"
"""The architecture whose rotary embeddings turn neighbouring numbers, where transformers turns those of two halves, and
beside whose weights factors of the rotary frequencies may stand."""

ARCHITECTURES = {"gpt2": "gpt2", "llama": LLAMA, "mistral": LLAMA, "qwen2": "qwen2", "qwen3": "qwen3"}
"""llama.cpp's names, by the config's model_type."""

EXPECTED = {  # what llama.cpp computes, by the config's key: a config may name nothing else there
    "activation_function": "gelu_new",
    "hidden_act": "silu",
    "add_cross_attention": False,
    "reorder_and_upcast_attn": False,
    "scale_attn_by_inverse_layer_idx": False,
    "scale_attn_weights": True,
    "use_sliding_window": False,
}


def check_rows(file: Path) -> None:
    """Raise BackendUnavailable for rows that don't fill the blocks of q8_0, for which llama.cpp has no other type."""
    import gguf

    for tensor in gguf.GGUFReader(file).tensors:
        row = int(tensor.shape[0])
        if len(tensor.shape) > 1 and row % Q8_0_BLOCK:
            raise BackendUnavailable(
                f"llama.cpp's q8_0 takes {Q8_0_BLOCK} weights of a row together: a row of {tensor.name} has {row:,}"
            )


def check_given(file: Path, config: Any) -> Precision:
    """Precision that the weights of a given file are stored in.

    Raises BackendUnavailable for a file that isn't there, or holds another model than the config's, or fewer bits than
    16.
    """
    import gguf

    if why := refusal(file) or ("" if file.is_file() else "isn't there"):
        raise BackendUnavailable(f"--llm-gguf: {file} {why}")
    try:
        tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(file).tensors}
    except ValueError as error:
        raise BackendUnavailable(f"--llm-gguf {file}: {first_line(error)}") from error
    table = tensors.get(TABLES[0])
    text = config.get_text_config()
    shape = (text.vocab_size, text.hidden_size)
    if table is None or tuple(map(int, reversed(table.shape))) != shape:
        raise BackendUnavailable(f"--llm-gguf {file}: its table of tokens isn't one of {shape[0]} x {shape[1]}")
    types = {tensor.tensor_type.name for tensor in tensors.values()}
    if quantized := types - FLOATS.keys():
        raise BackendUnavailable(f"--llm-gguf {file}: holds {', '.join(sorted(quantized))}; give F32, F16 or BF16")
    return max((FLOATS[name] for name in types), key=MOST_GAP.__getitem__)


def count_weights(file: Path, kind: str) -> None:
    """Keep COUNTS of the file, and its other blocks, beside it."""
    import gguf

    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(file).tensors}
    looked_up = TABLES if OUTPUT in tensors else TABLES[1:]
    quantized = sum(int(tensor.n_elements) for tensor in tensors.values() if tensor.tensor_type.name not in FLOATS)
    stored = sum(int(tensor.n_bytes) for tensor in tensors.values())
    read = sum(int(tensor.n_bytes) for name, tensor in tensors.items() if name not in looked_up)
    share = quantized / sum(int(tensor.n_elements) for tensor in tensors.values())
    write_counts(file.parent, (stored, read, share), other_blocks=other_blocks(tensors.values(), kind))


def other_blocks(tensors: Iterable[Any], kind: str) -> dict[str, float]:
    """Types that llama.cpp fell back to for rows that the kind's blocks don't fill, and their part of what isn't
    float32, in which it leaves vectors and small tables."""
    counts: Counter[str] = Counter()
    for tensor in tensors:
        counts[tensor.tensor_type.name] += int(tensor.n_elements)
    del counts["F32"]
    return {name: count / counts.total() for name, count in counts.items() if name not in BLOCKS[kind]}


def check_convertible(config: Any) -> str:
    """Architecture of the config's model. Raises BackendUnavailable for one that llama.cpp would run in another way."""
    architecture = ARCHITECTURES.get(config.model_type)
    if architecture is None:
        known = ", ".join(ARCHITECTURES)
        raise BackendUnavailable(
            f"models of type {config.model_type} aren't converted to GGUF here (those of {known} are); "
            "name a GGUF file of it with --llm-gguf"
        )
    for name, expected in EXPECTED.items():
        value = getattr(config, name, expected)
        if value != expected:
            raise BackendUnavailable(f"llama.cpp doesn't run {config.model_type} models with {name}={value}")
    window = getattr(config, "sliding_window", None) if config.model_type == "mistral" else None
    if window is not None and window < config.max_position_embeddings:
        raise BackendUnavailable(f"llama.cpp runs {config.model_type} models without their sliding window")
    return architecture


def write_gguf(module: Any, path: Path) -> None:
    """Write the weights of a transformers model. Raises BackendUnavailable for one that GGUF can't hold as it is."""
    import gguf

    writer = gguf.GGUFWriter(path, check_convertible(module.config))
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


def _tensors(module: Any, config: Any, architecture: str) -> Iterator[tuple[str, Array]]:
    """GGUF's name and the weights of each, a table that is the output layer's matrix too once."""
    import gguf

    number = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(number, config.num_hidden_layers)
    table = module.get_input_embeddings().weight
    for name, tensor in module.state_dict().items():
        if name.startswith("lm_head.") and tensor.data_ptr() == table.data_ptr():
            continue
        found = names.get_name(name, SUFFIXES)
        if found is None:
            raise BackendUnavailable(f"GGUF has no place for {name} of {config.model_type} models")
        yield found, _laid_out(name, tensor, config, architecture)
    if hasattr(module.base_model, "rotary_emb"):
        yield from _rope_factors(module.base_model.rotary_emb, config, architecture)


def _laid_out(name: str, tensor: torch.Tensor, config: Any, architecture: str) -> Array:
    if config.model_type == "gpt2" and name.endswith(TRANSPOSED):
        tensor = tensor.T
    if architecture == LLAMA and ".q_proj." in name:
        tensor = _interleaved(tensor, config.num_attention_heads)
    if architecture == LLAMA and ".k_proj." in name:
        tensor = _interleaved(tensor, config.num_key_value_heads)
    array: Array = tensor.float().contiguous().numpy()
    return array


def _interleaved(tensor: torch.Tensor, heads: int) -> torch.Tensor:
    """The rows of each head in the order 0, n/2, 1, n/2 + 1, ..., so that what is turned together is neighbours."""
    halves = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:])
    return halves.swapaxes(1, 2).reshape(tensor.shape)


def _rope_factors(rotary: Any, config: Any, architecture: str) -> Iterator[tuple[str, Array]]:
    """Factors that the rotary frequencies are divided by, where a config scales them. Raises BackendUnavailable where
    that depends on more than the frequency."""
    import torch

    width = _head_width(config)
    plain = _rope_base(config) ** -(torch.arange(0, width, 2, dtype=torch.float32) / width)
    factors = plain / rotary.inv_freq.float()
    kind = getattr(rotary, "rope_type", "default")
    if kind == "default" and torch.allclose(factors, torch.ones_like(factors)):
        return
    if kind not in ("linear", "llama3") or architecture != LLAMA or rotary.attention_scaling != 1:
        raise BackendUnavailable(
            f"rotary embeddings of type {kind} in {config.model_type} models aren't converted to GGUF here; "
            "name a GGUF file of it with --llm-gguf"
        )
    yield ROPE_FACTORS, factors.numpy()
