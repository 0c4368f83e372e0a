from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from waiting import BACKSTOP_S

pytest.importorskip("optimum.intel")
pytest.importorskip("nncf")

from families import BY_NAME

from llm_bench_fixtures.errors import BackendUnavailable
from llm_bench_fixtures.measure.equivalence import EquivalenceVerdict, ExecutionMode, check_equivalence
from llm_bench_fixtures.measure.quality import Score
from llm_bench_fixtures.models.artifacts import ArtifactStore
from llm_bench_fixtures.models.backends import openvino as backend
from llm_bench_fixtures.models.device import resident_bytes
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.models.variants import TOLERANCES, Arithmetic, Precision
from llm_bench_fixtures.progress import Phase, Progress
from llm_bench_fixtures.workloads import CacheKind, Prompts, Side, pad_batch

MakeRequest = Callable[..., LoadRequest]
VARIANTS = ("ov-fp32", "ov-int8", "ov-int4")
QUANTIZED = VARIANTS[1:]
NEW_TOKENS = 8


@pytest.fixture(scope="module")
def loaded(make_request: MakeRequest) -> Mapping[str, TransformersModel]:
    return {variant: load_variant(make_request(variant)).model for variant in VARIANTS}


@pytest.fixture(scope="module")
def losses(
    loaded: Mapping[str, TransformersModel], score_sample: Callable[[TransformersModel], Score]
) -> Mapping[str, float]:
    return {variant: score_sample(model).loss for variant, model in loaded.items()}


def test_the_loss_in_float32_is_that_of_torch(losses: Mapping[str, float], fp32_loss: float) -> None:
    assert losses["ov-fp32"] == pytest.approx(fp32_loss, abs=1e-3)


@pytest.mark.parametrize(("variant", "within"), [("ov-int8", 0.02), ("ov-int4", 0.1)])
def test_a_quantized_loss_is_another_one(variant: str, within: float, losses: Mapping[str, float]) -> None:
    assert losses[variant] != losses["ov-fp32"]
    assert losses[variant] == pytest.approx(losses["ov-fp32"], rel=within)


