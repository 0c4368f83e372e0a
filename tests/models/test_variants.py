from __future__ import annotations

from dataclasses import replace

import pytest

from llm_bench_fixtures.errors import InvalidSetting, UnknownName
from llm_bench_fixtures.models import variants
from llm_bench_fixtures.models.backends import BACKENDS, CATALOGUE
from llm_bench_fixtures.models.variants import (
    TOLERANCES,
    Arithmetic,
    Precision,
    Variant,
    is_plain,
    narrow,
    near_variants,
    parse_precision,
    select_variants,
    tolerance_of,
)


def chosen(text: str, reference: str = "fp32") -> list[str]:
    return [variant.id for variant in select_variants(text, CATALOGUE, reference)]


def test_an_empty_text_means_the_whole_catalogue() -> None:
    assert chosen("") == [variant.id for variant in CATALOGUE]


def test_an_empty_text_and_the_word_default_mean_those_that_run_unasked() -> None:
    unasked = [variant for variant in CATALOGUE if variant.backend == "torch"]
    chosen = select_variants("", CATALOGUE, "fp32", unasked)
    assert list(chosen) == unasked
    also = select_variants("default,bnb-nf4", CATALOGUE, "fp32", unasked)
    assert [variant.id for variant in also] == [*(variant.id for variant in unasked), "bnb-nf4"]


def test_an_engine_stands_for_all_its_variants() -> None:
    assert chosen("fp32,bitsandbytes,bnb-nf4") == ["fp32", "bnb-int8", "bnb-nf4", "bnb-fp4"]


@pytest.mark.parametrize("name", ["onnxruntime_genai", "onnxruntime-genai"])
def test_an_engine_may_be_spelled_as_its_extra(name: str) -> None:
    assert chosen(f"fp32,{name}") == ["fp32", "ortgenai-fp32", "ortgenai-int4"]


def test_an_id_stands_before_an_engine_of_the_same_name() -> None:
    named = Variant("torch", "onnxruntime", "")
    assert select_variants("torch", [named, *CATALOGUE], "torch") == (named,)


def test_an_id_with_a_number_of_threads_is_the_variant_in_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "usable_cores", lambda: 4)
    first, second = select_variants("fp32,ort-int8-dynamic-2t", CATALOGUE, "fp32")
    dynamic = next(one for one in CATALOGUE if one.id == "ort-int8-dynamic")
    assert first.threads is None
    assert second == replace(
        dynamic,
        id="ort-int8-dynamic-2t",
        description=f"{dynamic.description}, in 2 threads",
        threads=2,
        threads_of="ort-int8-dynamic",
    )
    assert chosen("bf16", reference="fp32-1t") == ["bf16"]
    assert chosen("fp32-1t,bf16", reference="fp32-1t") == ["fp32-1t", "bf16"]


def test_an_id_that_ends_in_passive_is_the_variant_whose_threads_wait_asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "usable_cores", lambda: 4)
    first, own, both = select_variants("fp32,fp32-passive,fp32-2t-passive", CATALOGUE, "fp32")
    assert own == replace(
        first,
        id="fp32-passive",
        description=f"{first.description}, waiting asleep (OMP_WAIT_POLICY=passive)",
        is_passive=True,
        threads_of="fp32",
    )
    assert (both.id, both.threads, both.is_passive, both.threads_of) == ("fp32-2t-passive", 2, True, "fp32")
    assert chosen("fp32,onnxruntime-genai-passive") == [
        "fp32",
        "ortgenai-fp32-passive",
        "ortgenai-int4-passive",
    ]
    for name, unknown in (
        ("fp33-passive", "fp33"),
        ("fp32-passive-passive", "fp32-passive-passive"),
        ("-passive", "-passive"),
    ):
        with pytest.raises(UnknownName, match=f"unknown variant or engine '{unknown}'"):
            chosen(name)


@pytest.mark.parametrize("name", ["fp32-0t", "fp32-5t"])
def test_no_threads_and_more_than_cores_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "usable_cores", lambda: 4)
    with pytest.raises(InvalidSetting, match=f"{name}: expected at least 1 thread and at most 4, one for each core"):
        chosen(name)


def test_a_variant_of_a_projects_own_wins_over_a_number_of_threads() -> None:
    own = Variant("fp32-2t", "torch", "something else")
    assert select_variants("fp32-2t", [*CATALOGUE, own], "fp32") == (own,)


def test_threads_of_an_unknown_variant_are_unknown() -> None:
    with pytest.raises(UnknownName, match="unknown variant or engine 'fp33-1t'"):
        chosen("fp33-1t")


def test_an_engine_is_no_reference() -> None:
    with pytest.raises(UnknownName, match="unknown variant 'onnxruntime'"):
        chosen("", reference="onnxruntime")


def test_what_is_neither_quantized_nor_made_for_it_is_in_the_group_of_precisions() -> None:
    alone = Variant("own", "some.module", "")
    named = narrow(("precision",), (*CATALOGUE, alone), CATALOGUE)
    assert alone in named
    assert "ort-fp32" not in {variant.id for variant in named}


def test_the_reference_comes_first_and_the_others_keep_their_order() -> None:
    assert chosen("ort-fp32,bf16,fp32,bnb-nf4") == ["fp32", "ort-fp32", "bf16", "bnb-nf4"]


def test_another_reference_comes_first() -> None:
    assert chosen("fp32,bf16", reference="bf16") == ["bf16", "fp32"]


def test_each_variant_comes_once() -> None:
    assert chosen("bf16,fp32,bfloat16, bf16") == ["fp32", "bf16"]


