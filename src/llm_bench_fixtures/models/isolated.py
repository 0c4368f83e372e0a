"""A variant in a process of its own: loaded there, measured there, and gone with it.

The process has done nothing before, so that its first `generate` is the truly first one and its memory is the
variant's own. This one waits for its answers blocked on a pipe, and that one for its calls, which takes no processor
time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from llm_bench_fixtures.models.artifacts import ArtifactStore, Maker
from llm_bench_fixtures.models.backend import LoadRequest
from llm_bench_fixtures.models.backends import find_backend
from llm_bench_fixtures.models.device import Device, DeviceKind
from llm_bench_fixtures.models.handle import ModelHandle
from llm_bench_fixtures.models.loading import load_variant, translate_out_of_memory
from llm_bench_fixtures.models.model import Model, ModelFacts
from llm_bench_fixtures.models.quarantine import TokenizerApart, tokenizer_of
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import ModelSource
from llm_bench_fixtures.models.variants import Variant
from llm_bench_fixtures.options.settings import Settings
from llm_bench_fixtures.processes.allocator import giving_freed_memory_back
from llm_bench_fixtures.processes.calls import Answer, Caller, Preemptions, Question, answer_calls
from llm_bench_fixtures.processes.channels import Channel
from llm_bench_fixtures.processes.environment import WAIT_POLICY, setting
from llm_bench_fixtures.processes.launch import start_function
from llm_bench_fixtures.processes.worker import can_suspend
from llm_bench_fixtures.progress import Phase, Progress
from llm_bench_fixtures.workloads import Tokenizer
from llm_bench_fixtures.writing import naming_full_disks

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Assignment:
    """Work for the process: what to load, in values that can be handed over."""

    variant: Variant
    source: ModelSource
    device: Device
    settings: Settings
    cache_dir: Path
    threads: int
    offload: Path | None


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
        of = request.variant, request.source, request.device, request.settings, request.store.root
        assignment = Assignment(*of, self.variant.threads or torch.get_num_threads(), request.offload)
        name = f"{self.variant.id}: the process that it ran in"
        on_cpu, afresh = request.device.kind is DeviceKind.CPU, self.variant.is_passive
        with setting(WAIT_POLICY, "passive") if self.variant.is_passive else nullcontext():
            process = start_function(name, _serve, (assignment,), on_cpu=on_cpu, afresh=afresh)
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

    @cached_property
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


def _serve(channel: Channel[Answer, Question], assignment: Assignment) -> None:
    """The process: loads its variant, then answers calls with it."""

    @contextmanager
    def quietly() -> Iterator[None]:
        with quiet_libraries(), naming_full_disks(assignment.cache_dir), translate_out_of_memory(assignment.variant.id):
            yield

    answer_calls(channel, functools.partial(_load, assignment), quietly)


def _load(assignment: Assignment, progress: Progress) -> tuple[Model, ModelFacts]:
    import torch

    torch.set_num_threads(assignment.threads)
    source = assignment.source
    made_for = assignment.variant.threads_of or assignment.variant.id
    store = ArtifactStore(assignment.cache_dir, progress, Maker(made_for, source.identity, source.weights))
    given = assignment.variant, assignment.source, assignment.device, assignment.settings, store, progress
    request = LoadRequest(*given, assignment.offload)
    with giving_freed_memory_back():
        loaded = load_variant(request)
    return loaded.model, loaded.facts
