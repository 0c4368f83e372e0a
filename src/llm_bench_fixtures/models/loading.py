"""Loading a variant: checked, imported, timed, and with one error for every way to run out of memory.

As a rule it is loaded in a process of its own, measured there, and gone with it. The process has done nothing before,
so that its first `generate` is the truly first one and its memory is the variant's own. This one waits for its answers
blocked on a pipe, and that one for its calls, which takes no processor time.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeAlias, TypeVar

from llm_bench_fixtures.errors import BackendUnavailable, InvalidSetting, OutOfMemory, first_line
from llm_bench_fixtures.models.artifacts import ArtifactStore, Maker
from llm_bench_fixtures.models.backend import Backend, LoadRequest, first_missing
from llm_bench_fixtures.models.backends import find_backend, known_backends
from llm_bench_fixtures.models.device import Device, DeviceKind, resident_at_rest
from llm_bench_fixtures.models.handle import LocalModel, ModelHandle
from llm_bench_fixtures.models.model import Model, ModelFacts
from llm_bench_fixtures.models.quarantine import TokenizerApart, tokenizer_of
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import ModelSource
from llm_bench_fixtures.models.variants import WAITING_PASSIVELY, Variant, in_threads
from llm_bench_fixtures.options.settings import Settings
from llm_bench_fixtures.processes.allocator import giving_freed_memory_back
from llm_bench_fixtures.processes.calls import Answer, Caller, Preemptions, Question, answer_calls
from llm_bench_fixtures.processes.channels import Channel
from llm_bench_fixtures.processes.environment import WAIT_POLICY, setting
from llm_bench_fixtures.processes.launch import start_function
from llm_bench_fixtures.processes.memory import library_bytes
from llm_bench_fixtures.processes.worker import can_suspend
from llm_bench_fixtures.progress import Phase, Progress
from llm_bench_fixtures.workloads import Tokenizer
from llm_bench_fixtures.writing import naming_full_disks

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
    backend, progress = find_backend(request.variant.backend), request.progress
    notes = _check(request, backend)
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


def _check(request: LoadRequest, backend: Backend) -> tuple[str, ...]:
    """Notes on what is asked for and has no effect. Raises BackendUnavailable where the variant can't run here, as far
    as that is known before its libraries are imported."""
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
    return notes


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


P = ParamSpec("P")
T = TypeVar("T")
Given: TypeAlias = tuple[Variant, ModelSource, Device, Settings]
"""The part of a LoadRequest that can be handed to another process."""


class IsolatedModel(ModelHandle):
    """The handle to a model in another process."""

    def __init__(self, request: LoadRequest, keep_traceback: Callable[[str], str] = lambda _: "") -> None:
        """Start the process and load the variant there. Raises what the load raises, or WorkerDied.

        keep_traceback: as in `Caller`.
        """
        find_backend(request.variant.backend)  # for what this process keeps of it: its libraries, its loggers
        self.variant, self.source, self.device = request.variant, request.source, request.device
        self._request = request
        self._keep_traceback = keep_traceback
        self._start()

    def _start(self) -> None:
        import torch

        request = self._request
        given: Given = request.variant, request.source, request.device, request.settings
        work = given, request.store.root, request.offload, self.variant.threads or torch.get_num_threads()
        name = f"{self.variant.id}: the process that it ran in"
        on_cpu, afresh = request.device.kind is DeviceKind.CPU, self.variant.is_passive
        with setting(WAIT_POLICY, "passive") if self.variant.is_passive else nullcontext():
            process = start_function(name, _serve, work, on_cpu=on_cpu, afresh=afresh)
        self._caller = Caller(process, request.progress, self._keep_traceback)
        try:
            with request.progress.activity(Phase.LOADING, f"starting {self.variant.id}"):
                self.facts = self._caller.result()
        except BaseException:
            self.close()
            raise

    def call(self, function: Callable[Concatenate[Model, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function with the model in its process. Function, arguments and result have to be picklable.

        Where a test's time limit has ended the process, which may have been another test's turn, it is loaded again.
        """
        result: T = self._living_caller().call(function, *args, **kwargs)
        return result

    @property
    def can_pause(self) -> bool:
        return can_suspend() and self.device.kind is DeviceKind.CPU and not self.facts.is_remote

    def in_turns(
        self,
        preemptions: Preemptions,
        function: Callable[Concatenate[Model, Callable[[], None], P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Iterator[T | None]:
        if self.can_pause:
            return self._living_caller().in_turns(preemptions, function, *args, **kwargs)
        return super().in_turns(preemptions, function, *args, **kwargs)

    def _living_caller(self) -> Caller:
        if self._caller.was_cut_short:
            self._start()
        return self._caller

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The source's, where that is what runs; a stranger's is in a process of its own. Else the model's own."""
        return tokenizer_of(self.source, in_process=False) if self.facts.runs_source else super().tokenizer

    def close(self) -> None:
        """End the process, and the tokenizer's."""
        self._caller.close()
        self._close_tokenizer()
        self._remove_offload()

    def kill(self) -> None:
        """End the process in the middle of what it does, and the tokenizer's."""
        self._caller.kill()
        self._close_tokenizer()

    def _close_tokenizer(self) -> None:
        tokenizer = vars(self).pop("tokenizer", None)
        if isinstance(tokenizer, TokenizerApart):
            tokenizer.close()


def _serve(
    channel: Channel[Answer, Question], given: Given, cache_dir: Path, offload: Path | None, threads: int
) -> None:
    """The process: loads its variant, then answers calls with it."""
    variant, source, _, _ = given

    def load(progress: Progress) -> tuple[Model, ModelFacts]:
        import torch

        torch.set_num_threads(threads)
        maker = Maker(variant.threads_of or variant.id, source.identity, source.weights)
        store = ArtifactStore(cache_dir, progress, maker)
        with giving_freed_memory_back():
            loaded = load_variant(LoadRequest(*given, store, progress, offload))
        return loaded.model, loaded.facts

    @contextmanager
    def quietly() -> Iterator[None]:
        with quiet_libraries(), naming_full_disks(cache_dir), translate_out_of_memory(variant.id):
            yield

    answer_calls(channel, load, quietly)
