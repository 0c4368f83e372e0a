"""Which model is benchmarked: the first candidate that can be used, or random weights in the shape of one.

The shape is that of a preset or of any config.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import NoCandidateLoaded, reason_of
from llm_bench_fixtures.models.architecture import Footprint, check_architecture
from llm_bench_fixtures.models.artifacts import ArtifactStore, folder_digest
from llm_bench_fixtures.models.backend import installed_versions
from llm_bench_fixtures.models.checks import check_counts, check_loads, check_room, check_shape, check_usable
from llm_bench_fixtures.models.files import check_files, check_trusted, read_config
from llm_bench_fixtures.models.quarantine import examine
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import TINY, TINY_FOLDER, ModelSource, download, local_folder, model_folder
from llm_bench_fixtures.options.parsers import LoadFormat

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig

    from llm_bench_fixtures.options.settings import Settings

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "gpt2": {"model_type": "gpt2"},
    "llama-125m": {
        "model_type": "llama",
        "vocab_size": 50257,
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "num_key_value_heads": 12,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
    },
}

PANIC = "PanicException"  # from Rust libraries, such as tokenizers; no Exception, and in no module to import it from


def find_source(settings: Settings, store: ArtifactStore) -> ModelSource:
    """The first candidate of `settings.model` that has a usable tokenizer, config and weights.

    Each of several is loaded once to see: only then is it certain that it can be.
    Whatever fails with one is the reason why the next is tried. Raises NoCandidateLoaded with the reason of each.
    """
    failures: list[tuple[str, str]] = []
    for name in settings.model:
        try:
            with quiet_libraries():
                if settings.load_format is LoadFormat.DUMMY:
                    source = dummy_source(name, settings, store)
                else:
                    folder = model_folder(name, settings)
                    source = ModelSource(name, folder, trust_remote_code=settings.trust_remote_code)
                takes = check_usable(source, partial(examine, in_process=settings.in_process))
                source = replace(source, footprint=takes, notes=(*source.notes, *takes.notes))
                if len(settings.model) > 1:
                    check_loads(source)
            return replace(source, passed_over=tuple(failures))
        except BaseException as error:  # a folder from elsewhere can make any library fail in any way
            if not isinstance(error, Exception) and type(error).__name__ != PANIC:
                raise
            failures.append((name, reason_of(error)))
    raise NoCandidateLoaded(failures)


def dummy_source(name: str, settings: Settings, store: ArtifactStore) -> ModelSource:
    """Seeded random weights in the shape of a config, saved once as a checkpoint that loads like any other."""
    import torch
    from transformers import AutoModelForCausalLM

    config, footprint = _dummy_config(name, settings)
    dtype = _dtype_of(config)
    key = {
        "config": config.to_json_string(use_diff=False),
        "tokenizer": folder_digest(TINY_FOLDER),
        "seed": settings.seed,
        "dtype": str(dtype),
        **installed_versions(("torch", "transformers")),
    }

    def write(folder: Path) -> None:
        check_room(footprint.weights * dtype.itemsize, footprint.buffer_bytes, folder)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            model = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=settings.trust_remote_code)
        model.save_pretrained(folder)
        ModelSource(TINY, TINY_FOLDER).load_tokenizer().save_pretrained(folder)

    artifact = store.get("dummy-weights", key, write)
    return ModelSource(name, artifact.folder, True, settings.trust_remote_code, (artifact.note,))


def _dummy_config(name: str, settings: Settings) -> tuple[PretrainedConfig, Footprint]:
    """The config of a preset, a folder or a hub id, with the embedded tokenizer's special tokens; and what it takes."""
    from transformers import AutoConfig

    tokenizer = ModelSource(TINY, TINY_FOLDER).load_tokenizer()
    if name in PRESETS:
        config = AutoConfig.for_model(**PRESETS[name])
        footprint = check_architecture(config, settings.trust_remote_code)
    else:
        folder = local_folder(name) or download(name, ("*.json",), settings, weights=False)
        check_files(folder)
        check_trusted(folder, settings.trust_remote_code)
        check_counts(read_config(folder))
        source = ModelSource(name, folder, trust_remote_code=settings.trust_remote_code)
        footprint = examine(source, check_shape, in_process=settings.in_process)
        config = source.load_config()
        vars(config).pop("quantization_config", None)  # it describes other weights than those that are made here
    for token in ("bos_token_id", "eos_token_id", "pad_token_id"):
        setattr(config, token, getattr(tokenizer, token))
    return config, footprint


def _dtype_of(config: PretrainedConfig) -> torch.dtype:
    """Dtype of the checkpoint that the config came with; float32 where it names none that weights are made in."""
    import torch

    named = getattr(config, "dtype", None) or getattr(config.get_text_config(), "dtype", None)
    known = {str(dtype).removeprefix("torch."): dtype for dtype in (torch.bfloat16, torch.float16)}
    return known.get(str(named).removeprefix("torch."), torch.float32)
