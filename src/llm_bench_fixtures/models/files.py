"""The files of a model's folder: which may be read, and which hold its weights.

Weights are looked for as transformers does it, so that what is checked and recorded is what is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from llm_bench_fixtures.errors import CandidateFailed, reason_of
from llm_bench_fixtures.models.trust import read_config, read_json
from llm_bench_fixtures.reading import listed, refusals
from llm_bench_fixtures.text import printable, without_middle

LONGEST_SHOWN = 200  # characters of a name in a message
INDEX = ".index.json"
MOST_INDEX_BYTES = 200_000_000  # indices of the largest published models have 20 million
OF_FILES = (".json", ".safetensors", ".bin", ".model", ".jinja")  # ends of names that libraries open
READ_FOLDERS = ("additional_chat_templates", "custom_generate")  # an index may name none: see `shards_in`
MOST_FILES = 100_000  # in a folder: no model has a thousand, somebody's home has more
OWN_WEIGHTS = "transformers_weights"  # in a config: the file that transformers loads in place of the usual one
TOKENIZER_CONFIG = "tokenizer_config.json"
NAMING_FILES = ("_file", "_spm")  # ends of the keys in a tokenizer's settings that name its files
NEVER_OPENED = ("special_tokens_map_file", "added_tokens_file", "tokenizer_config_file", "chat_template_file")
"""Keys that name files, but which transformers passes over: they name where the author's own machine had them."""


def check_files(folder: Path) -> None:
    """Raise CandidateFailed for a folder with a file that reading may never end of, or that names files elsewhere."""
    try:
        files = listed(islice(_read_of(folder), MOST_FILES + 1))
    except TimeoutError as error:
        raise CandidateFailed(str(error)) from error
    if len(files) > MOST_FILES:
        raise CandidateFailed(f"its folder holds more than {MOST_FILES:,} files; give the one with the model alone")
    refused = dict(refusals(sorted(files)))
    for path in sorted(files):
        is_folder = path.parent == folder and path.suffix in OF_FILES and path not in refused and path.is_dir()
        if why := refused.get(path, "is a folder" if is_folder else ""):
            raise CandidateFailed(f"{path.relative_to(folder)} in its folder {why}")
    if (folder / "config.json").is_symlink() and not (folder / "config.json").exists():
        raise CandidateFailed("its config.json is a link to no file")
    _check_tokenizer_files(folder)


def _read_of(folder: Path) -> Iterator[Path]:
    """Files in the folder itself, and in the subfolders that libraries read."""
    for one in (folder, *(folder / name for name in READ_FOLDERS)):
        yield from one.glob("*")


def _check_tokenizer_files(folder: Path) -> None:
    """Raise CandidateFailed where the tokenizer's settings name a file that is there, and not in the folder."""
    settings = read_json(folder / TOKENIZER_CONFIG)
    if not isinstance(settings, dict):
        return
    named = {
        key: value
        for key, value in settings.items()
        if key.endswith(NAMING_FILES) and key not in NEVER_OPENED and isinstance(value, str)
    }
    versions = settings.get("fast_tokenizer_files")
    named.update({name: str(folder / name) for name in map(str, versions if isinstance(versions, list) else ())})
    for key, value in named.items():
        if _exists(Path(value)) and not Path(value).parent.resolve().is_relative_to(folder.resolve()):
            raise CandidateFailed(
                f"its {TOKENIZER_CONFIG} names a file outside of its folder: {_shown(key)}, {_shown(value)}; copy that "
                "file into the folder under its usual name, and leave the name out"
            )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that is too long, or has a null byte
        return False


def check_own_weights(folder: Path) -> None:
    """Raise CandidateFailed where the config names a weights file, which transformers alone would load."""
    for value in _own_weights(read_config(folder)):
        raise CandidateFailed(
            f"its config.json has {OWN_WEIGHTS} ({_shown(value)}), and libraries other than transformers would load "
            "other weights; give that file the usual name, and leave the key out"
        )


def _own_weights(config: object) -> Iterator[object]:
    """Names of own weights in any part of the config: a model of several media may be run by the config of its text
    alone."""
    if not isinstance(config, dict):
        return
    for key, value in config.items():
        if key == OWN_WEIGHTS and value is not None:
            yield value
        yield from _own_weights(value)


def safetensors_files(folder: Path) -> list[Path]:
    """The one file, or the shards; not what else a repository may hold. Raises CandidateFailed for a damaged index."""
    return _weight_files(folder, "model", ".safetensors")


def pickle_files(folder: Path) -> list[Path]:
    """PyTorch's own checkpoints in the same two forms, which are loaded where there are no safetensors files."""
    return _weight_files(folder, "pytorch_model", ".bin")


def _weight_files(folder: Path, stem: str, suffix: str) -> list[Path]:
    one, index = folder / f"{stem}{suffix}", folder / f"{stem}{suffix}{INDEX}"
    if one.exists():
        return [one]
    return shards_in(index) if index.is_file() else sorted(folder.glob(f"{stem}-*-of-*{suffix}"))


def shards_in(index: Path) -> list[Path]:
    """The files that an index names. Raises CandidateFailed where it is damaged, or names others than the folder's."""
    size = index.stat().st_size
    if size > MOST_INDEX_BYTES:
        raise CandidateFailed(f"{index.name} has {size:,} bytes; {MOST_INDEX_BYTES:,} are the most")
    try:
        named = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CandidateFailed(f"{index.name} is damaged: {reason_of(error)}") from error
    if not all(isinstance(name, str) for name in named):
        raise CandidateFailed(f"{index.name} is damaged: its weight_map holds what is no name of a file")
    shards = sorted(index.parent / name for name in set(named))
    outside = [path for path in shards if path.parent != index.parent or path.name == ".."]
    if outside:
        raise CandidateFailed(f"{index.name} names files outside of its folder, such as {_shown(outside[0])}")
    missing = [_shown(path.name) for path in shards if not _exists(path)]
    if missing:
        more = f" and {len(missing) - 3:,} more" if len(missing) > 3 else ""
        are = "are" if len(missing) > 1 else "is"
        raise CandidateFailed(f"{index.name} names {', '.join(missing[:3])}{more}, which {are} not in the folder")
    return shards


def _shown(name: object) -> str:
    return printable(without_middle(str(name), LONGEST_SHOWN))
