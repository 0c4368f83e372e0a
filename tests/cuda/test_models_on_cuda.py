"""Models on the device: their logits, tokens, caches and processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from llm_bench_fixtures.measure.equivalence import EquivalenceVerdict, check_equivalence, logit_scale
from llm_bench_fixtures.measure.timing import run_round
from llm_bench_fixtures.measure.work import observe
from llm_bench_fixtures.models.device import Device
from llm_bench_fixtures.models.loading import IsolatedModel, LoadRequest, load_variant
from llm_bench_fixtures.models.model import Model
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.workloads import CacheKind, Prompts, Workload

pytestmark = pytest.mark.cuda("it runs a model there")

MakeRequest = Callable[..., LoadRequest]
NEW_TOKENS = 6
ORDERS_AND_ROUNDING = 2  # times the tolerance: sums in another order, of weights that were rounded


def request_on(gpu: Device, make_request: MakeRequest, variant: str) -> LoadRequest:
    return replace(make_request(variant), device=gpu)


def place_of(model: Model) -> str:
    """Where the weights are."""
    assert isinstance(model, TransformersModel)
    return str(model.module.device)


@pytest.mark.parametrize("variant", ["fp32", "bf16", "fp16", "autocast-bf16", "autocast-fp16"])
def test_logits_are_those_of_float32_on_a_cpu(
    variant: str, gpu: Device, make_request: MakeRequest, tiny_fp32: TransformersModel, prompts: Prompts
) -> None:
    """fp16 runs as it is here, and falls back to float32 on a CPU."""
    model = load_variant(request_on(gpu, make_request, variant))
    ids = torch.tensor([prompts.exact(24)])
    expected, found = (one.logits(ids, torch.ones_like(ids)).float() for one in (tiny_fp32, model))
    gap = (found - expected)[0, -1].abs().max() / logit_scale(expected[0, -1])
    assert gap <= ORDERS_AND_ROUNDING * model.facts.tolerance
    assert not model.facts.label.endswith("requested; CPU)")
    model.close()


def test_greedy_tokens_are_those_of_a_cpu_and_every_mode_agrees(
    gpu: Device, make_request: MakeRequest, tiny_fp32: TransformersModel, prompts: Prompts
) -> None:
    loaded = load_variant(request_on(gpu, make_request, "fp32"))
    workload = Workload((prompts.exact(24),), NEW_TOKENS, batch_size=1)
    for cache in CacheKind:
        done = run_round(loaded.model, replace(workload, cache=cache))
        assert done.continuations == run_round(tiny_fp32, workload).continuations
        assert 0 < done.batches[0].tokens_s[0] < done.batches[0].tokens_s[-1]
    found = check_equivalence(loaded.model, (prompts.exact(9), prompts.exact(5)), NEW_TOKENS)
    assert {one.verdict for one in found} <= {EquivalenceVerdict.EQUAL, EquivalenceVerdict.TIE}
    loaded.close()


def test_a_static_cache_is_not_compiled(gpu: Device, make_request: MakeRequest, prompts: Prompts) -> None:
    """transformers would, on CUDA."""
    loaded = load_variant(request_on(gpu, make_request, "bf16"))
    run_round(loaded.model, Workload((prompts.exact(8),), 3, batch_size=1, cache=CacheKind.STATIC))
    assert isinstance(loaded.model, TransformersModel)
    assert "_compiled_call" not in vars(loaded.model.module)
    loaded.close()


@pytest.mark.parametrize("variant", ["bnb-int8", "bnb-nf4", "bnb-fp4"])
def test_bitsandbytes_generates(variant: str, real_gpu: Device, make_request: MakeRequest, prompts: Prompts) -> None:
    pytest.importorskip("bitsandbytes")
    loaded = load_variant(request_on(real_gpu, make_request, variant))
    done = run_round(loaded.model, Workload((prompts.exact(8),), NEW_TOKENS, batch_size=1))
    assert len(done.continuations[0]) == NEW_TOKENS
    loaded.close()


def test_a_process_of_its_own_has_the_model_on_the_device_and_hands_tensors_over_on_the_cpu(
    gpu: Device, make_request: MakeRequest, tiny_fp32: TransformersModel, prompts: Prompts
) -> None:
    model = IsolatedModel(request_on(gpu, make_request, "fp32"))
    try:
        assert model.call(place_of) in ("cuda:0", "cpu")  # the latter where the device is pretended
        ids = torch.tensor([prompts.exact(8)])
        logits = model.logits(ids, torch.ones_like(ids))
        assert logits.device.type == "cpu"
        torch.testing.assert_close(logits, tiny_fp32.logits(ids, torch.ones_like(ids)), rtol=1e-3, atol=1e-3)
        seen = model.call(observe, Workload((prompts.exact(8),), 2, batch_size=1))
        assert (seen.peak.cuda_allocated_bytes or 0) > 0
    finally:
        model.close()
