from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cyllama")
pytest.importorskip("gguf")

import torch
from families import BY_NAME

from llm_bench_fixtures.errors import WorkloadUnsupported
from llm_bench_fixtures.measure.equivalence import EquivalenceVerdict, ExecutionMode, check_equivalence
from llm_bench_fixtures.measure.quality import Score
from llm_bench_fixtures.models.artifacts import made_s_of
from llm_bench_fixtures.models.backends.gguf_files import ARCHITECTURES
from llm_bench_fixtures.models.backends.llamacpp import (
    FILE,
    MOST_SEQUENCES,
    LlamaCppModel,
    Room,
    make,
    open_context,
    open_model,
)
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.model import Model
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.variants import TOLERANCES, Arithmetic
from llm_bench_fixtures.progress import Phase, Progress
from llm_bench_fixtures.workloads import Batch, CacheKind, Prompts, Side, pad_batch

MakeRequest = Callable[..., LoadRequest]
VARIANTS = ("gguf-f32", "gguf-q8_0", "gguf-q4_k_m")
FAMILIES = ("llama", "llama-tied", "qwen2", "qwen3")
PROMPTS = ((11, 12, 13, 14, 15, 16, 17), (21, 22, 23), (31,))
QUANTIZED = 4 * 12 * 256**2 + 4096 * 256  # of the embedded model: its layers' matrices, and the table that it ends with


@pytest.fixture(scope="module")
def loaded(make_request: MakeRequest) -> Mapping[str, Any]:
    return {variant: load_variant(make_request(variant)).model for variant in VARIANTS}


def generate(model: Model, batch: Batch, new_tokens: int = 12) -> list[list[int]]:
    tokens: list[list[int]] = model.generate(
        batch.input_ids, batch.attention_mask, new_tokens, CacheKind.DYNAMIC
    ).tolist()
    return tokens


def padded(rows: Any, width: int = 0, side: Side = Side.LEFT) -> Batch:
    return pad_batch(rows, max(width, *map(len, rows)), side, 0, "cpu")


BATCHES = [padded(PROMPTS[:1]), padded(PROMPTS[:1], 12), padded(PROMPTS), padded(PROMPTS, 16)]


@pytest.mark.parametrize("family", FAMILIES)
def test_float32_gives_the_tokens_and_logits_of_transformers(
    family: str, make_request: MakeRequest, tmp_path: Path
) -> None:
    with quiet_libraries():
        source = BY_NAME[family].build(tmp_path)
    expected, actual = (load_variant(make_request(variant, source)).model for variant in ("fp32", "gguf-f32"))
    for batch in BATCHES:
        assert generate(actual, batch) == generate(expected, batch)
    check_logits(actual, expected)


def check_logits(actual: Model, expected: Model, tolerance: float = 1e-4) -> None:
    batch = padded(PROMPTS, 9, Side.RIGHT)
    seen = batch.attention_mask.bool()
    one, other = (model.logits(batch.input_ids, batch.attention_mask)[seen] for model in (actual, expected))
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear", "factor": 2.0},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ],
    ids=lambda scaling: scaling["rope_type"],
)
def test_scaled_rotary_embeddings_are_kept(scaling: dict[str, Any], make_request: MakeRequest, tmp_path: Path) -> None:
    family = BY_NAME["llama"]
    with quiet_libraries():
        source = replace(family, config={**family.config, "rope_scaling": scaling}).build(tmp_path)
    expected, actual = (load_variant(make_request(variant, source)).model for variant in ("fp32", "gguf-f32"))
    check_logits(actual, expected)


def test_float32_gives_the_embedded_models_tokens(
    loaded: Mapping[str, Any], tiny_fp32: Model, prompts: Prompts
) -> None:
    batch = padded(prompts.varied(4), 64)
    assert generate(loaded["gguf-f32"], batch, 8) == generate(tiny_fp32, batch, 8)


def test_the_loss_is_near_that_of_float32(
    loaded: Mapping[str, Any], fp32_loss: float, score_sample: Callable[[Model], Score]
) -> None:
    """llama.cpp looks GPT-2's activation up in a table of float16 numbers."""
    losses = [score_sample(loaded[variant]).loss for variant in VARIANTS]
    assert losses[0] == pytest.approx(fp32_loss, rel=1e-4)
    assert losses[1] == pytest.approx(fp32_loss, rel=5e-3)
    assert losses[2] == pytest.approx(fp32_loss, rel=0.05)


@pytest.mark.parametrize("variant", VARIANTS)
def test_answers_do_not_depend_on_padding_and_batch(variant: str, loaded: Mapping[str, Any]) -> None:
    found = {result.mode: result for result in check_equivalence(loaded[variant], PROMPTS, 6)}
    for mode in (ExecutionMode.LEFT_PADDING, ExecutionMode.RIGHT_PADDING, ExecutionMode.BATCH):
        assert found[mode].verdict in (EquivalenceVerdict.EQUAL, EquivalenceVerdict.TIE), found[mode].sentence
    assert found[ExecutionMode.CACHE].verdict is EquivalenceVerdict.NOT_SUPPORTED


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_token_is_told_once_for_the_batch(variant: str, loaded: Mapping[str, Any]) -> None:
    calls: list[None] = []
    batch = padded(PROMPTS)
    loaded[variant].generate(batch.input_ids, batch.attention_mask, 5, CacheKind.DYNAMIC, lambda: calls.append(None))
    assert len(calls) == 5