@pytest.mark.parametrize(
    ("spelling", "variant"), [("half", "fp16"), ("float32", "fp32"), ("torch.bfloat16", "bf16"), ("F16", "fp16")]
)
def test_a_spelling_of_a_dtype_stands_for_its_plain_variant(spelling: str, variant: str) -> None:
    assert chosen(spelling) == [variant]


def test_the_reference_may_be_spelled_as_a_dtype() -> None:
    assert chosen("bf16,fp32", reference="float32") == ["fp32", "bf16"]


def test_an_unknown_variant_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownName) as caught:
        chosen("fp32,int4")
    known = ", ".join(
        [*(variant.id for variant in CATALOGUE), "default"]
        + [name for name, one in BACKENDS.items() if one.variants and name != "checkpoint"]  # which is an id, too
    )
    assert str(caught.value) == (
        "unknown variant or engine 'int4'. Did you mean bnb-nf4, bnb-fp4, ov-int4, ortgenai-int4 or gguf-q4_k_m? "
        f"Known: {known}"
    )


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("bnb", ["bnb-int8", "bnb-nf4", "bnb-fp4"]),
        ("ort", ["ort-fp32", "ort-int8-dynamic", "ort-int8-static", "ortgenai-fp32", "ortgenai-int4"]),
        ("4-bit", ["bnb-nf4", "bnb-fp4", "ov-int4", "ortgenai-int4", "gguf-q4_k_m"]),
        ("INT16", ["fp16", "bf16", "compile-bf16"]),
        ("ov-int9", []),
        ("fp", []),
    ],
)
def test_near_are_the_variants_with_the_name_in_their_ids_or_as_many_bits(name: str, near: list[str]) -> None:
    assert near_variants(name, CATALOGUE) == near
    eight_bits = {"ort-int8-static", "bnb-int8", "ao-float8-weight", "gguf-q8_0"}
    assert eight_bits < set(near_variants("int8", CATALOGUE))


def test_an_unknown_reference_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match=r"unknown variant 'fp64'\. Did you mean fp16\? Known: fp32, fp16"):
        chosen("fp32", reference="fp64")


def test_a_spelling_without_its_variant_in_the_catalogue_is_unknown() -> None:
    """float32 is also the precision of ort-fp32, which is not the plain model in float32."""
    without_fp32 = [variant for variant in CATALOGUE if variant.id != "fp32"]
    with pytest.raises(UnknownName):
        select_variants("float", without_fp32, reference="bf16")


@pytest.mark.parametrize("text", ["", "a b", "a,b", "a[b", "a]b"])
def test_an_id_that_could_not_stand_in_a_list_or_a_test_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match="variant id"):
        Variant(text, "torch", "")


def test_the_ids_of_the_catalogue_are_unique() -> None:
    assert len({variant.id for variant in CATALOGUE}) == len(CATALOGUE)


def test_every_variant_of_the_catalogue_has_a_backend() -> None:
    assert {variant.backend for variant in CATALOGUE} == {name for name, one in BACKENDS.items() if one.variants}


def test_every_base_is_in_the_catalogue_and_is_not_quantized() -> None:
    by_id = {variant.id: variant for variant in CATALOGUE}
    assert all(by_id[variant.base].quantization is None for variant in CATALOGUE if variant.base)


def test_no_names_narrow_nothing() -> None:
    assert narrow((), CATALOGUE, CATALOGUE) == CATALOGUE


def test_the_group_of_quantized_variants_holds_what_they_are_made_from() -> None:
    variants = select_variants("ort-int8-static,ort-fp32,bnb-nf4,bf16,fp32", CATALOGUE, "fp32")
    named = [variant.id for variant in narrow(("quantization",), variants, CATALOGUE)]
    assert named == ["fp32", "ort-int8-static", "ort-fp32", "bnb-nf4"]


def test_the_group_of_precisions_is_the_torch_model_in_each_dtype_and_under_autocast_and_compiled() -> None:
    named = [variant.id for variant in narrow(("precision",), CATALOGUE, CATALOGUE)]
    assert named == ["fp32", "fp16", "bf16", "autocast-bf16", "autocast-fp16", "compile-fp32", "compile-bf16"]


def test_the_group_of_the_reference_is_the_first_alone() -> None:
    assert [
        variant.id for variant in narrow(("reference",), select_variants("fp32,bf16", CATALOGUE, "bf16"), CATALOGUE)
    ] == ["bf16"]


def test_narrowing_to_an_unknown_name_is_refused_with_groups_and_ids() -> None:
    with pytest.raises(UnknownName, match=r" or gguf-q4_k_m\? Known: precision, quantization, reference, ao-float8-"):
        narrow(("int4",), CATALOGUE, CATALOGUE)


def test_only_the_torch_model_in_a_dtype_is_plain() -> None:
    assert [variant.id for variant in CATALOGUE if is_plain(variant)] == ["fp32", "fp16", "bf16"]


def test_a_precision_is_spelled_with_any_case_and_surrounding_space() -> None:
    assert parse_precision(" BF16 ") is Precision.BFLOAT16


def test_every_arithmetic_has_a_tolerance_and_float32_the_least() -> None:
    assert set(TOLERANCES) == set(Arithmetic)
    assert TOLERANCES[Arithmetic.FLOAT32] == min(TOLERANCES.values())


def test_each_dtype_has_the_tolerance_of_its_arithmetic() -> None:
    assert tolerance_of(Precision.FLOAT32) == TOLERANCES[Arithmetic.FLOAT32]
    assert tolerance_of(Precision.FLOAT16) == TOLERANCES[Arithmetic.FLOAT16]
    assert tolerance_of(Precision.BFLOAT16) == TOLERANCES[Arithmetic.BFLOAT16]
    assert tolerance_of(None) == TOLERANCES[Arithmetic.INT8]
