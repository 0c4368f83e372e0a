"""The families of models, a row each, as small folders with random weights: what is measured of one stands in its row.

A new family is one more row of FAMILIES.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from llm_bench_fixtures.measure.equivalence import ExecutionMode
from llm_bench_fixtures.models.source import TINY, TINY_FOLDER, ModelSource

SEED = 0
IS_TRANSFORMERS_5 = int(version("transformers").partition(".")[0]) >= 5
ALONE = (ExecutionMode.LEFT_PADDING,)
PADDED = (ExecutionMode.LEFT_PADDING, ExecutionMode.BATCH)


class Keeps(Enum):
    """What a model keeps from one step to the next."""

    KEYS = "keys and values"
    STATES = "recurrent states"
    BOTH = "both"
    UNSEEN = "states in itself, where nobody sees them"


@dataclass(frozen=True)
class Family:
    """One architecture of transformers', in sizes that load in no time."""

    name: str
    config: Mapping[str, Any]
    """Of AutoConfig.for_model, `model_type` among them."""

    keeps: Keeps = Keeps.KEYS
    diverges: tuple[ExecutionMode, ...] = ()
    """Execution modes that change its answers, by transformers' own doing."""

    by_generate: bool = False
    """Whether only `generate` diverges: one forward pass with mask and positions doesn't."""

    mended_in_5: bool = False
    """Whether they change nothing under transformers 5."""

    fails: tuple[ExecutionMode, ...] = ()
    """Execution modes in which its own code raises an error."""

    dtype: str = "float32"
    """Of its files."""

    shard_size: str = "5GB"
    """That its files have at most."""

    chat_template: str = ""
    quantized_by: Mapping[str, Any] = field(default_factory=dict)
    """What bitsandbytes is told to quantize its weights by, before they are saved once more."""

    pickled: bool = False
    """Whether its weights are a PyTorch checkpoint and no safetensors."""

    code: str = ""
    """Of its own, in modeling_mine.py, which its config names."""

    is_trusted: bool = False
    """Whether that may run."""

    makes: str = "AutoModelForCausalLM"
    """The class of transformers' that makes it of its config."""

    refused: str = ""
    """Why it can't be a run's model; empty where it can."""

    @property
    def diverging(self) -> tuple[ExecutionMode, ...]:
        """Those of `diverges` that do under the installed transformers."""
        return () if self.mended_in_5 and IS_TRANSFORMERS_5 else self.diverges

    def build(self, folder: Path) -> ModelSource:
        """Its files, with the embedded model's tokenizer, in the folder."""
        import torch
        import transformers

        tokenizer = ModelSource(TINY, TINY_FOLDER).load_tokenizer()
        config = self.make_config(tokenizer)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            module = getattr(transformers, self.makes).from_config(config, dtype=getattr(torch, self.dtype))
            module.get_input_embeddings().weight.data[tokenizer.pad_token_id].normal_()  # zeros would hide padding
        module.save_pretrained(folder, max_shard_size=self.shard_size)
        if self.chat_template:
            tokenizer.chat_template = self.chat_template
        tokenizer.save_pretrained(folder)
        if self.quantized_by:
            save_quantized(folder, self.quantized_by)
        if self.pickled:
            pickle_weights(folder)
        if self.code:
            (folder / "modeling_mine.py").write_text(self.code, encoding="utf-8")
            change_config(folder, model_type="mine", architectures=["MineForCausalLM"], auto_map=OWN_CLASSES)
        return ModelSource(self.name, folder, trust_remote_code=self.is_trusted)

    def make_config(self, tokenizer: Any) -> Any:
        """The config, with the tokenizer's special tokens."""
        from transformers import AutoConfig

        special = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        return AutoConfig.for_model(**self.config, **special)


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), encoding="utf-8")


def pickle_weights(folder: Path) -> None:
    """Put a PyTorch checkpoint in the place of the one file of safetensors."""
    import torch
    from safetensors.torch import load_file

    torch.save(load_file(folder / "model.safetensors"), folder / PICKLE)
    (folder / "model.safetensors").unlink()


