"""What is known of a model's files without loading them."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.torch import save_file
from torch import zeros

from llm_bench_fixtures.models.source import TINY, TINY_FOLDER, ModelSource, count_weights, modeling_module

# GPT-2 of width 256: token and position tables, four layers of 12 x 256 x 256 weights, 9 x 256 biases and
# two layer norms, and a last layer norm. The output layer is the token table.
TINY_WEIGHTS = 4096 * 256 + 512 * 256 + 4 * (12 * 256**2 + 9 * 256 + 4 * 256) + 2 * 256


def test_the_weights_of_a_folder_are_counted_from_their_shapes() -> None:
    assert count_weights(TINY_FOLDER) == TINY_WEIGHTS == 4_339_200
    assert ModelSource(TINY, TINY_FOLDER).weights == TINY_WEIGHTS


def test_those_of_all_files_are_counted(tmp_path: Path) -> None:
    save_file({"one": zeros(3, 4), "two": zeros(5)}, tmp_path / "model-00001-of-00002.safetensors")
    save_file({"three": zeros(2, 2, 2)}, tmp_path / "model-00002-of-00002.safetensors")
    assert count_weights(tmp_path) == 3 * 4 + 5 + 8


def test_no_safetensors_count_as_no_weights(tmp_path: Path) -> None:
    assert count_weights(tmp_path) == 0


def test_the_module_that_runs_the_model_is_told_without_loading_it() -> None:
    assert modeling_module(TINY) == "transformers.models.gpt2.modeling_gpt2"


@pytest.mark.parametrize(
    ("config", "module"),
    [
        ('{"model_type": "gpt-oss"}', "transformers.models.gpt_oss.modeling_gpt_oss"),
        ('{"model_type": "../os; x"}', ""),
        ('{"model_type": 7}', ""),
        ("[]", ""),
        ("[" * 100_000, ""),
    ],
    ids=["a name with a dash", "no name", "a number", "a list", "nested without end"],
)
def test_it_is_told_from_a_config_of_strangers(config: str, module: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(config, encoding="utf-8")
    assert modeling_module(str(tmp_path)) == module


def test_what_is_no_folder_tells_none() -> None:
    assert (modeling_module("gpt2"), modeling_module("~nosuchuser/model")) == ("", "")
