"""A model whose next sign depends on the one before, so that its likelihoods can be checked by hand.

A plain module: pytest puts this folder on sys.path, because there is a conftest.py in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from llm_bench_fixtures.models.device import Device
from llm_bench_fixtures.models.model import Model, ModelFacts

SIGNS = " abc^"


class Letters:
    """A sign is a token. `bos`: whether it puts ^ before a text."""

    pad_token_id = 0
    eos_token_id = None
    is_fast = False

    def __init__(self, *, bos: bool = False) -> None:
        self.bos_token_id = SIGNS.index("^") if bos else None

    def __call__(self, text: str, /, *, add_special_tokens: bool = True, **_: Any) -> Mapping[str, Any]:
        ids = [SIGNS.index(sign) for sign in text]
        return {"input_ids": [self.bos_token_id, *ids] if add_special_tokens and self.bos_token_id else ids}

    def decode(self, ids: Any, /, **_: Any) -> str:
        return "".join(SIGNS[token] for token in ids)


class Bigrams(Model):
    """The probability of a sign depends on the one before: `after["a"]["b"]` is that of b after a."""

    def __init__(self, cpu: Device, after: Mapping[str, Mapping[str, float]], *, bos: bool = False) -> None:
        self.device, self.tokenizer = cpu, Letters(bos=bos)
        self.facts = ModelFacts(label="bigrams", weight_bytes=0, context_length=16, vocabulary=len(SIGNS))
        self.seen: list[list[list[int]]] = []
        table = [[after.get(before, {}).get(sign, 0.01) for sign in SIGNS] for before in SIGNS]
        self._table = torch.tensor(table).log()

    def logits(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        self.seen.append(input_ids.tolist())
        return self._table[input_ids]

    def generate(self, *_: Any, **__: Any) -> torch.Tensor:
        raise AssertionError("nothing is generated")
