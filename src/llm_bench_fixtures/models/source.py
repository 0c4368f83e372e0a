"""The folder that a model is loaded from: in the package, a folder of the user's, or a snapshot from the hub."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import CandidateFailed, IncompleteWeights, InvalidSetting, first_line
from llm_bench_fixtures.models.architecture import Footprint
from llm_bench_fixtures.models.artifacts import folder_digest
from llm_bench_fixtures.models.digest import model_digests
from llm_bench_fixtures.models.files import check_trusted, read_config, safetensors_files
from llm_bench_fixtures.options.parsers import parse_path
from llm_bench_fixtures.reading import refusal

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

    from llm_bench_fixtures.options.settings import Settings

TINY = "tiny"
TINY_FOLDER = Path(__file__).parents[1] / "assets" / "tiny"
STORED_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}  # safetensors' names, and torch's

NOT_LOOKED_AT = Footprint(0)


@dataclass(frozen=True)
class ModelSource:
    """A folder that holds weights, config and tokenizer of one model."""

    name: str
    """Name that the user typed."""

    folder: Path

    random_weights: bool = False
    """Whether the weights are random."""

    trust_remote_code: bool = False
    """Whether Python files of the folder may run."""

    notes: tuple[str, ...] = ()
    """How the folder came to be, for the report."""

    passed_over: tuple[tuple[str, str], ...] = ()
    """The candidates before it, each with the reason why it wasn't used."""

    footprint: Footprint = NOT_LOOKED_AT
    """Footprint of its architecture; zeros where nobody has looked."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 over all files of the folder, weights included."""
        return folder_digest(self.folder)

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """Short ones of config, tokenizer and weights, from samples: which model it is, whatever its name. Nothing
        where its files are gone."""
        try:
            return model_digests(self.folder)
        except (OSError, ValueError, LookupError, TypeError, CandidateFailed):
            return {}

    @property
    def identity(self) -> str:
        """Tells it from other models, whatever their names: cheaper than `digest`, as it is from samples."""
        return " ".join(self.digests.values())

    @cached_property
    def quantized(self) -> StoredQuantization | None:
        """How the weights of its files are quantized, by its config; None where they aren't."""
        return stored_quantization(read_config(self.folder))

    @cached_property
    def weights(self) -> int:
        """Number of weights: of the architecture, or in the safetensors files where nobody has looked at that."""
        return self.footprint.weights or count_weights(self.folder)

    @cached_property
    def stored_dtype(self) -> str:
        """The dtype of all tensors in its safetensors files, as torch names it. Empty where they have several, or
        there are no such files."""
        found = {part.get_dtype() for part in _stored_tensors(self.folder)}
        return STORED_DTYPES.get(found.pop(), "") if len(found) == 1 else ""

    @property
    def model_type(self) -> str:
        """Name that transformers has for the architecture."""
        return str(self.load_config().model_type)

    @property
    def label(self) -> str:
        return f"{self.name} (random weights)" if self.random_weights else self.name

    def load_tokenizer(self) -> PreTrainedTokenizerBase:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(
            self.folder, trust_remote_code=self.trust_remote_code, local_files_only=True
        )
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.bos_token or tokenizer.unk_token
        return tokenizer

    def load_config(self) -> PretrainedConfig:
        from transformers import AutoConfig

        return AutoConfig.from_pretrained(self.folder, trust_remote_code=self.trust_remote_code, local_files_only=True)

    def load_model(self, **how: Any) -> PreTrainedModel:
        """The model in evaluation mode. Safetensors where there are any; a pickle only as weights.

        Raises IncompleteWeights where the files lack some, which transformers would fill with random numbers, and
        UntrustedCode.
        """
        from transformers import AutoModelForCausalLM, GenerationConfig

        check_trusted(self.folder, self.trust_remote_code)
        if not self.trust_remote_code:  # else transformers looks in the folder for a `generate` of its own, too
            how["generation_config"] = GenerationConfig()  # the folder's isn't used, and may be broken
        model, info = AutoModelForCausalLM.from_pretrained(
            self.folder,
            trust_remote_code=self.trust_remote_code,
            local_files_only=True,
            use_safetensors=bool(safetensors_files(self.folder)),
            weights_only=True,
            return_dict=True,
            output_loading_info=True,
            **how,
        )
        if info["missing_keys"]:
            raise IncompleteWeights(sorted(info["missing_keys"]))
        loaded: PreTrainedModel = model.eval()
        return loaded


