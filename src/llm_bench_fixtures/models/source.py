"""The folder that a model is loaded from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import CandidateFailed, IncompleteWeights
from llm_bench_fixtures.models.architecture import Footprint
from llm_bench_fixtures.models.artifacts import folder_digest
from llm_bench_fixtures.models.digest import model_digests
from llm_bench_fixtures.models.files import check_trusted, read_config, safetensors_files
from llm_bench_fixtures.models.quantized import StoredQuantization, stored_quantization

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

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
