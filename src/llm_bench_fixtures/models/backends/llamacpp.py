"""llama.cpp, by the wheels of its binding cyllama: GGUF files in its own loop.

A checkpoint is converted to GGUF here and quantized by llama.cpp. What is made is kept in the artifact store.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Mapping
from typing import TYPE_CHECKING

from llm_bench_fixtures.models.backend import Backend, Chosen
from llm_bench_fixtures.models.backends.gguf_files import check_convertible, file_in, make
from llm_bench_fixtures.models.backends.llamacpp_model import LlamaCppModel, open_model
from llm_bench_fixtures.models.conversion import converted_facts, read_counts
from llm_bench_fixtures.models.device import resident_at_rest
from llm_bench_fixtures.models.needs import Storage
from llm_bench_fixtures.models.variants import Variant
from llm_bench_fixtures.options.parsers import Setting, parse_optional_path

if TYPE_CHECKING:
    from llm_bench_fixtures.models.loading import LoadRequest


VARIANTS = (
    Variant("gguf-f32", "llamacpp", "float32 GGUF file, run by llama.cpp"),
    Variant(
        "gguf-q8_0",
        "llamacpp",
        "gguf-f32 with 8-bit weights in blocks of 32",
        quantization="q8_0",
        base="gguf-f32",
    ),
    Variant(
        "gguf-q4_k_m",
        "llamacpp",
        "gguf-f32 with 4-bit weights in blocks of 256, the more sensitive in 6 bits",
        quantization="q4_k_m",
        base="gguf-f32",
    ),
)

BUILT_FOR = {"0.2.18": "AVX2"}  # cyllama's wheels for Linux on x86-64, by version, whatever more the processor has

GGUF = Setting("gguf", parse_optional_path)


def prepare(request: LoadRequest) -> None:
    importlib.import_module("cyllama.llama.llama_cpp").disable_logging()
    if request.settings.of(GGUF) is None:
        check_convertible(request.source.load_config())


def load(request: LoadRequest) -> LlamaCppModel:
    made = make(request, request.settings.of(GGUF))
    before_bytes = resident_at_rest(request.device)
    engine = open_model(file_in(made[-1].folder), request.source.load_config().get_text_config().vocab_size)
    counts = read_counts(made[-1].folder)
    facts = converted_facts(
        request,
        made,
        before_bytes,
        label=label(request.variant, counts["other_blocks"], instruction_set()),
        weight_bytes=counts["weight_bytes"],
    )
    return LlamaCppModel(request.variant, request.device, engine, request.source.load_tokenizer(), facts)


def instruction_set() -> str:
    """Instruction set that llama.cpp is built for, where that is known of the installed wheel; cyllama has no call that
    tells it."""
    cyllama = importlib.metadata.distribution("cyllama")
    wheel = cyllama.read_text("WHEEL") or ""
    is_published = "manylinux" in wheel and "x86_64" in wheel  # one that was built here has other tags
    built = BUILT_FOR.get(cyllama.version) if is_published else None
    return f"built for {built}" if built else "instruction set unknown"


def label(variant: Variant, other_blocks: Mapping[str, float], instructions: str) -> str:
    """What runs. other_blocks: types that the variant isn't named after, and which part of the weights is in each."""
    if variant.quantization is None:
        return f"llama.cpp float32 ({instructions})"
    others = ", ".join(f"{share:.0%} of it {name}" for name, share in other_blocks.items())
    weights = f"{variant.quantization} ({others})" if others else variant.quantization
    return f"llama.cpp {weights}, computes in int8, cache in float16 ({instructions})"


STORED = {
    None: Storage(4.0, 4.0, making=12.0),
    "q8_0": Storage(1.0625, 1.0625, making=12.0),
    "q4_k_m": Storage(0.6, 0.8, making=12.0),
}


BACKEND = Backend(
    load,
    prepare=prepare,
    devices=("cpu",),
    modules=("cyllama", "gguf"),
    extra="llamacpp",
    storage=lambda variant, _: STORED[variant.quantization],
    variants=VARIANTS,
    chosen=Chosen.INSTALLED,
    takes_attention=False,
    threads_setting="n_threads",
    libraries=("cyllama", "gguf"),
    options=(GGUF,),
)
