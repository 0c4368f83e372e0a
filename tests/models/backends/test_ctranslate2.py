from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("ctranslate2")

from families import BY_NAME
from small_models import write_ending_model

from llm_bench_fixtures.errors import AnotherModel, BackendUnavailable, WorkloadUnsupported
from llm_bench_fixtures.measure.equivalence import EquivalenceVerdict, ExecutionMode, check_equivalence
from llm_bench_fixtures.measure.quality import Score
from llm_bench_fixtures.models.artifacts import ArtifactStore
from llm_bench_fixtures.models.backends import CATALOGUE
from llm_bench_fixtures.models.backends import ctranslate2 as backend
from llm_bench_fixtures.models.backends.ctranslate2 import Ct2Model, open_generator
from llm_bench_fixtures.models.device import Device
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import ModelSource
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.models.variants import TOLERANCES, Arithmetic
from llm_bench_fixtures.progress import Phase, Progress
from llm_bench_fixtures.workloads import CacheKind, Prompts, Side, pad_batch

MakeRequest = Callable[..., LoadRequest]
VARIANTS = ("ct2-fp32", "ct2-int8")
NEW_TOKENS = 8


@pytest.fixture(scope="module")
def loaded(make_request: MakeRequest) -> Mapping[str, Ct2Model]:
    return {variant: load_variant(make_request(variant)).model for variant in VARIANTS}


@pytest.fixture(scope="module")
def losses(loaded: Mapping[str, Ct2Model], score_sample: Callable[[Ct2Model], Score]) -> Mapping[str, float]:
    return {variant: score_sample(model).loss for variant, model in loaded.items()}


def test_the_loss_in_float32_is_that_of_torch(losses: Mapping[str, float], fp32_loss: float) -> None:
    assert losses["ct2-fp32"] == pytest.approx(fp32_loss, abs=1e-3)


def test_the_loss_in_int8_is_another_one_within_5_percent(losses: Mapping[str, float]) -> None:
    assert losses["ct2-int8"] != losses["ct2-fp32"]
    assert losses["ct2-int8"] == pytest.approx(losses["ct2-fp32"], rel=0.05)


def test_the_generator_has_as_many_threads_as_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}
    monkeypatch.setattr("ctranslate2.Generator", lambda folder, **how: asked.update(how))
    open_generator(tmp_path, "float32")
    assert (asked["inter_threads"], asked["intra_threads"]) == (1, torch.get_num_threads())


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("side", [Side.LEFT, Side.RIGHT])
def test_the_tokens_are_those_of_torch(
    rows: int, side: Side, loaded: Mapping[str, Ct2Model], tiny_fp32: TransformersModel, prompts: Prompts
) -> None:
    """Of prompts of unequal lengths too, whose padding is left out, wherever it is."""
    texts = prompts.varied(rows)
    theirs = pad_batch(texts, 64, Side.LEFT, 0, "cpu")
    ours = pad_batch(texts, 64, side, 0, "cpu")
    expected = tiny_fp32.generate(theirs.input_ids, theirs.attention_mask, NEW_TOKENS, CacheKind.DYNAMIC)
    actual = loaded["ct2-fp32"].generate(ours.input_ids, ours.attention_mask, NEW_TOKENS, CacheKind.DYNAMIC)
    assert actual[:, 64:].tolist() == expected[:, 64:].tolist()
    assert actual[:, :64].tolist() == ours.input_ids.tolist()


def test_prompts_of_one_token_run_together_but_not_with_longer_ones(
    loaded: Mapping[str, Ct2Model], tiny_fp32: TransformersModel
) -> None:
    """Bug: with longer ones beside it, CTranslate2's answers began with the prompts, and were too short by them."""
    model = loaded["ct2-fp32"]
    short = pad_batch([(5,), (6,)], 1, Side.LEFT, 0, "cpu")
    answers = [
        one.generate(short.input_ids, short.attention_mask, NEW_TOKENS, CacheKind.DYNAMIC).tolist()
        for one in (model, tiny_fp32)
    ]
    assert answers[0] == answers[1]
    mixed = pad_batch([(5,), (6, 7, 8)], 3, Side.LEFT, 0, "cpu")
    with pytest.raises(WorkloadUnsupported, match="one of a single token is in a batch with longer ones"):
        model.generate(mixed.input_ids, mixed.attention_mask, NEW_TOKENS, CacheKind.DYNAMIC)


