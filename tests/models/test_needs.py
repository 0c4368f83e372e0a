"""What a variant is predicted to take, by numbers that can be multiplied by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from transformers import AutoConfig, PretrainedConfig

from llm_bench_fixtures.errors import BackendUnavailable
from llm_bench_fixtures.models.architecture import Footprint
from llm_bench_fixtures.models.backend import UNKNOWN, Storage
from llm_bench_fixtures.models.backends import BACKENDS, CATALOGUE
from llm_bench_fixtures.models.device import Device, DeviceKind
from llm_bench_fixtures.models.needs import (
    ACCELERATOR_PROCESS_BYTES,
    LAYER_COPIES,
    LOGIT_COPIES,
    PROCESS_BYTES,
    SPARE,
    LayerCache,
    MemoryNeed,
    ModelShape,
    Parts,
    PassMemory,
    RoundSize,
    Taken,
    estimated_weights,
    parts_of,
    predict,
)
from llm_bench_fixtures.models.source import TINY_FOLDER
from llm_bench_fixtures.workloads import CacheKind

CPU, CUDA = (Device(DeviceKind(name), name, "") for name in ("cpu", "cuda"))
SHAPE = ModelShape(Footprint(1_000, buffer_bytes=7, tables=400), vocabulary=10, cached=12, widest=20)


def config(**numbers: object) -> PretrainedConfig:
    loaded: PretrainedConfig = AutoConfig.for_model(**numbers)
    return loaded


def test_the_shape_of_a_model_with_fewer_heads_of_keys_than_of_queries() -> None:
    """Qwen2.5-0.5B: 24 layers of 2 heads of 64 numbers, keys and values."""
    sizes = {"hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2}
    qwen = config(model_type="qwen2", intermediate_size=4864, vocab_size=151_936, tie_word_embeddings=True, **sizes)
    assert ModelShape.of(qwen, Footprint(494_032_768)) == ModelShape(
        Footprint(494_032_768), 151_936, cached=2 * 24 * 2 * 64, widest=4864, heads=14
    )


def test_what_is_neither_a_matrix_nor_a_table_is_not_quantized() -> None:
    """Of 1,000 weights 400 are in tables and 500 in matrices."""
    gpt2 = config(model_type="gpt2", vocab_size=40, n_embd=10, n_head=2)
    shape = ModelShape.of(gpt2, Footprint(1_000, matrices=500, tables=400))
    assert (shape.footprint.tables, shape.footprint.others) == (400, 100)
    assert predict(shape, Storage(1, 4), ()).held == PROCESS_BYTES + 500 + 4 * 500


def test_the_embedded_models_config_has_other_names() -> None:
    takes = Footprint(4_339_200, buffer_bytes=5)
    shape = ModelShape.of(AutoConfig.from_pretrained(TINY_FOLDER), takes)
    assert shape == ModelShape(takes, 4096, cached=2 * 4 * 256, widest=1024, heads=4)


def test_a_config_without_those_numbers_counts_its_weights_alone() -> None:
    assert ModelShape.of(PretrainedConfig(tie_word_embeddings=False), Footprint(10)) == ModelShape(Footprint(10))


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
        (Storage(1, 4, made_output=1), 600 + 1_600 + 400),
        (UNKNOWN, 6_000),
    ],
    ids=["float32", "16 bits", "int8, tables in float32", "output apart", "output made", "unknown"],
)
def test_weights_by_the_way_they_are_stored(storage: Storage, weights: int) -> None:
    assert predict(SHAPE, storage, ()) == MemoryNeed(PROCESS_BYTES + weights + 7)


def test_files_in_the_engines_own_dtype_are_mapped_and_held_by_no_process() -> None:
    """What isn't a weight is held all the same, and an accelerator's memory has a copy of its own."""
    maps = Storage(4, 4, maps="float32")
    assert predict(SHAPE, maps, (), stored="float32") == MemoryNeed(PROCESS_BYTES + 7, mapped=4_000)
    for stored in ("", "bfloat16"):
        assert predict(SHAPE, maps, (), stored=stored) == MemoryNeed(PROCESS_BYTES + 4_007)
    assert predict(SHAPE, Storage(4, 4), (), stored="float32").mapped == 0
    assert predict(SHAPE, maps, (), stored="float32", on_cpu=False).mapped == 0


def test_an_untied_output_is_copied_by_nobody() -> None:
    shape = ModelShape(Footprint(1_000, tables=400, output=200))
    assert predict(shape, Storage(4, 4, output_copy=4, made_output=4), ()).held == PROCESS_BYTES + 4_000


def test_an_untied_output_may_be_quantized_where_the_embedding_is_not() -> None:
    """600 weights of matrices in 1 byte, 200 of the embedding in 4, 200 of the output layer in 1."""
    shape = ModelShape(Footprint(1_000, tables=400, output=200))
    assert predict(shape, Storage(1, 4, output=1), ()).held == PROCESS_BYTES + 600 + 800 + 200


def test_what_lies_in_stacks_or_can_not_be_packed_is_not_quantized_by_every_engine() -> None:
    """Of 1,000 weights 400 are in tables, 100 in stacks, 50 in odd matrices and 450 in others."""
    shape = ModelShape(Footprint(1_000, matrices=500, tables=400, odd_matrices=50, experts=100))
    for storage, whole in (
        (Storage(1, 4), 0),
        (Storage(1, 4, packs=True), 50),
        (Storage(1, 4, takes_stacks=False), 100),
        (Storage(1, 4, packs=True, takes_stacks=False), 150),
    ):
        assert predict(shape, storage, ()).held == PROCESS_BYTES + 4 * 400 + 4 * whole + (600 - whole)


def test_an_export_leaves_out_what_a_text_does_not_need() -> None:
    """Of 1,000 weights 300 read images; of the rest, 400 are in tables, 20 are of positions and 50 of norms."""
    text = Footprint(700, matrices=230, tables=400, positions=20)
    shape = ModelShape(Footprint(1_000, buffer_bytes=7, tables=400, of_text=text))
    held = predict(shape, Storage(1, 2, is_text_only=True), ()).held
    assert held == PROCESS_BYTES + (700 - 400 - 20 - 50) + 2 * (400 + 20) + 4 * 50 + 7
    assert predict(shape, Storage(4, 4), ()).held == PROCESS_BYTES + 4_000 + 7


def test_a_process_of_an_accelerator_takes_more() -> None:
    assert predict(ModelShape(Footprint(0)), UNKNOWN, (), on_cpu=False).held == ACCELERATOR_PROCESS_BYTES


def test_the_largest_round_is_kept() -> None:
    """Keys and values of the prompt, and a layer of it; or of all positions but the last, and the last logits."""
    small, large, late = RoundSize(1, 5, 1), RoundSize(2, 30, 4), RoundSize(2, 30, 400)
    layer = 2 * 30 * 20 * 2 * LAYER_COPIES
    logits = 2 * 10 * 4 * LOGIT_COPIES
    of_pass = PROCESS_BYTES + 2_000 + 7
    storage = Storage(2, 2, numbers=2)
    assert predict(SHAPE, storage, (small, large)).held == of_pass + 2 * 30 * 12 * 2 + layer
    assert predict(SHAPE, storage, (late, small)).held == of_pass + 2 * 429 * 12 * 2 + max(logits, layer // 30)


def test_an_engine_that_makes_all_logits_has_two_for_each_position() -> None:
    """They are made when the layers' numbers are gone, so that the larger of the two counts."""
    one = RoundSize(2, 30, 4)
    wide = replace(SHAPE, vocabulary=1_000)
    found = predict(wide, Storage(4, 4, has_all_logits=True), [one]).held
    assert found - PROCESS_BYTES - 4_007 == 2 * 30 * 12 * 4 + 2 * (2 * 30 * 1_000 * 4)


