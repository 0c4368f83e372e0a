"""The digests by which two runs tell whether they measured the same model."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from llm_bench_fixtures.models.digest import BLOCK_BYTES, TOKENIZER_FILES, model_digests
from llm_bench_fixtures.models.source import TINY, TINY_FOLDER, ModelSource

Change = Callable[[Path], object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the embedded model."""
    return Path(shutil.copytree(TINY_FOLDER, tmp_path / "copy"))


def changed(folder: Path, change: Change) -> set[str]:
    """The parts whose digests the change moves."""
    before = model_digests(folder)
    change(folder)
    after = model_digests(folder)
    return {part for part in before if before[part] != after[part]}


def with_weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Change:
    def apply(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    return apply


def with_config(**values: object) -> Change:
    def apply(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return apply


def noise(weights: dict[str, torch.Tensor]) -> None:
    """Five percent, on half of the tensors."""
    torch.manual_seed(0)
    for name in sorted(weights)[::2]:
        weights[name] = weights[name] * (1 + 0.05 * torch.randn(weights[name].shape).to(weights[name].dtype))


def first_number(weights: dict[str, torch.Tensor]) -> None:
    next(iter(weights.values())).view(-1)[0] += 1


def in_shards(folder: Path) -> None:
    """The same weights in two files."""
    weights = list(load_file(folder / "model.safetensors").items())
    (folder / "model.safetensors").unlink()
    for number, part in enumerate((weights[:3], weights[3:]), 1):
        save_file(dict(part), folder / f"model-0000{number}-of-00002.safetensors")


def another_template(folder: Path) -> None:
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tools.jinja").write_text("{{ x }}")


def test_every_file_that_a_tokenizer_of_transformers_reads_is_known() -> None:
    """Bug: chat_template.jinja, and the words of a dozen tokenizers, were in no digest."""
    dictionary = re.compile(r"vocab_files_names[^=\n]*= \{([^}]*)\}", re.IGNORECASE)
    models = Path(transformers.__file__).parent / "models"
    sources = [path.read_text(encoding="utf-8") for path in models.glob("*/tokenization_*.py")]
    named = {
        name
        for text in sources
        for found in dictionary.findall(text)
        for name in re.findall(r'"\w+": "([^"]+)"', found)
    }
    assert {"tokenizer.json", "vocab.txt"} < named
    assert named <= {*TOKENIZER_FILES}


def test_each_part_has_sixteen_digits_of_its_own() -> None:
    digests = model_digests(TINY_FOLDER)
    assert list(digests) == ["config", "tokenizer", "weights"]
    assert len({*digests.values()}) == 3
    assert {len(digest) for digest in digests.values()} == {16}
    assert ModelSource(TINY, TINY_FOLDER).digests == digests


CHANGES: Mapping[str, tuple[Change, set[str]]] = {
    "nothing": (lambda folder: None, set()),
    "noise on the weights": (with_weights(noise), {"weights"}),
    "one number at a tensor's beginning": (with_weights(first_number), {"weights"}),
    "other shards of the same weights": (in_shards, set()),
    "who wrote the config": (with_config(transformers_version="9.9"), set()),
    "what the config says": (with_config(layer_norm_epsilon=1e-3), {"config"}),
    "a word of the tokenizer's settings": (
        lambda folder: (folder / "tokenizer_config.json").write_text("{}"),
        {"tokenizer"},
    ),
    "a chat template": (lambda folder: (folder / "chat_template.jinja").write_text("{{ x }}"), {"tokenizer"}),
    "another chat template": (another_template, {"tokenizer"}),
    "a file that is none of the model's": (lambda folder: (folder / "README.md").write_text("more"), set()),
}


@pytest.mark.parametrize(("change", "parts"), CHANGES.values(), ids=CHANGES)
def test_a_change_moves_the_digest_of_its_part(change: Change, parts: set[str], folder: Path) -> None:
    assert changed(folder, change) == parts


def test_a_checkpoint_that_is_no_safetensors_is_sampled_too(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(bytes(100 * BLOCK_BYTES))

    def change(_: Path) -> None:
        data = bytearray(path.read_bytes())
        data[50 * BLOCK_BYTES] = 1
        path.write_bytes(data)

    assert changed(tmp_path, change) == {"weights"}


def test_files_that_are_gone_have_no_digest(tmp_path: Path) -> None:
    assert ModelSource("gone", tmp_path / "nowhere").digests == {}
