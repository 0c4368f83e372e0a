"""The files of a model's folder: which may be read, and which hold its weights."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from llm_bench_fixtures.errors import CandidateFailed
from llm_bench_fixtures.models import files
from llm_bench_fixtures.models.files import check_files, check_own_weights, pickle_files, safetensors_files
from llm_bench_fixtures.models.source import TINY_FOLDER

Plant = Callable[[Path], object]


def holding(name: str, **values: object) -> Plant:
    return lambda folder: (folder / name).write_text(json.dumps(values))


def linked(name: str, target: str) -> Plant:
    return lambda folder: (folder / name).symlink_to(target)


def in_a_folder_of_it(folder: Path) -> None:
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "x.jinja").symlink_to("/proc/version")


def many(folder: Path) -> None:
    for number in range(4):
        (folder / str(number)).touch()


def of_holes(folder: Path) -> None:
    (folder / "notes.txt").touch()
    os.truncate(folder / "notes.txt", 8 * 10**12)


OUTSIDE = "its tokenizer_config.json names a file outside of its folder: "
REFUSED = {
    "a link into /proc": (linked("notes.txt", "/proc/version"), "notes.txt in its folder is a link into /proc"),
    "one in a folder of it": (
        in_a_folder_of_it,
        "additional_chat_templates/x.jinja in its folder is a link into",
    ),
    "a device": (linked("vocab.json", "/dev/zero"), "vocab.json in its folder is a pipe, a device or a socket"),
    "a file of holes": (of_holes, "notes.txt in its folder has 8,000 GB, of which 0.0 GB are on the disk"),
    "a folder for a file": (
        lambda folder: (folder / "tokenizer.json").mkdir(),
        "tokenizer.json in its folder is a folder",
    ),
    "a config that links to itself": (linked("config.json", "config.json"), "its config.json is a link to no file"),
    "more files than a model has": (many, "its folder holds more than 3 files; give the one with the model alone"),
    "a tokenizer elsewhere": (
        holding("tokenizer_config.json", tokenizer_file="/dev/zero"),
        f"{OUTSIDE}tokenizer_file, /dev/zero",
    ),
    "a version of it elsewhere": (
        holding("tokenizer_config.json", fast_tokenizer_files=["../tokenizer.4.0.json"]),
        f"{OUTSIDE}../tokenizer.4.0.json, ",
    ),
}


@pytest.mark.parametrize(("plant", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_folder_with_what_reading_never_ends_of_is_refused(
    plant: Plant, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_FILES", 3)
    (tmp_path / "tokenizer.4.0.json").touch()
    folder = tmp_path / "model"
    folder.mkdir()
    plant(folder)
    with pytest.raises(CandidateFailed) as caught:
        check_files(folder)
    assert str(caught.value).startswith(reason)


def test_a_tokenizers_file_elsewhere_that_transformers_never_opens_is_no_matter(tmp_path: Path) -> None:
    """Bug: a model was refused on the machine of its author, whose paths old checkpoints keep. Elsewhere they are of
    files that don't exist."""
    shutil.copytree(TINY_FOLDER, tmp_path, dirs_exist_ok=True)
    other = tmp_path.parent / "special_tokens_map.json"
    other.write_text("no JSON")
    holding("tokenizer_config.json", **dict.fromkeys(files.NEVER_OPENED, str(other)))(tmp_path)
    check_files(tmp_path)
    assert PreTrainedTokenizerFast.from_pretrained(tmp_path)("hello")


def test_a_refused_file_of_a_tokenizer_comes_with_what_to_do(tmp_path: Path) -> None:
    holding("tokenizer_config.json", tokenizer_file="/dev/zero")(tmp_path)
    with pytest.raises(CandidateFailed, match=r"; copy that file into the folder .*, and leave the name out$"):
        check_files(tmp_path)


