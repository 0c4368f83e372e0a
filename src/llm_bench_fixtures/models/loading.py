"""The libraries that run models, one module each.

A backend is a module with two functions, and a third where there is much to import:

    check(variant, device)   raises BackendUnavailable where the variant can't run here
    load(request)            the Model of request.variant
    prepare(request)         imports what those need, so that neither load_s nor the load's memory hold that
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, cast

from llm_bench_fixtures.errors import OutOfMemory
from llm_bench_fixtures.models.device import resident_bytes
from llm_bench_fixtures.models.handle import LocalModel
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.progress import Phase

if TYPE_CHECKING:
    from llm_bench_fixtures.models.backend import LoadRequest
    from llm_bench_fixtures.models.device import Device
    from llm_bench_fixtures.models.model import Model
    from llm_bench_fixtures.models.variants import Variant

BACKENDS = {
    "torch": "llm_bench_fixtures.models.backends.torch",
    "onnxruntime": "llm_bench_fixtures.models.backends.onnxruntime",
    "bitsandbytes": "llm_bench_fixtures.models.backends.bitsandbytes",
}

# What an allocator says when it fails: torch on CPU and on CUDA, numpy, ONNX Runtime.
_REQUESTED_BYTES = re.compile(
    r"tried to allocate ([\d.]+ ?\w*)|unable to allocate ([\d.]+ ?\w+)|buffer of size (\d+)", re.I
)
_FAILED_ALLOCATION = re.compile(r"out of memory|can't allocate memory|unable to allocate|failed to allocate", re.I)


class Backend(Protocol):
    def check(self, variant: Variant, device: Device) -> None: ...

    def load(self, request: LoadRequest) -> Model: ...


def find_backend(name: str) -> Backend:
    """The backend of that short name or dotted path."""
    return cast(Backend, importlib.import_module(BACKENDS.get(name, name)))


def load_variant(request: LoadRequest) -> LocalModel:
    """Load a variant, quietly, and time it; what has a phase of its own (imports, making artifacts) isn't in `load_s`.

    Raises BackendUnavailable where it can't run here, OutOfMemory where it doesn't fit.
    """
    backend = find_backend(request.variant.backend)
    backend.check(request.variant, request.device)
    progress = request.progress
    with progress.activity(Phase.IMPORTING, f"importing what {request.variant.id} needs"), quiet_libraries():
        getattr(backend, "prepare", _nothing)(request)
        request.device.synchronize()  # sets an accelerator up
    request.device.release_cached_memory()
    before_bytes = resident_bytes()
    loading_before_s = progress.phase_s[Phase.LOADING]
    with (
        progress.activity(Phase.LOADING, f"loading {request.variant.id}"),
        quiet_libraries(),
        translate_out_of_memory(request.variant.id),
    ):
        model = backend.load(request)
        request.device.synchronize()
    facts = replace(
        model.facts,
        configuration=model.facts.configuration or request.variant.id,
        resident_before_load_bytes=model.facts.resident_before_load_bytes or before_bytes,
        load_s=progress.phase_s[Phase.LOADING] - loading_before_s,
    )
    return LocalModel(model, request.source, facts)


def _nothing(_: LoadRequest) -> None: ...


@contextmanager
def translate_out_of_memory(what: str) -> Iterator[None]:
    """Turn each library's way to say that an allocation failed into OutOfMemory, with the size asked for."""
    try:
        yield
    except OutOfMemory:
        raise
    except Exception as error:  # ONNX Runtime's errors have no narrower base
        if not _is_failed_allocation(error):
            raise
        found = _REQUESTED_BYTES.search(str(error))
        size = next(filter(None, found.groups()), "") if found else ""
        asked = f"{size} bytes" if size.isdecimal() else size or "an unknown amount"
        raise OutOfMemory(f"{what}: out of memory, {asked} asked for") from error


def _is_failed_allocation(error: Exception) -> bool:
    if isinstance(error, MemoryError):
        return True
    is_library_error = isinstance(error, RuntimeError) or type(error).__module__.startswith("onnxruntime")
    return is_library_error and _FAILED_ALLOCATION.search(str(error)) is not None
