"""A model's layers over several devices: as far as a machine without an accelerator can tell, over memory and disk."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from families import FAMILIES, IS_TRANSFORMERS_5, Family, pickle_weights, tried
from small_models import small_config, write_model
from torch import nn
from transformers import GPT2LMHeadModel

from llm_bench_fixtures.errors import BackendUnavailable, InvalidSetting
from llm_bench_fixtures.measure.quality import Score
from llm_bench_fixtures.models import spread
from llm_bench_fixtures.models.architecture import without_weights
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.source import ModelSource
from llm_bench_fixtures.models.spread import check_fetched, fetch_all, rows_of, where_in_words
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.workloads import CacheKind

pytest.importorskip("accelerate")

MakeRequest = Callable[..., LoadRequest]
ScoreSample = Callable[[TransformersModel], Score]

# Their code takes a layer's weights without calling the layer, which transformers 5 tells accelerate of most.
REFUSED = {"recurrent_gemma"}
if not IS_TRANSFORMERS_5:
    REFUSED |= {"granitemoehybrid", "qwen3_next", "mamba", "mamba2", "falcon_h1", "bamba", "jamba", "lfm2"}
HALF = '{"": "cpu", "transformer.h.1": "disk", "transformer.h.3": "disk"}'
LAYER_BYTES = 4 * (12 * 256**2 + 13 * 256)  # of the embedded GPT-2: matrices, biases and two layer norms
SMALL_ROWS = {"transformer.wte": "cpu", "transformer.wpe": "cpu", "transformer.drop": "cpu", "transformer.ln_f": "cpu"}


@pytest.fixture
def make_spread(make_request: MakeRequest, tmp_path: Path) -> MakeRequest:
    def make(variant: str = "fp32", device_map: str = HALF, source: ModelSource | None = None) -> LoadRequest:
        return replace(make_request(variant, source, device_map=device_map), offload=tmp_path)

    return make


@pytest.fixture
def small() -> GPT2LMHeadModel:
    """Of two layers, and an output layer that is the embedding's matrix."""
    return GPT2LMHeadModel(small_config(n_layer=2))


def tokens(model: TransformersModel, cache: CacheKind) -> torch.Tensor:
    rows = torch.arange(5, 35).reshape(2, 15)
    return model.generate(rows, torch.ones_like(rows), 8, cache)


def test_layers_on_disk_write_what_a_whole_model_writes(
    make_spread: MakeRequest, tiny_fp32: TransformersModel, score_sample: ScoreSample
) -> None:
    half = load_variant(make_spread()).model
    for cache in CacheKind:
        assert tokens(half, cache).tolist() == tokens(tiny_fp32, cache).tolist()
    whole = math.exp(score_sample(tiny_fp32).loss)
    assert math.exp(score_sample(half).loss) == pytest.approx(whole, rel=1e-5)


def test_weights_are_told_by_place_and_in_sum(make_spread: MakeRequest, tiny_fp32: TransformersModel) -> None:
    facts = load_variant(make_spread()).facts
    assert facts.weight_bytes == tiny_fp32.facts.weight_bytes
    assert facts.weight_bytes_read == tiny_fp32.facts.weight_bytes_read
    on_disk = 2 * LAYER_BYTES
    assert facts.weight_bytes_by_device == {"cpu": facts.weight_bytes - on_disk, "disk": on_disk}
    assert facts.label == "float32, weights 64% on cpu (layers 0, 2), 36% on disk (layers 1, 3)"


def test_layers_are_told_by_place_in_one_line() -> None:
    layers = {"cuda:0": [0, 1, 2, 3], "cuda:1": [4, 5, 8], "cpu": [9]}
    sizes = {"cpu": 1, "cuda:0": 4, "cuda:1": 3, "disk": 2}
    told = "weights 10% on cpu (layer 9), 40% on cuda:0 (layers 0-3), 30% on cuda:1 (layers 4-5, 8), 20% on disk"
    assert where_in_words(sizes, layers) == f", {told}"
    assert where_in_words({"cuda:1": 5}, {"cuda:1": [0, 1]}) == ", all on cuda:1"
    assert where_in_words({}, {}) == ""


def test_what_ran_tells_one_placement_from_another(make_spread: MakeRequest, tiny_fp32: TransformersModel) -> None:
    other = '{"": "cpu", "transformer.h.1": "disk"}'
    found = {load_variant(make_spread(device_map=one)).facts.configuration for one in (HALF, other)}
    assert len(found | {tiny_fp32.facts.configuration}) == 3


def test_all_in_one_place_is_the_model_as_it_runs_without_a_map(
    make_spread: MakeRequest, tiny_fp32: TransformersModel
) -> None:
    facts, whole = load_variant(make_spread(device_map="auto")).facts, tiny_fp32.facts
    assert (facts.label, facts.configuration) == (f"{whole.label}, all on cpu", whole.configuration)
    assert facts.weight_bytes_by_device == {"cpu": whole.weight_bytes}


def test_autocast_is_spread_too(make_spread: MakeRequest, make_request: MakeRequest) -> None:
    half, whole = (load_variant(make("autocast-bf16")).model for make in (make_spread, make_request))
    assert tokens(half, CacheKind.DYNAMIC).tolist() == tokens(whole, CacheKind.DYNAMIC).tolist()