def test_what_libraries_do_not_read_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a pipe or many files in a hidden folder, and a folder `x.bin` below the model's, cost the model."""
    monkeypatch.setattr(files, "MOST_FILES", 3)
    (tmp_path / "runs" / "x.bin").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    many(tmp_path / ".git")
    linked("fsmonitor--daemon.ipc", "/dev/zero")(tmp_path / ".git")
    check_files(tmp_path)


def test_folders_of_links_are_read(tmp_path: Path) -> None:
    """The hub's cache has snapshots of links to blobs, and DVC and git-annex have the like."""
    folder = tmp_path / "snapshots" / "main"
    folder.mkdir(parents=True)
    (tmp_path / "blobs").mkdir()
    for number, path in enumerate(path for path in TINY_FOLDER.iterdir() if path.is_file()):
        (tmp_path / "blobs" / str(number)).write_bytes(path.read_bytes())
        (folder / path.name).symlink_to(f"../../blobs/{number}")
    own = {"tokenizer_file": str(folder / "tokenizer.json"), "vocab_file": "/somebody/elses/vocab.json"}
    (folder / "tokenizer_config.json").unlink()
    holding("tokenizer_config.json", **own)(folder)
    (folder / "pytorch_model.bin").symlink_to("../../not/fetched")
    check_files(folder)
    assert safetensors_files(folder) == [folder / "model.safetensors"]


@pytest.mark.parametrize(
    "config",
    [{"transformers_weights": "other.safetensors"}, {"text_config": {"transformers_weights": "../other.safetensors"}}],
    ids=["of the model", "of its text's part"],
)
def test_weights_that_transformers_alone_would_load_are_refused(config: dict[str, object], tmp_path: Path) -> None:
    """Bug: other weights were measured than those that were recorded, checked and converted."""
    holding("config.json", **config)(tmp_path)
    with pytest.raises(CandidateFailed, match=r"^its config\.json has transformers_weights \("):
        check_own_weights(tmp_path)


@pytest.mark.parametrize(
    ("weight_map", "reason"),
    [
        ({"a": "../other.safetensors"}, "names files outside of its folder, such as "),
        ({"a": "/other.safetensors"}, "names files outside of its folder, such as "),
        ({"a": 5}, "is damaged: its weight_map holds what is no name of a file"),
        ([], "is damaged: AttributeError"),
        ({"a": "\nb"}, "names \N{REPLACEMENT CHARACTER}b, which is not in the folder"),
        ({str(number): f"{number:05}" for number in range(60_000)}, "names 00000, 00001, 00002 and 59,997 more, which"),
        ({"a": "x" * 5000}, "names xxx"),
    ],
    ids=["above", "absolute", "a number", "a list", "a new line", "many", "long"],
)
def test_an_index_names_files_of_the_folder(weight_map: object, reason: str, tmp_path: Path) -> None:
    """Bug: 60,000 shards that were missing made a reason of 1.4 MB."""
    holding("model.safetensors.index.json", weight_map=weight_map)(tmp_path)
    with pytest.raises(CandidateFailed) as caught:
        safetensors_files(tmp_path)
    assert str(caught.value).startswith(f"model.safetensors.index.json {reason}")
    assert len(str(caught.value)) < 500


def test_the_weights_are_those_that_transformers_loads(tmp_path: Path) -> None:
    """One file before an index, and of shards those that the index names: a repository may hold others, too."""
    for name in ("a.safetensors", "model-00001-of-00009.safetensors", "pytorch_model.bin"):
        (tmp_path / name).touch()
    assert safetensors_files(tmp_path) == [tmp_path / "model-00001-of-00009.safetensors"]
    holding("model.safetensors.index.json", weight_map={"a": "a.safetensors", "b": "a.safetensors"})(tmp_path)
    assert safetensors_files(tmp_path) == [tmp_path / "a.safetensors"]
    (tmp_path / "model.safetensors").touch()
    assert safetensors_files(tmp_path) == [tmp_path / "model.safetensors"]
    assert pickle_files(tmp_path) == [tmp_path / "pytorch_model.bin"]
