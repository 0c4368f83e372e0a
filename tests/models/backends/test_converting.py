"""What holds of each engine that makes a form of its own of a model in this process, before it loads that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from families import BY_NAME
from safetensors.torch import load_file, save_file

from llm_bench_fixtures.errors import AnotherModel, IncompleteWeights
from llm_bench_fixtures.models.artifacts import ArtifactStore
from llm_bench_fixtures.models.backend import first_missing
from llm_bench_fixtures.models.backends import CATALOGUE, find_backend
from llm_bench_fixtures.models.conversion import SHOWN, TextTrial
from llm_bench_fixtures.models.device import Device
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import ModelSource

MakeRequest = Callable[..., LoadRequest]
CONVERTING = ("ort-fp32", "ov-fp32", "ct2-fp32", "ortgenai-fp32", "gguf-f32")
INCOMPLETE = (*CONVERTING, "ort-int8-static", "bnb-int8", "bnb-nf4")
LACKING = "model.layers.0.mlp.up_proj.weight"


@pytest.fixture(scope="module")
def incomplete(tmp_path_factory: pytest.TempPathFactory) -> ModelSource:
    """A small Llama whose files lack a weight."""
    with quiet_libraries():
        source = BY_NAME["llama"].build(tmp_path_factory.mktemp("incomplete"))
    path = source.folder / "model.safetensors"
    weights = load_file(path)
    del weights[LACKING]
    save_file(weights, path, metadata={"format": "pt"})
    return source


@pytest.mark.parametrize("variant", INCOMPLETE)
def test_a_weight_that_the_files_lack_is_not_made_up(
    variant: str, incomplete: ModelSource, make_request: MakeRequest
) -> None:
    """Bug: Optimum's load filled it with random numbers, which were then measured; bitsandbytes' failed at them."""
    request = make_request(variant, incomplete)
    skip_unless_installed(request)
    with pytest.raises(IncompleteWeights, match=f"the model's files lack {LACKING}: download"):
        load_variant(request)


@pytest.fixture(params=CONVERTING)
def request_of(request: pytest.FixtureRequest, make_request: MakeRequest, tmp_path: Path) -> LoadRequest:
    """To load the embedded model, or where the engine doesn't know its family, a small Llama."""
    made = make_request(request.param)
    skip_unless_installed(made)
    if request.param != "ortgenai-fp32":
        return made
    with quiet_libraries():
        return make_request(request.param, BY_NAME["llama"].build(tmp_path))


def test_what_computes_something_else_than_transformers_is_neither_run_nor_quantized(
    request_of: LoadRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: only CTranslate2's conversions were compared. Here the engine is given a text that ends in other tokens, and
    asked for a quantized variant, which is made of the one in float32."""
    of = TextTrial.of.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(TextTrial, "of", classmethod(lambda cls, *given: one_token_off(of(cls, *given))))
    quantized = next(one for one in CATALOGUE if one.base == request_of.variant.id)
    request = replace(request_of, variant=quantized, store=ArtifactStore(tmp_path / "store"))
    with pytest.raises(
        AnotherModel, match=r"'s conversion computes something else than transformers: after the same 320 tokens, "
    ):
        load_variant(request)
    assert not list((tmp_path / "store").glob("*/*/"))


def one_token_off(trial: TextTrial) -> TextTrial:
    ((ids, expected),) = trial.texts
    others = ids.clone()
    others[:, -SHOWN:] += 1
    return TextTrial(((others, expected),))


def skip_unless_installed(request: LoadRequest) -> None:
    if missing := first_missing(find_backend(request.variant.backend).modules):
        pytest.skip(f"needs {missing}")


def test_memory_before_a_load_is_read_when_the_conversions_is_given_back(
    request_of: LoadRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: CTranslate2 and onnxruntime-genai took what a conversion had freed for memory from before the load."""
    events: list[str] = []
    monkeypatch.setattr(Device, "release_cached_memory", lambda *_, **__: events.append("released"))

    def resident_bytes() -> int:
        """The number of the event, for bytes."""
        events.append("read")
        return len(events)

    monkeypatch.setattr("llm_bench_fixtures.models.device.resident_bytes", resident_bytes)
    number = load_variant(request_of).facts.resident_before_load_bytes
    assert number > 2, "that of every load, before the conversion"
    assert events[number - 2 : number] == ["released", "read"]


def test_of_a_mixture_of_experts_it_is_not_told_what_a_pass_reads(
    request_of: LoadRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: OpenVINO, onnxruntime-genai and llama.cpp gave the weights of all experts."""
    assert load_variant(request_of).facts.weight_bytes_read
    monkeypatch.setattr("llm_bench_fixtures.models.conversion.expert_count", lambda config: 4)
    assert load_variant(request_of).facts.weight_bytes_read is None
