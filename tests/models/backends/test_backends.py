from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Protocol, cast

import numpy as np
import pytest
import torch

from llm_bench_fixtures.errors import BackendUnavailable, InvalidSetting, OutOfMemory
from llm_bench_fixtures.models import backends
from llm_bench_fixtures.models.backend import Backend, Chosen
from llm_bench_fixtures.models.backends import (
    BACKENDS,
    CATALOGUE,
    LIBRARIES,
    SETTINGS,
    chosen_by_default,
    find_backend,
    known_libraries,
)
from llm_bench_fixtures.models.device import Device, DeviceKind
from llm_bench_fixtures.models.loading import LoadRequest, load_variant, require, translate_out_of_memory
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.transformers import TransformersModel
from llm_bench_fixtures.models.variants import Variant
from llm_bench_fixtures.options.parsers import Setting
from llm_bench_fixtures.progress import Phase, Progress

MakeRequest = Callable[..., LoadRequest]
FAKE = Variant("fake", "fake_backend", "a backend of this test")


class Clock(Protocol):
    def __call__(self) -> float: ...

    def advance(self, seconds: float) -> None: ...


Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Makes a module `fake_backend` with a backend of the given parts."""

    def make(load: Callable[[LoadRequest], object], **parts: Any) -> None:
        module = SimpleNamespace(BACKEND=Backend(cast(Any, load), **parts))
        monkeypatch.setitem(sys.modules, "fake_backend", cast(Any, module))
        monkeypatch.setattr(backends, "_OWN", {})

    return make


@pytest.mark.parametrize(
    ("chosen", "modules", "runs"),
    [
        (Chosen.ALWAYS, ("no_such_module",), True),
        (Chosen.INSTALLED, ("no_such_module",), False),
        (Chosen.INSTALLED, ("pytest",), True),
        (Chosen.NAMED, (), False),
    ],
)
def test_a_backend_says_when_its_variants_run_unasked(
    chosen: Chosen, modules: tuple[str, ...], runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Backend(cast(Any, None), chosen=chosen, modules=modules)
    monkeypatch.setattr(backends, "BACKENDS", {**BACKENDS, "engine": backend})
    engine, own = Variant("engine-fp32", "engine", ""), Variant("own", "some.module", "")
    monkeypatch.setattr(backends, "CATALOGUE", (*CATALOGUE, engine))
    own_way = Variant("own-way", "engine", "a project's own variant of it")
    asked = [variant for variant in CATALOGUE if variant not in chosen_by_default(CATALOGUE)]
    known = (*CATALOGUE, engine, own, own_way)
    found = [variant for variant in known if variant not in chosen_by_default(known)]
    assert found == [*asked, *([] if runs else [engine])]


def test_a_backend_is_found_by_dotted_path_and_returns_what_it_loaded(
    install: Install,
    make_request: MakeRequest,
    model_around: Callable[[object], TransformersModel],
) -> None:
    model = model_around(SimpleNamespace())
    install(lambda request: model)
    assert load_variant(make_request(FAKE)).model is model


@pytest.mark.parametrize(("given", "is_set_to"), [(None, "1"), ("0", "0")])
def test_onnx_runtime_keeps_no_telemetry_unless_the_user_says_so(
    given: str | None, is_set_to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: it wrote below ~/.cache, and had a thread of its own while it was measured."""
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "x")  # for what it is afterwards
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY")
    if given is not None:
        monkeypatch.setenv("ORT_DISABLE_TELEMETRY", given)
    backends.set_environment()
    assert os.environ["ORT_DISABLE_TELEMETRY"] == is_set_to


def test_a_projects_own_backend_with_options_is_refused(install: Install) -> None:
    install(lambda request: pytest.fail("loaded"), options=(Setting("speed", int),))
    with pytest.raises(InvalidSetting, match=r"^fake_backend: a project's own backend can't have options, as"):
        find_backend("fake_backend")


def test_a_variant_that_cannot_run_here_is_not_loaded(install: Install, make_request: MakeRequest) -> None:
    def refuse(variant: Variant, device: Device) -> None:
        raise BackendUnavailable("no such hardware")

    install(lambda request: pytest.fail("loaded"), check=refuse)
    with pytest.raises(BackendUnavailable, match="no such hardware"):
        load_variant(make_request(FAKE))