def test_the_logits_are_those_of_torch(
    loaded: Mapping[str, Ct2Model], tiny_fp32: TransformersModel, prompts: Prompts
) -> None:
    batch = pad_batch(prompts.varied(3), 64, Side.RIGHT, 0, "cpu")
    there = batch.attention_mask.bool()
    expected, actual = (
        model.logits(batch.input_ids, batch.attention_mask) for model in (tiny_fp32, loaded["ct2-fp32"])
    )
    assert torch.allclose(actual[there], expected[there], atol=1e-3)


def test_logits_are_shown_of_the_token_that_ends_a_text_too(tmp_path: Path, make_request: MakeRequest) -> None:
    source = ModelSource("ending", write_ending_model(tmp_path / "ending"))
    model = load_variant(make_request("ct2-fp32", source)).model
    prompt, mask = torch.tensor([[5, 6]]), torch.ones(1, 2, dtype=torch.int64)
    output, logits = model.generate_with_logits(prompt, mask, 7, CacheKind.DYNAMIC)
    assert output.tolist() == [[5, 6, *[0] * 7]]
    assert logits[0, :, :2].tolist() == [[8.0, 0.0]] * 7


@pytest.mark.parametrize("variant", VARIANTS)
def test_padding_and_batches_change_no_answer(variant: str, loaded: Mapping[str, Ct2Model], prompts: Prompts) -> None:
    found = {one.mode: one for one in check_equivalence(loaded[variant], prompts.varied(2), NEW_TOKENS)}
    for mode in (ExecutionMode.LEFT_PADDING, ExecutionMode.RIGHT_PADDING, ExecutionMode.BATCH):
        assert found[mode].verdict in (EquivalenceVerdict.EQUAL, EquivalenceVerdict.TIE), found[mode].sentence
    assert found[ExecutionMode.CACHE].verdict is EquivalenceVerdict.NOT_SUPPORTED


@pytest.mark.parametrize("rows", [1, 4])
def test_each_new_token_of_a_batch_is_told_of_once(rows: int, loaded: Mapping[str, Ct2Model], prompts: Prompts) -> None:
    told: list[str] = []
    batch = pad_batch(prompts.varied(rows), 64, Side.LEFT, 0, "cpu")
    loaded["ct2-fp32"].generate(
        batch.input_ids, batch.attention_mask, 3, CacheKind.DYNAMIC, on_token=lambda: told.append("token")
    )
    assert len(told) == 3


def test_the_facts(loaded: Mapping[str, Ct2Model]) -> None:
    fp32, int8 = (loaded[variant].facts for variant in VARIANTS)
    assert (fp32.label, int8.label) == ("CTranslate2 float32", "CTranslate2 int8_float32")
    assert fp32.cache_kinds == int8.cache_kinds == {CacheKind.DYNAMIC}
    assert (fp32.tolerance, int8.tolerance) == (TOLERANCES[Arithmetic.FLOAT32], TOLERANCES[Arithmetic.INT8])
    assert fp32.runs_source
    assert fp32.quantized_share is None
    assert (int8.quantized_share or 0) > 0.9
    assert int8.weight_bytes < fp32.weight_bytes / 3
    assert 0 < (fp32.conversion_s or 0) < 600


def test_what_a_pass_reads_is_all_but_the_tables(loaded: Mapping[str, Ct2Model], tiny_fp32: TransformersModel) -> None:
    """As torch counts it, to what CTranslate2 stores besides: a few flags, and a bias or two."""
    expected = tiny_fp32.facts.weight_bytes_read
    assert expected is not None
    assert loaded["ct2-fp32"].facts.weight_bytes_read == pytest.approx(expected, rel=1e-3)


