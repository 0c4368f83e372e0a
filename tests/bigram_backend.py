"""A backend that is not transformers: letters that follow letters, counted in a text.

A plain module, as a process of its own imports it. docs/adding-a-backend.md shows the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.models.backend import Backend
from llm_bench_fixtures.models.loading import LoadRequest
from llm_bench_fixtures.models.model import Model, ModelFacts
from llm_bench_fixtures.workloads import CacheKind

if TYPE_CHECKING:
    import torch

TEXT = "the hen in the pen"
SIGNS = " abcdefghijklmnopqrstuvwxyz"
EXPONENTS = "int8-exponents"  # probabilities as powers of two


class Letters:
    """A tokenizer: a sign is a token, and one that isn't known is a space."""

    pad_token_id = bos_token_id = 0
    eos_token_id = None
    is_fast = True  # it can tell which text a token stands for

    def __call__(self, text: str, /, **how: Any) -> dict[str, list[Any]]:
        ids = [max(SIGNS.find(sign), 0) for sign in text.lower()]
        return {"input_ids": ids, "offset_mapping": [(place, place + 1) for place in range(len(ids))]}

    def decode(self, ids: Sequence[int], /, *, skip_special_tokens: bool = False) -> str:
        return "".join(SIGNS[token] for token in ids)


class Bigram(Model):
    """The next letter depends on the last one only: on how often it follows in TEXT, one added to each count."""

    def __init__(self, request: LoadRequest) -> None:
        self.variant, self.device = request.variant, request.device
        self.tokenizer = Letters()
        self._table = logarithms(self.tokenizer(TEXT)["input_ids"]).to(request.device.name)
        if request.variant.quantization == EXPONENTS:
            self._table = self._table.round().char()
        self.facts = ModelFacts(
            label=f"bigrams, {self._table.dtype}",
            weight_bytes=self._table.nbytes,
            context_length=512,
            vocabulary=len(SIGNS),
        )

    def logits(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        import math

        return self._table[input_ids].float() * math.log(2)

    def generate(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        new_tokens: int,
        cache: CacheKind,
        on_token: Callable[[], None] | None = None,
    ) -> torch.Tensor:
        import torch

        for _ in range(new_tokens):
            following = self.logits(input_ids[:, -1:], attention_mask).argmax(-1)
            input_ids = torch.cat([input_ids, following], dim=1)
            if on_token is not None:
                on_token()
        return input_ids

    def generate_with_logits(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, new_tokens: int, cache: CacheKind
    ) -> tuple[torch.Tensor, torch.Tensor]:
        output = self.generate(input_ids, attention_mask, new_tokens, cache)
        return output, self.logits(output[:, -new_tokens - 1 : -1], attention_mask)


def logarithms(ids: Sequence[int]) -> torch.Tensor:
    """log2 of each probability, (V, V) float32: a row for the letter before, a column for the one that follows."""
    import torch

    counts = torch.ones(len(SIGNS), len(SIGNS))
    for before, following in pairwise(ids):
        counts[before, following] += 1
    return (counts / counts.sum(-1, keepdim=True)).log2()


def prepare(request: LoadRequest) -> None:
    import torch  # noqa: F401  # here, so that its import is in no load's time


BACKEND = Backend(Bigram, prepare=prepare, modules=("torch",))
