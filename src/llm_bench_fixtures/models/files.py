"""The files of a model's folder: which may be read, which hold its weights, and which could run code of its author.

The last are refused, unless the user trusts them.

Weights are looked for as transformers does it, so that what is checked and recorded is what is loaded.

transformers asks before it imports the modules that a config names (`auto_map`). It doesn't ask about what
`check_trusted` looks for: in a local folder it takes all of it for the user's own. What never runs needs no look:
pickles are read as tensors only, chat templates are rendered only if asked for, and in a sandbox (`chat.py`), and of
ONNX graphs only our own exports are opened.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path

from llm_bench_fixtures.errors import CandidateFailed, UntrustedCode, reason_of
from llm_bench_fixtures.reading import listed, refusal, refusals
from llm_bench_fixtures.text import printable, without_middle

CUSTOM_GENERATE = "custom_generate/generate.py"
ADAPTER = "adapter_config.json"
MOST_CONFIG_BYTES = 20_000_000  # published ones have some thousand, some with a name for each of their labels a million
NAMING_CODE = ("implementation", "kernel")  # in keys of a config above a hub repository of compiled code, if any
LONGEST_SHOWN = 200  # characters of a name in a message
INDEX = ".index.json"
MOST_INDEX_BYTES = 200_000_000  # indices of the largest published models have 20 million
OF_FILES = (".json", ".safetensors", ".bin", ".model", ".jinja")  # ends of names that libraries open
READ_FOLDERS = ("additional_chat_templates", "custom_generate")  # by libraries; an index may name none: see `shards_in`
MOST_FILES = 100_000  # in a folder: no model has a thousand, somebody's home has more
OWN_WEIGHTS = "transformers_weights"  # in a config: the file that transformers loads in place of the usual one
TOKENIZER_CONFIG = "tokenizer_config.json"
NAMING_FILES = ("_file", "_spm")  # ends of the keys in a tokenizer's settings that name its files
NEVER_OPENED = ("special_tokens_map_file", "added_tokens_file", "tokenizer_config_file", "chat_template_file")
"""Keys that name files, but which transformers passes over: they name where the author's own machine had them."""


def check_trusted(folder: Path, trust_remote_code: bool) -> None:
    """Raise UntrustedCode where loading or generating would run code that the folder holds, or names elsewhere."""
    if trust_remote_code:
        return
    if (folder / CUSTOM_GENERATE).exists():
        raise UntrustedCode(f"{CUSTOM_GENERATE} in its folder would take the place of generate")
    if (folder / ADAPTER).exists():
        raise UntrustedCode(f"{ADAPTER} in its folder names another model to load (merge the adapter into that one)")
    for names, value in values_in(read_config(folder)):
        names_code = any(part in name for name in names for part in NAMING_CODE)
        if names_code and isinstance(value, str) and "/" in value:
            raise UntrustedCode(f"its config names {value}, compiled code from the hub")


def unusable(what: str, error: Exception) -> CandidateFailed:
    """The reason that a part of a model can't be loaded; in our words where its own code would have to run for that."""
    if "trust_remote_code" in str(error):
        return UntrustedCode(f"its {what} needs code of its own")
    return CandidateFailed(f"no usable {what}: {reason_of(error)}")


def read_config(folder: Path) -> object:
    """Content of the folder's config.json; None where there is no JSON, which loading the config will say better.

    Raises CandidateFailed for one that is too large to be read.
    """
    return read_json(folder / "config.json")


def read_json(path: Path) -> object:
    """Content of a JSON file of a model's folder; None where it is missing, may not be read, or is no JSON.

    Raises CandidateFailed for one that is too large to be read.
    """
    if refusal(path) or not path.is_file():
        return None
    if path.stat().st_size > MOST_CONFIG_BYTES:
        raise CandidateFailed(f"its {path.name} has {path.stat().st_size:,} bytes; {MOST_CONFIG_BYTES:,} are the most")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def values_in(value: object, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Each value in what was read from JSON, whole ones before their parts, and the names that lead to it."""
    yield names, value
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from values_in(inner, (*names, str(name)))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from values_in(inner, names)


def check_files(folder: Path) -> None:
    """Raise CandidateFailed for a folder with a file that reading may never end of, or that names files elsewhere."""
    folders = (folder, *(folder / name for name in READ_FOLDERS))
    try:
        files = listed(islice(chain.from_iterable(one.glob("*") for one in folders), MOST_FILES + 1))
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
                f"its {TOKENIZER_CONFIG} names a file outside of its folder: {shown(key)}, {shown(value)}; copy that "
                "file into the folder under its usual name, and leave the name out"
            )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that is too long, or has a null byte
        return False


def check_own_weights(folder: Path) -> None:
    """Raise CandidateFailed where the config names a weights file, which transformers alone would load."""
    for names, value in values_in(read_config(folder)):  # also of a text's part, which may run by itself
        if names[-1:] == (OWN_WEIGHTS,) and value is not None:
            raise CandidateFailed(
                f"its config.json has {OWN_WEIGHTS} ({shown(value)}), and libraries other than transformers would "
                "load other weights; give that file the usual name, and leave the key out"
            )


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
        raise CandidateFailed(f"{index.name} names files outside of its folder, such as {shown(outside[0])}")
    missing = [shown(path.name) for path in shards if not _exists(path)]
    if missing:
        more = f" and {len(missing) - 3:,} more" if len(missing) > 3 else ""
        are = "are" if len(missing) > 1 else "is"
        raise CandidateFailed(f"{index.name} names {', '.join(missing[:3])}{more}, which {are} not in the folder")
    return shards


def shown(name: object) -> str:
    return printable(without_middle(str(name), LONGEST_SHOWN))