PICKLE = "pytorch_model.bin"
OWN_CLASSES = {"AutoConfig": "modeling_mine.MineConfig", "AutoModelForCausalLM": "modeling_mine.MineForCausalLM"}
OWN_CODE = """
from transformers import LlamaConfig, LlamaForCausalLM


class MineConfig(LlamaConfig):
    model_type = "mine"


class MineForCausalLM(LlamaForCausalLM):
    config_class = MineConfig
"""


def save_quantized(folder: Path, settings: Mapping[str, Any]) -> None:
    """Put in place of the folder's weights what bitsandbytes makes of them. settings: of BitsAndBytesConfig."""
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    config = BitsAndBytesConfig(**settings)
    how = {"dtype": "auto", "device_map": {"": "cpu"}}
    module = AutoModelForCausalLM.from_pretrained(folder, quantization_config=config, **how)
    module.save_pretrained(folder)


VOCABULARY = 4096
WIDTH = {"vocab_size": VOCABULARY, "hidden_size": 64}
DEEP = {**WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 512}
WIDE = {**DEEP, "intermediate_size": 128, "initializer_range": 0.1}
GROUPED = {**WIDE, "num_key_value_heads": 2}
GPT = {"vocab_size": VOCABULARY, "n_positions": 512, "n_embd": 64, "n_layer": 2, "n_head": 4}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 64}
LOCAL_EXPERTS = {"num_experts_per_tok": 2, "num_local_experts": 4}
LATENT = {  # DeepSeek's attention
    "kv_lora_rank": 16,
    "q_lora_rank": None,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    **EXPERTS,
}
STATE_SPACE = {
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_state": 16,
    "mamba_n_groups": 1,
    "mamba_expand": 2,
    "mamba_chunk_size": 16,
}
PICTURES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}

LONG_ROPE = {  # other factors for texts of more than six tokens
    "rope_type": "longrope",
    "short_factor": [1.0] * 8,
    "long_factor": [4.0] * 8,
    "factor": 4.0,
    "original_max_position_embeddings": 6,
}

