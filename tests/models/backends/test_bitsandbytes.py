from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("bitsandbytes")

import torch
from bitsandbytes.functional import has_avx512bf16
from families import BY_NAME, IS_TRANSFORMERS_5
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig

from llm_bench_fixtures.measure.quality import Score
from llm_bench_fixtures.models.backends.bitsandbytes import Reason, left_out_of, other_weights
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.models.variants import TOLERANCES, Arithmetic, Precision
from llm_bench_fixtures.workloads import CacheKind

MakeRequest = Callable[..., LoadRequest]
VARIANTS = ("bnb-int8", "bnb-nf4", "bnb-fp4")
REPACKS = has_avx512bf16()  # its kernel takes bfloat16 scales, and multiplies in bfloat16 only
COMPUTE = "bfloat16 (float32 requested; AVX512-BF16)" if REPACKS else "float32"

# The embedded GPT-2 has 16 quantized matrices, 12 x 256 x 256 weights in each of four layers. Token and position
# tables, layer norms and biases stay float32.
QUANTIZED = 4 * 12 * 256**2
REST = 4096 * 256 + 512 * 256 + 4 * (9 * 256 + 4 * 256) + 2 * 256


@pytest.fixture(scope="module")
def loaded(make_request: MakeRequest) -> Mapping[str, TransformersModel]:
    return {variant: load_variant(make_request(variant)).model for variant in VARIANTS}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_quantized_model_is_smaller_than_float32(
    variant: str, loaded: Mapping[str, TransformersModel], tiny_fp32: TransformersModel
) -> None:
    assert loaded[variant].facts.weight_bytes < tiny_fp32.facts.weight_bytes


def test_int8_has_a_byte_a_weight_and_a_float32_scale_a_row(
    loaded: Mapping[str, TransformersModel],
) -> None:
    rows = 4 * (3 + 1 + 4 + 1) * 256
    assert loaded["bnb-int8"].facts.weight_bytes == QUANTIZED + 4 * rows + 4 * REST


@pytest.mark.parametrize("variant", ["bnb-nf4", "bnb-fp4"])
def test_four_bits_have_half_a_byte_a_weight_a_scale_of_64_and_16_levels_a_matrix(
    variant: str, loaded: Mapping[str, TransformersModel]
) -> None:
    scale_bytes = 2 if REPACKS else 4
    quantized = QUANTIZED // 2 + scale_bytes * QUANTIZED // 64 + 16 * 16 * 4
    assert loaded[variant].facts.weight_bytes == quantized + 4 * REST


def test_double_quantization_makes_it_smaller_still_unless_repacking_undoes_it(
    make_request: MakeRequest, loaded: Mapping[str, TransformersModel]
) -> None:
    double = load_variant(make_request("bnb-nf4", bnb_double_quant="true")).model
    once = loaded["bnb-nf4"].facts.weight_bytes
    assert double.facts.weight_bytes == once if REPACKS else double.facts.weight_bytes < once
    assert double.facts.label == f"bitsandbytes nf4, computes in {COMPUTE}, double quantization"


@pytest.mark.parametrize("variant", ["bnb-nf4", "bnb-fp4"])
def test_the_weights_are_what_they_stay(make_request: MakeRequest, variant: str) -> None:
    """Nothing is left to be repacked by the first pass, which would change the bytes that were counted."""
    model = load_variant(make_request(variant)).model
    before = {name: weight.clone() for name, weight in model.module.named_parameters()}
    ids = torch.tensor([[5, 6, 7]])
    model.logits(ids, torch.ones_like(ids))
    assert all(torch.equal(weight, before[name]) for name, weight in model.module.named_parameters())


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_loss_is_within_5_percent_of_float32(
    variant: str,
    loaded: Mapping[str, TransformersModel],
    score_sample: Callable[[TransformersModel], Score],
    fp32_loss: float,
) -> None:
    assert score_sample(loaded[variant]).loss == pytest.approx(fp32_loss, rel=0.05)


