from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from small_models import write_ending_model
from transformers import CompileConfig, GenerationConfig

from llm_bench_fixtures.errors import BackendUnavailable, InvalidSetting, OutOfMemory
from llm_bench_fixtures.measure.quality import Score
from llm_bench_fixtures.models.backend import first_missing
from llm_bench_fixtures.models.backends import find_backend
from llm_bench_fixtures.models.backends.torch import with_autocast, with_fitting_reference
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.source import TINY_FOLDER, ModelSource
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.models.variants import TOLERANCES, Arithmetic, Precision
from llm_bench_fixtures.options.settings import parse_settings
from llm_bench_fixtures.workloads import CacheKind, Prompts

MakeRequest = Callable[..., LoadRequest]
ScoreSample = Callable[[TransformersModel], Score]

# GPT-2 of width 256: token and position tables, four layers of 12 x 256 x 256 weights, 9 x 256 biases and
# two layer norms, and a last layer norm. The output layer is the token table.
TINY_WEIGHTS = 4096 * 256 + 512 * 256 + 4 * (12 * 256**2 + 9 * 256 + 4 * 256) + 2 * 256


def generate(model: TransformersModel, ids: tuple[int, ...], new_tokens: int) -> list[int]:
    row = torch.tensor([ids])
    output = model.generate(row, torch.ones_like(row), new_tokens, CacheKind.DYNAMIC)
    return list(output[0, len(ids) :].tolist())


def test_a_float32_model_has_four_bytes_a_weight(tiny_fp32: TransformersModel) -> None:
    assert tiny_fp32.facts.weight_bytes == 4 * TINY_WEIGHTS


def test_a_float32_model_says_float32(tiny_fp32: TransformersModel) -> None:
    assert (tiny_fp32.facts.label, tiny_fp32.module.dtype) == ("float32", torch.float32)


def test_a_model_is_loaded_for_evaluation(tiny_fp32: TransformersModel) -> None:
    assert not tiny_fp32.module.training


def test_gpt2_runs_with_every_kind_of_cache(tiny_fp32: TransformersModel) -> None:
    assert tiny_fp32.facts.cache_kinds == frozenset(CacheKind)


def test_a_bfloat16_model_has_two_bytes_a_weight(make_request: MakeRequest) -> None:
    model = load_variant(make_request("bf16")).model
    parameters = {parameter.data_ptr(): parameter.nbytes for parameter in model.module.parameters()}
    assert sum(parameters.values()) == 2 * TINY_WEIGHTS
    assert model.facts.label == "bfloat16"


def test_bfloat16_and_autocast_lose_little(
    make_request: MakeRequest, score_sample: ScoreSample, fp32_loss: float
) -> None:
    for variant in ("bf16", "autocast-bf16"):
        assert score_sample(load_variant(make_request(variant)).model).loss == pytest.approx(fp32_loss, rel=0.01)


def test_autocast_computes_logits_in_bfloat16_from_float32_weights(make_request: MakeRequest) -> None:
    model = load_variant(make_request("autocast-bf16")).model
    ids = torch.tensor([[1, 2, 3]])
    assert model.facts.label == "float32, bfloat16 autocast"
    assert model.module.dtype is torch.float32
    assert model.logits(ids, torch.ones_like(ids)).dtype is torch.bfloat16


def test_float16_on_a_cpu_runs_in_float32_and_says_so(make_request: MakeRequest) -> None:
    model = load_variant(make_request("fp16")).model
    assert model.module.dtype is torch.float32
    assert model.facts.label == "float32 (float16 requested; CPU)"


def test_float16_that_fell_back_is_the_same_configuration_as_float32(
    make_request: MakeRequest, tiny_fp32: TransformersModel
) -> None:
    assert load_variant(make_request("fp16")).facts.configuration == tiny_fp32.facts.configuration