FAMILIES = (
    Family("gpt2", {"model_type": "gpt2", **GPT}),
    Family("openai-gpt", {"model_type": "openai-gpt", **GPT}, Keeps.UNSEEN, PADDED, by_generate=True, mended_in_5=True),
    Family(
        "roberta",
        {"model_type": "roberta", **DEEP, "intermediate_size": 128, "is_decoder": True},
        diverges=(ExecutionMode.RIGHT_PADDING,),
    ),
    Family("gpt_neox", {"model_type": "gpt_neox", **WIDE}),
    Family("gptj", {"model_type": "gptj", **GPT, "rotary_dim": 8}),
    Family("opt", {"model_type": "opt", **DEEP, "ffn_dim": 128, "word_embed_proj_dim": 64}),
    Family("bloom", {"model_type": "bloom", **WIDTH, "n_layer": 2, "n_head": 4}),
    Family(
        "mpt",
        {"model_type": "mpt", "vocab_size": VOCABULARY, "d_model": 64, "n_heads": 4, "n_layers": 2, "max_seq_len": 512},
    ),
    Family("falcon", {"model_type": "falcon", **DEEP}),
    Family("falcon-alibi", {"model_type": "falcon", **DEEP, "alibi": True}),
    Family("llama", {"model_type": "llama", **GROUPED}),
    Family("llama-tied", {"model_type": "llama", **GROUPED, "tie_word_embeddings": True}),
    Family("llama-bfloat16", {"model_type": "llama", **GROUPED}, dtype="bfloat16"),
    Family("llama-sharded", {"model_type": "llama", **GROUPED}, shard_size="1MB"),
    Family("llama-pickle", {"model_type": "llama", **GROUPED}, pickled=True),
    Family("llama-128k", {"model_type": "llama", **GROUPED, "vocab_size": 128_256, "tie_word_embeddings": True}),
    Family(
        "remote-code",
        {"model_type": "llama", **GROUPED},
        code=OWN_CODE,
        refused="needs code of its own: give --llm-trust-remote-code to allow that",
    ),
    Family("remote-code-trusted", {"model_type": "llama", **GROUPED}, code=OWN_CODE, is_trusted=True),
    Family("llama-chat", {"model_type": "llama", **GROUPED}, chat_template="{{ messages[0].content }}"),
    Family(
        "llama-nf4",
        {"model_type": "llama", **GROUPED},
        quantized_by={"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    ),
    Family("mistral", {"model_type": "mistral", **GROUPED, "sliding_window": 24}),
    Family("mixtral", {"model_type": "mixtral", **GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}),
    Family("qwen2", {"model_type": "qwen2", **GROUPED}),
    Family("qwen3", {"model_type": "qwen3", **GROUPED, "head_dim": 16}),
    Family("qwen3_moe", {"model_type": "qwen3_moe", **GROUPED, "head_dim": 16, "num_experts": 4, **EXPERTS}),
    Family(
        "qwen3_next",
        {
            "model_type": "qwen3_next",
            **GROUPED,
            "head_dim": 16,
            "layer_types": ["linear_attention", "full_attention"],
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
            "shared_expert_intermediate_size": 64,
            "num_experts": 4,
            **EXPERTS,
        },
        Keeps.BOTH,
        diverges=ALONE,
        mended_in_5=True,
    ),
    Family("gemma2", {"model_type": "gemma2", **GROUPED, "head_dim": 32, "sliding_window": 24}),
    Family("gemma3_text", {"model_type": "gemma3_text", **GROUPED, "head_dim": 32, "sliding_window": 24}),
    Family(
        "gemma3",
        {
            "model_type": "gemma3",
            "text_config": {**GROUPED, "head_dim": 32, "sliding_window": 24},
            "vision_config": {**PICTURES, "image_size": 32, "patch_size": 16},
            "mm_tokens_per_image": 4,
        },
    ),
    Family(
        "gemma3n_text",
        {
            "model_type": "gemma3n_text",
            **GROUPED,
            "head_dim": 16,
            "num_hidden_layers": 4,
            "num_kv_shared_layers": 1,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "sliding_window": 24,
            "vocab_size_per_layer_input": VOCABULARY,
            "hidden_size_per_layer_input": 16,
            "laurel_rank": 8,
            "activation_sparsity_pattern": [0.0] * 4,
        },
        diverges=(ExecutionMode.CACHE,),
        mended_in_5=True,
    ),
    Family("phi3", {"model_type": "phi3", **GROUPED}),
    Family(
        "llama-longrope",
        {"model_type": "llama", **GROUPED, "rope_scaling": LONG_ROPE, "original_max_position_embeddings": 6},
        diverges=(ExecutionMode.BATCH, ExecutionMode.RIGHT_PADDING),
    ),
    Family("olmo2", {"model_type": "olmo2", **GROUPED}),
    Family("glm4", {"model_type": "glm4", **GROUPED, "head_dim": 16}),
    Family("cohere2", {"model_type": "cohere2", **GROUPED, "sliding_window": 24}),
    Family("granite", {"model_type": "granite", **GROUPED}),
    Family(
        "granitemoehybrid",
        {
            "model_type": "granitemoehybrid",
            **GROUPED,
            **STATE_SPACE,
            "layer_types": ["mamba", "attention"],
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 64,
        },
        Keeps.BOTH,
        diverges=ALONE,
        mended_in_5=True,
    ),
    Family(
        "minimax",
        {
            "model_type": "minimax",
            **GROUPED,
            **LOCAL_EXPERTS,
            "head_dim": 16,
            "block_size": 16,
            "layer_types": ["linear_attention", "full_attention"],
        },
        Keeps.BOTH,
        diverges=PADDED,
        by_generate=True,
    ),
    Family("smollm3", {"model_type": "smollm3", **GROUPED}),
    Family("starcoder2", {"model_type": "starcoder2", **GROUPED}),
    Family("deepseek_v2", {"model_type": "deepseek_v2", **WIDE, **LATENT, "num_key_value_heads": 4}),
    Family("deepseek_v3", {"model_type": "deepseek_v3", **WIDE, **LATENT, "num_key_value_heads": 4}),
    Family(
        "gpt_oss",
        {"model_type": "gpt_oss", **GROUPED, "head_dim": 16, "num_local_experts": 4, "sliding_window": 24},
    ),
    Family(
        "llama4_text",
        {
            "model_type": "llama4_text",
            **GROUPED,
            "head_dim": 16,
            "num_local_experts": 4,
            "num_experts_per_tok": 1,
            "intermediate_size_mlp": 128,
            "attention_chunk_size": 64,
        },
    ),
    Family(
        "mamba",
        {"model_type": "mamba", **WIDTH, "num_hidden_layers": 2, "state_size": 8, "time_step_rank": 4},
        Keeps.STATES,
    ),
    Family(
        "mamba2",
        {
            "model_type": "mamba2",
            **WIDTH,
            "num_hidden_layers": 2,
            "num_heads": 8,
            "head_dim": 16,
            "state_size": 16,
            "n_groups": 1,
            "chunk_size": 16,
        },
        Keeps.STATES,
        diverges=ALONE,
        mended_in_5=True,
    ),
    Family(
        "falcon_h1",
        {"model_type": "falcon_h1", **GROUPED, **STATE_SPACE, "mamba_d_ssm": 128},
        Keeps.BOTH,
        diverges=ALONE,
        mended_in_5=True,
    ),
    Family(
        "bamba",
        {"model_type": "bamba", **GROUPED, **STATE_SPACE, "attn_layer_indices": [1]},
        Keeps.BOTH,
        diverges=ALONE,
        mended_in_5=True,
    ),
    Family(
        "jamba",
        {
            "model_type": "jamba",
            **GROUPED,
            "num_experts": 4,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "mamba_d_state": 8,
            "mamba_dt_rank": 4,
            "use_mamba_kernels": False,
        },
        Keeps.BOTH,
    ),
    Family(
        "lfm2",
        {"model_type": "lfm2", **GROUPED, "layer_types": ["conv", "full_attention"]},
        Keeps.BOTH,
        diverges=PADDED,
        mended_in_5=True,
    ),
    Family(
        "recurrent_gemma",
        {
            "model_type": "recurrent_gemma",
            **GROUPED,
            "num_hidden_layers": 3,
            "lru_width": 64,
            "attention_window_size": 32,
            "head_dim": 16,
        },
        Keeps.UNSEEN,
        diverges=PADDED,
    ),
    Family(
        "rwkv",
        {
            "model_type": "rwkv",
            **WIDTH,
            "attention_hidden_size": 64,
            "num_hidden_layers": 2,
            "context_length": 512,
            "rescale_every": 1,
        },
        Keeps.STATES,
        diverges=PADDED,
    ),
    Family(
        "t5",
        {"model_type": "t5", "vocab_size": VOCABULARY, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2},
        makes="AutoModelForSeq2SeqLM",
        refused="t5 is an encoder-decoder model, which makes one text of another",
    ),
    Family("bert", {"model_type": "bert", **WIDE}, refused="its last token changes what it says after the first"),
)
BY_NAME = {family.name: family for family in FAMILIES}
# Tried at each push; the other families are tried at night.
AT_EACH_PUSH = frozenset({
    "gpt2",
    "openai-gpt",  # keeps nothing that is seen; padding and batches change its answers
    "roberta",  # right padding changes its answers
    "bloom",  # ALiBi
    "llama",
    "llama-nf4",  # quantized by bitsandbytes
    "remote-code",  # refused
    "remote-code-trusted",
    "gemma2",  # windows
    "deepseek_v3",  # compressed keys, experts
    "gpt_oss",  # windows, experts
    "mamba",  # states
    "falcon_h1",  # keys and states
    "qwen3_next",  # keys, states and experts
    "t5",  # refused, as it has an encoder
})  # fmt: skip


def tried(family: Family) -> Any:
    """The family as a test's parameter."""
    marks = () if family.name in AT_EACH_PUSH else pytest.mark.nightly("some 40 families")
    return pytest.param(family, id=family.name, marks=marks)
