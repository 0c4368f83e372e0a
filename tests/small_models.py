"""Folders with models of a few kilobytes, and what an attacker would put into one.

A plain module: pytest puts this folder on sys.path, because there is a conftest.py in it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel

from llm_bench_fixtures.models.backend import first_missing
from llm_bench_fixtures.models.backends import find_backend
from llm_bench_fixtures.models.source import TINY_FOLDER

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def lacking_onnx() -> str | None:
    """What isn't installed of what runs ONNX Runtime's variants: Optimum, or what transformers' own exporter needs."""
    return first_missing(find_backend("onnxruntime").modules)


def skip_without_onnx() -> None:
    if missing := lacking_onnx():
        pytest.skip(f"{missing} is not installed")


def small_config(**changes: Any) -> GPT2Config:
    """A few kilobytes of GPT-2, with room for the embedded tokenizer's 4096 tokens."""
    sizes = {"vocab_size": 4096, "n_positions": 64, "n_embd": 8, "n_layer": 1, "n_head": 2}
    return GPT2Config(**{**sizes, "bos_token_id": 0, "eos_token_id": 0, **changes})


def write_model(folder: Path, **changes: Any) -> Path:
    """A folder with such a model of random weights, and the embedded tokenizer."""
    torch.manual_seed(1234)
    return save_model(folder, GPT2LMHeadModel(small_config(**changes)))


def write_ending_model(folder: Path) -> Path:
    """A folder with a model that takes the end of a text, token 0, for the likeliest everywhere: all weights are zero
    but the last bias and that token's row, so its logit is 8 and every other one 0."""
    model = GPT2LMHeadModel(small_config(n_positions=128))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.transformer.ln_f.bias.fill_(1.0)
        model.transformer.wte.weight[0] = 1.0
    return save_model(folder, model)


def save_model(folder: Path, model: PreTrainedModel) -> Path:
    """A folder with the model, and the embedded tokenizer."""
    model.save_pretrained(folder)
    for name in TOKENIZER_FILES:
        shutil.copy(TINY_FOLDER / name, folder)
    return folder


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.mkdir, (self.path,)
