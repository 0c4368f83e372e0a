"""What a config asks for, by transformers' own configs."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import transformers
from families import FAMILIES
from torch import nn
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM, OPTConfig
from transformers.integrations import accelerate

from llm_bench_fixtures.errors import CandidateFailed
from llm_bench_fixtures.models import architecture
from llm_bench_fixtures.models.architecture import check_architecture, footprint_of
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import TINY, TINY_FOLDER, ModelSource

SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
}
# Of tensors without numbers, and of a config in the place of its part.
OURS = "meta|Config' object has no attribute 'vocab_size'"


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("ApertusForCausalLM", {"model_type": "apertus", **SMALL}),
        ("Llama4ForCausalLM", {"model_type": "llama4", "text_config": {**SMALL, "head_dim": 16}}),
        ("Emu3ForCausalLM", {"model_type": "emu3", "text_config": SMALL}),
    ],
)
def test_what_from_pretrained_loads_is_built(name: str, config: dict[str, Any]) -> None:
    """Bug: "Cannot copy out of meta tensor" for Apertus; "has no attribute 'vocab_size'" for configs of several media
    whose causal model takes the part for text."""
    asked = CONFIG_MAPPING[config["model_type"]](**{key: value for key, value in config.items() if key != "model_type"})
    model = getattr(transformers, name)
    if model.config_class is type(asked) is not type(asked.get_text_config()):
        pytest.skip("transformers 4 can't read which config a model takes on Python 3.14, and loads none of these")
    with quiet_libraries():
        built = model(asked.get_text_config())
        found = check_architecture(asked, trust_remote_code=False)
    assert found.weights == sum(weight.numel() for weight in built.parameters())


@pytest.mark.nightly("builds some 150 architectures")
@pytest.mark.parametrize("model_type", sorted({config.model_type for config in AutoModelForCausalLM._model_mapping}))
def test_no_default_config_fails_by_the_way_it_is_built(model_type: str) -> None:
    """Some lack what their code needs, or a library, and aren't causal; that is none of ours."""
    with quiet_libraries():
        try:
            config = CONFIG_MAPPING[model_type]()
        except Exception as error:
            pytest.skip(f"transformers refuses its own default: {error}")
        try:
            check_architecture(config, trust_remote_code=False)
        except (CandidateFailed, ValueError) as refused:
            if re.search(OURS, str(refused)):
                raise


def test_matrices_are_those_of_the_layers() -> None:
    """Of the embedded model: 12 x 256 x 256 in each of its four layers, which are GPT-2's own kind of linear layer; and
    tables of 4,096 tokens and of 512 positions. Its output layer is the former."""
    source = ModelSource(TINY, TINY_FOLDER)
    found = check_architecture(source.load_config(), trust_remote_code=False)
    assert (found.matrices, found.positions) == (4 * 12 * 256**2, 512 * 256)
    assert (found.tables, found.output) == (4096 * 256, 0)
    assert (found.odd_matrices, found.experts, found.of_text) == (0, 0, None)


@pytest.mark.parametrize(("is_tied", "output"), [(True, 0), (False, 100 * 8)])
def test_a_table_is_as_wide_as_it_is_made_whatever_the_layers_are(is_tied: bool, output: int) -> None:
    """100 tokens of 8 numbers, which are projected to the 32 of a layer."""
    sizes = {"vocab_size": 100, "word_embed_proj_dim": 8, "hidden_size": 32, "ffn_dim": 32, "num_attention_heads": 2}
    config = OPTConfig(**sizes, num_hidden_layers=1, tie_word_embeddings=is_tied)
    found = check_architecture(config, trust_remote_code=False)
    assert (found.tables, found.output) == (100 * 8 + output, output)


def test_odd_matrices_and_stacks_are_counted_apart_and_convolutions_are_neither() -> None:
    """Rows in 32s and columns in 64s can be packed: 33 x 64 and 32 x 65 can't."""

    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = nn.Parameter(torch.zeros(3, 5, 7))
            self.layers = nn.ModuleList([nn.Linear(64, 32), nn.Linear(64, 33), nn.Linear(65, 32)])
            self.filter = nn.Conv1d(2, 2, 4)

    found = footprint_of(Stack())
    assert found.experts == 3 * 5 * 7
    assert found.odd_matrices == 33 * 64 + 32 * 65
    assert found.matrices == found.odd_matrices + 32 * 64


def test_the_part_for_images_is_none_of_the_text() -> None:
    """Of Gemma 3, whose output layer is the embedding."""
    (gemma,) = (family for family in FAMILIES if family.name == "gemma3")
    config = AutoConfig.for_model(**gemma.config)
    text = transformers.Gemma3ForCausalLM(config.get_text_config())
    found = check_architecture(config, trust_remote_code=False)
    assert found.of_text is not None
    assert found.of_text.weights == sum(weight.numel() for weight in text.parameters()) < found.weights


def test_a_tied_output_layer_is_one_even_where_code_needs_real_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: the second way to build a model gave each of two tied layers a parameter of its own."""
    if not hasattr(accelerate, "init_empty_weights"):
        pytest.skip("transformers 5 has no second way")
    sizes = {"vocab_size": 100, "hidden_size": 32, "ffn_dim": 32, "num_attention_heads": 2, "num_hidden_layers": 1}
    usual = check_architecture(OPTConfig(**sizes), trust_remote_code=False)
    make = architecture._made_of

    def refuse_meta(*what: Any) -> Any:
        if torch.empty(0).device.type == "meta":
            raise RuntimeError("Tensor.item() cannot be called on meta tensors")
        return make(*what)

    monkeypatch.setattr(architecture, "_made_of", refuse_meta)
    assert check_architecture(OPTConfig(**sizes), trust_remote_code=False) == usual
