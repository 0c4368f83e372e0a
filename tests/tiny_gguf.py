"""The embedded model, a GPT-2, as a file of llama.cpp's."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file

from llm_bench_fixtures.models.source import TINY_FOLDER

RENAMED = {
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
OUTSIDE = {"wte.weight": "token_embd.weight", "wpe.weight": "position_embd.weight"}


def write_tiny_gguf(path: Path) -> Path:
    """In float32, with the tokenizer."""
    config = json.loads((TINY_FOLDER / "config.json").read_text())
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_context_length(config["n_positions"])
    writer.add_embedding_length(config["n_embd"])
    writer.add_feed_forward_length(4 * config["n_embd"])
    writer.add_block_count(config["n_layer"])
    writer.add_head_count(config["n_head"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    _add_tokenizer(writer)
    for name, tensor in load_file(TINY_FOLDER / "model.safetensors").items():
        plain = name.removeprefix("transformer.")
        # transformers' Conv1D holds its weights the other way round
        turned = tensor.T if plain.startswith("h.") and tensor.ndim == 2 else tensor
        writer.add_tensor(_gguf_name(plain), np.ascontiguousarray(turned, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    tokenizer = json.loads((TINY_FOLDER / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    special = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    tokens = {number: text for text, number in vocabulary.items()} | special
    merges = [one if isinstance(one, str) else " ".join(one) for one in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([tokens[number] for number in sorted(tokens)])
    kinds = (gguf.TokenType.CONTROL, gguf.TokenType.NORMAL)
    writer.add_token_types([kinds[0] if number in special else kinds[1] for number in sorted(tokens)])
    writer.add_token_merges(merges)
    (end,) = special
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(end)
    writer.add_add_bos_token(False)


def _gguf_name(name: str) -> str:
    if name in OUTSIDE:
        return OUTSIDE[name]
    if name.startswith("ln_f."):
        return name.replace("ln_f", "output_norm")
    _, block, rest = name.split(".", 2)
    part, kind = rest.rsplit(".", 1)
    return f"blk.{block}.{RENAMED[part]}.{kind}"
