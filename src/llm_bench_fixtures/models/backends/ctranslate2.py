"""CTranslate2: a runtime of its own for transformers, with weights in float32 or int8, on CPU.

The converted model is kept in the artifact store. int8 weights have a scale a row, and what they are multiplied with
is quantized as it comes, on a scale a token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import BackendUnavailable, WorkloadUnsupported
from llm_bench_fixtures.models import conversion
from llm_bench_fixtures.models.backend import LoadRequest, Storage
from llm_bench_fixtures.models.backends.torch import load_float32
from llm_bench_fixtures.models.device import Device
from llm_bench_fixtures.models.model import BatchCounter, EngineModel, OnToken, Rows, Shown
from llm_bench_fixtures.models.transformers import context_of
from llm_bench_fixtures.models.variants import Variant, quantized_from
from llm_bench_fixtures.progress import Phase

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from llm_bench_fixtures.models.artifacts import Artifact, Key

FULL = Variant("ct2-fp32", "ctranslate2", "CTranslate2's form of the model, in float32")
VARIANTS = (
    FULL,
    quantized_from(FULL, "ct2-int8", "int8 weights, activations quantized as they come", "int8"),
)
COMPUTE_TYPES = {None: "float32", "int8": "int8_float32"}  # by quantization
WEIGHTS_FILE = "model.bin"
LIBRARIES = ("torch", "transformers", "ctranslate2")
FLOAT32 = "float32"
TABLES = ("decoder/embeddings/", "decoder/position_encodings/")  # a pass looks up some rows of these
STORED = {None: Storage(4.0, 4.0, loading=4.0, making=12.0), "int8": Storage(1.0, 1.0, loading=1.0, making=12.0)}


def check(variant: Variant, device: Device) -> None:
    import ctranslate2

    wanted = COMPUTE_TYPES[variant.quantization]
    known = sorted(ctranslate2.get_supported_compute_types("cpu"))
    if wanted not in known:
        raise BackendUnavailable(f"CTranslate2 doesn't compute in {wanted} on this processor, only in {known}")


def prepare(request: LoadRequest) -> None:
    """Raise BackendUnavailable for an architecture that CTranslate2 has no converter for."""
    from ctranslate2.converters import transformers as converters

    config = request.source.load_config()
    if type(config).__name__ not in converters._MODEL_LOADERS:
        raise BackendUnavailable(f"CTranslate2 has no converter for {config.model_type} models")


def load(request: LoadRequest) -> Ct2Model:
    wanted = COMPUTE_TYPES[request.variant.quantization]
    artifact = convert(request, wanted)
    facts = conversion.converted_facts(request, (artifact,))
    generator = open_generator(artifact.folder, wanted)
    context = min(facts.context_length, longest_prompt(request.source.load_config()))
    facts = replace(facts, label=f"CTranslate2 {generator.compute_type}", context_length=context)
    return Ct2Model(request.variant, request.device, generator, request.source.load_tokenizer(), facts)


def convert(request: LoadRequest, compute_type: str) -> Artifact:
    """The source's model as CTranslate2 runs it; of integers, only where it is right in float32.

    Raises BackendUnavailable where it can't be made or run, AnotherModel where it is another one.
    """
    if compute_type != FLOAT32:
        convert(request, FLOAT32)
    name, model_type = request.source.name, request.source.model_type
    key: Key = {**conversion.key_of(request, LIBRARIES), "weights": compute_type}

    def build(folder: Path) -> None:
        converting = request.progress.activity(Phase.EXPORTING, f"converting {name} for CTranslate2, {compute_type}")
        with converting, conversion.unavailable_where_it_fails(f"CTranslate2 can't convert {model_type} models"):
            variables, trial = _convert(request, folder, compute_type)
            conversion.write_counts(folder, counts_of(variables, (folder / WEIGHTS_FILE).stat().st_size))
        with conversion.unavailable_where_it_fails(f"CTranslate2 doesn't run {model_type} models as converted"):
            _try(folder, compute_type, trial)

    return request.store.get("ctranslate2", key, build)


def _convert(request: LoadRequest, folder: Path, compute_type: str) -> tuple[Mapping[str, Any], conversion.TextTrial]:
    """Write the converted model into the folder. Returns its variables by name, tensors or an equal one's name, and
    its trial."""
    from ctranslate2.converters import TransformersConverter

    source = request.source

    class Converter(TransformersConverter):  # type: ignore[misc]
        """Converts what the source loads, with a vocabulary of numbers: a token's id is its text."""

        def load_model(self, *_: object, **__: object) -> Any:
            module = load_float32(request)
            self.trial = conversion.TextTrial.of(module, longest_prompt(module.config))
            return module

        def load_tokenizer(self, *_: object, **__: object) -> Any:
            return source.load_tokenizer()

        def _load(self) -> Any:
            self.spec = super()._load()
            self.spec.register_vocabulary([str(token) for token in range(self.spec.get_vocabulary_size())])
            for name in ("unk_token", "bos_token", "eos_token"):  # the converter wants them, and no call uses them
                setattr(self.spec.config, name, "0")
            return self.spec

    converter = Converter(str(source.folder), trust_remote_code=source.trust_remote_code)
    converter.convert(str(folder), quantization=compute_type, force=True)
    return converter.spec.variables(), converter.trial


