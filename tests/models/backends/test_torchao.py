from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from unittest.mock import Mock

import pytest

pytest.importorskip("torchao")

import torch
from families import BY_NAME
from transformers.pytorch_utils import Conv1D

from llm_bench_fixtures.errors import BackendUnavailable
from llm_bench_fixtures.measure.quality import Score
from llm_bench_fixtures.models.backends import CATALOGUE
from llm_bench_fixtures.models.backends.torchao import make_linear
from llm_bench_fixtures.models.checks import check_causal
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.models.variants import TOLERANCES, Arithmetic, Variant
from llm_bench_fixtures.options.settings import parse_settings
from llm_bench_fixtures.progress import Progress
from llm_bench_fixtures.results.builder import RunBuilder
from llm_bench_fixtures.results.record import Status
from llm_bench_fixtures.session.loader import VariantLoader
from llm_bench_fixtures.session.setup import Setup
from llm_bench_fixtures.workloads import CacheKind

MakeRequest = Callable[..., LoadRequest]
VARIANTS = ("ao-int8-weight", "ao-int8-dynamic", "ao-float8-weight")

# The embedded GPT-2 has 16 quantized matrices, 12 x 256 x 256 weights in each of four layers, of 9 x 256 rows. Token
# and position tables, layer norms and biases stay float32.
QUANTIZED = 4 * 12 * 256**2
ROWS = 4 * 9 * 256
REST = 4096 * 256 + 512 * 256 + 4 * (9 * 256 + 4 * 256) + 2 * 256


def variant_of(identifier: str) -> Variant:
    return next(variant for variant in CATALOGUE if variant.id == identifier)


@pytest.fixture(scope="module")
def loaded(make_request: MakeRequest) -> Mapping[str, TransformersModel]:
    return {variant: load_variant(make_request(variant)).model for variant in VARIANTS}


@pytest.mark.parametrize(("variant", "row_bytes"), [*zip(VARIANTS, (5, 5, 4), strict=True)])
def test_eight_bits_have_a_byte_a_weight_and_a_float32_scale_a_row(
    variant: str, row_bytes: int, loaded: Mapping[str, TransformersModel]
) -> None:
    """And in int8 a zero point of a byte."""
    facts = loaded[variant].facts
    assert facts.weight_bytes == QUANTIZED + row_bytes * ROWS + 4 * REST
    assert facts.quantized_share == QUANTIZED / (QUANTIZED + REST)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_loss_is_within_a_percent_of_float32(
    variant: str,
    loaded: Mapping[str, TransformersModel],
    score_sample: Callable[[TransformersModel], Score],
    fp32_loss: float,
) -> None:
    assert score_sample(loaded[variant]).loss == pytest.approx(fp32_loss, rel=0.01)


def test_the_labels_say_what_runs_on_a_cpu(loaded: Mapping[str, TransformersModel]) -> None:
    assert [loaded[variant].facts.label for variant in VARIANTS] == [
        "torchao int8-weight, computes in float32",
        "torchao int8-dynamic, float32 elsewhere",
        "torchao float8-weight, computes in float32",
    ]
    assert [loaded[variant].facts.tolerance for variant in VARIANTS] == [
        TOLERANCES[arithmetic] for arithmetic in (Arithmetic.FLOAT32, Arithmetic.INT8, Arithmetic.FLOAT32)
    ]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_batch_with_padding_continues_as_each_prompt_alone(
    variant: str, loaded: Mapping[str, TransformersModel]
) -> None:
    model = loaded[variant]
    ids, mask = torch.tensor([[0, 0, 11, 12], [21, 22, 23, 24]]), torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    together = model.generate(ids, mask, 5, CacheKind.DYNAMIC)[:, 4:]
    rows = (ids[:1, 2:], ids[1:])
    alone = [model.generate(row, torch.ones_like(row), 5, CacheKind.DYNAMIC)[0, -5:] for row in rows]
    assert together.tolist() == [row.tolist() for row in alone]


def test_the_output_layer_and_routers_stay_as_they_are(make_request: MakeRequest, tmp_path: Any) -> None:
    with quiet_libraries():
        source = BY_NAME["llama"].build(tmp_path)
    module = load_variant(make_request("ao-int8-weight", source)).model.module
    assert type(module.lm_head.weight) is torch.nn.Parameter
    assert type(module.model.layers[0].mlp.up_proj.weight) is not torch.nn.Parameter


def test_a_matrix_that_lies_the_other_way_round_is_turned() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(Conv1D(3, 5), torch.nn.ReLU())
    inputs = torch.randn(2, 5)
    with torch.inference_mode():
        before = module(inputs)
    assert make_linear(module)
    assert isinstance(module[0], torch.nn.Linear)
    with torch.inference_mode():
        torch.testing.assert_close(module(inputs), before)
    assert not make_linear(module)


@pytest.mark.parametrize(("family", "operator"), [("falcon", "aten.numpy_T"), ("rwkv", "aten.div_")])
def test_code_that_torchaos_tensors_cant_run_is_a_skipped_row(
    family: str, operator: str, make_request: MakeRequest, tmp_path: Any
) -> None:
    """Found when the model first runs: these two multiply with the transpose themselves, or rescale what is stored.

    Bug: a forward pass in the load found it, so that the first generate that was timed was not the first use.
    """
    with quiet_libraries():
        source = BY_NAME[family].build(tmp_path)
    model = load_variant(make_request("ao-int8-weight", source)).model
    reason = f"torchao doesn't run {family} models: its tensors have no {operator}"
    ids = torch.tensor([[11, 12]])
    for use in (lambda: model.generate(ids, torch.ones_like(ids), 2, CacheKind.DYNAMIC), lambda: check_causal(model)):
        with pytest.raises(BackendUnavailable, match=rf"^{reason}$"):
            use()


def test_what_the_models_own_code_has_not_is_no_fault_of_torchaos(make_request: MakeRequest) -> None:
    model = load_variant(make_request("ao-int8-weight")).model
    model.module.forward = Mock(side_effect=NotImplementedError("no such attention"))
    with pytest.raises(NotImplementedError, match=r"^no such attention$"):
        model.logits(ids := torch.tensor([[11, 12]]), torch.ones_like(ids))


def test_a_model_that_cannot_run_has_a_row_with_the_reason(tmp_path: Any) -> None:
    with quiet_libraries():
        source = BY_NAME["falcon"].build(tmp_path)
    options = {"device": "cpu", "limits_time": "0"}
    setup, results = Setup(parse_settings(options), Progress()), RunBuilder("fp32")
    setup.source = source
    with pytest.raises(BackendUnavailable):
        VariantLoader(setup, results).load(variant_of("ao-int8-weight"))
    row = results.variant("ao-int8-weight")
    assert row.status is Status.SKIPPED
    assert row.reason == "torchao doesn't run falcon models: its tensors have no aten.numpy_T"
