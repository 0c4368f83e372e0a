"""CTranslate2: a runtime of its own for transformers, with weights in float32 or int8, on CPU.

The converted model is kept in the artifact store. int8 weights have a scale a row, and what they are multiplied with
is quantized as it comes, on a scale a token.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import TYPE_CHECKING

from llm_bench_fixtures.errors import BackendUnavailable
from llm_bench_fixtures.models.backend import Backend, Chosen
from llm_bench_fixtures.models.needs import Storage
from llm_bench_fixtures.models.variants import Variant

if TYPE_CHECKING:
    from llm_bench_fixtures.models.backends.ct2_engine import Ct2Model
    from llm_bench_fixtures.models.device import Device
    from llm_bench_fixtures.models.loading import LoadRequest


VARIANTS = (
    Variant("ct2-fp32", "ctranslate2", "CTranslate2's form of the model, in float32"),
    Variant(
        "ct2-int8",
        "ctranslate2",
        "ct2-fp32 with int8 weights, activations quantized as they come",
        quantization="int8",
        base="ct2-fp32",
    ),
)
COMPUTE_TYPES = {None: "float32", "int8": "int8_float32"}  # by quantization, as CTranslate2 names them


def check(variant: Variant, device: Device) -> None:
    import ctranslate2

    wanted = COMPUTE_TYPES[variant.quantization]
    known = sorted(ctranslate2.get_supported_compute_types("cpu"))
    if wanted not in known:
        raise BackendUnavailable(f"CTranslate2 doesn't compute in {wanted} on this processor, only in {known}")


def prepare(request: LoadRequest) -> None:
    importlib.import_module("ctranslate2")
    engine = importlib.import_module("llm_bench_fixtures.models.backends.ct2_engine")
    engine.check_convertible(request.source.load_config())
    engine.kernels(COMPUTE_TYPES[request.variant.quantization])


def load(request: LoadRequest) -> Ct2Model:
    from llm_bench_fixtures.models.backends import ct2_engine as engine
    from llm_bench_fixtures.models.conversion import converted_facts
    from llm_bench_fixtures.models.device import resident_at_rest

    wanted = COMPUTE_TYPES[request.variant.quantization]
    artifact = engine.convert(request, wanted)
    before_bytes = resident_at_rest(request.device)
    generator = engine.open_generator(artifact.folder, wanted)
    facts = converted_facts(
        request,
        (artifact,),
        before_bytes,
        label=f"CTranslate2 {generator.compute_type} ({engine.kernels(wanted) or 'unknown kernels'})",
        weight_bytes=(artifact.folder / engine.WEIGHTS_FILE).stat().st_size,
    )
    longest = engine.longest_prompt(request.source.load_config())
    facts = replace(facts, context_length=min(facts.context_length, longest))
    return engine.Ct2Model(request.variant, request.device, generator, request.source.load_tokenizer(), facts)


STORED = {None: Storage(4.0, 4.0, loading=4.0, making=12.0), "int8": Storage(1.0, 1.0, loading=1.0, making=12.0)}


BACKEND = Backend(
    load,
    check,
    prepare,
    devices=("cpu",),
    chosen=Chosen.INSTALLED,
    modules=("ctranslate2",),
    extra="ctranslate2",
    storage=lambda variant, _: STORED[variant.quantization],
    variants=VARIANTS,
    libraries=("ctranslate2",),
    takes_attention=False,
    loggers=("ctranslate2",),
)
