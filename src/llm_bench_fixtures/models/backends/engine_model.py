"""Models that run in an engine's own loop, which takes rows of token ids and no padding."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from llm_bench_fixtures.models.model import Model, ModelFacts
from llm_bench_fixtures.workloads import Batch, CacheKind, Tokenizer

if TYPE_CHECKING:
    import torch

    from llm_bench_fixtures.models.device import Device
    from llm_bench_fixtures.models.variants import Variant

OnToken: TypeAlias = "Callable[[], None] | None"
Shown: TypeAlias = "list[torch.Tensor] | None"
"""Gets the logits of each step, (B, V) float32. None: nobody looks at them."""


class BatchCounter:
    """Counts the new tokens of prompts that run together, each at its own pace: calls `on_token` once for each token
    that all rows have."""

    def __init__(self, rows: int, on_token: Callable[[], None]) -> None:
        self._there = [0] * rows
        self._reported = 0
        self._on_token = on_token

    def add(self, row: int) -> None:
        """The row has one more token."""
        self.reach(row, self._there[row] + 1)

    def reach(self, row: int, tokens: int) -> None:
        """The row has so many tokens in all."""
        self._there[row] = tokens
        while self._reported < min(self._there):
            self._reported += 1
            self._on_token()


@dataclass(eq=False)
class EngineModel(Model):
    """Runs token ids in the loop of an engine."""

    variant: Variant
    device: Device
    engine: Any
    """The library's own model. None once this one is closed."""

    tokenizer: Tokenizer
    facts: ModelFacts

    @abstractmethod
    def continued(self, batch: Batch, new_tokens: int, on_token: OnToken, shown: Shown) -> list[list[int]]:
        """Each row's new tokens, as `Model.generate` has them."""

    def generate(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        new_tokens: int,
        cache: CacheKind,
        on_token: Callable[[], None] | None = None,
    ) -> torch.Tensor:
        """As `Model.generate`; on_token may be called from the thread that computes."""
        return _joined(input_ids, self.continued(Batch(input_ids, attention_mask), new_tokens, on_token, None))

    def generate_with_logits(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, new_tokens: int, cache: CacheKind
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As `ShowsLogits.generate_with_logits`."""
        import torch

        shown: list[torch.Tensor] = []
        output = _joined(input_ids, self.continued(Batch(input_ids, attention_mask), new_tokens, None, shown))
        return output, torch.stack(shown, dim=1)

    def close(self) -> None:
        self.engine = None


def unpadded(batch: Batch) -> list[list[int]]:
    """The tokens of each row, padding left out."""
    return [ids[mask.bool()].tolist() for ids, mask in zip(batch.input_ids, batch.attention_mask, strict=True)]


def _joined(input_ids: torch.Tensor, texts: list[list[int]]) -> torch.Tensor:
    """Prompts and their new tokens: (B, T + new_tokens) int64."""
    import torch

    return torch.cat([input_ids, torch.tensor(texts, dtype=torch.int64)], dim=1)