def longest_prompt(config: Any) -> int:
    """Tokens that it takes: version 4.8 fails on prompts beyond a window."""
    text = config.get_text_config()
    return min(context_of(text), getattr(text, "sliding_window", None) or context_of(text))


def _try(folder: Path, compute_type: str, trial: conversion.TextTrial) -> None:
    """Two tokens generated for two rows, and in float32 the trial. Raises AnotherModel, and what the library raises."""
    import torch

    generator = open_generator(folder, compute_type)
    generator.generate_batch([["1", "2"], ["1", "2", "3"]], max_length=2, end_token=[], include_prompt_in_result=False)
    if compute_type == FLOAT32:
        trial.check("CTranslate2's conversion", lambda ids: forward(generator, ids, torch.tensor([ids.shape[1]])))


def counts_of(variables: Mapping[str, Any], weight_bytes: int) -> tuple[int, int, float]:
    """COUNTS of a converted model. variables: its tensors by name; of an alias, the name of what it is the same as."""
    tensors = {name: tensor for name, tensor in variables.items() if not isinstance(tensor, str)}
    shared = {alias for alias in variables.values() if isinstance(alias, str)}
    looked_up = {name for name in tensors if name.startswith(TABLES) and name not in shared}
    counts = {name: tensor.numpy().size for name, tensor in tensors.items()}
    in_8_bits = sum(counts[name] for name, tensor in tensors.items() if tensor.dtype == "int8" and tensor.shape)
    read = sum(tensor.num_bytes() for name, tensor in tensors.items() if name not in looked_up)
    return weight_bytes, read, in_8_bits / max(sum(counts.values()), 1)


def open_generator(folder: Path, compute_type: str) -> Any:
    """CTranslate2's generator over the converted model in the folder, with as many threads as torch uses."""
    import ctranslate2
    import torch

    return ctranslate2.Generator(
        str(folder), device="cpu", compute_type=compute_type, inter_threads=1, intra_threads=torch.get_num_threads()
    )


def forward(generator: Any, input_ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Logits of rows that begin with their tokens: (B, T) and (B,) int64 in, (B, T, V) float32 out."""
    import ctranslate2
    import numpy as np
    import torch

    views = (ctranslate2.StorageView.from_array(part.to(torch.int32).numpy()) for part in (input_ids, lengths))
    return torch.from_numpy(np.asarray(generator.forward_batch(*views))).float()


class Ct2Model(EngineModel):
    """Runs a generator of CTranslate2's, whose vocabulary is the ids themselves, written as text.

    It takes no padding: each row is its own tokens. Rows of unequal length run together up to the length of the
    shortest, and from there on token by token.
    """

    def continued(self, rows: Rows, width: int, new_tokens: int, on_token: OnToken, shown: Shown) -> Rows:
        """As `EngineModel.continued`. Raises WorkloadUnsupported for a batch that CTranslate2 4.8 answers wrongly."""
        import numpy as np
        import torch

        if min(map(len, rows)) == 1 < max(map(len, rows)):
            raise WorkloadUnsupported(
                "CTranslate2 counts prompts as answers where one of a single token is in a batch with longer ones"
            )
        results = self.engine.generate_batch(
            [[str(token) for token in row] for row in rows],
            max_length=new_tokens,
            end_token=[],
            include_prompt_in_result=False,
            callback=None if on_token is None else _adding(BatchCounter(len(rows), on_token)),
            return_logits_vocab=shown is not None,
        )
        if shown is not None:
            steps = [[np.asarray(step).reshape(-1) for step in one.logits[0][-new_tokens:]] for one in results]
            shown += torch.from_numpy(np.array(steps)).float().unbind(1)
        return [result.sequences_ids[0] for result in results]

    def logits(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """As `Model.logits`, in float32. What stands at padding means nothing."""
        return forward(self.engine, input_ids, attention_mask.sum(dim=1))


def _adding(counter: BatchCounter) -> Callable[[Any], bool]:
    """Takes each of CTranslate2's `GenerationStepResult`, and stops no row."""

    def take(step: Any) -> bool:
        counter.add(step.batch_id)
        return False

    return take


BACKEND = conversion.engine_on_cpu(
    load,
    check,
    prepare,
    modules=("ctranslate2",),
    extra="ctranslate2",
    storage=lambda variant, _: STORED[variant.quantization],
    variants=VARIANTS,
    libraries=("ctranslate2",),
    threads_setting="intra_threads",
    loggers=("ctranslate2",),
)
