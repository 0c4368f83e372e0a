"""Which model is benchmarked (candidates, dummy weights, the embedded one) and the handle to it once loaded."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from llm_bench_fixtures.errors import CandidateFailed, IncompleteWeights, NoCandidateLoaded, first_line
from llm_bench_fixtures.models.artifacts import ArtifactStore, folder_digest
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.options.parsers import LoadFormat

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

    from llm_bench_fixtures.options.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")

TINY = "tiny"
TINY_FOLDER = Path(__file__).parents[1] / "assets" / "tiny"


@dataclass(frozen=True)
class ModelSource:
    """A folder that holds weights, config and tokenizer of one model.

    name: what the user typed. random_weights: whether the weights mean nothing.
    notes: how the folder came to be, for the report. passed_over: the candidates before it, and why each wasn't used.
    """

    name: str
    folder: Path
    random_weights: bool = False
    trust_remote_code: bool = False
    notes: tuple[str, ...] = ()
    passed_over: tuple[tuple[str, str], ...] = ()

    @cached_property
    def digest(self) -> str:
        """SHA-256 over all files of the folder, weights included."""
        return folder_digest(self.folder)

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

        Raises IncompleteWeights where the files lack some, which transformers would fill with random numbers.
        """
        from transformers import AutoModelForCausalLM

        model, info = AutoModelForCausalLM.from_pretrained(
            self.folder,
            trust_remote_code=self.trust_remote_code,
            local_files_only=True,
            use_safetensors=bool(safetensors_files(self.folder)),
            weights_only=True,
            output_loading_info=True,
            **how,
        )
        if info["missing_keys"]:
            raise IncompleteWeights(sorted(info["missing_keys"]))
        loaded: PreTrainedModel = model.eval()
        return loaded


def find_source(settings: Settings, store: ArtifactStore) -> ModelSource:
    """The first candidate of `settings.model` that has a usable tokenizer, config and weights.

    Of several, each is loaded once to see: only then is it certain that it can be.
    Raises NoCandidateLoaded with the reason of each.
    """
    failures: list[tuple[str, str]] = []
    for name in settings.model:
        try:
            with quiet_libraries():
                source = _candidate(name, settings, store)
                _check_usable(source)
                if len(settings.model) > 1:
                    _check_loads(source)
            return replace(source, passed_over=tuple(failures))
        except CandidateFailed as error:
            failures.append((name, str(error)))
    raise NoCandidateLoaded(failures)


def _candidate(name: str, settings: Settings, store: ArtifactStore) -> ModelSource:
    if settings.load_format is LoadFormat.DUMMY:
        return _dummy(name, settings, store)
    return ModelSource(name, _model_folder(name, settings), trust_remote_code=settings.trust_remote_code)


def _model_folder(name: str, settings: Settings) -> Path:
    if name == TINY:
        return TINY_FOLDER
    if Path(name).expanduser().is_dir():
        return Path(name).expanduser()
    if name.startswith((".", "/", "~")):
        raise CandidateFailed("no such folder")
    return _download(name, ("*.json", "*.model", "*.txt", "*.jinja"), settings, weights=True)


def _download(name: str, patterns: Sequence[str], settings: Settings, *, weights: bool) -> Path:
    """The local snapshot of a hub repository: safetensors where it has them, else the PyTorch checkpoint."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    wanted = [*patterns, "*.py"] if settings.trust_remote_code else [*patterns]
    try:
        folder = Path(
            snapshot_download(
                name, allow_patterns=[*wanted, "model*.safetensors"] if weights else wanted, ignore_patterns=["*/*"]
            )
        )
        if weights and not safetensors_files(folder):
            snapshot_download(name, allow_patterns=["pytorch_model*.bin*"], ignore_patterns=["*/*"])
    except HFValidationError:
        raise CandidateFailed("neither a folder nor a hub id") from None
    except GatedRepoError:
        raise CandidateFailed("gated on the hub: accept its terms there and log in with `hf auth login`") from None
    except RepositoryNotFoundError:
        raise CandidateFailed("no such repository on the hub, or it is private") from None
    except LocalEntryNotFoundError:
        raise CandidateFailed("not in the local cache, and the hub can't be reached") from None
    except OSError as error:
        raise CandidateFailed(f"the download failed: {first_line(error)}") from error
    return folder


def _dummy(name: str, settings: Settings, store: ArtifactStore) -> ModelSource:
    """Seeded random weights in the shape of a config, saved once as a checkpoint that loads like any other."""
    import torch
    import transformers

    config = _dummy_config(name, settings)
    key = {
        "config": config.to_json_string(use_diff=False),
        "tokenizer": folder_digest(TINY_FOLDER),
        "seed": settings.seed,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    artifact = store.get(
        "dummy-weights", key, lambda folder: _write_dummy(config, settings.seed, settings.trust_remote_code, folder)
    )
    return ModelSource(name, artifact.folder, True, settings.trust_remote_code, (artifact.note,))


def _dummy_config(name: str, settings: Settings) -> PretrainedConfig:
    """The config of a preset, a folder or a hub id, with the embedded tokenizer's special tokens."""
    from transformers import AutoConfig

    tokenizer = ModelSource(TINY, TINY_FOLDER).load_tokenizer()
    if name in PRESETS:
        config = PRESETS[name]()
    else:
        known_folder = name == TINY or Path(name).expanduser().is_dir()
        folder = (
            _model_folder(name, settings) if known_folder else _download(name, ("*.json",), settings, weights=False)
        )
        try:
            config = AutoConfig.from_pretrained(folder, trust_remote_code=settings.trust_remote_code)
        except Exception as error:  # what transformers and remote code raise has no narrower base
            raise CandidateFailed(f"no usable config: {first_line(error)}") from error
    check_architecture(config, settings.trust_remote_code)
    for token in ("bos_token_id", "eos_token_id", "pad_token_id"):
        setattr(config, token, getattr(tokenizer, token))
    return config


