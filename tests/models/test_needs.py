"""What a variant is predicted to take, by numbers that can be multiplied by hand."""

from __future__ import annotations

import pytest
from transformers import AutoConfig, PretrainedConfig

from llm_bench_fixtures.errors import BackendUnavailable
from llm_bench_fixtures.models.backends import BACKENDS, CATALOGUE
from llm_bench_fixtures.models.device import Device, DeviceKind
from llm_bench_fixtures.models.needs import (
    ACCELERATOR_PROCESS_BYTES,
    LAYER_COPIES,
    LOGIT_COPIES,
    PROCESS_BYTES,
    UNKNOWN,
    ModelShape,
    Need,
    Round,
    Storage,
    estimated_weights,
    predict,
)
from llm_bench_fixtures.models.source import TINY_FOLDER

CPU, CUDA = (Device(DeviceKind(name), name, "") for name in ("cpu", "cuda"))
SHAPE = ModelShape(weights=1_000, vocabulary=10, tables=400, is_tied=True, cached=12, widest=20, buffer_bytes=7)


def config(**numbers: object) -> PretrainedConfig:
    loaded: PretrainedConfig = AutoConfig.for_model(**numbers)
    return loaded


def test_the_shape_of_a_model_with_fewer_heads_of_keys_than_of_queries() -> None:
    """Qwen2.5-0.5B: 24 layers of 2 heads of 64 numbers, keys and values."""
    sizes = {"hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2}
    qwen = config(model_type="qwen2", intermediate_size=4864, vocab_size=151_936, tie_word_embeddings=True, **sizes)
    assert ModelShape.of(qwen, 494_032_768) == ModelShape(
        494_032_768, 151_936, 151_936 * 896, is_tied=True, cached=2 * 24 * 2 * 64, widest=4864
    )


def test_an_output_layer_of_its_own_is_a_second_table() -> None:
    llama = config(model_type="llama", vocab_size=100, hidden_size=8, num_attention_heads=2, tie_word_embeddings=False)
    assert ModelShape.of(llama, 10_000).tables == 2 * 100 * 8


def test_the_embedded_models_config_has_other_names() -> None:
    shape = ModelShape.of(AutoConfig.from_pretrained(TINY_FOLDER), 4_339_200, 5)
    assert shape == ModelShape(
        4_339_200, 4096, 4096 * 256, is_tied=True, cached=2 * 4 * 256, widest=1024, buffer_bytes=5
    )


def test_a_config_without_those_numbers_counts_its_weights_alone() -> None:
    assert ModelShape.of(PretrainedConfig(tie_word_embeddings=False), 10) == ModelShape(10)


def test_the_weights_of_a_config_without_files() -> None:
    """But for norms and biases, which are a ten thousandth."""
    numbers = {"hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2}
    qwen = {**numbers, "intermediate_size": 4864, "vocab_size": 151_936, "tie_word_embeddings": True}
    assert estimated_weights(qwen) == pytest.approx(494_032_768, rel=2e-4)
    assert estimated_weights({**qwen, "tie_word_embeddings": False}) - estimated_weights(qwen) == 896 * 151_936
    assert estimated_weights({}) == 0


@pytest.mark.parametrize(
    ("storage", "weights"),
    [
        (Storage(4, 4), 4_000),
        (Storage(2, 2), 2_000),
        (Storage(1, 4), 600 + 1_600),
        (Storage(4, 4, output_copy=4), 4_000 + 1_600),
        (UNKNOWN, 6_000),
    ],
    ids=["float32", "16 bits", "int8, tables in float32", "output apart", "unknown"],
)
def test_weights_by_the_way_they_are_stored(storage: Storage, weights: int) -> None:
    assert predict(SHAPE, storage, ()) == Need(PROCESS_BYTES + weights + 7)


def test_files_in_the_engines_own_dtype_are_mapped_and_held_by_no_process() -> None:
    """What isn't a weight is held all the same, and an accelerator's memory has a copy of its own."""
    maps = Storage(4, 4, maps="float32")
    assert predict(SHAPE, maps, (), stored="float32") == Need(PROCESS_BYTES + 7, mapped=4_000)
    for stored in ("", "bfloat16"):
        assert predict(SHAPE, maps, (), stored=stored) == Need(PROCESS_BYTES + 4_007)
    assert predict(SHAPE, Storage(4, 4), (), stored="float32").mapped == 0
    assert predict(SHAPE, maps, (), stored="float32", on_cpu=False).mapped == 0


def test_an_untied_output_is_copied_by_nobody() -> None:
    shape = ModelShape(weights=1_000, tables=400)
    assert predict(shape, Storage(4, 4, output_copy=4), ()).held == PROCESS_BYTES + 4_000


def test_a_process_of_an_accelerator_takes_more() -> None:
    assert predict(ModelShape(0), UNKNOWN, (), on_cpu=False).held == ACCELERATOR_PROCESS_BYTES


def test_the_largest_round_is_kept() -> None:
    """Keys and values of all positions, a layer of the prompt's, and the last logits."""
    small, large = Round(1, 5, 1), Round(2, 30, 4)
    cache, layer, logits = 2 * 34 * 12 * 2, 2 * 30 * 20 * 2 * LAYER_COPIES, 2 * 10 * 4 * LOGIT_COPIES
    assert predict(SHAPE, Storage(2, 2, numbers=2), (small, large)).held == (
        PROCESS_BYTES + 2_000 + 7 + cache + layer + logits
    )


def test_an_engine_that_makes_all_logits_has_one_for_each_position_more() -> None:
    one = Round(2, 30, 4)
    last, every = (predict(SHAPE, Storage(4, 4, has_all_logits=some), [one]).held for some in (False, True))
    assert every - last == 2 * 30 * 10 * 4


def test_a_load_and_a_score_take_more_for_a_moment() -> None:
    """What the largest round keeps is not there while the model is loaded, and is given back for a score."""
    score, one = Round(1, 100), Round(1, 1, 1)
    scored = 100 * 20 * 4 * LAYER_COPIES + (100 + LOGIT_COPIES) * 10 * 4
    found = predict(SHAPE, Storage(4, 4, loading=50), [score])
    assert (found.loading, found.scoring) == (50_000, scored)
    assert found.peak == PROCESS_BYTES + 4_000 + 7 + 50_000
    kept = predict(SHAPE, Storage(4, 4), [one]).held - PROCESS_BYTES - 4_007
    less = predict(SHAPE, Storage(4, 4, loading=50), [score, one])
    assert (less.loading, less.scoring) == (50_000 - kept, scored - kept)


def test_what_makes_an_artifact_is_another_process() -> None:
    assert predict(SHAPE, Storage(4, 4, making=10), ()).making == PROCESS_BYTES + 14_000 + 7  # tied: 1,400 weights


def test_every_variant_of_the_catalogue_says_how_it_is_stored_and_less_for_fewer_bits() -> None:
    """But for a checkpoint that is quantized already, in a way that its folder tells, and for a server's."""
    at_rest = {}
    for variant in CATALOGUE:
        backend = BACKENDS[variant.backend]
        if backend.is_served or variant.id in ("checkpoint", "autocast-fp16"):
            continue
        storage = backend.storage(variant, CPU)
        assert storage != UNKNOWN
        at_rest[variant.id] = predict(SHAPE, storage, ()).held
    for variant in CATALOGUE:
        if variant.base is not None:
            assert at_rest[variant.id] < at_rest[variant.base]


def test_half_of_the_bytes_only_where_it_runs_so() -> None:
    """float16 falls back to float32 on a CPU, where its autocast doesn't run."""
    torch = BACKENDS["torch"]
    by_id = {variant.id: variant for variant in CATALOGUE}
    assert [torch.storage(by_id[name], CPU).matrices for name in ("fp32", "fp16", "bf16")] == [4, 4, 2]
    assert torch.storage(by_id["fp16"], CUDA).matrices == 2
    with pytest.raises(BackendUnavailable):
        torch.storage(by_id["autocast-fp16"], CPU)
