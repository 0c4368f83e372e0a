"""The attention implementation that is asked for runs, is named, and is refused where it can't be had."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from families import BY_NAME
from small_models import skip_without_onnx
from transformers import AutoConfig

from llm_bench_fixtures.errors import BackendUnavailable, InvalidSetting
from llm_bench_fixtures.measure.equivalence import EquivalenceVerdict, check_equivalence
from llm_bench_fixtures.models.attention import attention_in_words, check_dtype, check_known, known_attentions
from llm_bench_fixtures.models.backends import CATALOGUE, find_backend
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.source import ModelSource
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.models.variants import Precision, Variant
from llm_bench_fixtures.workloads import Prompts

MakeRequest = Callable[..., LoadRequest]
FINE = {EquivalenceVerdict.EQUAL, EquivalenceVerdict.TIE, EquivalenceVerdict.NOT_SUPPORTED}


@pytest.mark.parametrize("name", ["eager", "sdpa"])
def test_what_is_asked_for_runs_and_is_named(
    name: str, make_request: MakeRequest, tiny_fp32: TransformersModel, prompts: Prompts
) -> None:
    model = load_variant(make_request("fp32", attention=name)).model
    assert model.module.config._attn_implementation == name
    assert model.facts.label == f"float32, {name} attention"
    assert model.facts.configuration == f"plain float32, {name} attention"
    ids = prompts.varied(2)
    assert {found.verdict for found in check_equivalence(model, ids, 3)} <= FINE


def test_the_models_own_choice_has_no_name(tiny_fp32: TransformersModel) -> None:
    assert (tiny_fp32.facts.label, tiny_fp32.facts.configuration) == ("float32", "plain float32")


def test_it_is_named_with_what_else_a_variant_does(make_request: MakeRequest) -> None:
    assert load_variant(make_request("autocast-bf16", attention="eager")).facts.label == (
        "float32, eager attention, bfloat16 autocast"
    )
    pytest.importorskip("bitsandbytes")
    quantized = load_variant(make_request("bnb-int8", attention="eager"))
    assert quantized.model.module.config._attn_implementation == "eager"
    assert quantized.facts.label == "bitsandbytes int8, float32 elsewhere, eager attention"


@pytest.mark.parametrize(
    ("name", "words"), [("sdpa", "sdpa attention"), ("flex_attention", "flex_attention"), ("", "")]
)
def test_a_label_says_attention_once(name: str, words: str) -> None:
    assert attention_in_words(name) == words


def test_a_variant_of_ones_own_has_its_own(make_request: MakeRequest) -> None:
    variant = Variant("fp32-eager", "torch", "float32 weights, eager attention", attention="eager")
    model = load_variant(make_request(variant, attention="sdpa")).model
    assert model.module.config._attn_implementation == "eager"
    assert model.facts.label == "float32, eager attention"


def test_an_unknown_name_is_refused_with_those_that_there_are(make_request: MakeRequest) -> None:
    expected = r"^--llm-attention: unknown attention implementation 'quick'\. Known: eager, .*sdpa"
    with pytest.raises(InvalidSetting, match=expected):
        check_known("quick")
    with pytest.raises(InvalidSetting, match=expected):
        load_variant(make_request("fp32", attention="quick"))
    assert not [name for name in known_attentions() if "paged" in name]


def test_a_kernel_from_the_hub_is_no_name(make_request: MakeRequest) -> None:
    """It is compiled code, which nothing here fetches."""
    with pytest.raises(InvalidSetting, match=r"^--llm-attention: unknown attention implementation 'somebody/kernel'"):
        load_variant(make_request("fp32", attention="somebody/kernel"))


def test_one_that_is_not_installed_is_a_skip_with_those_that_are(make_request: MakeRequest) -> None:
    expected = r"^gpt2 can't run with flash_attention_2 here, but with eager, .*sdpa: no flash_attn_2 that"
    with pytest.raises(BackendUnavailable, match=expected):
        load_variant(make_request("bf16", attention="flash_attention_2"))


def test_one_that_the_model_has_not_is_a_skip_with_those_that_it_has(
    make_request: MakeRequest, tmp_path: object
) -> None:
    """By its config: the weights aren't looked at."""
    AutoConfig.for_model(**BY_NAME["mamba"].config).save_pretrained(tmp_path)
    expected = r"^mamba can't run with sdpa attention here, but with eager.*: MambaForCausalLM does not support an att"
    with pytest.raises(BackendUnavailable, match=expected):
        find_backend("torch").prepare(make_request("fp32", ModelSource("mamba", tmp_path), attention="sdpa"))


@pytest.mark.parametrize(
    ("variant", "weights", "fits"),
    [
        ("fp32", Precision.FLOAT32, False),
        ("bf16", Precision.BFLOAT16, True),
        ("autocast-bf16", Precision.FLOAT32, True),
    ],
)
def test_flash_attention_takes_16_bits_only(
    variant: str, weights: Precision, fits: bool, make_request: MakeRequest
) -> None:
    request = make_request(variant, attention="flash_attention_2")
    if fits:
        check_dtype(request, weights)
        return
    with pytest.raises(BackendUnavailable, match=r"^flash_attention_2 computes in 16 bits only, and fp32 "):
        check_dtype(request, weights)


def test_an_onnx_graph_keeps_the_attention_that_it_has(make_request: MakeRequest) -> None:
    skip_without_onnx()
    model = load_variant(make_request("ort-fp32", attention="eager"))
    assert model.facts.label == "ONNX Runtime float32"
    told = "onnxruntime has an attention of its own, and no other can be chosen for it"
    assert told in model.facts.notes
    exported = next(variant for variant in CATALOGUE if variant.id == "ort-fp32")
    with pytest.raises(InvalidSetting, match=f"^ort-fp32: {told}"):
        load_variant(make_request(replace(exported, attention="eager")))
