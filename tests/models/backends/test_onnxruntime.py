from __future__ import annotations

import math
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from waiting import BACKSTOP_S

pytest.importorskip("onnxruntime")

import onnxruntime
from families import BY_NAME
from small_models import lacking_onnx, write_ending_model

from llm_bench_fixtures.errors import BackendUnavailable, NoRoom, OutOfMemory, QualityCollapsed
from llm_bench_fixtures.measure.quality import Score
from llm_bench_fixtures.measure.work import observe
from llm_bench_fixtures.models.artifacts import ArtifactStore
from llm_bench_fixtures.models.backends import CATALOGUE
from llm_bench_fixtures.models.backends import onnx_graphs as graphs
from llm_bench_fixtures.models.backends import onnxruntime as backend
from llm_bench_fixtures.models.device import Device, DeviceKind, resident_bytes
from llm_bench_fixtures.models.loading import LoadRequest, load_variant, translate_out_of_memory
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import ModelSource
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.models.variants import TOLERANCES, Arithmetic
from llm_bench_fixtures.progress import Phase, Progress
from llm_bench_fixtures.workloads import CALIBRATION_FOLDER, CacheKind, Prompts, Side, Workload, pad_batch, read_corpus

pytestmark = pytest.mark.skipif(lacking_onnx() is not None, reason=f"{lacking_onnx()} is not installed")

MakeRequest = Callable[..., LoadRequest]
VARIANTS = ("ort-fp32", "ort-int8-dynamic", "ort-int8-static")
QUANTIZED = VARIANTS[1:]


@pytest.fixture(scope="module")
def loaded(make_request: MakeRequest) -> Mapping[str, TransformersModel]:
    return {variant: load_variant(make_request(variant)).model for variant in VARIANTS}


@pytest.fixture(scope="module")
def losses(
    loaded: Mapping[str, TransformersModel], score_sample: Callable[[TransformersModel], Score]
) -> Mapping[str, float]:
    return {variant: score_sample(model).loss for variant, model in loaded.items()}


def calibrated(
    model: TransformersModel, texts: Sequence[str], graph: Path, scratch: Path
) -> tuple[Any, list[graphs.Pass]]:
    return graphs.calibrate(model.module, model.tokenizer, texts, graph, scratch)


def own_graph(model: TransformersModel) -> Path:
    return graphs.only_graph(Path(model.module.path).parent)


@pytest.fixture(scope="module")
def passes(loaded: Mapping[str, TransformersModel], tmp_path_factory: pytest.TempPathFactory) -> list[graphs.Pass]:
    """Of two prompts, continued by three tokens each."""
    model, texts = loaded["ort-fp32"], read_corpus(CALIBRATION_FOLDER).texts
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graphs, "PROMPTS", 2)
        patch.setattr(graphs, "NEW_TOKENS", 3)
        return calibrated(model, texts, own_graph(model), tmp_path_factory.mktemp("scratch"))[1]


def test_calibration_goes_on_after_the_end_of_a_text(tmp_path: Path, make_request: MakeRequest) -> None:
    """The model takes token 0, which ends its texts, for the likeliest everywhere."""
    source = ModelSource("ending", write_ending_model(tmp_path / "ending"))
    model = load_variant(make_request("ort-fp32", source)).model
    model.module.generation_config.eos_token_id = 0
    _, passes = calibrated(model, ["The end of it. " * 99], own_graph(model), tmp_path)
    assert len(passes) == 2 * graphs.PROMPTS