@pytest.mark.parametrize(
    ("backend", "quantization", "message"),
    [
        ("torch", "int8", "torch knows no quantization 'int8'; known: none"),
        ("onnxruntime", "int4", "onnxruntime knows no quantization 'int4'; known: int8-dynamic, int8-static"),
        ("bitsandbytes", "int2", "bitsandbytes knows no quantization 'int2'; known: int8, nf4, fp4"),
        ("bitsandbytes", None, "bitsandbytes runs quantized variants only; known quantizations: int8, nf4, fp4"),
    ],
)
def test_a_quantization_that_the_backend_does_not_know_is_refused(
    backend: str, quantization: str | None, message: str, cpu: Device
) -> None:
    with pytest.raises(InvalidSetting) as caught:
        BACKENDS[backend].check_variant(Variant("own", backend, "", quantization=quantization), cpu)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("backend", "kind", "message"),
    [
        *((name, DeviceKind.CUDA, "CPU only") for name in ("ctranslate2", "llamacpp", "onnxruntime_genai", "openvino")),
        *(
            (name, DeviceKind.MPS, "CPU and CUDA only")
            for name in ("bitsandbytes", "compiled", "onnxruntime", "torchao")
        ),
    ],
)
def test_a_device_that_the_backend_does_not_run_on_is_unavailable(backend: str, kind: DeviceKind, message: str) -> None:
    engine = BACKENDS[backend]
    with pytest.raises(BackendUnavailable) as caught:
        engine.check_variant(engine.variants[-1], Device(kind, kind.value, "a device"))
    assert str(caught.value) == f"{backend} runs on {message}; choose it with --llm-device cpu"


def test_load_s_is_the_load_without_the_making_of_artifacts(
    install: Install,
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
        return model_around(SimpleNamespace())

    install(load)
    assert load_variant(make_request(FAKE, progress=progress)).facts.load_s == 2
    assert progress.phase_s == {
        Phase.IMPORTING: 0,
        Phase.LOADING: 2,
        Phase.EXPORTING: 105,
        Phase.CALIBRATING: 7,
        Phase.QUANTIZING: 11,
    }


def test_a_load_that_runs_out_of_memory_names_the_variant_and_the_size(
    install: Install, make_request: MakeRequest
) -> None:
    install(lambda request: torch.empty(1 << 50))
    with pytest.raises(OutOfMemory, match=r"^fake: out of memory, 4503599627370496 bytes asked for$"):
        load_variant(make_request(FAKE))


def test_a_load_that_fails_otherwise_fails_as_it_is(install: Install, make_request: MakeRequest) -> None:
    def load(request: LoadRequest) -> None:
        raise RuntimeError("size mismatch for lm_head")

    install(load)
    with pytest.raises(RuntimeError, match=r"^size mismatch for lm_head$"):
        load_variant(make_request(FAKE))


def raising(error: BaseException) -> Callable[[], object]:
    def raise_it() -> None:
        raise error

    return raise_it


CUDA_MESSAGE = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.89 GiB of which 1.12 GiB is free."
)
CUBLAS_MESSAGE = "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"