def test_auto_takes_no_more_memory_than_is_free(
    make_spread: MakeRequest, tiny_fp32: TransformersModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = int(tiny_fp32.facts.weight_bytes * 0.95)
    monkeypatch.setattr(spread, "free_memory_bytes", lambda: free)
    facts = load_variant(make_spread(device_map="auto")).facts
    assert set(facts.weight_bytes_by_device) == {"cpu", "disk"}
    assert facts.weight_bytes_by_device["cpu"] <= free * spread.LEFT_FOR_WEIGHTS


def test_a_pickle_is_unpacked_into_the_folder(make_spread: MakeRequest, tmp_path: Path) -> None:
    """Safetensors are read where they are."""
    folder = write_model(tmp_path / "model", n_layer=2, tie_word_embeddings=False)
    pickle_weights(folder)
    request = replace(
        make_spread(device_map='{"": "cpu", "transformer.h.0": "disk"}', source=ModelSource("small", folder)),
        offload=tmp_path / "offload",
    )
    model = load_variant(request).model
    assert len(list((tmp_path / "offload").glob("transformer.h.0.*"))) == 12  # weights and biases of six layers
    check_fetched(model)


def test_without_accelerate_it_is_a_skip(make_spread: MakeRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread, "first_missing", lambda names: names[0])
    with pytest.raises(BackendUnavailable, match="--llm-device-map needs accelerate: pip install accelerate"):
        load_variant(make_spread())


def test_an_engine_that_has_one_device_is_a_skip(make_spread: MakeRequest) -> None:
    with pytest.raises(BackendUnavailable, match="keeps a model on one device: leave --llm-device-map out"):
        load_variant(make_spread("compile-fp32"))


@pytest.mark.parametrize("variant", ["bnb-int8", "bnb-nf4"])
def test_bitsandbytes_runs_on_the_cpu_alone_and_not_from_disk(make_spread: MakeRequest, variant: str) -> None:
    pytest.importorskip("bitsandbytes")
    facts = load_variant(make_spread(variant, '{"transformer": "cpu", "lm_head": "cpu"}')).facts
    assert facts.weight_bytes_by_device == {"cpu": facts.weight_bytes}
    with pytest.raises(BackendUnavailable, match="can't be spread over devices: bitsandbytes runs on CUDA devices or"):
        load_variant(make_spread(variant))


def test_a_map_names_parts_that_lie_in_one_place(small: GPT2LMHeadModel) -> None:
    asked = {"": "cpu", "transformer.h.0": "disk"}
    found = rows_of(small, asked)
    assert found == {**SMALL_ROWS, "transformer.h.0": "disk", "transformer.h.1": "cpu", "lm_head": "cpu"}


def test_a_map_may_go_down_to_a_weight(small: GPT2LMHeadModel) -> None:
    found = rows_of(small, {"": "cpu", "transformer.h.0.ln_1.bias": "disk"})
    assert found["transformer.h.0.ln_1.weight"] == "cpu"
    assert found["transformer.h.0.ln_1.bias"] == "disk"
    assert found["transformer.h.0.attn"] == found["transformer.h.1"] == "cpu"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"": "cpu", "transformer.h.7": "disk"}, r"unknown part of the model 'transformer.h.7'. Did you mean"),
        ({"transformer": "cpu"}, "no device for lm_head.weight"),
        ({"": "cpu", "lm_head": 0}, "transformer.wte.weight and lm_head.weight are one weight"),
        ({"": "disk", "transformer.h": "cpu"}, "are one weight; put both on the same device, not on disk"),
    ],
)
def test_a_map_that_does_not_go_with_the_model_is_refused(
    small: GPT2LMHeadModel, asked: dict[str, int | str], message: str
) -> None:
    with pytest.raises(InvalidSetting, match=message):
        rows_of(small, asked)


def test_what_is_fetched_is_let_go(make_spread: MakeRequest) -> None:
    module = load_variant(make_spread()).model.module
    fetch_all(module, "disk")
    assert sum(weight.nbytes for weight in module.parameters() if weight.is_meta) == 2 * LAYER_BYTES


FAMILIES_TRIED = [tried(one) for one in FAMILIES if not (one.refused or one.quantized_by or one.pickled)]


@pytest.mark.parametrize("family", FAMILIES_TRIED)
def test_a_family_is_spread_and_writes_the_same_or_says_why_it_cannot(
    make_spread: MakeRequest, make_request: MakeRequest, family: Family, tmp_path: Path
) -> None:
    """Bug: torch raises nothing where a tensor is multiplied with one without numbers, so Qwen3-Next wrote other
    texts."""
    source = family.build(tmp_path / "model")
    shape = without_weights(source.load_config(), source.trust_remote_code)
    layers = next(
        name for name, part in shape.named_modules() if isinstance(part, nn.ModuleList) and _is_of_layers(part)
    )
    asked = {"": "cpu", f"{layers}.0": "disk"}
    model = load_variant(make_spread(device_map=json.dumps(asked), source=source)).model
    if family.name in REFUSED:
        with pytest.raises(BackendUnavailable, match="models can't be spread over devices: their code uses weights"):
            check_fetched(model)
        return
    check_fetched(model)
    whole = load_variant(make_request("fp32", source)).model
    assert tokens(model, CacheKind.DYNAMIC).tolist() == tokens(whole, CacheKind.DYNAMIC).tolist()
    assert model.facts.weight_bytes == whole.facts.weight_bytes


def _is_of_layers(part: nn.ModuleList) -> bool:
    return bool(re.search(r"Layer|Block", type(part[0]).__name__))
