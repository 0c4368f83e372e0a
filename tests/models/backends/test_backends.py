from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol

import numpy as np
import pytest
import torch

from llm_bench_fixtures.errors import BackendUnavailable, OutOfMemory
from llm_bench_fixtures.models.backend import LoadRequest, require
from llm_bench_fixtures.models.device import Device
from llm_bench_fixtures.models.loading import load_variant, translate_out_of_memory
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.models.variants import Variant
from llm_bench_fixtures.progress import Phase, Progress

MakeRequest = Callable[..., LoadRequest]
FAKE = Variant("fake", "fake_backend", "a backend of this test")


class Clock(Protocol):
    def __call__(self) -> float: ...

    def advance(self, seconds: float) -> None: ...


class FakeBackend:
    """A backend module whose check and load do as told."""

    def __init__(
        self,
        load: Callable[[LoadRequest], object],
        check: Callable[[Variant, Device], None] = lambda variant, device: None,
    ) -> None:
        self.load = load
        self.check = check


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeBackend], None]:
    return lambda backend: monkeypatch.setitem(sys.modules, "fake_backend", backend)


def test_a_backend_is_found_by_dotted_path_and_returns_what_it_loaded(
    install: Callable[[FakeBackend], None],
    make_request: MakeRequest,
    model_around: Callable[[object], TransformersModel],
) -> None:
    model = model_around(object())
    install(FakeBackend(lambda request: model))
    assert load_variant(make_request(FAKE)).model is model


def test_a_variant_that_cannot_run_here_is_not_loaded(
    install: Callable[[FakeBackend], None], make_request: MakeRequest
) -> None:
    def refuse(variant: Variant, device: Device) -> None:
        raise BackendUnavailable("no such hardware")

    install(FakeBackend(lambda request: pytest.fail("loaded"), refuse))
    with pytest.raises(BackendUnavailable, match="no such hardware"):
        load_variant(make_request(FAKE))


def test_load_s_is_the_load_without_the_making_of_artifacts(
    install: Callable[[FakeBackend], None],
    make_request: MakeRequest,
    model_around: Callable[[object], TransformersModel],
    clock: Clock,
) -> None:
    """2 s of loading around 5 s of export, 7 s of calibration and 11 s of quantization; 100 s of export before."""
    progress = Progress(show_after_s=3600, clock=clock)
    with progress.activity(Phase.EXPORTING, "another variant"):
        clock.advance(100)

    def load(request: LoadRequest) -> TransformersModel:
        clock.advance(2)
        for phase, seconds in ((Phase.EXPORTING, 5), (Phase.CALIBRATING, 7), (Phase.QUANTIZING, 11)):
            with request.progress.activity(phase, "making"):
                clock.advance(seconds)
        return model_around(object())

    install(FakeBackend(load))
    assert load_variant(make_request(FAKE, progress=progress)).facts.load_s == 2
    assert progress.phase_s == {
        Phase.IMPORTING: 0,
        Phase.LOADING: 2,
        Phase.EXPORTING: 105,
        Phase.CALIBRATING: 7,
        Phase.QUANTIZING: 11,
    }


def test_a_load_that_runs_out_of_memory_names_the_variant_and_the_size(
    install: Callable[[FakeBackend], None], make_request: MakeRequest
) -> None:
    install(FakeBackend(lambda request: torch.empty(1 << 50)))
    with pytest.raises(OutOfMemory, match=r"^fake: out of memory, 4503599627370496 bytes asked for$"):
        load_variant(make_request(FAKE))


def test_a_load_that_fails_otherwise_fails_as_it_is(
    install: Callable[[FakeBackend], None], make_request: MakeRequest
) -> None:
    def load(request: LoadRequest) -> None:
        raise RuntimeError("size mismatch for lm_head")

    install(FakeBackend(load))
    with pytest.raises(RuntimeError, match=r"^size mismatch for lm_head$"):
        load_variant(make_request(FAKE))


def raising(error: BaseException) -> Callable[[], object]:
    def raise_it() -> None:
        raise error

    return raise_it


CUDA_MESSAGE = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.89 GiB of which 1.12 GiB is free."
)


@pytest.mark.parametrize(
    ("allocate", "asked"),
    [
        pytest.param(lambda: torch.empty(1 << 50), "4503599627370496 bytes", id="torch-cpu"),
        pytest.param(lambda: np.empty(1 << 50, dtype=np.uint8), "1.00 PiB", id="numpy"),
        pytest.param(raising(torch.OutOfMemoryError(CUDA_MESSAGE)), "2.00 GiB", id="torch-cuda"),
        pytest.param(raising(RuntimeError(CUDA_MESSAGE)), "2.00 GiB", id="torch-cuda-plain"),
        pytest.param(raising(MemoryError()), "an unknown amount", id="python"),
    ],
)
def test_a_failed_allocation_becomes_out_of_memory_with_the_size(allocate: Callable[[], object], asked: str) -> None:
    with pytest.raises(OutOfMemory) as caught, translate_out_of_memory("fp32"):
        allocate()
    assert str(caught.value) == f"fp32: out of memory, {asked} asked for"


def test_out_of_memory_is_a_memory_error_and_keeps_its_cause() -> None:
    cause = RuntimeError(CUDA_MESSAGE)
    with pytest.raises(MemoryError) as caught, translate_out_of_memory("fp32"):
        raise cause
    assert caught.value.__cause__ is cause


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("mat1 and mat2 shapes cannot be multiplied (1x2 and 3x4)"),
        RuntimeError(""),
        ValueError("out of memory"),
        OutOfMemory("bf16: out of memory, 3.1 GB asked for and 2.0 GB free"),
    ],
    ids=["shapes", "empty", "not-a-runtime-error", "already-translated"],
)
def test_any_other_error_passes_through_unchanged(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, translate_out_of_memory("fp32"):
        raise error
    assert caught.value is error


def test_a_missing_distribution_is_named_with_what_to_install() -> None:
    with pytest.raises(BackendUnavailable) as caught:
        require(("pytest", "no-such-distribution"), extra="bitsandbytes")
    assert str(caught.value) == (
        "no-such-distribution is not installed: pip install 'llm-bench-fixtures[bitsandbytes]'"
    )


def test_installed_distributions_are_enough() -> None:
    require(("pytest", "torch"), extra="all")
