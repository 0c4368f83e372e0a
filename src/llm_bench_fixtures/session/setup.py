"""What a run measures with: its device, model, texts and prompts, each found when it is first asked for; its need and
deadline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import cast

from llm_bench_fixtures.answer.need import DEFAULT_NEED, Need
from llm_bench_fixtures.errors import LlmBenchError
from llm_bench_fixtures.measure.choices import ChoiceSet, read_choices
from llm_bench_fixtures.measure.flops import FlopCounter, flop_counter
from llm_bench_fixtures.measure.harness import HarnessTask, load_tasks
from llm_bench_fixtures.measure.limits import MachineLimits, measure_limits
from llm_bench_fixtures.measure.own_prompts import OwnPrompts
from llm_bench_fixtures.models.artifacts import ArtifactStore
from llm_bench_fixtures.models.attention import check_known
from llm_bench_fixtures.models.backends import BACKENDS
from llm_bench_fixtures.models.candidates import find_source
from llm_bench_fixtures.models.chat import chat_prompts
from llm_bench_fixtures.models.device import Device, DeviceKind, resolve_device
from llm_bench_fixtures.models.handle import ModelHandle
from llm_bench_fixtures.models.loading import translate_out_of_memory
from llm_bench_fixtures.models.quarantine import TokenizerApart, tokenizer_of
from llm_bench_fixtures.models.quiet import quiet_libraries
from llm_bench_fixtures.models.source import ModelSource
from llm_bench_fixtures.models.variants import Precision
from llm_bench_fixtures.options.settings import Settings
from llm_bench_fixtures.processes.affinity import usable_cores
from llm_bench_fixtures.progress import Phase, Progress
from llm_bench_fixtures.results.formatting import count
from llm_bench_fixtures.session.deadline import NO_LIMIT, Deadline
from llm_bench_fixtures.session.forecast import Forecast, WorkKind
from llm_bench_fixtures.session.own import OwnRun
from llm_bench_fixtures.workloads import Corpus, Prompts, Tokenizer, read_corpus


def _itself(tokenizer: Tokenizer) -> Tokenizer:
    return tokenizer


@dataclass(eq=False, repr=False)
class Setup:
    """Nothing is found before it is asked for, and each thing once."""

    settings: Settings
    progress: Progress
    given: OwnPrompts | None = None
    """The prompts of --llm-prompts."""
    need: Need = DEFAULT_NEED
    """As --llm-need and --llm-want say."""
    deadline: Deadline = NO_LIMIT

    def __post_init__(self) -> None:
        self.forecast = Forecast()
        self._no_tasks: LlmBenchError | None = None
        self.own = OwnRun(self.given, self) if self.given or self.settings.shape else None
        """The user's own prompts, or shapes; None where there are none."""
        self._chats: dict[str, Prompts] = {}  # prompts of models with a tokenizer of their own, by variant

    @cached_property
    def device(self) -> Device:
        """Raises InvalidSetting where the device that was asked for isn't here."""
        with self.progress.activity(Phase.IMPORTING, "importing torch"):
            device = resolve_device(self.settings.device, self.settings.device_map)
            if self.settings.in_process:
                device.synchronize()  # sets an accelerator up, so that no model's load_s holds that
        return device

    @property
    def on_cpu(self) -> bool:
        return self.device.kind is DeviceKind.CPU

    @cached_property
    def free_bytes(self) -> int:
        """Free bytes of the device's memory, when first asked for: before anything is loaded."""
        return self.device.free_bytes

    @property
    def known_free_bytes(self) -> int | None:
        """Free bytes of the device's memory, if they have been asked for."""
        return cast("int | None", vars(self).get("free_bytes"))

    @property
    def threads(self) -> int:
        """Threads that models compute with."""
        import torch

        return torch.get_num_threads()

    @property
    def busy_cores(self) -> int:
        """Cores that a round keeps busy, unless its variant has threads of its own: of an accelerator's the one that
        feeds it. 0 where there are too few."""
        if not self.on_cpu:
            return 1
        return 0 if self.threads_warning else self.threads

    @property
    def threads_warning(self) -> str:
        """Warning where there are more threads than cores, which wait for each other; empty where there are enough."""
        threads, cores = self.threads, usable_cores()
        if not self.on_cpu or threads <= cores:
            return ""
        return f"{threads} threads wait for each other on {count(cores, 'core')}: set OMP_NUM_THREADS={cores}"

    @cached_property
    def limits(self) -> MachineLimits | None:
        """How fast this machine is at best; None where --llm-limits-time is 0."""
        budget_s = self.settings.limits_time
        if not budget_s:
            return None
        what = "measuring how fast this machine reads memory and multiplies"
        with self.progress.activity(Phase.MEASURING_LIMITS, what):
            return measure_limits(self.device, Precision, budget_s)

    @property
    def known_limits(self) -> MachineLimits | None:
        """The limits, if they have been measured: a report doesn't begin to measure."""
        return cast("MachineLimits | None", vars(self).get("limits"))

    @cached_property
    def store(self) -> ArtifactStore:
        """Where exports and quantized models are kept."""
        return ArtifactStore(self.settings.cache_dir, self.progress)

    @cached_property
    def source(self) -> ModelSource:
        """The first of the candidates that can be used. Raises NoCandidateLoaded."""
        with self.progress.activity(Phase.LOADING, f"finding {', '.join(self.settings.model)}"):
            return find_source(self.settings, self.store)

    @cached_property
    def corpus(self) -> Corpus:
        """The texts that quality is measured on: the answers to the user's own prompts, where there are any."""
        return (self.own and self.own.answers) or read_corpus(self.settings.corpus)

    @cached_property
    def choices(self) -> ChoiceSet | None:
        """The questions of multiple choice; None where none are asked. Raises InvalidSetting."""
        return read_choices(self.settings.choices)

    @cached_property
    def tasks(self) -> tuple[HarnessTask, ...]:
        """The tasks of lm-evaluation-harness; none for random weights. Raises InvalidSetting and MissingLibrary."""
        if not self.settings.tasks or self.source.random_weights:
            return ()
        if self._no_tasks is not None:  # trying again might wait for a network
            raise self._no_tasks
        try:
            with self.progress.activity(Phase.IMPORTING, f"reading the tasks {', '.join(self.settings.tasks)}"):
                return load_tasks(self.settings.tasks)
        except LlmBenchError as error:
            self._no_tasks = error
            raise

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        """Tokenizer of --llm-model."""
        return tokenizer_of(self.source, in_process=self.settings.in_process)

    @cached_property
    def prompts(self) -> Prompts:
        """Prompts in the tokens of --llm-model. Raises InvalidSetting where they are to be chats and can't be, and
        TokenizerFailed."""
        if not self.settings.chat:
            return Prompts(self._tokenizer)
        return self._as_chats(self.source.name, self._tokenizer, self.source.load_tokenizer)

    def prompts_of(self, model: ModelHandle) -> Prompts:
        """Prompts in the model's own tokens. Raises as `prompts` does."""
        if model.facts.runs_source or model.variant.backend in BACKENDS:  # they have --llm-model's tokenizer
            return self.prompts
        if not self.settings.chat:
            return model.prompts
        name = model.variant.id
        if name not in self._chats:
            self._chats[name] = self._as_chats(name, model.tokenizer, partial(_itself, model.tokenizer))
        return self._chats[name]

    def _as_chats(self, name: str, tokenizer: Tokenizer, load: Callable[[], Tokenizer]) -> Prompts:
        with self.progress.activity(Phase.CHECKING, f"rendering the chat template of {name}"):
            return chat_prompts(name, tokenizer, load, on_cpu=self.on_cpu)

    @contextmanager
    def working(self, phase: Phase, text: str, work: WorkKind, variant: str, name: str = "") -> Iterator[None]:
        """The block is a piece of the work on a loaded variant, which the forecast knows by that name. text: says what
        is done. Raises NotReached where the run has no time for it, and OutOfMemory."""
        with (
            self.deadline.reaching(),
            translate_out_of_memory(text),
            self.progress.activity(phase, text),
            self.forecast.doing(work, variant, name=name),
            quiet_libraries(),
        ):
            self.deadline.check()
            yield

    def check(self) -> None:
        """Find what every benchmark needs. Raises LlmBenchError where it can't be had."""
        _ = self.device, self.source, self.corpus, self.choices, self.tasks
        if self.settings.attention:
            check_known(self.settings.attention)
        if self.settings.chat:
            _ = self.prompts

    def close(self) -> None:
        """End the tokenizer's process, and remove what builds that were stopped have left in the cache."""
        if "store" in vars(self):
            self.store.remove_unfinished()
        tokenizer = vars(self).get("_tokenizer")
        if isinstance(tokenizer, TokenizerApart):
            tokenizer.close()

    @cached_property
    def flops(self) -> FlopCounter:
        """Counts for the model's architecture; what has been counted for one variant serves the others."""
        return flop_counter(self.source.load_config(), self.source.trust_remote_code)
