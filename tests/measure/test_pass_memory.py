"""What passes keep and take, seen without running them: against figures by hand, and against what families keep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from families import BY_NAME, FAMILIES, IS_TRANSFORMERS_5, Family, tried
from transformers import AutoConfig, LlamaConfig

from llm_bench_fixtures.measure.pass_memory import Running, _live_bytes, _taken, pass_memory, running_of, see_passes
from llm_bench_fixtures.measure.work import observe
from llm_bench_fixtures.models.architecture import check_architecture
from llm_bench_fixtures.models.backends import BACKENDS, CATALOGUE
from llm_bench_fixtures.models.device import resolve_device
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.needs import LayerCache, ModelShape, Parts, RoundSize, Taken, parts_of
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import ModelSource
from llm_bench_fixtures.models.variants import Precision
from llm_bench_fixtures.workloads import CacheKind, Workload

PROMPTS = ((11, 12, 13, 14, 15, 16, 17), (21, 22, 23))
NEW_TOKENS = 3
BY_ID = {variant.id: variant for variant in CATALOGUE}
FLOAT32 = Running()
TORCH = ("fp32", "bf16", "autocast-bf16")
# They hand on nothing, or look at values of their cache's positions.
UNSEEN = ("openai-gpt", "recurrent_gemma", *([] if IS_TRANSFORMERS_5 else ["mamba2"]))
LLAMA: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def seen(name: str, running: Running = FLOAT32) -> tuple[LayerCache, ...]:
    return see_passes(AutoConfig.for_model(**BY_NAME[name].config), running).kept


def test_keys_and_values_of_grouped_queries() -> None:
    """Two layers of two heads of 16 numbers, keys and values: 4 bytes each, or 2."""
    assert seen("llama") == (LayerCache(2 * 2 * 2 * 16 * 4),)
    assert seen("llama", Running(Precision.BFLOAT16)) == (LayerCache(2 * 2 * 2 * 16 * 2),)


def test_a_window_of_24_keeps_the_last_23_positions() -> None:
    """Gemma 2's layers look back in turns: one of two has a window."""
    of_layer = 2 * 2 * 32 * 4
    assert seen("gemma2") == (LayerCache(of_layer, window=23), LayerCache(of_layer))
    assert seen("mistral") == (LayerCache(2 * 2 * 2 * 16 * 4, window=23),)


def test_states_are_as_large_for_any_text() -> None:
    """Mamba: in each of two layers 128 channels, with 4 numbers of a convolution and 8 of a state."""
    assert seen("mamba") == (LayerCache(2 * 128 * (4 + 8) * 4, is_state=True),)


def test_what_a_llama_takes_beside_its_cache() -> None:
    """In its multi-layer perceptron three rows of 96 numbers, and four of 32: what it gets and its norm, the layer's
    input and the embeddings. Plain attention takes a number in float32 for each pair and head besides, and more."""
    config = LlamaConfig(**LLAMA)
    fused, plain = (see_passes(config, Running(attention=name)).taken for name in ("", "eager"))
    assert fused is not None
    assert plain is not None
    assert (fused.base, fused.pair) == (0, 0)
    assert fused.position == pytest.approx(4 * (3 * 96 + 4 * 32), rel=0.1)
    assert plain.pair >= 4 * 4


def test_under_autocast_the_weights_copies_count_however_short_the_text() -> None:
    """Of each matrix but the table of embeddings, which is only looked up."""
    matrices = 3 * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 96) + 32 * 64
    taken = see_passes(LlamaConfig(**LLAMA), Running(FLOAT32.dtype, Precision.BFLOAT16)).taken
    assert taken is not None
    assert 2 * matrices <= taken.least <= 2 * matrices + 2 * fused_position()


def fused_position() -> int:
    taken = see_passes(LlamaConfig(**LLAMA), FLOAT32).taken
    assert taken is not None
    return taken.position


def test_experts_have_no_passes_of_their_own() -> None:
    """They stand as one product, which takes other memory than theirs do."""
    found = see_passes(AutoConfig.for_model(**BY_NAME["mixtral"].config), FLOAT32)
    assert (found.kept, found.taken) == ((LayerCache(2 * 2 * 2 * 16 * 4),), None)


def test_what_hands_on_nothing_is_not_known() -> None:
    config = AutoConfig.for_model(**BY_NAME["openai-gpt"].config)
    with pytest.raises(LookupError):
        see_passes(config, FLOAT32)
    assert pass_memory(config, FLOAT32) is None


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ((10, 20, 40), Taken(3, 0, 1, 0)),
        ((110, 120, 140), Taken(3, 100, 1, 0)),
        ((200, 600, 2_000), Taken(3, 0, 10, 1)),
        ((100, 200, 2_000), Taken(3, 0, 0, 1)),
    ],
    ids=["in proportion", "above something", "with its square", "first the one, then the other"],
)
def test_what_a_pass_takes_by_three_texts(taken: tuple[int, int, int], expected: Taken) -> None:
    """Of 10, 20 and 40 positions."""
    assert _taken(3, 10, *taken) == expected


def test_tensors_that_live_are_counted() -> None:
    """16 bytes, then 8 more with the first still there, then 4 without; a view and what was there before are none."""
    before = torch.zeros(100)
    with _live_bytes([before]) as live:
        first = torch.zeros(4)
        second = torch.zeros(2)
        before.view(10, 10)
        del first
        third = torch.zeros(1)
    assert (live.most, live.now) == (24, 12)
    assert second.numel() + third.numel() == 3


def predicted(variant: str, source: ModelSource) -> Parts:
    footprint = check_architecture(source.load_config(), source.trust_remote_code)
    shape = ModelShape.of(source.load_config(), footprint)
    storage = BACKENDS["torch"].storage_of(BY_ID[variant], resolve_device("cpu"))
    running = running_of(BY_ID[variant], storage)
    return parts_of(shape, storage, pass_memory(source.load_config(), running, source.trust_remote_code))


@pytest.mark.parametrize("family", [tried(one) for one in FAMILIES if not one.refused and not one.quantized_by])
def test_a_family_keeps_what_was_foreseen(
    family: Family, make_request: Callable[..., LoadRequest], tmp_path: Path
) -> None:
    """In each dtype and with each kind of cache, the cache to the byte. A few weights may stay in float32."""
    with quiet_libraries():
        source = family.build(tmp_path)
        for variant in TORCH:
            parts = predicted(variant, source)
            assert parts.is_known == (family.name not in UNSEEN), variant
            model = load_variant(make_request(variant, source)).model
            assert parts.weights == pytest.approx(model.facts.weight_bytes, rel=0.01), variant
            for cache in sorted(model.facts.cache_kinds):
                workload = Workload(PROMPTS, NEW_TOKENS, batch_size=2, cache=CacheKind(cache))
                passes = observe(model, workload).observed
                if parts.is_known and (passes.cache_bytes or passes.state_bytes):
                    kept = (passes.cache_bytes or 0) + (passes.state_bytes or 0)
                    assert parts.cache(RoundSize(2, 7, NEW_TOKENS, cache)) == kept, (variant, cache)


def test_a_variant_is_run_in_the_dtype_of_its_numbers() -> None:
    cpu = resolve_device("cpu")
    of = {name: running_of(BY_ID[name], BACKENDS["torch"].storage_of(BY_ID[name], cpu)) for name in TORCH}
    assert of == {
        "fp32": FLOAT32,
        "bf16": Running(Precision.BFLOAT16),
        "autocast-bf16": Running(Precision.FLOAT32, Precision.BFLOAT16),
    }
