from __future__ import annotations

import json
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("onnxruntime_genai")

import torch
from families import BY_NAME
from onnx import helper

from llm_bench_fixtures.errors import AnotherModel, BackendUnavailable, OutOfMemory, WorkloadUnsupported
from llm_bench_fixtures.measure.equivalence import EquivalenceVerdict, ExecutionMode, check_equivalence
from llm_bench_fixtures.measure.quality import Score
from llm_bench_fixtures.models.backends import CATALOGUE
from llm_bench_fixtures.models.backends import onnxruntime_genai as backend
from llm_bench_fixtures.models.backends.onnxruntime_genai import (
    MOST_ROWS,
    PADDING,
    GenaiModel,
    build,
    continue_rows,
    end_no_text,
    failure,
    open_engine,
)
from llm_bench_fixtures.models.device import resident_bytes
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.model import Model
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import ModelSource
from llm_bench_fixtures.models.variants import TOLERANCES, Arithmetic
from llm_bench_fixtures.progress import Phase, Progress
from llm_bench_fixtures.workloads import Batch, CacheKind, Side, pad_batch

MakeRequest = Callable[..., LoadRequest]
VARIANTS = ("ortgenai-fp32", "ortgenai-int4")
PROMPTS = ((11, 12, 13, 14, 15, 16, 17), (21, 22, 23), (31,))
LONGEST = max(map(len, PROMPTS))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> ModelSource:
    with quiet_libraries():
        return BY_NAME["llama"].build(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def loaded(llama: ModelSource, make_request: MakeRequest) -> Mapping[str, Any]:
    return {variant: load_variant(make_request(variant, llama)).model for variant in ("fp32", *VARIANTS)}


def padded(rows: Any, width: int = 0, side: Side = Side.LEFT) -> Batch:
    return pad_batch(rows, max(width, *map(len, rows)), side, 0, "cpu")


def generate(model: Model, batch: Batch, new_tokens: int = 12) -> list[list[int]]:
    tokens: list[list[int]] = model.generate(
        batch.input_ids, batch.attention_mask, new_tokens, CacheKind.DYNAMIC
    ).tolist()
    return tokens


@pytest.mark.parametrize(
    "batch",
    [padded(PROMPTS[:1]), padded(PROMPTS[:1], LONGEST + 5), padded(PROMPTS), padded(PROMPTS, 16)],
    ids=["alone", "alone, padded", "a batch", "a batch, padded further"],
)
def test_float32_gives_the_tokens_of_transformers(batch: Batch, loaded: Mapping[str, Any]) -> None:
    """Padding on the left, which the engine's attention doesn't take, is moved to the right."""
    assert generate(loaded["ortgenai-fp32"], batch) == generate(loaded["fp32"], batch)


def test_a_token_that_others_pad_with_is_a_token_in_a_prompt(loaded: Mapping[str, Any]) -> None:
    """The engine takes an id for padding wherever it stands; the embedded tokenizer's is its end of text, too."""
    pad = loaded["fp32"].tokenizer.pad_token_id
    batch = padded([(pad, 12, pad, 14), (pad,)])
    assert generate(loaded["ortgenai-fp32"], batch) == generate(loaded["fp32"], batch)


def test_what_was_published_with_the_model_is_no_setting(
    loaded: Mapping[str, Any], llama: ModelSource, make_request: MakeRequest, tmp_path: Path
) -> None:
    """With a penalty of nine on repetition, no token would come twice; and the first one is published as the end of
    texts."""
    folder = shutil.copytree(build(make_request("ortgenai-fp32", llama), backend.PLAIN).folder, tmp_path / "built")
    path = folder / "genai_config.json"
    config = json.loads(path.read_text("utf-8"))
    config["search"] |= {"repetition_penalty": 9.0, "no_repeat_ngram_size": 1, "do_sample": True, "num_beams": 2}
    texts = generate(loaded["fp32"], padded(PROMPTS[:1]))
    assert config["model"]["eos_token_id"] == []
    config["model"]["eos_token_id"] = texts[0][LONGEST]
    path.write_text(json.dumps(config), "utf-8")
    end_no_text(folder)
    engine = open_engine(folder)
    assert len(set(texts[0])) < len(texts[0])
    assert continue_rows(engine, PROMPTS[:1], LONGEST, 12) == [texts[0][LONGEST:]]


@pytest.mark.parametrize("rope", ["linear", "yarn"])
def test_a_builder_that_passes_over_a_part_of_the_model_is_an_error(
    rope: str, make_request: MakeRequest, tmp_path: Path
) -> None:
    """Bug: rotary embeddings of these types were built as plain ones, and another model was measured."""
    family = BY_NAME["llama"]
    scaling = {"rope_type": rope, "factor": 4.0, "original_max_position_embeddings": 128}
    with quiet_libraries():
        source = replace(family, config={**family.config, "rope_scaling": scaling}).build(tmp_path)
    for variant in VARIANTS:
        with pytest.raises(
            AnotherModel, match=r"^onnxruntime-genai's conversion computes something else than transformers: after the"
        ):
            load_variant(make_request(variant, source))


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_token_is_told_once_for_the_batch(variant: str, loaded: Mapping[str, Any]) -> None:
    calls: list[None] = []
    batch = padded(PROMPTS)
    loaded[variant].generate(batch.input_ids, batch.attention_mask, 5, CacheKind.DYNAMIC, lambda: calls.append(None))
    assert len(calls) == 5


def test_float32_logits_are_those_of_transformers(loaded: Mapping[str, Any]) -> None:
    batch = padded(PROMPTS, 9, Side.RIGHT)
    actual, expected = (
        loaded[name].logits(batch.input_ids, batch.attention_mask) for name in ("ortgenai-fp32", "fp32")
    )
    seen = batch.attention_mask.bool()
    torch.testing.assert_close(actual[seen], expected[seen], rtol=1e-4, atol=1e-4)


def test_more_rows_than_the_engine_takes_are_scored_in_parts(loaded: Mapping[str, Any]) -> None:
    """Bug: "batch_size (120) must be in [1, 32]" for the embedded choices."""
    ids = torch.arange(1, 2 * MOST_ROWS + 4).reshape(-1, 1).repeat(1, 3)
    one, other = (loaded[name].logits(ids, torch.ones_like(ids)) for name in ("ortgenai-fp32", "fp32"))
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_more_prompts_than_the_engine_takes_are_not_supported(loaded: Mapping[str, Any]) -> None:
    with pytest.raises(WorkloadUnsupported, match="at most 32 prompts at a time"):
        generate(loaded["ortgenai-fp32"], padded([(1,)] * (MOST_ROWS + 1)), 1)
    assert len(generate(loaded["ortgenai-fp32"], padded([(1,)] * MOST_ROWS), 1)) == MOST_ROWS


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is exact on Linux")
def test_a_large_run_leaves_no_memory_behind(loaded: Mapping[str, Any]) -> None:
    """Here logits of 8 x 500 x 4096 float32, which the peak of every later run would hold."""
    model = loaded["ortgenai-fp32"]
    generate(model, padded(PROMPTS), 2)
    model.device.release_cached_memory()
    before = resident_bytes()
    ids = torch.ones(8, 500, dtype=torch.int64)
    model.logits(ids, torch.ones_like(ids))
    model.device.release_cached_memory()
    assert resident_bytes() < before + (8 * 500 * 4096 * 4) // 10


def test_the_loss_is_that_of_float32(loaded: Mapping[str, Any], score_sample: Callable[[Model], Score]) -> None:
    expected = score_sample(loaded["fp32"]).loss
    assert score_sample(loaded["ortgenai-fp32"]).loss == pytest.approx(expected, rel=1e-5)
    assert score_sample(loaded["ortgenai-int4"]).loss == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("variant", VARIANTS)
def test_answers_do_not_depend_on_padding_and_batch(variant: str, loaded: Mapping[str, Any]) -> None:
    found = {result.mode: result for result in check_equivalence(loaded[variant], PROMPTS, 6)}
    for mode in (ExecutionMode.LEFT_PADDING, ExecutionMode.RIGHT_PADDING, ExecutionMode.BATCH):
        assert found[mode].verdict in (EquivalenceVerdict.EQUAL, EquivalenceVerdict.TIE), found[mode].sentence
    assert found[ExecutionMode.CACHE].verdict is EquivalenceVerdict.NOT_SUPPORTED


def test_what_the_facts_say(loaded: Mapping[str, Any]) -> None:
    plain, int4 = (loaded[variant].facts for variant in VARIANTS)
    assert (plain.label, plain.tolerance) == ("onnxruntime-genai float32", TOLERANCES[Arithmetic.FLOAT32])
    assert int4.label == "onnxruntime-genai int4, computes in int8"
    assert (int4.tolerance, int4.compute) == (TOLERANCES[Arithmetic.INT8], None)
    assert plain.runs_source
    assert plain.quantized_share is None


@pytest.mark.parametrize(
    ("levels", "told"),
    [([4], "int8"), ([0, 4], "ONNX Runtime's choice and int8"), ([7], "accuracy level 7"), ([], "float32")],
)
def test_the_label_says_what_the_graph_asks_to_compute_in(levels: list[int], told: str) -> None:
    """Bug: it named an instruction set, which nobody had asked for or told."""
    (variant,) = (variant for variant in CATALOGUE if variant.id == "ortgenai-int4")
    assert backend.label(variant, levels) == f"onnxruntime-genai int4, computes in {told}"


def test_a_product_without_an_accuracy_level_leaves_the_choice() -> None:
    asked = [helper.make_node("MatMulNBits", [], [], N=2, K=32, **more) for more in ({"accuracy_level": 4}, {})]
    graph = helper.make_graph([*asked, helper.make_node("MatMul", [], [])], "graph", [], [])
    assert backend.accuracy_levels(graph) == [0, 4]


def test_the_weights_that_are_read_are_those_of_float32(loaded: Mapping[str, Any]) -> None:
    """All but the tables of tokens and of rotary angles."""
    plain, int4 = (loaded[variant].facts for variant in VARIANTS)
    assert plain.weight_bytes_read == pytest.approx(loaded["fp32"].facts.weight_bytes_read, rel=0.01)
    assert int4.weight_bytes < plain.weight_bytes


def test_the_share_in_4_bits_is_that_of_the_matrices(loaded: Mapping[str, Any]) -> None:
    """Per layer 64 x (64 + 32 + 32 + 64) of attention and 3 x 64 x 128; the output layer; the table is float32."""
    matrices = 2 * (64 * 192 + 3 * 64 * 128) + 64 * 4096
    others = 64 * 4096 + 5 * 64 + 2 * 512 * 8  # the table, five norms, cosines and sines
    share = loaded["ortgenai-int4"].facts.quantized_share
    assert share == pytest.approx(matrices / (matrices + others), rel=1e-3)


def test_a_second_load_reuses_what_was_built(
    llama: ModelSource, loaded: Mapping[str, Any], make_request: MakeRequest
) -> None:
    progress = Progress()
    request = make_request("ortgenai-fp32", llama, progress)
    facts, built_s = load_variant(request).facts, build(request, backend.PLAIN).made_s
    assert facts.notes == ("genai-fp32 reused from the cache",)
    assert facts.conversion_s == loaded["ortgenai-fp32"].facts.conversion_s == built_s > 0
    assert not progress.phase_s[Phase.EXPORTING]


def test_the_session_has_as_many_threads_as_torch_and_sleeps_where_others_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    config = SimpleNamespace(overlay=told.append)
    monkeypatch.setattr("onnxruntime_genai.Config", lambda folder: config)
    monkeypatch.setattr("onnxruntime_genai.Model", lambda config: config)
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    open_engine(tmp_path)
    model = json.loads(told[0])["model"]
    session = model["decoder"]["session_options"]
    assert session["intra_op_num_threads"] == torch.get_num_threads()
    assert session["session.intra_op.allow_spinning"] == "0"
    assert model["pad_token_id"] == PADDING


def test_the_embedded_models_architecture_is_skipped_before_anything_is_built(make_request: MakeRequest) -> None:
    progress = Progress()
    with pytest.raises(BackendUnavailable, match=r"^onnxruntime-genai's model builder doesn't know GPT2LMHeadModel$"):
        load_variant(make_request("ortgenai-fp32", progress=progress))
    assert not progress.phase_s[Phase.EXPORTING]


@pytest.mark.parametrize(
    ("status", "stderr", "expected", "text"),
    [
        (1, "Traceback\nKeyError: 'rope'\n", BackendUnavailable, "model builder failed: KeyError: 'rope'$"),
        (1, "ImportError: cannot import name 'Q'", BackendUnavailable, "0.15.2 works under transformers 4.57"),
        (1, "OSError: [Errno 28] No space left on device", OutOfMemory, "No space left on device"),
        (-signal.SIGKILL, "", OutOfMemory, "was ended: exit status -9"),
    ],
    ids=["of the builder", "another transformers", "a full disk", "killed"],
)
def test_a_builder_that_fails(status: int, stderr: str, expected: type[Exception], text: str) -> None:
    """What the builder can't do skips the variant; a full disk or memory is an error."""
    error = failure(status, stderr)
    assert type(error) is expected
    with pytest.raises(expected, match=text):
        raise error


def test_a_builder_that_does_not_end_is_stopped(
    llama: ModelSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It imports torch, which takes longer than this limit."""
    monkeypatch.setattr(backend, "BUILDER_S", 0.36)
    with pytest.raises(BackendUnavailable, match=r"builder was stopped, as it took over 0\.0001 hours$"):
        backend.run_builder(llama, tmp_path, "fp32")


def test_a_closed_model_has_released_the_engine(loaded: Mapping[str, Any]) -> None:
    one = loaded["ortgenai-fp32"]
    closed = GenaiModel(one.variant, one.device, one.engine, one.tokenizer, one.facts)
    closed.close()
    assert closed.engine is None