def test_the_labels_say_what_runs_on_a_cpu(loaded: Mapping[str, TransformersModel]) -> None:
    assert [loaded[variant].facts.label for variant in VARIANTS] == [
        "bitsandbytes int8, float32 elsewhere",
        f"bitsandbytes nf4, computes in {COMPUTE}",
        f"bitsandbytes fp4, computes in {COMPUTE}",
    ]


def test_the_compute_dtype_is_the_one_asked_for(make_request: MakeRequest) -> None:
    model = load_variant(make_request("bnb-nf4", bnb_compute_dtype="bf16")).model
    assert model.facts.label == "bitsandbytes nf4, computes in bfloat16"
    assert model.facts.compute is Precision.BFLOAT16


def test_without_the_kernel_float32_is_computed_in_float32(
    make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("bitsandbytes.functional", "bitsandbytes.nn.modules"):
        monkeypatch.setattr(f"{module}.has_avx512bf16", lambda: False)
    model = load_variant(make_request("bnb-nf4")).model
    assert (model.facts.label, model.facts.compute) == ("bitsandbytes nf4, computes in float32", Precision.FLOAT32)


def test_the_share_of_the_weights_that_is_quantized(loaded: Mapping[str, TransformersModel]) -> None:
    shares = {loaded[variant].facts.quantized_share for variant in VARIANTS}
    assert shares == {QUANTIZED / (QUANTIZED + REST)}


def blueprint(name: str) -> Any:
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(**BY_NAME[name].config))


@pytest.mark.skipif(IS_TRANSFORMERS_5, reason="routers are no linear layers there")
def test_routers_of_experts_stay_as_they_are() -> None:
    """A layer's gate has a row for each expert; what else is called a gate doesn't."""
    left_out = left_out_of(blueprint("mixtral"), repacks=False)
    gates = [f"model.layers.{layer}.block_sparse_moe.gate" for layer in range(2)]
    assert left_out.others[Reason.ROUTER] == gates
    assert left_out.names == ["lm_head", *gates]
    assert left_out.notes == (f"not quantized: the routers of its experts ({', '.join(gates)})",)


def test_projections_to_state_space_parameters_stay_as_they_are() -> None:
    found = left_out_of(blueprint("mamba"), repacks=True)
    parts = ("x_proj", "dt_proj")
    assert found.others[Reason.STATE_SPACE] == [
        f"backbone.layers.{layer}.mixer.{part}" for layer in range(2) for part in parts
    ]
    assert not found.others[Reason.UNFIT]


def test_layers_whose_shape_the_kernel_does_not_take_are_left_and_named() -> None:
    """Bug: "N must be divisible by block_n", of a layer that nobody named. Here of 80 rows, or of 80 columns."""
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 128}
    config = LlamaConfig(hidden_size=64, intermediate_size=80, **sizes)
    with torch.device("meta"):
        module = AutoModelForCausalLM.from_config(config)
    mlp = [f"model.layers.0.mlp.{part}" for part in ("gate_proj", "up_proj", "down_proj")]
    assert left_out_of(module, repacks=False).names is None
    found = left_out_of(module, repacks=True)
    assert found.others[Reason.UNFIT] == mlp
    (note,) = found.notes
    assert note.startswith("not quantized: layers that don't have a multiple of 32 rows and of 64 columns")
    assert note.endswith(f"({', '.join(mlp)})")


def test_layers_whose_inputs_have_four_dimensions_stay_as_they_are(make_request: MakeRequest, tmp_path: Path) -> None:
    """Bug: under transformers 5 each round of DeepSeek as int8 failed on a CPU: bitsandbytes takes no such inputs."""
    names = [f"model.layers.{layer}.self_attn.kv_b_proj" for layer in range(2)]
    found = left_out_of(blueprint("deepseek_v3"), repacks=False, is_int8_on_cpu=True)
    assert found.others[Reason.EXPANDING] == (names if IS_TRANSFORMERS_5 else [])
    assert not left_out_of(blueprint("deepseek_v3"), repacks=False).others[Reason.EXPANDING]
    with quiet_libraries():
        model = load_variant(make_request("bnb-int8", BY_NAME["deepseek_v3"].build(tmp_path))).model
        ids = torch.tensor([[11, 12, 13]])
        assert model.generate(ids, torch.ones_like(ids), 2, CacheKind.DYNAMIC).shape == (1, 5)
    assert any("four dimensions" in note for note in model.facts.notes) == IS_TRANSFORMERS_5


