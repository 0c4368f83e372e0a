"""llama.cpp, by the wheels of its binding cyllama: GGUF files in its own loop, in which each prompt is a sequence.

A checkpoint is converted to GGUF here and quantized by llama.cpp. What is made is kept in the artifact store.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import WorkloadUnsupported
from llm_bench_fixtures.models import conversion
from llm_bench_fixtures.models.backend import LoadRequest, Storage
from llm_bench_fixtures.models.backends import gguf_files
from llm_bench_fixtures.models.backends.torch import load_float32
from llm_bench_fixtures.models.model import EngineModel, OnToken, Rows, Shown, unpadded
from llm_bench_fixtures.models.variants import Precision, Variant, quantized_from
from llm_bench_fixtures.options.parsers import Setting, parse_optional_path
from llm_bench_fixtures.progress import Phase

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from llm_bench_fixtures.models.artifacts import Artifact, Key

FULL = Variant("gguf-f32", "llamacpp", "float32 GGUF file, run by llama.cpp")
VARIANTS = (
    FULL,
    quantized_from(FULL, "gguf-q8_0", "8-bit weights in blocks of 32", "q8_0"),
    quantized_from(FULL, "gguf-q4_k_m", "4-bit weights in blocks of 256, the more sensitive in 6 bits", "q4_k_m"),
)

STORED = {
    None: Storage(4.0, 4.0, making=12.0),
    "q8_0": Storage(1.0625, 1.0625, making=12.0),
    "q4_k_m": Storage(0.6, 0.8, making=12.0),
}

GGUF = Setting("gguf", parse_optional_path)
LIBRARIES = ("torch", "transformers", "gguf", "cyllama")
FILE = "model.gguf"
TYPES = {"f32": "ALL_F32", "q8_0": "MOSTLY_Q8_0", "q4_k_m": "MOSTLY_Q4_K_M"}
"""llama.cpp's names of the ways to quantize a file."""

MOST_SEQUENCES = 256  # in one context
FLOAT32 = 0  # ggml's number for what a cache holds; its default is float16
NO_FLASH_ATTENTION = 0  # flash attention rounds to float16 on a CPU, whatever the cache holds; the default is to use it
CELLS = 256  # a sequence's cache is a multiple of it


def prepare(request: LoadRequest) -> None:
    importlib.import_module("cyllama.llama.llama_cpp").disable_logging()
    if request.settings.of(GGUF) is None:
        gguf_files.check_convertible(request.source.load_config())


def load(request: LoadRequest) -> LlamaCppModel:
    made = make(request)
    folder = made[-1].folder
    named = label(request.variant, conversion.read_counts(folder)["other_blocks"])
    facts = conversion.converted_facts(request, made, named)
    engine = open_model(folder / FILE, facts.vocabulary)
    return LlamaCppModel(request.variant, request.device, engine, request.source.load_tokenizer(), facts)


def label(variant: Variant, other_blocks: Mapping[str, float]) -> str:
    """What runs. other_blocks: types that the variant isn't named after, and which part of the weights is in each."""
    if variant.quantization is None:
        return "llama.cpp float32"
    others = ", ".join(f"{share:.0%} of it {name}" for name, share in other_blocks.items())
    weights = f"{variant.quantization} ({others})" if others else variant.quantization
    return f"llama.cpp {weights}, computes in int8, cache in float16"


def make(request: LoadRequest) -> tuple[Artifact, ...]:
    """Files that were made for the variant, the file to run last: from the user's own file, where one is named.

    Raises BackendUnavailable where that can't be made, AnotherModel where it is another one.
    """
    given = request.settings.of(GGUF)
    stored = Precision.FLOAT32 if given is None else gguf_files.check_given(given, request.source.load_config())
    key = conversion.key_of(request, LIBRARIES, ["other_blocks"], given)
    plain = _converted(request, key) if given is None else _widened(request, key, given, stored)
    if request.variant.quantization is None:
        return (plain,)
    return plain, _quantized(request, key, plain)


def _converted(request: LoadRequest, key: Key) -> Artifact:
    def build(folder: Path) -> None:
        with request.progress.activity(Phase.EXPORTING, f"converting {request.source.name} to GGUF"):
            module = load_float32(request)
            trial = conversion.TextTrial.of(module)
            with conversion.unavailable_where_it_fails(f"{module.config.model_type} models can't be converted to GGUF"):
                gguf_files.write_gguf(module, folder / FILE)
                gguf_files.count_weights(folder / FILE, "f32")
            del module
        _try(request, folder, trial)

    return request.store.get("gguf-f32", key, build)