def _gpt2_config() -> PretrainedConfig:
    from transformers import GPT2Config

    return GPT2Config()


def _llama_config() -> PretrainedConfig:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=50257,
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=12,
        num_attention_heads=12,
        num_key_value_heads=12,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )


PRESETS: dict[str, Callable[[], Any]] = {"gpt2": _gpt2_config, "llama-125m": _llama_config}


def _write_dummy(config: PretrainedConfig, seed: int, trust_remote_code: bool, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, trust_remote_code=trust_remote_code)
    model.save_pretrained(folder)
    ModelSource(TINY, TINY_FOLDER).load_tokenizer().save_pretrained(folder)


def _check_usable(source: ModelSource) -> None:
    """Raise CandidateFailed unless tokenizer, config and weights can be read and fit each other."""
    try:
        config = source.load_config()
    except Exception as error:  # what transformers and remote code raise has no narrower base
        raise CandidateFailed(f"no usable config: {first_line(error)}") from error
    try:
        tokenizer = source.load_tokenizer()
    except Exception as error:  # tokenizers raises bare Exception
        raise CandidateFailed(f"no usable tokenizer: {first_line(error)}") from error
    if len(set(tokenizer("Once upon a time")["input_ids"])) < 2:  # transformers 5 makes an empty one from no files
        raise CandidateFailed("no usable tokenizer: it doesn't tell words apart; are its files in the folder?")
    rows = config.get_text_config().vocab_size
    largest = max(tokenizer.get_vocab().values(), default=-1)
    if largest >= rows:
        raise CandidateFailed(
            f"its tokenizer produces ids up to {largest} (vocabulary of {largest + 1}), its embedding has {rows} rows"
        )
    if tokenizer.pad_token_id is None:
        raise CandidateFailed("its tokenizer has no special token that could serve as padding")
    if getattr(config, "quantization_config", None):
        raise CandidateFailed("its weights are quantized already; give the model that they were made from")
    check_architecture(config, source.trust_remote_code)
    check_weights(source.folder)


def _check_loads(source: ModelSource) -> None:
    """Raise CandidateFailed unless the whole model can be loaded, in the dtype that its files have."""
    import psutil

    files = safetensors_files(source.folder) or source.folder.glob("pytorch_model*.bin")
    needed = sum(path.stat().st_size for path in files)
    free = psutil.virtual_memory().available
    if needed > free:
        raise CandidateFailed(f"out of memory: {needed / 1e9:.1f} GB of weights, {free / 1e9:.1f} GB free")
    try:
        source.load_model(dtype="auto")
    except Exception as error:  # what transformers and remote code raise has no narrower base
        raise CandidateFailed(f"it can't be loaded: {first_line(error)}") from error


def check_architecture(config: PretrainedConfig, trust_remote_code: bool) -> None:
    """Raise CandidateFailed for a model that can't continue text. Imports its code."""
    import torch
    from transformers import AutoModelForCausalLM

    try:
        with torch.device("meta"):
            AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
    except ValueError as error:
        raise CandidateFailed(f"{config.model_type} is no causal language model: {first_line(error)}") from error


def safetensors_files(folder: Path) -> list[Path]:
    """The weights as transformers finds them: the one file, or the shards; not what else a repository may hold."""
    return sorted(folder.glob("model.safetensors")) or sorted(folder.glob("model-*-of-*.safetensors"))


def check_weights(folder: Path) -> None:
    """Raise CandidateFailed unless the folder holds whole safetensors files, or PyTorch checkpoints of tensors only."""
    from safetensors import SafetensorError, safe_open

    shards = safetensors_files(folder)
    pickles = [] if shards else sorted(folder.glob("pytorch_model*.bin"))
    for index in folder.glob("*.index.json"):
        _check_shards(index)
    if not shards and not pickles:
        raise CandidateFailed("no weights (model*.safetensors or pytorch_model*.bin) in its folder")
    for path in shards:
        try:
            with safe_open(path, framework="pt"):
                pass
        except (SafetensorError, OSError) as error:
            raise CandidateFailed(f"{path.name} is damaged: {first_line(error)}") from error
    for path in pickles:
        _check_pickle(path)


def _check_shards(index: Path) -> None:
    try:
        named = set(json.loads(index.read_text())["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CandidateFailed(f"{index.name} is damaged: {first_line(error)}") from error
    missing = sorted(name for name in named if not (index.parent / name).is_file())
    if missing:
        raise CandidateFailed(f"{index.name} names {', '.join(missing)}, which is not in the folder")


def _check_pickle(path: Path) -> None:
    import pickle

    import torch

    try:
        torch.load(path, map_location="meta", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CandidateFailed(f"{path.name} holds more than weights, and is not loaded: {first_line(error)}") from error
    except (RuntimeError, OSError, EOFError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise CandidateFailed(f"{path.name} is damaged: {first_line(error)}") from error