def test_coefficients_that_the_models_code_clips_are_not_quantized() -> None:
    """Bug: each pass of Gemma 3n clipped the packed numbers of its 4-bit weights, and failed at those in int8."""
    found = left_out_of(blueprint("gemma3n_text"), repacks=True)
    clipped = found.others[Reason.CLIPPED]
    assert "model.layers.0.altup.correction_coefs" in clipped
    assert {name.rpartition(".")[2] for name in clipped} == {
        "correction_coefs",
        "prediction_coefs",
    }
    assert found.notes[-1].startswith("not quantized: coefficients that the model's code clips as it runs (model.")


def test_a_label_says_how_little_is_quantized(make_request: MakeRequest, tmp_path: Path) -> None:
    """GPT-OSS keeps its experts in tensors that bitsandbytes doesn't know: nf4 had 94 % of float32's bytes."""
    with quiet_libraries():
        source = BY_NAME["gpt_oss"].build(tmp_path)
    facts = load_variant(make_request("bnb-nf4", source)).facts
    share = facts.quantized_share or 0.0
    assert 0.01 < share < 0.5
    assert facts.label.startswith(f"bitsandbytes nf4 of {share:.0%} of the weights, computes in ")


def test_weights_that_change_before_their_first_use_are_packed_after(make_request: MakeRequest, tmp_path: Path) -> None:
    """RWKV scales its weights in its first pass. Packed before that, they were taken for what they no longer were:
    a divergence of 0.249 nats where transformers by itself has 0.013."""
    with quiet_libraries():
        source = BY_NAME["rwkv"].build(tmp_path)
        model = load_variant(make_request("bnb-nf4", source)).model
        config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)
        how = {"dtype": torch.float32, "device_map": {"": "cpu"}}
        plain = AutoModelForCausalLM.from_pretrained(tmp_path, quantization_config=config, **how)
    ids = torch.arange(1, 40)[None]
    with torch.inference_mode():
        expected = plain.eval()(ids).logits
    assert torch.equal(model.logits(ids, torch.ones_like(ids)), expected)


@pytest.mark.skipif(sys.platform != "linux", reason="mapped pages are told apart on Linux")
def test_no_part_of_the_checkpoint_stays_mapped(loaded: Mapping[str, TransformersModel]) -> None:
    """Bug: the tables, which are used as they are, kept all of it in memory, so that nf4 looked larger than float32."""
    lines = [line for line in Path("/proc/self/maps").read_text("utf-8").splitlines() if "safetensors" in line]
    mapped = [range(*(int(end, 16) for end in line.split()[0].split("-"))) for line in lines]
    for model in loaded.values():
        for weight in other_weights(model.module):
            assert not [place for place in mapped if weight.data_ptr() in place]


@pytest.mark.parametrize(
    ("variant", "arithmetic"),
    [
        ("bnb-int8", Arithmetic.INT8),
        ("bnb-nf4", Arithmetic.BFLOAT16 if REPACKS else Arithmetic.FLOAT32),
        ("bnb-fp4", Arithmetic.BFLOAT16 if REPACKS else Arithmetic.FLOAT32),
    ],
)
def test_each_variant_has_the_tolerance_of_what_it_computes_with(
    variant: str, arithmetic: Arithmetic, loaded: Mapping[str, TransformersModel]
) -> None:
    assert loaded[variant].facts.tolerance == TOLERANCES[arithmetic]


def test_products_that_are_rounded_to_bfloat16_have_its_tolerance(make_request: MakeRequest) -> None:
    model = load_variant(make_request("bnb-nf4", bnb_compute_dtype="bf16"))
    assert model.facts.tolerance == TOLERANCES[Arithmetic.BFLOAT16]