def test_ranges_are_the_least_and_the_largest_values_of_all_passes(
    loaded: Mapping[str, TransformersModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both passes of each prompt are among the checked ones, which tell those of the logits."""
    monkeypatch.setattr(graphs, "PROMPTS", 2)
    monkeypatch.setattr(graphs, "NEW_TOKENS", 2)
    model = loaded["ort-fp32"]
    ranges, passes = calibrated(model, read_corpus(CALIBRATION_FOLDER).texts, own_graph(model), tmp_path)
    lowest, highest = ranges["logits"].range_value
    assert lowest.item() == min(one.logits.min() for one in passes)
    assert highest.item() == max(one.logits.max() for one in passes)


@pytest.mark.parametrize(("policy", "is_told"), [("passive", True), ("active", False)])
def test_the_pool_waits_as_openmp_is_told_to(
    policy: str, is_told: bool, loaded: Mapping[str, TransformersModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool that spins after its work takes the core from a process whose turn it is."""
    entries: dict[str, str] = {}

    class Options(onnxruntime.SessionOptions):  # type: ignore[misc]
        def add_session_config_entry(self, name: str, value: str) -> None:
            entries[name] = value

    monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    monkeypatch.setattr(onnxruntime, "SessionOptions", Options)
    model = loaded["ort-fp32"]
    graphs.open_model(Path(model.module.model_save_dir), model.device)
    assert entries == ({"session.intra_op.allow_spinning": "0"} if is_told else {})


def test_float32_is_not_multiplied_in_tf32() -> None:
    """Bug: ONNX Runtime's CUDA provider does so by default, with 10 bits of each factor's 23."""
    assert graphs.provider_options(Device(DeviceKind.CUDA, "cuda:1", "")) == {"device_id": 1, "use_tf32": 0}
    assert graphs.provider_options(Device(DeviceKind.CPU, "cpu", "")) is None


def test_the_exported_loss_is_that_of_torch_to_a_thousandth(losses: Mapping[str, float], fp32_loss: float) -> None:
    assert losses["ort-fp32"] == pytest.approx(fp32_loss, abs=1e-3)


@pytest.mark.parametrize("variant", QUANTIZED)
def test_a_quantized_loss_is_within_5_percent_of_float32(variant: str, losses: Mapping[str, float]) -> None:
    assert losses[variant] == pytest.approx(losses["ort-fp32"], rel=0.05)


@pytest.mark.parametrize("variant", QUANTIZED)
def test_a_quantized_model_differs_from_float32(variant: str, losses: Mapping[str, float]) -> None:
    """Else nothing was quantized."""
    assert losses[variant] != losses["ort-fp32"]


@pytest.mark.parametrize("variant", QUANTIZED)
def test_a_quantized_model_is_smaller_than_float32(variant: str, loaded: Mapping[str, TransformersModel]) -> None:
    assert loaded[variant].facts.weight_bytes < loaded["ort-fp32"].facts.weight_bytes


def test_weight_bytes_are_most_of_the_graphs_file(loaded: Mapping[str, TransformersModel]) -> None:
    """The rest of it, the nodes, takes at most 0.6 MB."""
    for model in loaded.values():
        size = Path(model.module.path).stat().st_size
        assert size - 600_000 < model.facts.weight_bytes < size
    assert loaded["ort-fp32"].facts.weight_bytes == pytest.approx(4 * 4_339_200, rel=0.01)


def test_the_exported_model_generates_the_tokens_of_torch(
    loaded: Mapping[str, TransformersModel], tiny_fp32: TransformersModel, prompts: Prompts
) -> None:
    batch = pad_batch(prompts.varied(4), 64, Side.LEFT, 0, "cpu")
    expected = tiny_fp32.generate(batch.input_ids, batch.attention_mask, 8, CacheKind.DYNAMIC)
    actual = loaded["ort-fp32"].generate(batch.input_ids, batch.attention_mask, 8, CacheKind.DYNAMIC)
    assert actual.tolist() == expected.tolist()


def test_the_cache_changes_no_greedy_token(loaded: Mapping[str, TransformersModel], prompts: Prompts) -> None:
    model = loaded["ort-fp32"]
    batch = pad_batch(prompts.varied(4), 64, Side.LEFT, 0, "cpu")
    cached, uncached = (
        model.generate(batch.input_ids, batch.attention_mask, 8, cache) for cache in (CacheKind.DYNAMIC, CacheKind.OFF)
    )
    assert cached.tolist() == uncached.tolist()


def test_a_static_cache_is_not_among_the_caches(loaded: Mapping[str, TransformersModel]) -> None:
    assert loaded["ort-fp32"].facts.cache_kinds == {CacheKind.DYNAMIC, CacheKind.OFF}


def test_the_labels_say_the_instruction_set(loaded: Mapping[str, TransformersModel]) -> None:
    instructions = backend.instruction_set()
    assert [loaded[variant].facts.label for variant in VARIANTS] == [
        "ONNX Runtime float32",
        f"ONNX Runtime int8 dynamic ({instructions})",
        f"ONNX Runtime int8 static ({instructions})",
    ]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_second_load_reuses_every_artifact(
    variant: str, loaded: Mapping[str, TransformersModel], make_request: MakeRequest
) -> None:
    progress = Progress()
    notes = load_variant(make_request(variant, progress=progress)).facts.notes
    assert all(note.endswith("reused from the cache") for note in notes)
    assert not any(progress.phase_s[phase] for phase in (Phase.EXPORTING, Phase.CALIBRATING, Phase.QUANTIZING))


def test_each_prompts_prefill_and_last_step_are_kept(passes: list[graphs.Pass]) -> None:
    """Three tokens take three forward passes: one over the 64 tokens of the prompt, two over one token each."""
    assert [one.feed["input_ids"].shape for one in passes] == [(1, 64), (1, 1)] * 2
    assert [one.logits.shape[:2] for one in passes] == [(1, 64), (1, 1)] * 2


def test_the_past_is_empty_in_prefill_and_has_all_before_the_last_step(passes: list[graphs.Pass]) -> None:
    pasts = [{value.shape[2] for name, value in one.feed.items() if "past" in name} for one in passes]
    assert pasts == [{0}, {65}] * 2


def test_the_calibration_prompts_differ(passes: list[graphs.Pass]) -> None:
    assert passes[0].feed["input_ids"].tolist() != passes[2].feed["input_ids"].tolist()


def test_calibrating_leaves_no_weights_behind(
    loaded: Mapping[str, TransformersModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: those of a large model, which lie in a file of their own, were kept with the quantized ones. Bug: meanwhile
    there was another graph next to the exported one, which other runs took for damaged then."""
    import onnx

    exported, scratch = tmp_path / "exported", tmp_path / "scratch"
    exported.mkdir()
    scratch.mkdir()
    graph = onnx.load(own_graph(loaded["ort-fp32"]))
    path = exported / "model.onnx"
    onnx.save_model(graph, path, save_as_external_data=True, location="model.onnx_data", size_threshold=1024)
    monkeypatch.setattr(graphs, "PROMPTS", 1)
    infer, written = onnx.shape_inference.infer_shapes_path, list[Path]()
    monkeypatch.setattr(
        onnx.shape_inference, "infer_shapes_path", lambda path, to: written.append(Path(to)) or infer(path, to)
    )
    ranges, _ = calibrated(loaded["ort-fp32"], read_corpus(CALIBRATION_FOLDER).texts, path, scratch)
    assert "logits" in ranges
    assert [scratch in path.parents for path in written] == [True]
    assert list(scratch.iterdir()) == []


@pytest.mark.usefixtures("passes")
def test_calibrating_gives_the_model_its_session_back(loaded: Mapping[str, TransformersModel]) -> None:
    import onnxruntime

    assert isinstance(loaded["ort-fp32"].module.session, onnxruntime.InferenceSession)


class ScrambledSession:
    """A session whose next-token logits are assigned to the wrong tokens."""

    def __init__(self, session: Any) -> None:
        self.session = session

    def run(self, outputs: list[str], feed: graphs.Feed) -> list[Any]:
        (logits,) = self.session.run(outputs, feed)
        return [logits[..., ::-1].copy()]


def fixed(*probabilities: float) -> Any:
    """Logits that give every token these probabilities."""
    return np.log(np.array([[probabilities]], dtype=np.float32))


def fixed_pass(*probabilities: float) -> graphs.Pass:
    return graphs.Pass({}, fixed(*probabilities))


def fixed_session(*probabilities: float) -> Any:
    return SimpleNamespace(run=lambda outputs, feed: [fixed(*probabilities)])


def test_scrambled_logits_are_a_collapse(loaded: Mapping[str, TransformersModel], passes: list[graphs.Pass]) -> None:
    scrambled = ScrambledSession(loaded["ort-int8-static"].module.session)
    with pytest.raises(QualityCollapsed, match="static quantization broke the model"):
        graphs.check_close(passes, scrambled)


def test_the_quantized_models_own_logits_are_none(
    loaded: Mapping[str, TransformersModel], passes: list[graphs.Pass]
) -> None:
    graphs.check_close(passes, loaded["ort-int8-static"].module.session)


def test_the_divergence_is_the_kl_from_float32_in_nats() -> None:
    """KL((1/2, 1/2) || (4/5, 1/5)) = ln(5/8) / 2 + ln(5/2) / 2; the other way round it would be 0.193."""
    expected = (math.log(5 / 8) + math.log(5 / 2)) / 2
    with pytest.raises(QualityCollapsed, match=f"of {expected:.3f} nats per token"):
        graphs.check_close([fixed_pass(0.5, 0.5)] * 2, fixed_session(0.8, 0.2))


def test_equal_distributions_do_not_diverge_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "KL_LIMIT", 1e-12)
    graphs.check_close([fixed_pass(0.7, 0.3)], fixed_session(0.7, 0.3))


def test_logits_that_are_not_numbers_are_a_collapse() -> None:
    with pytest.raises(QualityCollapsed):
        graphs.check_close([fixed_pass(0.5, 0.5)], fixed_session(math.nan, 0.5))


def test_a_collapsed_artifact_is_not_kept(make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No divergence is below zero; the limit is part of the key, so the good artifact stays."""
    request = make_request("ort-int8-static")
    kept = sorted((request.store.root / "onnx-int8-static").glob("*/"))
    monkeypatch.setattr(graphs, "KL_LIMIT", 0.0)
    monkeypatch.setattr(graphs, "PROMPTS", 2)
    with pytest.raises(QualityCollapsed):
        load_variant(request)
    assert sorted((request.store.root / "onnx-int8-static").glob("*/")) == kept


def test_another_text_or_another_count_is_another_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    one = graphs.calibration_recipe(["a", "b"])
    assert one == graphs.calibration_recipe(["a", "b"]) != graphs.calibration_recipe(["ab"])
    monkeypatch.setattr(graphs, "NEW_TOKENS", 9)
    assert graphs.calibration_recipe(["a", "b"]) != one


def test_the_real_message_of_onnxruntime_becomes_out_of_memory(tmp_path: Path) -> None:
    """A graph of one operator that makes a tensor of 2 ** 50 bytes."""
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper

    fill = helper.make_node(
        "ConstantOfShape", ["shape"], ["filled"], value=helper.make_tensor("value", TensorProto.UINT8, [1], [1])
    )
    shape = helper.make_tensor_value_info("shape", TensorProto.INT64, [1])
    filled = helper.make_tensor_value_info("filled", TensorProto.UINT8, [None])
    graph = helper.make_graph([fill], "fill", [shape], [filled])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "fill.onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(tmp_path / "fill.onnx", options, providers=["CPUExecutionProvider"])
    with pytest.raises(OutOfMemory, match="1125899906842624 bytes asked for"), translate_out_of_memory("ort-fp32"):
        session.run(None, {"shape": np.array([1 << 50])})


def test_an_architecture_without_an_export_is_unavailable(make_request: MakeRequest, tmp_path: Path) -> None:
    """Bug: of such models each test of each variant of ONNX Runtime was an error."""
    pytest.importorskip("optimum.onnxruntime", reason="transformers' own exporter lists no architectures")
    with quiet_libraries():
        source = BY_NAME["cohere2"].build(tmp_path)
    with pytest.raises(BackendUnavailable, match=r"^Optimum has no ONNX export for cohere2 models$"):
        load_variant(make_request("ort-fp32", source))


def raised_from(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


EXPORTER = (
    "llm_bench_fixtures.models.backends.onnx_generation.export"
    if graphs.USES_EXPORTER
    else "optimum.exporters.onnx.onnx_export_from_model"
)
CANT_EXPORT = f"^{graphs.EXPORTED_BY} can't export gpt2 models to ONNX: "
LACKS_A_NAME = AttributeError("module 'onnxruntime' has no attribute 'mine'", name="mine", obj=onnxruntime)
WRAPPED = raised_from(RuntimeError("Failed to import optimum.exporters"), ImportError("cannot import name 'onnx'"))


@pytest.mark.parametrize(
    ("raised", "expected", "text"),
    [
        pytest.param(ValueError("shapes\nand so on"), BackendUnavailable, f"{CANT_EXPORT}shapes$", id="shapes"),
        pytest.param(
            TypeError("of its own code"), BackendUnavailable, f"{CANT_EXPORT}TypeError: of its", id="its code"
        ),
        pytest.param(NotImplementedError("aten::x"), BackendUnavailable, CANT_EXPORT, id="an operator that is unknown"),
        pytest.param(AttributeError("no cache"), BackendUnavailable, CANT_EXPORT, id="a name that its objects lack"),
        pytest.param(
            RuntimeError("[ONNXRuntimeError] : 10 : INVALID_GRAPH : Type Error"),
            BackendUnavailable,
            f"{CANT_EXPORT}RuntimeError: .* INVALID_GRAPH",
            id="a graph that is wrong",
        ),
        pytest.param(ImportError("no libonnx.so"), ImportError, "^no libonnx.so", id="an installation that is broken"),
        pytest.param(WRAPPED, RuntimeError, "^Failed to import", id="the same, raised as something else"),
        pytest.param(LACKS_A_NAME, AttributeError, "^module 'onnxruntime' has", id="a library of another version"),
        pytest.param(OSError("no space left on device"), NoRoom, "no room left", id="a full disk"),
        pytest.param(
            RuntimeError("PytorchStreamWriter failed: No space left on device"), NoRoom, "no room left", id="in C++"
        ),
        pytest.param(
            RuntimeError("[ONNXRuntimeError] : 3 : NO_SUCHFILE : Load model failed"),
            RuntimeError,
            "NO_SUCHFILE",
            id="a file that is gone",
        ),
        pytest.param(
            RuntimeError("can't allocate memory: tried to allocate 9 bytes"), OutOfMemory, "9 bytes asked", id="memory"
        ),
    ],
)
def test_an_export_that_fails(
    raised: Exception,
    expected: type[Exception],
    text: str,
    make_request: MakeRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the libraries can't do skips the variant; a broken installation, a full disk or memory is an error."""

    def fail(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(EXPORTER, fail)
    request = replace(make_request("ort-fp32"), store=ArtifactStore(tmp_path))
    with pytest.raises(expected, match=text):
        load_variant(request)
    assert not list((tmp_path / "onnx-export").glob("*/"))


@pytest.mark.parametrize(
    ("shape", "heads", "width"), [(("batch", 2, "past", 8), 2, 8), (("batch x heads", "past", 8), 4, 16), ((), 4, 16)]
)
def test_the_heads_are_those_of_the_graph(shape: tuple[Any, ...], heads: int, width: int) -> None:
    """Bug: "Got: 4 Expected: 2" for Gemma 2, Phi 3 and OLMo 2: Optimum took the queries' heads for the keys'."""
    module = SimpleNamespace(
        input_shapes={"past_key_values.0.key": shape} if shape else {}, num_key_value_heads=4, embed_size_per_head=16
    )
    graphs._take_heads_from_graph(module)
    assert (module.num_key_value_heads, module.embed_size_per_head) == (heads, width)


@pytest.mark.slow("exports a model")
def test_a_model_with_fewer_heads_of_keys_runs(make_request: MakeRequest, tmp_path: Path) -> None:
    with quiet_libraries():
        source = BY_NAME["phi3"].build(tmp_path)
    ids = torch.tensor([[5, 6, 7], [8, 9, 10]])
    texts = [
        load_variant(make_request(variant, source)).model.generate(ids, torch.ones_like(ids), 4, CacheKind.DYNAMIC)
        for variant in ("fp32", "ort-fp32")
    ]
    assert texts[0].tolist() == texts[1].tolist()


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is exact on Linux")
def test_what_a_session_kept_of_a_larger_run_is_given_back(loaded: Mapping[str, TransformersModel]) -> None:
    """Bug: the peak of each benchmark held the arena of the scoring pass. Here logits of 8 x 500 x 4096 float32."""
    model = loaded["ort-fp32"]
    ids = torch.ones(8, 500, dtype=torch.int64)
    model.logits(ids, torch.ones_like(ids))
    model.device.release_cached_memory()
    kept = resident_bytes()
    model.forget_caches()
    model.device.release_cached_memory()
    assert resident_bytes() < kept - (8 * 500 * 4096 * 4) // 2


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is exact on Linux")
def test_a_peak_is_the_same_after_scoring(loaded: Mapping[str, TransformersModel]) -> None:
    """It was 178 MB instead of 53 MB for the embedded model."""
    model = loaded["ort-fp32"]
    workload = Workload(((5, 6, 7, 8),), new_tokens=4, batch_size=1)
    before = observe(model, workload).peak.resident_bytes
    ids = torch.ones(8, 500, dtype=torch.int64)
    model.logits(ids, torch.ones_like(ids))
    assert observe(model, workload).peak.resident_bytes < before + (8 * 500 * 4096 * 4) // 2


def test_a_session_that_has_not_run_is_left_alone(
    loaded: Mapping[str, TransformersModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first `generate` of a process is to be the first run of its session."""
    model = loaded["ort-fp32"]
    model.forget_caches()
    monkeypatch.setattr(graphs, "shrink_arena", None)
    model.forget_caches()


def test_the_share_of_the_weights_in_8_bits(loaded: Mapping[str, TransformersModel]) -> None:
    """The four layers' matrices, at the least; not the tables of tokens and positions that are looked up."""
    assert loaded["ort-fp32"].facts.quantized_share is None
    for variant in QUANTIZED:
        assert 0.5 < (loaded[variant].facts.quantized_share or 0) < 1


def test_int8_on_an_accelerator_is_unavailable() -> None:
    (variant,) = (variant for variant in CATALOGUE if variant.id == "ort-int8-dynamic")
    with pytest.raises(BackendUnavailable, match="choose it with --llm-device cpu"):
        backend.check(variant, Device(DeviceKind.CUDA, "cuda:0", "an accelerator"))


@pytest.mark.parametrize(
    ("machine", "flags", "instructions"),
    [
        ("x86_64", {"avx2", "avx512f", "avx512_vnni"}, "avx512_vnni"),
        ("AMD64", {"avx2", "avx512f", "avx512vnni"}, "avx512_vnni"),
        ("x86_64", {"avx2", "avx512f"}, "avx512"),
        ("x86_64", {"avx2"}, "avx2"),
        ("x86_64", set(), "avx2"),
        ("arm64", set(), "arm64"),
        ("aarch64", {"asimd"}, "arm64"),
    ],
)
def test_the_instruction_set_is_the_best_that_the_processor_has(
    machine: str, flags: set[str], instructions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr("llm_bench_fixtures.models.backends.onnxruntime.processor_flags", lambda: frozenset(flags))
    assert backend.instruction_set() == instructions


def test_the_exported_session_has_as_many_threads_as_torch(loaded: Mapping[str, TransformersModel]) -> None:
    options = loaded["ort-fp32"].module.session.get_session_options()
    assert options.intra_op_num_threads == torch.get_num_threads()


FIRST_EXPORT = """
import sys
from pathlib import Path

from llm_bench_fixtures.models.artifacts import ArtifactStore
from llm_bench_fixtures.models.loading import load_variant
from llm_bench_fixtures.models.device import Device, DeviceKind
from llm_bench_fixtures.models.variants import TOLERANCES, Arithmetic
from llm_bench_fixtures.models.loading import LoadRequest
from llm_bench_fixtures.models.source import TINY, TINY_FOLDER, ModelSource
from llm_bench_fixtures.progress import Progress
from llm_bench_fixtures.options.settings import parse_settings
from llm_bench_fixtures.models.backends import CATALOGUE

(variant,) = (variant for variant in CATALOGUE if variant.id == "ort-fp32")
source, cpu = ModelSource(TINY, TINY_FOLDER), Device(DeviceKind.CPU, "cpu", "a processor")
load_variant(LoadRequest(variant, source, cpu, parse_settings({}), ArtifactStore(Path(sys.argv[1])), Progress())).model
"""


@pytest.mark.slow("a process of its own that exports")
def test_the_first_export_of_a_process_prints_nothing(tmp_path: Path) -> None:
    """Optimum sets its log level when its logger is first asked for, which is in the middle of an export."""
    command = [sys.executable, "-c", FIRST_EXPORT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BACKSTOP_S, check=True)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize(
    ("variant", "arithmetic"),
    [
        ("ort-fp32", Arithmetic.FLOAT32),
        ("ort-int8-dynamic", Arithmetic.INT8_PER_BATCH),
        ("ort-int8-static", Arithmetic.INT8),
    ],
)
def test_each_variant_has_the_tolerance_of_what_it_computes_with(
    variant: str, arithmetic: Arithmetic, loaded: Mapping[str, TransformersModel]
) -> None:
    assert loaded[variant].facts.tolerance == TOLERANCES[arithmetic]
