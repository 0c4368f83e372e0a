"""What holds of each engine that makes a form of its own of a model in this process, before it loads that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from families import BY_NAME

from llm_bench_fixtures.models.backend import first_missing
from llm_bench_fixtures.models.backends import find_backend
from llm_bench_fixtures.models.device import Device
from llm_bench_fixtures.models.loading import LoadRequest, load_variant
from llm_bench_fixtures.models.quiet import quiet_libraries

MakeRequest = Callable[..., LoadRequest]
CONVERTING = ("ort-fp32", "ov-fp32", "ct2-fp32", "ortgenai-fp32", "gguf-f32")


@pytest.fixture(params=CONVERTING)
def request_of(request: pytest.FixtureRequest, make_request: MakeRequest, tmp_path: Path) -> LoadRequest:
    """To load the embedded model, or where the engine doesn't know its family, a small Llama."""
    made = make_request(request.param)
    missing = first_missing(find_backend(made.variant.backend).modules)
    if missing:
        pytest.skip(f"needs {missing}")
    if request.param != "ortgenai-fp32":
        return made
    with quiet_libraries():
        return make_request(request.param, BY_NAME["llama"].build(tmp_path))


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
    monkeypatch.setattr("llm_bench_fixtures.models.experts.expert_count", lambda config: 4)
    assert load_variant(request_of).facts.weight_bytes_read is None