def test_a_context_is_kept_as_long_as_it_has_room(loaded: Mapping[str, Any]) -> None:
    model = loaded["gguf-f32"]
    model.forget_caches()
    generate(model, padded(PROMPTS), 8)
    kept = model._context
    generate(model, padded(PROMPTS), 3)
    assert model._context is kept
    generate(model, padded(PROMPTS), 300)
    assert model._context is not kept
    model.forget_caches()
    assert model._context is None


def test_more_prompts_than_a_context_holds_are_not_supported(loaded: Mapping[str, Any]) -> None:
    with pytest.raises(WorkloadUnsupported, match="at most 256 prompts at a time"):
        generate(loaded["gguf-f32"], padded([(1,)] * (MOST_SEQUENCES + 1)), 1)


def test_what_the_facts_say(loaded: Mapping[str, Any], tiny_fp32: Model) -> None:
    plain, q8, q4 = (loaded[variant].facts for variant in VARIANTS)
    assert plain.label == "llama.cpp float32"
    assert q8.label.endswith(", computes in int8, cache in float16")
    assert plain.weight_bytes == tiny_fp32.facts.weight_bytes
    assert plain.weight_bytes_read == tiny_fp32.facts.weight_bytes_read
    assert plain.weight_bytes > q8.weight_bytes > q4.weight_bytes
    assert plain.tolerance == TOLERANCES[Arithmetic.FLOAT32]
    assert q8.tolerance == TOLERANCES[Arithmetic.INT8]
    assert plain.runs_source


def test_eight_bits_have_34_bytes_for_32_weights(loaded: Mapping[str, Any]) -> None:
    """A float16 scale for each 32. The table of positions, norms and biases stay as they are, or the table does not."""
    facts = loaded["gguf-q8_0"].facts
    weights = loaded["gguf-f32"].facts.weight_bytes // 4
    quantized = round(facts.quantized_share * weights)
    assert quantized >= QUANTIZED
    assert facts.weight_bytes == quantized * 34 // 32 + 4 * (weights - quantized)


def test_the_label_tells_of_rows_that_do_not_fill_the_blocks(make_request: MakeRequest, tmp_path: Path) -> None:
    """Of 64 weights, where 4 bits have blocks of 256: llama.cpp takes Q5_0 for Q4_K, and Q8_0 for Q6_K.

    Rows of 64 are all but those of the two layers' 64 x 128, which are too short as well.
    """
    with quiet_libraries():
        source = BY_NAME["llama"].build(tmp_path)
    facts = load_variant(make_request("gguf-q4_k_m", source)).facts
    found = re.fullmatch(r"llama\.cpp q4_k_m \((\d+)% of it (\w+), (\d+)% of it (\w+)\), computes in .*", facts.label)
    assert found
    assert {found[2], found[4]} == {"Q5_0", "Q8_0"}
    assert int(found[1]) + int(found[3]) == pytest.approx(100, abs=1)


def test_the_context_has_as_many_threads_as_torch(loaded: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cyllama.llama.llama_cpp.LlamaContext", lambda engine, parameters: parameters)
    opened = open_context(loaded["gguf-f32"].engine, Room(1, 8, 8), is_float32=True)
    assert (opened.n_threads, opened.n_threads_batch) == (torch.get_num_threads(), torch.get_num_threads())


def test_a_second_load_reuses_what_was_made(loaded: Mapping[str, Any], make_request: MakeRequest) -> None:
    progress = Progress()
    request = make_request("gguf-q4_k_m", progress=progress)
    facts = load_variant(request).facts
    assert facts.notes == ("gguf-f32 reused from the cache", "gguf-q4_k_m reused from the cache")
    assert not progress.phase_s[Phase.EXPORTING]
    assert not progress.phase_s[Phase.QUANTIZING]
    assert facts.conversion_s == loaded["gguf-q4_k_m"].facts.conversion_s == made_s_of(*make(request))
    assert facts.conversion_s > loaded["gguf-f32"].facts.conversion_s > 0


def test_a_file_that_the_user_names_is_run_in_place_of_a_conversion(
    loaded: Mapping[str, Any], make_request: MakeRequest
) -> None:
    (made,) = make(make_request("gguf-f32"))
    progress = Progress()
    named = load_variant(make_request("gguf-q8_0", progress=progress, gguf=str(made.folder / FILE))).model
    assert not progress.phase_s[Phase.EXPORTING]
    assert generate(named, padded(PROMPTS)) == generate(loaded["gguf-q8_0"], padded(PROMPTS))


def test_every_family_that_is_converted_is_tried() -> None:
    """But Mistral, whose small folder has a window, and which is laid out as Llama is."""
    tried = {BY_NAME[name].config["model_type"] for name in FAMILIES} | {"gpt2", "mistral"}
    assert tried == set(ARCHITECTURES)


def test_a_closed_model_has_released_the_engine(make_request: MakeRequest, loaded: Mapping[str, Any]) -> None:
    one = loaded["gguf-f32"]
    file = make(make_request("gguf-f32"))[0].folder / FILE
    model = LlamaCppModel(one.variant, one.device, open_model(file, 4096), one.tokenizer, one.facts)
    generate(model, padded(PROMPTS), 1)
    model.close()
    assert (model.engine, model._context) == (None, None)