def count_weights(folder: Path) -> int:
    """Number of weights in the folder's safetensors files, read from their headers. 0 for other formats."""
    return sum(math.prod(part.get_shape()) for part in _stored_tensors(folder))


def _stored_tensors(folder: Path) -> Iterator[Any]:
    """Headers of each tensor in the folder's safetensors files."""
    from safetensors import safe_open

    for path in safetensors_files(folder):
        with safe_open(path, framework="np") as tensors:
            for name in tensors.keys():  # noqa: SIM118  # no dict
                yield tensors.get_slice(name)


def model_folder(name: str, settings: Settings) -> Path:
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
        folder = local_folder(name)
        config = None if folder is None else read_config(folder)
    except (CandidateFailed, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}


def local_folder(name: str) -> Path | None:
    """The folder of that name, or of the package's model; None where there is none.

    Raises CandidateFailed for the home of an unknown user, and for what isn't read.
    """
    if name == TINY:
        return TINY_FOLDER
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


KEYS = ("quantization_config", "compression_config")  # keys of a config.json; older compressed-tensors wrote the latter
LONGEST = 60  # characters of a text that stands in a label


@dataclass(frozen=True)
class StoredQuantization:
    """Quantization that a checkpoint's config states."""

    method: str
    """transformers' name for the format: "gptq"."""

    scheme: str
    """Bits, groups and the like, for people; empty where the config doesn't say."""

    def __str__(self) -> str:
        return f"{self.method}, {self.scheme}" if self.scheme else self.method


def stored_quantization(config: object) -> StoredQuantization | None:
    """Quantization that a config.json states; None for weights that aren't quantized."""
    found = _quantization_in(config)
    if found is None:
        return None
    is_4_bit, is_8_bit = (bool(found.get(f"load_in_{bits}bit")) for bits in (4, 8))
    method = "bitsandbytes" if is_4_bit or is_8_bit else str(found.get("quant_method") or "of an unknown method")
    if method == "bitsandbytes":
        scheme = str(found.get("bnb_4bit_quant_type") or "4 bits") if is_4_bit else "int8"
    elif method == "compressed-tensors":
        scheme = _scheme_of_groups(found)
    else:
        scheme = _scheme_of_bits(found)
    return StoredQuantization(method[:LONGEST], scheme[:LONGEST])


def _quantization_in(config: object) -> Mapping[str, Any] | None:
    """Quantization of a config, also of a model of several media, whose decoder has a config of its own."""
    parts = (config, config.get("text_config")) if isinstance(config, dict) else ()
    found = (part.get(key) for part in parts if isinstance(part, dict) for key in KEYS)
    return next((one for one in found if isinstance(one, dict) and one), None)


def _scheme_of_bits(found: Mapping[str, Any]) -> str:
    bits, size = found.get("bits"), found.get("group_size")
    groups = f" in groups of {size}" if isinstance(size, int) and size > 0 else ""
    return f"{bits} bits{groups}" if isinstance(bits, int) else ""


def _scheme_of_groups(found: Mapping[str, Any]) -> str:
    """Scheme of compressed-tensors: its format, and the bits of the first group of layers."""
    groups = found.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = first.get("weights") if isinstance(first, dict) else None
    bits = weights.get("num_bits") if isinstance(weights, dict) else None
    known = (str(found.get("format") or ""), f"{bits} bits" if isinstance(bits, int) else "")
    return ", ".join(filter(None, known))
