"""Why a model's answers depend on how it is run, by its config alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from llm_bench_fixtures.measure.equivalence import ExecutionMode
from llm_bench_fixtures.models.peculiarities import BATCH, CACHE, LEFT, RIGHT, divergence_causes, rotary_limit


def causes_of(model_type: str = "mine", **text: Any) -> dict[str, str]:
    config: Any = SimpleNamespace(model_type=model_type, get_text_config=lambda: SimpleNamespace(**text))
    return divergence_causes(config)


def test_they_go_by_the_names_of_the_modes() -> None:
    assert {LEFT, RIGHT, BATCH, CACHE} <= {mode.value for mode in ExecutionMode}


@pytest.mark.parametrize(
    ("model_type", "text", "modes"),
    [
        ("llama", {}, set()),
        ("ctrl", {}, {LEFT, BATCH}),
        ("roberta", {}, {RIGHT}),
        ("gemma3n", {"num_kv_shared_layers": 10}, {CACHE}),
        ("llama", {"rope_scaling": {"rope_type": "llama3"}}, set()),
        ("llama", {"rope_scaling": {"rope_type": "longrope"}}, {LEFT, RIGHT, BATCH, CACHE}),
        ("phi3", {"rope_scaling": {"type": "su"}}, {LEFT, RIGHT, BATCH, CACHE}),
        ("mine", {"rope_parameters": {"full_attention": {"rope_type": "dynamic"}}}, {LEFT, RIGHT, BATCH, CACHE}),
    ],
)
def test_each_mode_that_diverges_has_its_own(model_type: str, text: dict[str, Any], modes: set[str]) -> None:
    assert set(causes_of(model_type, **text)) == modes


@pytest.mark.parametrize("scaling", ["linear", 2.0, ["longrope"], {"rope_type": None}])
def test_whatever_a_config_of_ones_own_has_there_costs_no_model(scaling: object) -> None:
    """Bug: an AttributeError in every row."""
    assert causes_of(rope_scaling=scaling) == {}


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ({"rope_scaling": {"type": "su"}, "original_max_position_embeddings": 4096}, 4096),
        ({"rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": 8192.0}}, 8192),
        ({"rope_scaling": {"rope_type": "longrope", "original_max_position_embeddings": 8}}, None),  # 4 passes over it
        (
            {
                "rope_parameters": {
                    "sliding_attention": {"rope_type": "yarn", "original_max_position_embeddings": 8192},
                    "full_attention": {"rope_type": "longrope", "original_max_position_embeddings": 4096},
                }
            },
            4096,
        ),
        ({"rope_scaling": {"type": "su"}, "original_max_position_embeddings": True}, None),
        ({"rope_scaling": {"rope_type": "longrope"}, "original_max_position_embeddings": "4096"}, None),
        ({"rope_scaling": {"rope_type": "dynamic"}, "original_max_position_embeddings": 4096}, None),
        ({"rope_scaling": None, "original_max_position_embeddings": 4096}, None),
    ],
)
def test_of_two_rotary_embeddings_the_first_has_a_limit(text: dict[str, Any], limit: int | None) -> None:
    config: Any = SimpleNamespace(**text)
    assert rotary_limit(config) == limit