def test_a_load_and_a_score_take_more_for_a_moment() -> None:
    """What the largest round keeps is not there while the model is loaded, and is given back for a score."""
    score, one = RoundSize(1, 100), RoundSize(1, 1, 1)
    scored = 100 * 20 * 4 * LAYER_COPIES + (100 + LOGIT_COPIES) * 10 * 4
    found = predict(SHAPE, Storage(4, 4, loading=50), [score])
    assert (found.loading, found.scoring) == (50_000, scored)
    assert found.peak == PROCESS_BYTES + 4_000 + 7 + 50_000
    kept = predict(SHAPE, Storage(4, 4), [one]).held - PROCESS_BYTES - 4_007
    less = predict(SHAPE, Storage(4, 4, loading=50), [score, one])
    assert (less.loading, less.scoring) == (50_000 - kept, scored - kept)


def test_what_makes_an_artifact_is_another_process() -> None:
    assert predict(SHAPE, Storage(4, 4, making=10), ()).making == PROCESS_BYTES + 14_000 + 7  # tied: 1,400 weights


# Of two layers, one of which looks back over four positions and keeps three; and of a recurrent one.
SEEN = PassMemory(
    (LayerCache(8), LayerCache(6, window=3), LayerCache(100, is_state=True)),
    Taken(least=0, base=1, position=20, pair=2),
)
KNOWN = Storage(4, 4, is_known=True)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (RoundSize(1, 2, 1), 8 * 2 + 6 * 2 + 100),
        (RoundSize(2, 10, 5), 2 * (8 * 14 + 6 * 3 + 100)),
        (RoundSize(2, 10, 5, CacheKind.STATIC), 2 * (8 * 14 + 6 * 4 + 100)),
        (RoundSize(2, 10, 5, CacheKind.OFF), 0),
        (RoundSize(2, 10), 0),
    ],
    ids=["short", "beyond the window", "static", "off", "a score"],
)
def test_a_cache_by_what_layers_were_seen_to_keep(one: RoundSize, expected: int) -> None:
    """The last new token is in no pass. A static cache has the whole window from the start."""
    assert parts_of(SHAPE, KNOWN, SEEN).cache(one) == expected


