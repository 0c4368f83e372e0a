"""Where the files of a model are: in the package, in a folder of the user's, or in a snapshot from the hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import CandidateFailed, InvalidSetting, first_line
from llm_bench_fixtures.models.files import read_config, safetensors_files
from llm_bench_fixtures.models.source import TINY, TINY_FOLDER
from llm_bench_fixtures.options.parsers import parse_path
from llm_bench_fixtures.reading import refusal

if TYPE_CHECKING:
    from llm_bench_fixtures.options.settings import Settings


def model_folder(name: str, settings: Settings) -> Path:
    if name == TINY:
        return TINY_FOLDER
    folder = local_folder(name)
    if folder is not None:
        return folder
    if name.startswith((".", "/", "~")):
        raise CandidateFailed("no such folder")
    return download(name, ("*.json", "*.model", "*.txt", "*.jinja"), settings, weights=True)


def modeling_module(name: str) -> str:
    """The module of transformers that will run the model, told from a local folder's config alone; empty where that
    doesn't tell. There may be no module of that name."""
    kind = local_config(name).get("model_type")
    module = str(kind).replace("-", "_")
    return f"transformers.models.{module}.modeling_{module}" if kind and module.isidentifier() else ""


def local_config(name: str) -> Mapping[str, Any]:
    """Content of a local folder's config; empty where there is none that can be read, which finding the model says."""
    try:
        folder = TINY_FOLDER if name == TINY else local_folder(name)
        config = None if folder is None else read_config(folder)
    except (CandidateFailed, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}


def local_folder(name: str) -> Path | None:
    """The folder of that name; None where there is none.

    Raises CandidateFailed for the home of an unknown user, and for what isn't read.
    """
    try:
        folder = parse_path(name)
    except InvalidSetting as error:
        raise CandidateFailed(str(error)) from error
    if why := refusal(folder):
        raise CandidateFailed(why)
    return folder if folder.is_dir() else None


def download(name: str, patterns: Sequence[str], settings: Settings, *, weights: bool) -> Path:
    """The local snapshot of a hub repository: safetensors where it has them, else the PyTorch checkpoint."""
    from huggingface_hub import errors, snapshot_download

    wanted = [*patterns, "*.py"] if settings.trust_remote_code else [*patterns]
    allowed = [*wanted, "model*.safetensors"] if weights else wanted
    try:
        folder = Path(snapshot_download(name, allow_patterns=allowed, ignore_patterns=["*/*"]))
        if weights and not safetensors_files(folder):
            snapshot_download(name, allow_patterns=["pytorch_model*.bin*"], ignore_patterns=["*/*"])
    except errors.HFValidationError:
        raise CandidateFailed("neither a folder nor a hub id") from None
    except errors.GatedRepoError:
        raise CandidateFailed("gated on the hub: accept its terms there and log in with `hf auth login`") from None
    except errors.RepositoryNotFoundError:
        raise CandidateFailed("no such repository on the hub, or it is private") from None
    except errors.LocalEntryNotFoundError:
        raise CandidateFailed("not in the local cache, and the hub can't be reached") from None
    except OSError as error:
        raise CandidateFailed(f"the download failed: {first_line(error)}") from error
    return folder