def test_bfloat16_autocast_and_float32_are_three_configurations(
    make_request: MakeRequest, tiny_fp32: TransformersModel
) -> None:
    others = [load_variant(make_request(variant)).facts.configuration for variant in ("bf16", "autocast-bf16")]
    assert len({tiny_fp32.facts.configuration, *others}) == 3


def test_float16_autocast_on_a_cpu_is_unavailable(make_request: MakeRequest) -> None:
    with pytest.raises(BackendUnavailable, match="float16 autocast needs an accelerator"):
        load_variant(make_request("autocast-fp16"))


def test_a_model_larger_than_the_free_memory_is_not_loaded(
    make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=4 * TINY_WEIGHTS - 1))
    with pytest.raises(OutOfMemory, match=r"^fp32: out of memory, 0\.0 GB asked for and 0\.0 GB free") as caught:
        load_variant(make_request("fp32"))
    assert str(caught.value).endswith(
        ". It is the reference, which all others are compared with: try --llm-reference bf16"
    )


@pytest.mark.parametrize(("free", "reference"), [(4 * TINY_WEIGHTS - 1, "bf16"), (2 * TINY_WEIGHTS - 1, "fp32")])
def test_another_reference_is_advised_only_where_that_helps(
    free: int, reference: str, make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where the reference is another already, nor where half the weights don't fit either."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free))
    with pytest.raises(OutOfMemory, match=r"GB free$"):
        load_variant(make_request("fp32", reference=reference))


def test_a_model_in_bfloat16_needs_half_the_memory(make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=2 * TINY_WEIGHTS))
    assert load_variant(make_request("bf16")).facts.label == "bfloat16"


@pytest.mark.filterwarnings("error")
def test_a_load_warns_of_nothing(make_request: MakeRequest, capfd: pytest.CaptureFixture[str]) -> None:
    load_variant(make_request("fp32"))
    assert capfd.readouterr() == ("", "")


def test_published_generation_settings_are_replaced_by_greedy_search(
    tmp_path: Path, make_request: MakeRequest, tiny_fp32: TransformersModel, prompts: Prompts
) -> None:
    """Sampling at a high temperature and a heavy penalty on repetition would give other tokens."""
    folder = tmp_path / "sampling"
    shutil.copytree(TINY_FOLDER, folder)
    published = {"do_sample": True, "temperature": 5.0, "repetition_penalty": 9.0, "max_length": 3, "num_beams": 2}
    (folder / "generation_config.json").write_text(json.dumps(published))
    model = load_variant(make_request("fp32", source=ModelSource("sampling", folder))).model
    prompt = prompts.exact(12)
    assert generate(model, prompt, 10) == generate(tiny_fp32, prompt, 10)


def test_greedy_search_takes_the_likeliest_token_each_time(tiny_fp32: TransformersModel, prompts: Prompts) -> None:
    ids = list(prompts.exact(12))
    for _ in range(6):
        row = torch.tensor([ids])
        ids.append(int(tiny_fp32.logits(row, torch.ones_like(row))[0, -1].argmax()))
    assert generate(tiny_fp32, prompts.exact(12), 6) == ids[12:]


@pytest.mark.parametrize("variant", ["fp32", "ort-fp32", "ov-fp32", "ct2-fp32", "gguf-f32"])
def test_the_end_of_a_text_ends_nothing(variant: str, tmp_path: Path, make_request: MakeRequest) -> None:
    request = make_request(variant, source=ModelSource("ending", write_ending_model(tmp_path / "ending")))
    if missing := first_missing(find_backend(request.variant.backend).modules):
        pytest.skip(f"{missing} is not installed")
    model = load_variant(request).model
    assert model.tokenizer.eos_token_id == 0
    assert generate(model, (5, 6), 7) == [0] * 7


def test_a_module_that_is_put_in_place_generates_greedily_too(tiny_fp32: TransformersModel, prompts: Prompts) -> None:
    """Bug: a backend that starts from the package's own, as the docs show, kept its checkpoint's sampling."""
    sampling = copy.copy(tiny_fp32.module)
    sampling.generation_config = GenerationConfig(do_sample=True, temperature=9.0, repetition_penalty=3.0, num_beams=2)
    own = replace(tiny_fp32, module=sampling)
    assert generate(own, prompts.exact(12), 6) == generate(tiny_fp32, prompts.exact(12), 6)