class Tensor:
    def __init__(self, array: np.ndarray) -> None:  # type: ignore[type-arg]
        self.array, self.dtype, self.shape = array, array.dtype.name, array.shape

    def numpy(self) -> np.ndarray:  # type: ignore[type-arg]
        return self.array

    def num_bytes(self) -> int:
        return self.array.nbytes


@pytest.mark.parametrize(("is_tied", "read"), [(True, 40 + 16), (False, 16)])
def test_a_table_that_is_the_output_layer_too_is_read(is_tied: bool, read: int) -> None:
    """A table of 40 bytes, and four floats; of 44 weights 40 are in 8 bits."""
    variables = {
        "decoder/embeddings/weight": Tensor(np.zeros((4, 10), np.int8)),
        "decoder/layer_0/bias": Tensor(np.zeros(4, np.float32)),
    } | ({"decoder/projection/weight": "decoder/embeddings/weight"} if is_tied else {})
    _, weight_bytes_read, quantized_share = backend.counts_of(variables, 99)
    assert weight_bytes_read == read
    assert math.isclose(quantized_share, 40 / 44)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_second_load_reuses_the_conversion_and_tells_what_it_took(
    variant: str, loaded: Mapping[str, Ct2Model], make_request: MakeRequest
) -> None:
    progress = Progress()
    facts = load_variant(make_request(variant, progress=progress)).facts
    assert facts.notes == ("ctranslate2 reused from the cache",)
    assert facts.conversion_s == loaded[variant].facts.conversion_s
    assert not progress.phase_s[Phase.EXPORTING]


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_another_family_gives_the_tokens_of_torch(
    family: str, make_request: MakeRequest, tmp_path: Path, prompts: Prompts
) -> None:
    """Up to the length of an attention window, where there is one: beyond it CTranslate2 fails."""
    with quiet_libraries():
        source = BY_NAME[family].build(tmp_path)
    model = load_variant(make_request("ct2-fp32", source)).model
    window = BY_NAME[family].config.get("sliding_window", 512)
    assert model.facts.context_length == window
    width = min(64, window) - NEW_TOKENS
    batch = pad_batch([ids[:width] for ids in prompts.varied(3)], width, Side.LEFT, 0, "cpu")
    texts = [
        one.generate(batch.input_ids, batch.attention_mask, NEW_TOKENS, CacheKind.DYNAMIC).tolist()
        for one in (model, load_variant(make_request("fp32", source)).model)
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_converter_that_passes_over_a_part_of_the_model_is_an_error(
    variant: str, make_request: MakeRequest, tmp_path: Path
) -> None:
    """Bug: with CTranslate2 4.8 Gemma 2 gave other texts, at full speed."""
    with quiet_libraries():
        source = BY_NAME["gemma2"].build(tmp_path)
    with pytest.raises(
        AnotherModel,
        match=r"^CTranslate2's conversion computes something else than transformers: after the same 24 tok",
    ):
        load_variant(make_request(variant, source))


def test_an_architecture_without_a_converter_is_unavailable(make_request: MakeRequest, tmp_path: Path) -> None:
    with quiet_libraries():
        source = BY_NAME["mamba"].build(tmp_path)
    with pytest.raises(BackendUnavailable, match=r"^CTranslate2 has no converter for mamba models$"):
        load_variant(make_request("ct2-fp32", source))


def test_a_conversion_that_fails_is_not_kept(
    make_request: MakeRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_try", lambda *_: [][0])  # an IndexError
    request = replace(make_request("ct2-fp32"), store=ArtifactStore(tmp_path))
    with pytest.raises(BackendUnavailable, match=r"^CTranslate2 doesn't run gpt2 models as converted: IndexError: "):
        load_variant(request)
    assert not list((tmp_path / "ctranslate2").glob("*/"))


def test_what_the_processor_lacks_makes_it_unavailable(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctranslate2.get_supported_compute_types", lambda _: {"float32"})
    (variant,) = (variant for variant in CATALOGUE if variant.id == "ct2-int8")
    with pytest.raises(BackendUnavailable, match="doesn't compute in int8_float32 on this processor"):
        backend.check(variant, cpu)
