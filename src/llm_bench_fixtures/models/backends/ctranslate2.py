"""CTranslate2: a runtime of its own for transformers, with weights in float32 or int8, on CPU.

The converted model is kept in the artifact store. int8 weights have a scale a row, and what they are multiplied with
is quantized as it comes, on a scale a token.
"""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from llm_bench_fixtures.errors import BackendUnavailable
from llm_bench_fixtures.models.backend import Backend, Chosen
from llm_bench_fixtures.models.variants import Precision, Variant

if TYPE_CHECKING:
    from llm_bench_fixtures.models.backends.ct2_model import Ct2Model
    from llm_bench_fixtures.models.device import Device
    from llm_bench_fixtures.models.loading import LoadRequest


class Quantization(StrEnum):
    INT8 = "int8"


VARIANTS = (
    Variant("ct2-fp32", "ctranslate2", "CTranslate2's form of the model, in float32"),
    Variant(
        "ct2-int8",
        "ctranslate2",
        "ct2-fp32 with int8 weights, activations quantized as they come",
        quantization=Quantization.INT8,
        base="ct2-fp32",
    ),
)
COMPUTE_TYPES = {None: "float32", Quantization.INT8: "int8_float32"}  # by quantization, as CTranslate2 names them


def check(variant: Variant, device: Device) -> None:
    import ctranslate2

    wanted = compute_type(variant)
    known = sorted(ctranslate2.get_supported_compute_types("cpu"))
    if wanted not in known:
        raise BackendUnavailable(f"CTranslate2 doesn't compute in {wanted} on this processor, only in {known}")


def compute_type(variant: Variant) -> str:
    """What CTranslate2 calls the types that it computes the variant in."""
    return COMPUTE_TYPES[Quantization(variant.quantization) if variant.quantization else None]


def prepare(request: LoadRequest) -> None:
    importlib.import_module("ctranslate2")
    importlib.import_module("llm_bench_fixtures.models.backends.ct2_making").check_convertible(
        request.source.load_config()
    )
    importlib.import_module("llm_bench_fixtures.models.backends.ct2_model").kernels(compute_type(request.variant))


def load(request: LoadRequest) -> Ct2Model:
    from llm_bench_fixtures.models.arithmetic import TOLERANCES, Arithmetic
    from llm_bench_fixtures.models.backends import ct2_making as making
    from llm_bench_fixtures.models.backends.ct2_model import Ct2Model, kernels, open_generator
    from llm_bench_fixtures.models.device import ResolvedPrecision, resident_at_rest
    from llm_bench_fixtures.models.experts import told_of_reading
    from llm_bench_fixtures.models.transformers import source_facts
    from llm_bench_fixtures.models.trial import uncompared

    wanted = compute_type(request.variant)
    artifact = making.convert(request, wanted)
    before_bytes = resident_at_rest(request.device)
    generator = open_generator(artifact.folder, wanted)
    precision = ResolvedPrecision(Precision.FLOAT32, Precision.FLOAT32)
    is_int8 = request.variant.quantization is not None
    config = request.source.load_config()
    facts = source_facts(
        request.variant,
        config,
        precision,
        label=f"CTranslate2 {generator.compute_type} ({kernels(wanted) or 'unknown kernels'})",
        weight_bytes=(artifact.folder / making.WEIGHTS_FILE).stat().st_size,
    )
    counted = json.loads((artifact.folder / making.FACTS_FILE).read_text())
    facts = replace(
        facts,
        context_length=min(facts.context_length, making.longest_prompt(config)),
        weight_bytes_read=told_of_reading(config, counted["weight_bytes_read"]),
        quantized_share=counted["quantized_share"] if is_int8 else None,
        compute=None if is_int8 else Precision.FLOAT32,
        tolerance=TOLERANCES[Arithmetic.INT8 if is_int8 else Arithmetic.FLOAT32],
        notes=(artifact.note, *uncompared(config)),
        conversion_s=artifact.made_s,
        resident_before_load_bytes=before_bytes,
    )
    return Ct2Model(request.variant, request.device, generator, request.source.load_tokenizer(), facts)


BACKEND = Backend(
    load,
    check,
    prepare,
    devices=("cpu",),
    chosen=Chosen.INSTALLED,
    modules=("ctranslate2",),
    extra="ctranslate2",
    variants=VARIANTS,
    libraries=("ctranslate2",),
    takes_attention=False,
    loggers=("ctranslate2",),
)
