"""The handle to a loaded model, which tests and hooks hold: the model is in this process, or in one of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from llm_bench_fixtures.models.model import Model, ModelFacts
from llm_bench_fixtures.workloads import CacheKind, Prompts, Tokenizer

if TYPE_CHECKING:
    import torch

    from llm_bench_fixtures.models.device import Device
    from llm_bench_fixtures.models.source import ModelSource
    from llm_bench_fixtures.models.variants import Variant
    from llm_bench_fixtures.processes.calls import Preemptions
    from llm_bench_fixtures.processes.scratch import ScratchFolder

P = ParamSpec("P")
T = TypeVar("T")


class ModelHandle(ABC):
    """A loaded model, wherever it is. `call` runs a function on the `Model` itself."""

    variant: Variant
    source: ModelSource
    """The model of --llm-model that the backend was given."""

    device: Device
    facts: ModelFacts
    """Facts of the model, with what its load took."""

    offload: ScratchFolder | None = None
    """Where weights may lie that are read from disk for each use; removed when the model is closed."""

    @abstractmethod
    def call(self, function: Callable[Concatenate[Model, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function with the model, in the model's process, and return its result."""

    @property
    def can_pause(self) -> bool:
        """Whether `in_turns` pauses: not where tokens are queued on a device, or on a server."""
        return False

    def in_turns(
        self,
        preemptions: Preemptions,  # noqa: ARG002  # of a process
        function: Callable[Concatenate[Model, Callable[[], None], P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Iterator[T | None]:
        """As `call`, of a function that takes `pause` after the model: gives None at each pause and each preemption,
        and last the result.

        The model's process takes no time there, and after the result. Where it can't pause, the result comes at once.
        preemptions: says how often it is suspended, and gets to know when.
        """
        yield self.call(function, _without_pause, *args, **kwargs)

    @abstractmethod
    def close(self) -> None:
        """Release the model. It can't be called afterwards."""

    def _remove_offload(self) -> None:
        if self.offload is not None:
            self.offload.close()

    def kill(self) -> None:  # noqa: B027  # what is in this process ends with it
        """End its process, where it has one, in the middle of a call too: the run is over."""

    def generate(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, new_tokens: int, cache: CacheKind
    ) -> torch.Tensor:
        """As `Model.generate`, with tensors on the CPU: a device's own don't travel between processes."""
        return self.call(_generate, input_ids, attention_mask, new_tokens, cache)

    def logits(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """As `Model.logits`, with tensors on the CPU."""
        return self.call(_logits, input_ids, attention_mask)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The model's own."""
        own: Tokenizer = self.call(attrgetter("tokenizer"))
        return own

    @cached_property
    def prompts(self) -> Prompts:
        """Prompts in the model's own tokens."""
        return Prompts(self.tokenizer)

    @property
    def label(self) -> str:
        return self.facts.label

    @property
    def weight_bytes(self) -> int | None:
        return self.facts.weight_bytes

    @property
    def context_length(self) -> int:
        return self.facts.context_length


class LocalModel(ModelHandle):
    """The handle to a model in this process."""

    def __init__(self, model: Model, source: ModelSource, facts: ModelFacts) -> None:
        self.model = model
        self.source = source
        self.facts = facts
        self.variant, self.device = model.variant, model.device

    def call(self, function: Callable[Concatenate[Model, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return function(self.model, *args, **kwargs)

    def close(self) -> None:
        self.model.close()
        del self.model
        self.device.release_cached_memory()
        self._remove_offload()


# Functions of this module, because a call travels to another process by its function's name.


def _without_pause() -> None:
    """Where nobody else has a turn."""


def _generate(
    model: Model, input_ids: torch.Tensor, attention_mask: torch.Tensor, new_tokens: int, cache: CacheKind
) -> torch.Tensor:
    device = model.device.name
    return model.generate(input_ids.to(device), attention_mask.to(device), new_tokens, cache).cpu()


def _logits(model: Model, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    device = model.device.name
    return model.logits(input_ids.to(device), attention_mask.to(device)).cpu()