@pytest.mark.parametrize("rows", [1, 4])
def test_the_tokens_in_float32_are_those_of_torch(
    rows: int, loaded: Mapping[str, TransformersModel], tiny_fp32: TransformersModel, prompts: Prompts
) -> None:
    batch = pad_batch(prompts.varied(rows), 64, Side.LEFT, 0, "cpu")
    texts = [
        model.generate(batch.input_ids, batch.attention_mask, NEW_TOKENS, CacheKind.DYNAMIC).tolist()
        for model in (tiny_fp32, loaded["ov-fp32"])
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("variant", VARIANTS)
def test_padding_and_batches_change_no_answer(
    variant: str, loaded: Mapping[str, TransformersModel], prompts: Prompts
) -> None:
    found = {one.mode: one for one in check_equivalence(loaded[variant], prompts.varied(2), NEW_TOKENS)}
    for mode in (ExecutionMode.LEFT_PADDING, ExecutionMode.RIGHT_PADDING, ExecutionMode.BATCH):
        assert found[mode].verdict in (EquivalenceVerdict.EQUAL, EquivalenceVerdict.TIE), found[mode].sentence
    assert found[ExecutionMode.CACHE].verdict is EquivalenceVerdict.NOT_SUPPORTED


def test_float32_is_what_the_compiled_model_says(loaded: Mapping[str, TransformersModel]) -> None:
    """Bug: on a processor with AMX OpenVINO computes float32 weights in bfloat16, unless it is told not to."""
    model = loaded["ov-fp32"]
    chosen = backend.chosen_by(model.module, is_float32=True)
    assert (chosen.floats, chosen.cache) == ("f32", "f32")
    assert model.facts.compute is Precision.FLOAT32
    assert model.facts.tolerance == TOLERANCES[Arithmetic.FLOAT32]
    assert model.facts.quantized_share is None


def test_the_cache_is_in_what_is_computed_in(loaded: Mapping[str, TransformersModel]) -> None:
    """Bug: of a cache in 8 bits, OpenVINO's default, some batches have logits that are no numbers."""
    for variant, model in loaded.items():
        chosen = backend.chosen_by(model.module, is_float32=variant == "ov-fp32")
        assert chosen.cache == chosen.floats


def test_the_model_has_as_many_threads_as_torch(loaded: Mapping[str, TransformersModel]) -> None:
    for model in loaded.values():
        compiled = model.module.request.get_compiled_model()
        assert compiled.get_property("INFERENCE_NUM_THREADS") == torch.get_num_threads()
        assert not compiled.get_property("ENABLE_CPU_PINNING")


@pytest.mark.parametrize(
    ("floats", "cache", "group", "label", "compute"),
    [
        ("f32", "f32", 0, "gemm, KV cache f32", Precision.FLOAT32),
        ("f32", "f32", 32, "gemm, activations int8 in groups of 32, KV cache f32", None),
        ("bf16", "bf16", 0, "gemm, KV cache bf16", Precision.BFLOAT16),
    ],
)
def test_what_is_told_of_openvinos_choices(
    floats: str, cache: str, group: int, label: str, compute: Precision | None
) -> None:
    chosen = backend.Choices(floats, cache, "gemm", group)
    assert (chosen.label, chosen.compute) == (label, compute)


@pytest.mark.parametrize("variant", QUANTIZED)
def test_quantized_weights_are_fewer_bytes(variant: str, loaded: Mapping[str, TransformersModel]) -> None:
    facts, full = loaded[variant].facts, loaded["ov-fp32"].facts
    assert facts.weight_bytes < full.weight_bytes / 3
    assert (facts.weight_bytes_read or 0) < (full.weight_bytes_read or 0) / 3
    assert (facts.quantized_share or 0) > 0.9


def test_what_a_pass_reads_is_all_but_the_tables(
    loaded: Mapping[str, TransformersModel], tiny_fp32: TransformersModel
) -> None:
    expected = tiny_fp32.facts.weight_bytes_read
    assert expected is not None
    assert loaded["ov-fp32"].facts.weight_bytes_read == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_second_load_reuses_every_artifact_and_tells_what_they_took(
    variant: str, loaded: Mapping[str, TransformersModel], make_request: MakeRequest
) -> None:
    progress = Progress()
    facts = load_variant(make_request(variant, progress=progress)).facts
    assert all(note.endswith("reused from the cache") for note in facts.notes)
    assert not any(progress.phase_s[phase] for phase in (Phase.EXPORTING, Phase.QUANTIZING))
    assert facts.conversion_s == loaded[variant].facts.conversion_s


def test_a_quantized_model_took_its_export_too(loaded: Mapping[str, TransformersModel]) -> None:
    export_s = loaded["ov-fp32"].facts.conversion_s
    assert export_s is not None
    for variant in QUANTIZED:
        assert (loaded[variant].facts.conversion_s or 0) > export_s


def test_a_large_model_is_not_quantized_by_itself(
    loaded: Mapping[str, TransformersModel],
    make_request: MakeRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Optimum's own export takes 8 bits for more than 10⁹ weights; here for more than 1000."""
    monkeypatch.setattr("optimum.exporters.openvino.__main__._MAX_UNCOMPRESSED_SIZE", 1000)
    facts = load_variant(replace(make_request("ov-fp32"), store=ArtifactStore(tmp_path))).facts
    assert facts.weight_bytes == loaded["ov-fp32"].facts.weight_bytes


def test_a_llama_gives_the_tokens_of_torch(make_request: MakeRequest, tmp_path: Path, prompts: Prompts) -> None:
    with quiet_libraries():
        source = BY_NAME["llama"].build(tmp_path)
    batch = pad_batch(prompts.varied(3), 64, Side.LEFT, 0, "cpu")
    texts = [
        load_variant(make_request(variant, source))
        .model.generate(batch.input_ids, batch.attention_mask, NEW_TOKENS, CacheKind.DYNAMIC)
        .tolist()
        for variant in ("fp32", "ov-fp32")
    ]
    assert texts[0] == texts[1]


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is exact on Linux")
def test_what_a_request_kept_of_a_larger_run_is_given_back(loaded: Mapping[str, TransformersModel]) -> None:
    """Logits of 8 x 500 x 4096 float32."""
    model = loaded["ov-fp32"]
    ids = torch.ones(8, 500, dtype=torch.int64)
    model.logits(ids, torch.ones_like(ids))
    model.device.release_cached_memory()
    kept = resident_bytes()
    model.forget_caches()
    model.device.release_cached_memory()
    assert resident_bytes() < kept - (8 * 500 * 4096 * 4) // 2


def test_an_architecture_without_an_export_is_unavailable(make_request: MakeRequest, tmp_path: Path) -> None:
    with quiet_libraries():
        source = BY_NAME["rwkv"].build(tmp_path)
    with pytest.raises(BackendUnavailable, match=r"^Optimum has no OpenVINO export for rwkv models$"):
        load_variant(make_request("ov-fp32", source))


def test_an_export_that_fails_is_not_kept(
    make_request: MakeRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("shapes")

    monkeypatch.setattr("optimum.exporters.openvino.export_from_model", fail)
    request = replace(make_request("ov-fp32"), store=ArtifactStore(tmp_path))
    with pytest.raises(BackendUnavailable, match=r"^Optimum can't export gpt2 models to OpenVINO: shapes$"):
        load_variant(request)
    assert not list((tmp_path / "openvino-export").glob("*/"))


FIRST_LOAD = """
import os
import sys
from pathlib import Path

from llm_bench_fixtures.models.artifacts import ArtifactStore
from llm_bench_fixtures.models.backends import CATALOGUE
from llm_bench_fixtures.models.device import Device, DeviceKind
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.source import TINY, TINY_FOLDER, ModelSource
from llm_bench_fixtures.options.settings import parse_settings
from llm_bench_fixtures.progress import Progress

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
(variant,) = (variant for variant in CATALOGUE if variant.id == "ov-int8")
source, cpu = ModelSource(TINY, TINY_FOLDER), Device(DeviceKind.CPU, "cpu", "a processor")
load_variant(LoadRequest(variant, source, cpu, parse_settings({}), ArtifactStore(Path(sys.argv[1])), Progress()))
print(sys.modules["openvino_telemetry"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux binds processes to cores")
@pytest.mark.slow("a process of its own that exports")
def test_a_first_load_on_one_core_lives_prints_nothing_and_tells_nobody(tmp_path: Path) -> None:
    """Bugs: with one core and its usual settings OpenVINO died of SIGFPE; NNCF printed tables; both sent telemetry."""
    command = [sys.executable, "-c", FIRST_LOAD, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BACKSTOP_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "None\n", "")
