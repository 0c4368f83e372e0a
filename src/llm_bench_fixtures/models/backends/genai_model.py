"""A model that onnxruntime-genai runs: its loop, and how prompts are laid out for it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import BackendUnavailable, WorkloadUnsupported
from llm_bench_fixtures.models.model import Model

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from llm_bench_fixtures.models.device import Device
    from llm_bench_fixtures.models.model import ModelFacts
    from llm_bench_fixtures.models.variants import Variant
    from llm_bench_fixtures.workloads import CacheKind, Tokenizer

PADDING = -1
"""Stands for no token. The engine takes each place that holds the id of its padding for one, and prompts may hold any
token; looked up in the table of embeddings, it gives the last row, which its mask then hides."""

ERRORS = 3  # of ONNX Runtime's logging
MOST_ROWS = 32  # that the engine runs at a time
GREEDY = {
    "do_sample": False,
    "num_beams": 1,
    "num_return_sequences": 1,
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
}
"""In place of what was published with the model."""


def open_engine(folder: Path, end: int | None) -> Any:
    """The engine over a built model, with as many threads as torch uses. end: the token that ends a text.

    Raises BackendUnavailable where there is none.
    """
    import onnxruntime_genai
    import torch

    if end is None:
        raise BackendUnavailable("onnxruntime-genai needs a token that ends a text, and the tokenizer has none")
    session: dict[str, int | str | bool] = {
        "intra_op_num_threads": torch.get_num_threads(),
        "log_severity_level": ERRORS,
        "enable_cpu_mem_arena": False,  # it would keep what the largest run took, and decodes no faster
    }
    if os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive":  # this pool has no such variable of its own
        session["session.intra_op.allow_spinning"] = "0"
    tokens = {"pad_token_id": PADDING, "eos_token_id": end}
    config = onnxruntime_genai.Config(str(folder))
    config.overlay(json.dumps({"model": {**tokens, "decoder": {"session_options": session}}}))
    return onnxruntime_genai.Model(config)


def start(engine: Any, rows: Sequence[Sequence[int]], width: int, new_tokens: int) -> Any:
    """A generator of the engine's that has run the rows, padded to that width on the right."""
    import numpy as np
    import onnxruntime_genai

    parameters = onnxruntime_genai.GeneratorParams(engine)
    longest = width + new_tokens
    # below min_length the engine passes over the end of a text
    parameters.set_search_options(**GREEDY, batch_size=len(rows), max_length=longest, min_length=longest)
    generator = onnxruntime_genai.Generator(engine, parameters)
    generator.append_tokens(np.array([[*row, *[PADDING] * (width - len(row))] for row in rows], dtype=np.int32))
    return generator


def forward(engine: Any, rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """Logits of rows of one length: (B, T, V) float32."""
    import torch

    return torch.from_numpy(start(engine, rows, len(rows[0]), 0).get_output("logits"))


def advance(generator: Any) -> None:
    generator.generate_next_token()


def continue_rows(
    engine: Any,
    rows: Sequence[Sequence[int]],
    width: int,
    new_tokens: int,
    step: Callable[[Any], None] = advance,
) -> list[list[int]]:
    """The greedy continuation of each row, padded to that width. step: gives all rows a further token.

    A row alone isn't padded: the engine would forget that it is after the first token.
    """
    import numpy as np

    generator = start(engine, rows, width if len(rows) > 1 else len(rows[0]), new_tokens)
    steps = []
    for _ in range(new_tokens):
        step(generator)
        steps.append(generator.get_next_tokens())
    texts: list[list[int]] = np.array(steps).T.tolist()
    return texts


@dataclass(eq=False)
class GenaiModel(Model):
    """Runs token ids with onnxruntime-genai, whose attention takes padding on the right only: rows are moved there."""

    variant: Variant
    device: Device
    engine: Any
    """onnxruntime-genai's. None once the model is closed."""

    tokenizer: Tokenizer
    facts: ModelFacts

    def generate(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        new_tokens: int,
        cache: CacheKind,
        on_token: Callable[[], None] | None = None,
    ) -> torch.Tensor:
        """As `Model.generate`."""

        def step(generator: Any) -> None:
            advance(generator)
            if on_token is not None:
                on_token()

        return self._continue(input_ids, attention_mask, new_tokens, step)

    def generate_with_logits(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, new_tokens: int, cache: CacheKind
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As `ShowsLogits.generate_with_logits`."""
        import torch

        shown: list[torch.Tensor] = []

        def step(generator: Any) -> None:
            shown.append(torch.tensor(generator.get_logits())[:, -1])  # before the engine passes over the end in them
            advance(generator)

        output = self._continue(input_ids, attention_mask, new_tokens, step)
        return output, torch.stack(shown, dim=1)

    def _continue(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, new_tokens: int, step: Callable[[Any], None]
    ) -> torch.Tensor:
        import torch

        if len(input_ids) > MOST_ROWS:
            raise WorkloadUnsupported(f"onnxruntime-genai runs at most {MOST_ROWS} prompts at a time")
        rows = [ids[mask.bool()].tolist() for ids, mask in zip(input_ids, attention_mask, strict=True)]
        texts = continue_rows(self.engine, rows, input_ids.shape[1], new_tokens, step)
        return torch.cat([input_ids, torch.tensor(texts, dtype=torch.int64)], dim=1)

    def logits(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """As `Model.logits`. Padding on the right needs no mask, as no position before it sees it."""
        import torch

        rows = input_ids.tolist()
        parts = (rows[first : first + MOST_ROWS] for first in range(0, len(rows), MOST_ROWS))
        return torch.cat([forward(self.engine, part) for part in parts])

    def forget_caches(self) -> None:
        """Nothing to do: each call has a cache of its own."""

    def close(self) -> None:
        self.engine = None