def _widened(request: LoadRequest, key: Key, given: Path, stored: Precision) -> Artifact:
    """The given file in float32. stored: the type that its weights are in."""

    def build(folder: Path) -> None:
        trial = conversion.TextTrial.of(load_float32(request))
        _quantize(request, given, folder, "f32")
        _try(request, folder, trial, stored)

    return request.store.get("gguf-f32", {**key, "source": request.source.digest}, build)


def _quantized(request: LoadRequest, key: Key, plain: Artifact) -> Artifact:
    kind = str(request.variant.quantization)

    def build(folder: Path) -> None:
        _quantize(request, plain.folder / FILE, folder, kind)
        _try(request, folder)

    return request.store.get(f"gguf-{kind}", key, build)


def _quantize(request: LoadRequest, source: Path, folder: Path, kind: str) -> None:
    import torch
    from cyllama.llama import llama_cpp
    from gguf import LlamaFileType

    if kind == "q8_0":
        gguf_files.check_rows(source)
    llama_cpp.disable_logging()
    parameters = llama_cpp.LlamaModelQuantizeParams()
    parameters.ftype = int(LlamaFileType[TYPES[kind]])
    parameters.nthread = torch.get_num_threads()
    quantizing = request.progress.activity(Phase.QUANTIZING, f"quantizing {request.source.name} to {kind}")
    with quantizing, conversion.unavailable_where_it_fails(f"llama.cpp can't quantize {source.name} to {kind}"):
        llama_cpp.model_quantize(str(source), str(folder / FILE), parameters)
        gguf_files.count_weights(folder / FILE, kind)


def _try(
    request: LoadRequest, folder: Path, trial: conversion.TextTrial | None = None, stored: Precision = Precision.FLOAT32
) -> None:
    """Raise BackendUnavailable for a file that doesn't run, AnotherModel for one that fails the trial, so that it
    isn't kept."""
    config = request.source.load_config()
    with conversion.unavailable_where_it_fails(f"llama.cpp doesn't run {config.model_type} models as converted"):
        run_once = partial(try_running, folder / FILE, config.get_text_config().vocab_size)
        if trial is None:
            run_once()
        else:
            trial.check("llama.cpp's conversion", lambda ids: run_once(ids[0].tolist(), is_float32=True), stored)


def open_model(path: Path, vocabulary: int) -> Any:
    """The engine over a GGUF file, whose weights it reads into memory. vocabulary: the width of its logits."""
    from cyllama.llama import llama_cpp

    class Model(llama_cpp.LlamaModel):  # type: ignore[misc]  # it has no types
        n_vocab = vocabulary  # cyllama 0.2.18 asks its models for it to give logits, and they don't have it

    parameters = llama_cpp.LlamaModelParams()
    parameters.use_mmap = False  # else the first rounds would read the file
    parameters.n_gpu_layers = 0
    return Model(str(path), parameters)


def try_running(path: Path, vocabulary: int, ids: Sequence[int] = (1, 1), *, is_float32: bool = False) -> torch.Tensor:
    """Logits of the last tokens, (1, SHOWN or fewer, V). Raises what cyllama raises where the model doesn't run.

    is_float32: compute in no other type.
    """
    import torch

    engine = open_model(path, vocabulary)
    context = open_context(engine, Room(1, len(ids), len(ids)), is_float32=is_float32)
    run(context, [ids], shows_all=True)
    logits = torch.tensor([[context.get_logits_ith(place) for place in range(len(ids))[-conversion.SHOWN :]]])
    context.close()
    engine.close()
    return logits


@dataclass(frozen=True)
class Room:
    """What a context has room for."""

    sequences: int
    length: int
    """Tokens of each sequence."""

    tokens: int
    """Tokens that run at once, over all sequences."""

    def holds(self, other: Room) -> bool:
        return self.sequences == other.sequences and self.length >= other.length and self.tokens >= other.tokens