def test_a_static_cache_compiles_nothing(tiny_fp32: TransformersModel, prompts: Prompts) -> None:
    """Bug: on CUDA transformers compiles the decode steps of a static cache, so the cache was not all that differed.

    Its test of the device is passed here as its own option does.
    """
    config = CompileConfig(backend="eager")
    config._compile_all_devices = True
    module = copy.copy(tiny_fp32.module)
    row = torch.tensor([prompts.exact(4)])
    own = replace(tiny_fp32, module=module)
    module.generation_config.compile_config = config
    own.generate(row, torch.ones_like(row), 3, CacheKind.STATIC)
    assert "_compiled_call" not in vars(module)


def test_under_autocast_there_is_no_static_cache(make_request: MakeRequest) -> None:
    """Its buffer has the weights' dtype; Llama's keys come in autocast's, and copying one into the other fails."""
    assert CacheKind.STATIC not in load_variant(make_request("autocast-bf16")).facts.cache_kinds


@pytest.mark.parametrize(
    ("variant", "arithmetic"),
    [
        ("fp32", Arithmetic.FLOAT32),
        ("fp16", Arithmetic.FLOAT32),  # it falls back on a CPU
        ("bf16", Arithmetic.BFLOAT16),
        ("autocast-bf16", Arithmetic.BFLOAT16),
    ],
)
def test_each_variant_has_the_tolerance_of_what_it_computes_with(
    variant: str, arithmetic: Arithmetic, make_request: MakeRequest
) -> None:
    facts = load_variant(make_request(variant)).facts
    assert facts.tolerance == TOLERANCES[arithmetic]
    assert facts.compute == arithmetic.value


def test_under_float16_autocast_the_tolerance_is_float16s(tiny_fp32: TransformersModel) -> None:
    """Which runs on accelerators only."""
    facts = with_autocast(tiny_fp32, Precision.FLOAT16).facts
    assert (facts.compute, facts.tolerance) == (Precision.FLOAT16, TOLERANCES[Arithmetic.FLOAT16])


GB = 10**9
QWEN_7B = {  # 7.6 billion weights: 30.5 GB in float32, 15.2 in bfloat16
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18_944,
    "vocab_size": 152_064,
}


@pytest.mark.parametrize(
    ("free_bytes", "given", "reference"),
    [
        (23 * GB, {}, "bf16"),
        (64 * GB, {}, "fp32"),
        (8 * GB, {}, "fp32"),
        (23 * GB, {"reference": "fp32"}, "fp32"),
        (23 * GB, {"reference": "bnb-int8"}, "bnb-int8"),
        (23 * GB, {"model": "tiny"}, "fp32"),
        (23 * GB, {"model": "no/such/model"}, "fp32"),
        (23 * GB, {"load_format": "auto"}, "fp32"),
        (None, {}, "fp32"),
    ],
    ids=[
        "only bfloat16 fits",
        "both fit",
        "neither fits",
        "fp32 is asked for",
        "another is asked for",
        "a small model",
        "no folder",
        "no weights in the folder",
        "no such device",
    ],
)
def test_a_model_whose_float32_does_not_fit_has_bf16_as_its_reference(
    free_bytes: int | None,
    given: dict[str, str],
    reference: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def device(*_: object) -> SimpleNamespace:
        if free_bytes is None:
            raise InvalidSetting("it isn't here")
        return SimpleNamespace(free_bytes=free_bytes)

    monkeypatch.setattr("llm_bench_fixtures.models.backends.torch.resolve_device", device)
    (tmp_path / "config.json").write_text(json.dumps(QWEN_7B))
    settings = parse_settings({"model": str(tmp_path), "load_format": "dummy", **given})
    assert with_fitting_reference(settings).reference == reference
