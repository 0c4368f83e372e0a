"""The handle to a loaded model, and what is known of it without running it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from llm_bench_fixtures.models.artifacts import ArtifactStore
from llm_bench_fixtures.models.device import Device, ResolvedPrecision
from llm_bench_fixtures.models.variants import Precision, Variant, is_plain
from llm_bench_fixtures.progress import Progress
from llm_bench_fixtures.workloads import CacheKind

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

    from llm_bench_fixtures.models.source import ModelSource
    from llm_bench_fixtures.options.settings import Settings
    from llm_bench_fixtures.workloads import Batch, Workload

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_CONTEXT = 2048  # of models whose config names no limit


@dataclass(frozen=True)
class LoadRequest:
    """Everything that a backend needs to load one variant."""

    variant: Variant
    source: ModelSource
    device: Device
    settings: Settings
    store: ArtifactStore
    progress: Progress


@dataclass(frozen=True)
class ModelFacts:
    """What is known of a loaded model without running it; plain values, so that another process can hand them over.

    label: what actually runs, for people. configuration: what runs, whatever was asked for: the same for fp32 and for
    an fp16 that fell back to float32. compute: the dtype that its matrices are multiplied in, None for integers.
    weight_bytes: of its parameters and buffers, or of its files; weight_bytes_read: of those that a forward pass reads,
    None where the backend doesn't tell.
    load_s: seconds from the call to a model that is ready, making artifacts not counted.
    resident_before_load_bytes: of the process. context_length: tokens that fit, prompt and new ones together.
    vocabulary: width of the logits.
    """

    label: str
    configuration: str
    compute: Precision | None
    weight_bytes: int
    weight_bytes_read: int | None
    load_s: float
    resident_before_load_bytes: int
    notes: tuple[str, ...]
    cache_kinds: frozenset[CacheKind]
    context_length: int
    vocabulary: int


@dataclass
class LoadedModel:
    """A model that can run, in the way that its variant says. Its fields are explained in ModelFacts."""

    variant: Variant
    source: ModelSource
    device: Device
    precision: ResolvedPrecision
    label: str
    module: Any
    tokenizer: PreTrainedTokenizerBase
    weight_bytes: int
    weight_bytes_read: int | None = None
    compute: Precision | None = None
    load_s: float = 0.0
    resident_before_load_bytes: int = 0
    notes: tuple[str, ...] = ()
    cache_kinds: frozenset[CacheKind] = frozenset(CacheKind)
    running: Callable[[], AbstractContextManager[object]] = field(default=nullcontext)
    batches: tuple[Workload, list[Batch]] | None = None
    probe: Any = None

    @property
    def facts(self) -> ModelFacts:
        return ModelFacts(**{item.name: getattr(self, item.name) for item in fields(ModelFacts)})

    def call(self, function: Callable[Concatenate[LoadedModel, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the function makes of this model. Of a model in another process it is called there."""
        return function(self, *args, **kwargs)

    @property
    def configuration(self) -> str:
        what = "plain" if is_plain(self.variant) else self.variant.id
        return f"{what} {self.precision.actual}"

    @property
    def context_length(self) -> int:
        config = self.module.config.get_text_config()
        return int(getattr(config, "max_position_embeddings", None) or DEFAULT_CONTEXT)

    @property
    def vocabulary(self) -> int:
        return int(self.module.config.get_text_config().vocab_size)

    def generate(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        new_tokens: int,
        cache: CacheKind,
        on_token: Callable[[], None] | None = None,
    ) -> torch.Tensor:
        """Greedy continuation by exactly `new_tokens` tokens: (B, T) int64 in, (B, T + new_tokens) int64 out.

        on_token: called after each new column of tokens was chosen.
        """
        import torch

        more: dict[str, Any] = {"cache_implementation": "static"} if cache is CacheKind.STATIC else {}
        if on_token is not None:
            more["stopping_criteria"] = _calling(on_token)
        with torch.inference_mode(), self.running():
            output: torch.Tensor = self.module.generate(
                input_ids,
                attention_mask=attention_mask,
                min_new_tokens=new_tokens,
                max_new_tokens=new_tokens,
                use_cache=cache is not CacheKind.OFF,
                **more,
            )
        return output

    def logits(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Next-token logits at each position: (B, T) int64 in, (B, T, V) in the model's dtype out."""
        import torch

        with torch.inference_mode(), self.running():
            logits: torch.Tensor = self.module(
                input_ids=input_ids, attention_mask=attention_mask, use_cache=False
            ).logits
        return logits

    def forget_static_cache(self) -> None:
        """Have the next `generate` make a static cache that fits.

        Else transformers makes it as large as the largest one before (5), or takes that one again (4), so that what a
        workload takes would depend on those before it.
        """
        for name in ("_cache", "_previous_max_cache_length"):
            vars(self.module).pop(name, None)

    def close(self) -> None:
        """Release the weights. The model can't run afterwards."""
        self.module = None
        self.batches = None
        self.probe = None
        self.running = nullcontext
        self.device.release_cached_memory()


def _calling(on_token: Callable[[], None]) -> Any:
    """A stopping criterion of transformers that stops nothing and calls `on_token` for each new token."""
    from transformers import StoppingCriteriaList

    def never(*_: object, **__: object) -> bool:
        on_token()
        return False

    return StoppingCriteriaList([never])


EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts")  # in configs of mixtures of experts


def bytes_read_by_forward(module: torch.nn.Module, scales: Sequence[torch.Tensor] = ()) -> int | None:
    """Bytes of the weights that each forward pass reads: of all parameters but the tables that are only looked up.

    A table that is the output layer's matrix too is read whole. scales: what is stored beside quantized weights.
    None for a mixture of experts, which reads those that it chooses.
    """
    from torch import nn

    config = getattr(module, "config", None)
    if any(getattr(config, name, None) for name in EXPERT_COUNTS):
        return None
    read = [
        parameter
        for part in module.modules()
        if not isinstance(part, nn.Embedding)
        for parameter in part.parameters(recurse=False)
    ]
    return storage_bytes([*read, *scales])


def storage_bytes(tensors: Sequence[torch.Tensor]) -> int:
    """Bytes of the storages behind the tensors, a shared one counted once."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())
