"""What a config asks for, by transformers' own configs."""

from __future__ import annotations

import re
from typing import Any

import pytest
import transformers
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from llm_bench_fixtures.errors import CandidateFailed
from llm_bench_fixtures.models.architecture import check_architecture
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
    with quiet_libraries():
        built = getattr(transformers, name)(asked.get_text_config())
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
    """Of the embedded model: 12 x 256 x 256 in each of its four layers, which are GPT-2's own kind of linear layer."""
    source = ModelSource(TINY, TINY_FOLDER)
    assert check_architecture(source.load_config(), trust_remote_code=False).matrices == 4 * 12 * 256**2