@pytest.mark.parametrize(
    ("allocate", "asked"),
    [
        pytest.param(lambda: torch.empty(1 << 50), "4503599627370496 bytes", id="torch-cpu"),
        pytest.param(lambda: np.empty(1 << 50, dtype=np.uint8), "1.00 PiB", id="numpy"),
        pytest.param(raising(torch.OutOfMemoryError(CUDA_MESSAGE)), "2.00 GiB", id="torch-cuda"),
        pytest.param(raising(RuntimeError(CUDA_MESSAGE)), "2.00 GiB", id="torch-cuda-plain"),
        pytest.param(
            raising(RuntimeError(CUBLAS_MESSAGE)), "an unknown amount", id="cublas"
        ),  # bug: an error of its own
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


class EngineError(Exception):
    """As an engine raises it, which has no built-in error as its base."""


def test_an_engine_tells_what_its_own_errors_say_where_memory_runs_out(
    install: Install, make_request: MakeRequest
) -> None:
    load = raising(EngineError("the pool has no room for (12 MB) more"))
    install(lambda request: load(), failed_allocation=re.compile(r"no room for \((.*?)\)"))
    with pytest.raises(OutOfMemory, match=r"^fake: out of memory, 12 MB asked for$"):
        load_variant(make_request(FAKE))


@pytest.mark.parametrize(
    ("message", "asked"),
    [
        ("[ONNXRuntimeError] : 6 : Failed to allocate memory for requested buffer of size 4096", "4096 bytes"),
        ("[ONNXRuntimeError] : 1 : FAIL : CUDA failure 2: out of memory ; GPU=0", "an unknown amount"),
    ],
)
def test_the_words_of_onnxruntime_are_known(message: str, asked: str) -> None:
    with pytest.raises(OutOfMemory, match=asked), translate_out_of_memory("ort-fp32"):
        raise EngineError(message)


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


@pytest.mark.parametrize(
    ("engine", "more"),
    [("onnxruntime", "; under transformers 5 take [onnxruntime-transformers5]"), ("openvino", "")],
)
def test_what_keeps_transformers_back_says_so_where_it_is_missing(engine: str, more: str) -> None:
    """Under transformers 5 nobody could tell why there were no ONNX rows, nor what installing them changes."""
    backend = find_backend(engine)
    with pytest.raises(BackendUnavailable) as caught:
        require(("no_such_engine",), backend.extra, backend.extra_note)
    assert str(caught.value) == (
        f"no_such_engine is not installed: pip install 'llm-bench-fixtures[{engine}]' "
        f"(it takes transformers 4.57, because optimum-onnx 0.1.0 allows no newer one{more})"
    )


def test_installed_distributions_are_enough() -> None:
    require(("pytest", "torch"), extra="all")


def test_a_module_without_a_backend_is_refused_by_name() -> None:
    with pytest.raises(InvalidSetting, match=r"^json is no backend: it has no BACKEND = Backend\(\.\.\.\)$"):
        find_backend("json")


def test_a_missing_module_of_a_projects_own_backend_is_named_as_it_is(
    install: Install, make_request: MakeRequest
) -> None:
    install(lambda request: pytest.fail("loaded"), modules=("pytest", "no_such_engine"))
    with pytest.raises(BackendUnavailable, match=r"^no_such_engine is not installed: pip install no_such_engine$"):
        load_variant(make_request(FAKE))


def test_a_projects_own_backend_is_known_once_it_was_asked_for(install: Install) -> None:
    install(lambda request: None, libraries=("torch", "an-engine"), loggers=("an_engine",))
    assert "an-engine" not in known_libraries()
    find_backend("fake_backend")
    assert known_libraries() == (*LIBRARIES, "an-engine")
    logger = logging.getLogger("an_engine")
    with quiet_libraries():
        assert logger.level == logging.ERROR
    assert logger.level == logging.NOTSET


def test_the_catalogue_is_of_the_backends_own_variants_in_their_order() -> None:
    assert [variant.id for variant in CATALOGUE] == [
        *("fp32", "fp16", "bf16", "autocast-bf16", "autocast-fp16"),
        *("ort-fp32", "ort-int8-dynamic", "ort-int8-static"),
        *("bnb-int8", "bnb-nf4", "bnb-fp4"),
        *("compile-fp32", "compile-bf16"),
        *("ao-int8-weight", "ao-int8-dynamic", "ao-float8-weight"),
        "checkpoint",
        *("ov-fp32", "ov-int8", "ov-int4"),
        *("ct2-fp32", "ct2-int8"),
        *("ortgenai-fp32", "ortgenai-int4"),
        *("gguf-f32", "gguf-q8_0", "gguf-q4_k_m"),
    ]
    assert all(variant.backend == name for name, backend in BACKENDS.items() for variant in backend.variants)


def test_the_libraries_stand_in_the_order_that_saved_fingerprints_have() -> None:
    assert (
        *("torch", "transformers"),
        *("optimum", "optimum-onnx", "onnxscript", "onnxruntime", "onnxruntime-gpu"),
        "bitsandbytes",
        "torchao",
        *("auto-round", "autoawq", "compressed-tensors", "gptqmodel", "hqq"),
        *("openvino", "optimum-intel", "nncf"),
        "ctranslate2",
        "onnxruntime-genai",
        *("cyllama", "gguf"),
    ) == LIBRARIES


def test_the_words_for_quantizations_are_those_of_saved_runs() -> None:
    words = {variant.id: str(variant.quantization) for variant in CATALOGUE if variant.quantization}
    assert words == {
        "ort-int8-dynamic": "int8-dynamic",
        "ort-int8-static": "int8-static",
        "bnb-int8": "int8",
        "bnb-nf4": "nf4",
        "bnb-fp4": "fp4",
        "ao-int8-weight": "int8-weight",
        "ao-int8-dynamic": "int8-dynamic",
        "ao-float8-weight": "float8-weight",
        "checkpoint": "as stored",
        "ov-int8": "int8",
        "ov-int4": "int4",
        "ct2-int8": "int8",
        "ortgenai-int4": "int4",
        "gguf-q8_0": "q8_0",
        "gguf-q4_k_m": "q4_k_m",
    }


def test_the_backends_options_are_those_of_their_rows() -> None:
    assert [setting.flag for setting in SETTINGS] == [
        *("--llm-bnb-compute-dtype", "--llm-bnb-double-quant"),
        "--llm-gguf",
        *("--llm-endpoint", "--llm-endpoint-model", "--llm-endpoint-timeout"),
    ]
