"""llama.cpp, by the wheels of its binding cyllama: GGUF files in its own loop.

A checkpoint is converted to GGUF here and quantized by llama.cpp. What is made is kept in the artifact store.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from llm_bench_fixtures.models.backend import Backend, Chosen
from llm_bench_fixtures.models.variants import Precision, Variant
from llm_bench_fixtures.options.parsers import Setting, parse_optional_path

if TYPE_CHECKING:
    from llm_bench_fixtures.models.backends.llamacpp_model import LlamaCppModel
    from llm_bench_fixtures.models.loading import LoadRequest


class Quantization(StrEnum):
    Q8_0 = "q8_0"
    Q4_K_M = "q4_k_m"


VARIANTS = (
    Variant("gguf-f32", "llamacpp", "float32 GGUF file, run by llama.cpp"),
    Variant(
        "gguf-q8_0",
        "llamacpp",
        "gguf-f32 with 8-bit weights in blocks of 32",
        quantization=Quantization.Q8_0,
        base="gguf-f32",
    ),
    Variant(
        "gguf-q4_k_m",
        "llamacpp",
        "gguf-f32 with 4-bit weights in blocks of 256, the more sensitive in 6 bits",
        quantization=Quantization.Q4_K_M,
        base="gguf-f32",
    ),
)

BUILT_FOR = {"0.2.18": "AVX2"}  # cyllama's wheels for Linux on x86-64, by version, whatever more the processor has

GGUF = Setting("gguf", parse_optional_path)


def prepare(request: LoadRequest) -> None:
    importlib.import_module("cyllama.llama.llama_cpp").disable_logging()
    if request.settings.of(GGUF) is None:
        writing = importlib.import_module("llm_bench_fixtures.models.backends.gguf_writing")
        writing.check_convertible(request.source.load_config())


def load(request: LoadRequest) -> LlamaCppModel:
    from llm_bench_fixtures.models.arithmetic import TOLERANCES, Arithmetic
    from llm_bench_fixtures.models.artifacts import made_s_of
    from llm_bench_fixtures.models.backends.gguf_making import FACTS_FILE, file_in, make
    from llm_bench_fixtures.models.backends.llamacpp_model import LlamaCppModel, open_model
    from llm_bench_fixtures.models.device import ResolvedPrecision, resident_at_rest
    from llm_bench_fixtures.models.experts import told_of_reading
    from llm_bench_fixtures.models.transformers import source_facts
    from llm_bench_fixtures.models.trial import uncompared

    made = make(request, request.settings.of(GGUF))
    before_bytes = resident_at_rest(request.device)
    config = request.source.load_config()
    engine = open_model(file_in(made[-1].folder), config.get_text_config().vocab_size)
    counted = json.loads((made[-1].folder / FACTS_FILE).read_text())
    is_quantized = request.variant.quantization is not None
    facts = replace(
        source_facts(
            request.variant,
            config,
            ResolvedPrecision(Precision.FLOAT32, Precision.FLOAT32),
            label=label(request.variant, counted["other_blocks"], instruction_set()),
            weight_bytes=counted["weight_bytes"],
        ),
        weight_bytes_read=told_of_reading(config, counted["weight_bytes_read"]),
        quantized_share=counted["quantized_share"] if is_quantized else None,
        compute=None if is_quantized else Precision.FLOAT32,
        tolerance=TOLERANCES[Arithmetic.INT8 if is_quantized else Arithmetic.FLOAT32],
        notes=(*dict.fromkeys(artifact.note for artifact in made), *uncompared(config)),
        conversion_s=made_s_of(*made),
        resident_before_load_bytes=before_bytes,
    )
    return LlamaCppModel(request.variant, request.device, engine, request.source.load_tokenizer(), facts)


def instruction_set() -> str:
    """What llama.cpp is built for, where that is known of the installed wheel; cyllama has no call that tells it."""
    cyllama = importlib.metadata.distribution("cyllama")
    wheel = cyllama.read_text("WHEEL") or ""
    is_published = "manylinux" in wheel and "x86_64" in wheel  # one that was built here has other tags
    built = BUILT_FOR.get(cyllama.version) if is_published else None
    return f"built for {built}" if built else "instruction set not told"


def label(variant: Variant, other_blocks: Mapping[str, float], instructions: str) -> str:
    """What runs. other_blocks: types that the variant isn't named after, and which part of the weights is in each."""
    if variant.quantization is None:
        return f"llama.cpp float32 ({instructions})"
    others = ", ".join(f"{share:.0%} of it {name}" for name, share in other_blocks.items())
    weights = f"{variant.quantization} ({others})" if others else variant.quantization
    return f"llama.cpp {weights}, computes in int8, cache in float16 ({instructions})"


BACKEND = Backend(
    load,
    prepare=prepare,
    devices=("cpu",),
    modules=("cyllama", "gguf"),
    extra="llamacpp",
    variants=VARIANTS,
    chosen=Chosen.INSTALLED,
    takes_attention=False,
    libraries=("cyllama", "gguf"),
    options=(GGUF,),
)
