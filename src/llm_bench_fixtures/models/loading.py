"""Loading a variant: checked, imported, timed, and with one error for every way to run out of memory."""

from __future__ import annotations

import functools
import gc
import importlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from llm_bench_fixtures.errors import BackendUnavailable, InvalidSetting, OutOfMemory, first_line
from llm_bench_fixtures.models.backend import LoadRequest, first_missing
from llm_bench_fixtures.models.backends import find_backend, known_backends
from llm_bench_fixtures.models.device import resident_at_rest
from llm_bench_fixtures.models.handle import LocalModel
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.variants import WAITING_PASSIVELY, in_threads
from llm_bench_fixtures.processes.environment import WAIT_POLICY
from llm_bench_fixtures.processes.memory import library_bytes
from llm_bench_fixtures.progress import Phase

# What an allocator says when it fails: torch on CPU, CUDA and CUDA's libraries, numpy. An engine's own words are its
# backend's.
_REQUESTED_BYTES = re.compile(r"(?:tried|unable) to (?:allocate|mmap) ([\d.]+ ?\w*)", re.I)
_FAILED_ALLOCATION = re.compile(
    r"out of memory|can(?:'t|not) allocate memory|(?:unable|failed) to allocate|_ALLOC_FAILED", re.I
)


def load_variant(request: LoadRequest) -> LocalModel:
    """Load a variant, quietly, and time it; what has a phase of its own (imports, making artifacts) isn't in `load_s`.

    Raises BackendUnavailable where it can't run here, OutOfMemory where it doesn't fit.
    """
    backend = find_backend(request.variant.backend)
    require(backend.modules, backend.extra, backend.extra_note)
    if request.settings.device_map is not None and not (backend.takes_device_map or backend.is_served):
        raise BackendUnavailable(f"{request.variant.backend} keeps a model on one device: leave --llm-device-map out")
    quantized = None if backend.takes_quantized else request.source.quantized
    if quantized is not None:
        raise BackendUnavailable(
            f"the weights of {request.source.name} are quantized already ({quantized}): --llm-variants checkpoint runs "
            "them as they are"
        )
    notes = () if backend.takes_attention else _own_attention(request)
    backend.check_variant(request.variant, request.device)
    is_passive = request.variant.is_passive and os.environ.get(WAIT_POLICY) != "passive"
    if request.settings.in_process and (request.variant.threads is not None or is_passive):
        raise BackendUnavailable("its threads are set for a process of its own, and here all variants share one")
    progress = request.progress
    with progress.activity(Phase.IMPORTING, f"importing what {request.variant.id} needs"), quiet_libraries():
        for name in backend.imports:
            importlib.import_module(name)
        backend.prepare(request)
        request.device.synchronize()  # sets an accelerator up
    before_bytes, libraries_before_bytes = resident_at_rest(request.device), library_bytes()
    _freeze_libraries()
    loading_before_s = progress.phase_s[Phase.LOADING]
    with (
        progress.activity(Phase.LOADING, f"loading {request.variant.id}"),
        quiet_libraries(),
        translate_out_of_memory(request.variant.id),
    ):
        model = backend.load(request)
        request.device.synchronize()
    threads = f", {in_threads(request.variant.threads)}" if request.variant.threads is not None else ""
    threads += WAITING_PASSIVELY if request.variant.is_passive else ""
    facts = replace(
        model.facts,
        label=first_line(model.facts.label) + threads,
        configuration=(first_line(model.facts.configuration) or request.variant.id) + threads,
        resident_before_load_bytes=model.facts.resident_before_load_bytes or before_bytes,
        libraries_before_load_bytes=libraries_before_bytes,
        load_s=progress.phase_s[Phase.LOADING] - loading_before_s,
        notes=tuple(map(first_line, (*model.facts.notes, *notes))),
    )
    return LocalModel(model, request.source, facts)


@functools.cache
def _freeze_libraries() -> None:
    """Keep the libraries' objects out of later garbage collections, which would take a tenth of a second each.

    Once, before the process' first model: no model may be kept for good.
    """
    gc.freeze()


def _own_attention(request: LoadRequest) -> tuple[str, ...]:
    """Notes where another attention is asked for. Raises InvalidSetting for a variant that names one."""
    told = f"{request.variant.backend} has an attention of its own, and no other can be chosen for it"
    if request.variant.attention is not None:
        raise InvalidSetting(f"{request.variant.id}: {told}")
    return (told,) if request.settings.attention else ()


def require(modules: Sequence[str], extra: str = "", note: str = "") -> None:
    """Raise BackendUnavailable, with what to install, unless all modules are there; a parent before its submodules."""
    if missing := first_missing(modules):
        what = f"'llm-bench-fixtures[{extra}]'" if extra else missing
        raise BackendUnavailable(f"{missing} is not installed: pip install {what}{f' ({note})' if note else ''}")


@contextmanager
def translate_out_of_memory(what: str) -> Iterator[None]:
    """Turn each library's way to say that an allocation failed into OutOfMemory, with the size asked for."""
    try:
        yield
    except OutOfMemory:
        raise
    except Exception as error:  # an engine's errors may have no narrower base
        size = _size_not_allocated(error)
        if size is None:
            raise
        asked = f"{size} bytes" if size.isdecimal() else size or "an unknown amount"
        raise OutOfMemory(f"{what}: out of memory, {asked} asked for") from error


def _size_not_allocated(error: Exception) -> str | None:
    """Size that a failed allocation asked for, "" where the error doesn't say; None for any other error."""
    text = str(error)
    engines = (backend.failed_allocation for backend in known_backends())
    found = next(filter(None, (words.search(text) for words in engines if words is not None)), None)
    if found is None:
        is_runtime = isinstance(error, RuntimeError) and _FAILED_ALLOCATION.search(text) is not None
        if not is_runtime and not isinstance(error, MemoryError):
            return None
        found = _REQUESTED_BYTES.search(text)
    return next(filter(None, found.groups()), "") if found else ""