def open_context(engine: Any, room: Room, *, is_float32: bool) -> Any:
    """A cache and buffers of the engine's, with as many threads as torch uses.

    is_float32: use float32 for keys and values, and for what is computed of them.
    """
    import torch
    from cyllama.llama import llama_cpp

    parameters = llama_cpp.LlamaContextParams()
    parameters.n_seq_max = room.sequences
    parameters.n_ctx = room.sequences * -(-room.length // CELLS) * CELLS
    parameters.n_batch = max(room.tokens, parameters.n_ubatch)
    parameters.n_threads = parameters.n_threads_batch = torch.get_num_threads()
    if is_float32:
        parameters.type_k = parameters.type_v = FLOAT32
        parameters.flash_attn_type = NO_FLASH_ATTENTION
    return llama_cpp.LlamaContext(engine, parameters)


def run(context: Any, rows: Sequence[Sequence[int]], *, shows_all: bool = False) -> list[int]:
    """Run each row's tokens, as a sequence, in an empty cache; where in the batch its last one is.

    shows_all: keep the logits of each token, not of the last alone.
    """
    from cyllama.llama import llama_cpp

    batch = llama_cpp.LlamaBatch(n_tokens=sum(map(len, rows)), embd=0, n_seq_max=1)
    for sequence, row in enumerate(rows):
        for position, token in enumerate(row):
            batch.add(token, position, [sequence], shows_all or position == len(row) - 1)
    context.decode(batch)
    return [end - 1 for end in accumulate(map(len, rows))]


@dataclass(eq=False)
class LlamaCppModel(EngineModel):
    """Runs token ids with llama.cpp. Padding is left out, as sequences of unequal lengths run together."""

    _context: Any = field(default=None, init=False)
    """The engine's cache and buffers, kept for workloads that they have room for."""

    _room: Room = field(default=Room(0, 0, 0), init=False)

    def continued(self, rows: Rows, width: int, new_tokens: int, on_token: OnToken, shown: Shown) -> Rows:
        """As `EngineModel.continued`. Raises WorkloadUnsupported for more rows than a context has sequences."""
        import torch
        from cyllama.llama import llama_cpp

        if len(rows) > MOST_SEQUENCES:
            raise WorkloadUnsupported(f"llama.cpp runs at most {MOST_SEQUENCES} prompts at a time")
        self._make_room(Room(len(rows), max(map(len, rows)) + new_tokens, sum(map(len, rows))))
        sampler = llama_cpp.LlamaSampler(llama_cpp.LlamaSamplerChainParams())
        sampler.add_greedy()
        places = run(self._context, rows)
        steps: list[list[int]] = []
        for step in range(new_tokens):
            steps.append([sampler.sample(self._context, place) for place in places])
            if shown is not None:
                shown.append(torch.tensor([self._context.get_logits_ith(place) for place in places]))
            if on_token is not None:
                on_token()
            if step < new_tokens - 1:  # spelled out: with `run` a step of 0.24 ms took 5 % longer
                following = llama_cpp.LlamaBatch(n_tokens=len(rows), embd=0, n_seq_max=1)
                for sequence, token in enumerate(steps[-1]):
                    following.add(token, len(rows[sequence]) + step, [sequence], True)
                self._context.decode(following)
                places = list(range(len(rows)))
        return [list(text) for text in zip(*steps, strict=True)]

    def logits(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """As `Model.logits`; zeros where there is padding."""
        import numpy as np
        import torch

        logits = torch.zeros(*input_ids.shape, self.facts.vocabulary)
        for row, ids in enumerate(unpadded(input_ids, attention_mask)):
            self._make_room(Room(1, len(ids), len(ids)))
            run(self._context, [ids], shows_all=True)
            for place in range(len(ids)):
                logits[row, place] = torch.from_numpy(np.array(self._context.get_logits_ith(place), dtype=np.float32))
        return logits

    def _make_room(self, needed: Room) -> None:
        """An empty cache with room for so much, of the same number of sequences."""
        if self._context is not None and self._room.holds(needed):
            self._context.kv_cache_clear()
            return
        self.forget_caches()
        self._context = open_context(self.engine, needed, is_float32=self.variant.quantization is None)
        self._room = needed

    def forget_caches(self) -> None:
        """As `Model.forget_caches`: the next workload gets a cache that fits."""
        if self._context is not None:
            self._context.close()
        self._context, self._room = None, Room(0, 0, 0)

    def close(self) -> None:
        self.forget_caches()
        self.engine.close()
        super().close()


BACKEND = conversion.engine_on_cpu(
    load,
    prepare=prepare,
    modules=("cyllama", "gguf"),
    extra="llamacpp",
    storage=lambda variant, _: STORED[variant.quantization],
    variants=VARIANTS,
    threads_setting="n_threads",
    libraries=("cyllama", "gguf"),
    options=(GGUF,),
)
