"""What of a model's folder could run code of its author: refused, unless the user trusts it.

transformers asks before it imports the modules that a config names (`auto_map`). It doesn't ask about what is looked
for here: in a local folder it takes all of it for the user's own. What never runs needs no look: pickles are read as
tensors only, chat templates are rendered only if asked for, and in a sandbox (`chat.py`), and of ONNX graphs only our
own exports are opened.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from llm_bench_fixtures.errors import CandidateFailed, UntrustedCode, reason_of
from llm_bench_fixtures.reading import refusal

CUSTOM_GENERATE = "custom_generate/generate.py"
ADAPTER = "adapter_config.json"
MOST_CONFIG_BYTES = 20_000_000  # published ones have some thousand, some with a name for each of their labels a million
NAMING_CODE = ("implementation", "kernel")  # in keys of a config whose value may be a hub repository of compiled code


def check_trusted(folder: Path, trust_remote_code: bool) -> None:
    """Raise UntrustedCode where loading or generating would run code that the folder holds, or names elsewhere."""
    if trust_remote_code:
        return
    if (folder / CUSTOM_GENERATE).exists():
        raise UntrustedCode(f"{CUSTOM_GENERATE} in its folder would take the place of generate")
    if (folder / ADAPTER).exists():
        raise UntrustedCode(f"{ADAPTER} in its folder names another model to load (merge the adapter into that one)")
    kernel = next(_kernels(read_config(folder)), "")
    if kernel:
        raise UntrustedCode(f"its config names {kernel}, compiled code from the hub")


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


def _kernels(value: object, key: str = "") -> Iterator[str]:
    """Hub repositories (`org/name`) that a config names as an implementation, at whatever depth."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _kernels(inner, key if _names_code(key) else name)
    elif isinstance(value, list):
        for inner in value:
            yield from _kernels(inner, key)
    elif isinstance(value, str) and "/" in value and _names_code(key):
        yield value


def _names_code(key: str) -> bool:
    return any(part in key for part in NAMING_CODE)
