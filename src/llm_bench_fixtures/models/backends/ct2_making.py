"""Models in CTranslate2's form, made once and kept in the artifact store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import BackendUnavailable
from llm_bench_fixtures.models.backends.torch import check_memory
from llm_bench_fixtures.models.conversion import key_of, unavailable_where_it_fails, write_counts
from llm_bench_fixtures.models.trial import Trial

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from llm_bench_fixtures.models.artifacts import Artifact, Key
    from llm_bench_fixtures.models.loading import LoadRequest

WEIGHTS_FILE = "model.bin"
LIBRARIES = ("torch", "transformers", "ctranslate2")
COUNTS = ("weight_bytes_read", "quantized_share")
FLOAT32 = "float32"
TABLES = ("decoder/embeddings/", "decoder/position_encodings/")  # of which a pass looks up some rows


def check_convertible(config: Any) -> None:
    """Raise BackendUnavailable for an architecture that CTranslate2 has no converter for."""
    from ctranslate2.converters import transformers as converters

    if type(config).__name__ not in converters._MODEL_LOADERS:
        raise BackendUnavailable(f"CTranslate2 has no converter for {config.model_type} models")


def convert(request: LoadRequest, compute_type: str) -> Artifact:
    """The source's model as CTranslate2 runs it; of integers, only where it is right in float32.

    Raises BackendUnavailable where it can't be made or run, AnotherModel where it is another one.
    """
    from llm_bench_fixtures.progress import Phase

    if compute_type != FLOAT32:
        convert(request, FLOAT32)
    name, model_type = request.source.name, request.source.load_config().model_type
    key: Key = {**key_of(request, LIBRARIES, COUNTS), "weights": compute_type}

    def build(folder: Path) -> None:
        converting = request.progress.activity(Phase.EXPORTING, f"converting {name} for CTranslate2, {compute_type}")
        with converting, unavailable_where_it_fails(f"CTranslate2 can't convert {model_type} models"):
            variables, trial = _convert(request, folder, compute_type)
            write_counts(folder, counts_of(variables))
        with unavailable_where_it_fails(f"CTranslate2 doesn't run {model_type} models as converted"):
            _try(folder, compute_type, trial)

    return request.store.get("ctranslate2", key, build)


def _convert(request: LoadRequest, folder: Path, compute_type: str) -> tuple[Mapping[str, Any], Trial]:
    """Write the converted model into the folder. Returns its variables by name, tensors or an equal one's name, and
    its trial."""
    import torch
    from ctranslate2.converters import TransformersConverter

    source = request.source

    class Converter(TransformersConverter):  # type: ignore[misc]
        """Converts what the source loads, with a vocabulary of numbers: a token's id is its text."""

        def load_model(self, *_: object, **__: object) -> Any:
            check_memory(request, torch.float32.itemsize)
            module = source.load_model(dtype=torch.float32)
            self.trial = Trial.of(module, longest_prompt(module.config))
            return module

        def load_tokenizer(self, *_: object, **__: object) -> Any:
            return source.load_tokenizer()

        def _load(self) -> Any:
            self.spec = super()._load()
            self.spec.register_vocabulary([str(token) for token in range(self.spec.get_vocabulary_size())])
            for name in ("unk_token", "bos_token", "eos_token"):  # each call names its own
                setattr(self.spec.config, name, "0")
            return self.spec

    converter = Converter(str(source.folder), trust_remote_code=source.trust_remote_code)
    converter.convert(str(folder), quantization=compute_type, force=True)
    return converter.spec.variables(), converter.trial


def longest_prompt(config: Any) -> int:
    """Tokens that it takes: version 4.8 fails on prompts beyond a window."""
    from llm_bench_fixtures.models.transformers import context_of

    text = config.get_text_config()
    return min(context_of(text), getattr(text, "sliding_window", None) or context_of(text))


def _try(folder: Path, compute_type: str, trial: Trial) -> None:
    """Two tokens generated for two rows, and the trial's texts: in float32 compared, else only run.

    Raises AnotherModel, and what the library raises.
    """
    import torch

    from llm_bench_fixtures.models.backends.ct2_model import forward, open_generator

    generator = open_generator(folder, compute_type)
    generator.generate_batch([["1", "2"], ["1", "2", "3"]], max_length=2, include_prompt_in_result=False)

    def run(ids: torch.Tensor) -> torch.Tensor:
        return forward(generator, ids, torch.tensor([ids.shape[1]]))

    if compute_type == FLOAT32:
        trial.check("CTranslate2's conversion", run)
    else:
        run(trial.texts[0][0])


def counts_of(variables: Mapping[str, Any]) -> dict[str, float]:
    """COUNTS of a converted model. variables: its tensors by name; of an alias, the name of what it is the same as."""
    tensors = {name: tensor for name, tensor in variables.items() if not isinstance(tensor, str)}
    shared = {alias for alias in variables.values() if isinstance(alias, str)}
    looked_up = {name for name in tensors if name.startswith(TABLES) and name not in shared}
    counts = {name: tensor.numpy().size for name, tensor in tensors.items()}
    in_8_bits = sum(counts[name] for name, tensor in tensors.items() if tensor.dtype == "int8" and tensor.shape)
    read = sum(tensor.num_bytes() for name, tensor in tensors.items() if name not in looked_up)
    return dict(zip(COUNTS, (read, in_8_bits / max(sum(counts.values()), 1)), strict=True))
