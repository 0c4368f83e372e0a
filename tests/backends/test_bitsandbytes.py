from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

pytest.importorskip("bitsandbytes")

from llm_bench_fixtures.backends import load_variant
from llm_bench_fixtures.backends.bitsandbytes import check
from llm_bench_fixtures.device import Device, DeviceKind
from llm_bench_fixtures.errors import BackendUnavailable
from llm_bench_fixtures.measure.quality import Score
from llm_bench_fixtures.models import LoadedModel, LoadRequest
from llm_bench_fixtures.variants import CATALOGUE

MakeRequest = Callable[..., LoadRequest]
VARIANTS = ("bnb-int8", "bnb-nf4", "bnb-fp4")

# The embedded GPT-2 has 16 quantized matrices, 12 x 256 x 256 weights in each of four layers. Token and position
# tables, layer norms and biases stay float32.
QUANTIZED = 4 * 12 * 256**2
REST = 4096 * 256 + 512 * 256 + 4 * (9 * 256 + 4 * 256) + 2 * 256


@pytest.fixture(scope="module")
def loaded(make_request: MakeRequest) -> Mapping[str, LoadedModel]:
    return {variant: load_variant(make_request(variant)) for variant in VARIANTS}


@pytest.fixture(scope="module")
def buffer_bytes(tiny_fp32: LoadedModel) -> int:
    return sum(buffer.nbytes for buffer in tiny_fp32.module.buffers())


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_quantized_model_is_smaller_than_float32(
    variant: str, loaded: Mapping[str, LoadedModel], tiny_fp32: LoadedModel
) -> None:
    assert loaded[variant].weight_bytes < tiny_fp32.weight_bytes


def test_int8_has_a_byte_a_weight_and_a_float32_scale_a_row(
    loaded: Mapping[str, LoadedModel], buffer_bytes: int
) -> None:
    rows = 4 * (3 + 1 + 4 + 1) * 256
    assert loaded["bnb-int8"].weight_bytes == QUANTIZED + 4 * rows + 4 * REST + buffer_bytes


@pytest.mark.parametrize("variant", ["bnb-nf4", "bnb-fp4"])
def test_four_bits_have_half_a_byte_a_weight_a_float32_scale_of_64_and_16_levels_a_matrix(
    variant: str, loaded: Mapping[str, LoadedModel], buffer_bytes: int
) -> None:
    quantized = QUANTIZED // 2 + 4 * QUANTIZED // 64 + 16 * 16 * 4
    assert loaded[variant].weight_bytes == quantized + 4 * REST + buffer_bytes


def test_double_quantization_makes_it_smaller_still(
    make_request: MakeRequest, loaded: Mapping[str, LoadedModel]
) -> None:
    double = load_variant(make_request("bnb-nf4", bnb_double_quant="true"))
    assert double.weight_bytes < loaded["bnb-nf4"].weight_bytes
    assert double.label == "bitsandbytes nf4, float32 compute, double quantization"


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_loss_is_within_5_percent_of_float32(
    variant: str, loaded: Mapping[str, LoadedModel], score_sample: Callable[[LoadedModel], Score], fp32_loss: float
) -> None:
    assert score_sample(loaded[variant]).loss == pytest.approx(fp32_loss, rel=0.05)


def test_the_labels_say_what_runs_on_a_cpu(loaded: Mapping[str, LoadedModel]) -> None:
    assert [loaded[variant].label for variant in VARIANTS] == [
        "bitsandbytes int8, float32 elsewhere",
        "bitsandbytes nf4, float32 compute",
        "bitsandbytes fp4, float32 compute",
    ]


def test_the_compute_dtype_is_the_one_asked_for(make_request: MakeRequest) -> None:
    model = load_variant(make_request("bnb-nf4", bnb_compute_dtype="bf16"))
    assert model.label == "bitsandbytes nf4, bfloat16 compute"


def test_apples_device_is_unavailable() -> None:
    (variant,) = (variant for variant in CATALOGUE if variant.id == "bnb-nf4")
    with pytest.raises(BackendUnavailable, match="no kernels for Apple's device"):
        check(variant, Device(DeviceKind.MPS, "mps", "an Apple device"))