def test_an_engine_without_windows_keeps_everything() -> None:
    parts = parts_of(SHAPE, replace(KNOWN, has_windows=False), SEEN)
    assert parts.cache(RoundSize(1, 10, 1)) == (8 + 6) * 10 + 100


def test_what_a_pass_takes_grows_with_positions_and_their_pairs() -> None:
    """Of 2 rows of 10: the prefill's cache, 20 positions and 2 x 100 pairs, which is more than the last step's. Without
    a cache the last pass is over all positions."""
    parts = parts_of(replace(SHAPE, heads=3), replace(KNOWN, scores=1), SEEN)
    pair = 2 + 3 * 4
    prefill = 2 * (8 * 10 + 6 * 3 + 100) + 20 * 20 + 2 * 100 * pair
    assert parts.round(RoundSize(2, 10, 2)) == 1 + prefill
    assert parts.round(RoundSize(2, 10, 2, CacheKind.OFF)) == 1 + 22 * 20 + 2 * 121 * pair
    assert parts.total(RoundSize(2, 10, 2)) == PROCESS_BYTES + 4_000 + 7 + 1 + prefill


def test_a_cache_that_is_not_seen_is_a_guess() -> None:
    assert parts_of(SHAPE, KNOWN, SEEN).is_known
    assert not parts_of(SHAPE, KNOWN, None).is_known
    assert not parts_of(SHAPE, Storage(4, 4), SEEN).is_known
    assert parts_of(SHAPE, KNOWN, None).cache(RoundSize(1, 10, 1)) == 10 * 12 * 4


def test_the_largest_workloads_that_fit() -> None:
    """Bytes: 1,000 of the process and weights, 10 for each position's cache, 30 for a pass over one."""
    parts = Parts(900, 100, 0, 0, is_known=True, kept=(LayerCache(10),), taken=Taken(0, 0, 30, 0), logits=0, context=50)
    one = RoundSize(1, 20, 5)
    assert parts.total(one) == 1_000 + 20 * 40
    assert parts.most_rows(1_000 + 3 * 800, one) == 2
    assert parts.most_rows(with_spare(1_000 + 3 * 800), one) == 3
    assert parts.most_rows(with_spare(1_000 + 4 * 800 - 1), one) == 3
    assert parts.most_rows(1_799, one) == 0
    assert parts.longest(with_spare(1_000 + 30 * 40), one) == 35
    assert parts.longest(1_000_000, one) == 50
    assert parts.longest(1_039, one) == 0
    assert parts.longest(1_000_000, replace(one, new=50)) == 0


def test_a_load_may_take_more_than_any_workload() -> None:
    parts = Parts(0, 100, 0, 500, is_known=True, kept=(LayerCache(10),), taken=Taken(0, 0, 30, 0), logits=0)
    assert parts.most_rows(600, RoundSize(1, 1, 1)) == 0
    assert parts.most_rows(with_spare(600), RoundSize(1, 1, 1)) == 500 // 40


def with_spare(needed: int) -> int:
    """The least memory of which all but 2 % is so much."""
    return math.ceil(needed / (1 - SPARE))


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
