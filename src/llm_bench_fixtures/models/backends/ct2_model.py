"""A model that CTranslate2 runs."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import WorkloadUnsupported
from llm_bench_fixtures.models.counter import BatchCounter
from llm_bench_fixtures.models.model import Model
from llm_bench_fixtures.processes.work_limit import run_within

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from llm_bench_fixtures.models.device import Device
    from llm_bench_fixtures.models.model import ModelFacts
    from llm_bench_fixtures.models.variants import Variant
    from llm_bench_fixtures.workloads import CacheKind, Tokenizer


# Opens a model that isn't there, at which CTranslate2 logs what it found of the processor.
PROBE = """
import contextlib, ctranslate2
with contextlib.suppress(RuntimeError):
    ctranslate2.Generator("", device="cpu")
"""
PROBE_S = 60.0  # of its work, at most


@functools.cache
def kernels(compute_type: str) -> str:
    """The library of CTranslate2's matrix products, and the instruction set of all else; empty where it isn't told.

    Its log alone tells them, on the error stream of a process: here of one that does nothing else.
    """
    environment = {**os.environ, "CT2_VERBOSE": "1", "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-c", PROBE]
    try:
        done = run_within(PROBE_S, command, environment)
    except subprocess.TimeoutExpired:
        return ""
    told = dict(re.findall(r" - (.+?): (\w+)", done.stderr))
    products = told.get("SGEMM backend" if compute_type == "float32" else "GEMM_S8 backend")
    return ", ".join(filter(None, (products, told.get("Selected ISA"))))


def open_generator(folder: Path, compute_type: str) -> Any:
    """CTranslate2's generator over the converted model in the folder, with as many threads as torch uses."""
    import ctranslate2
    import torch

    return ctranslate2.Generator(
        str(folder), device="cpu", compute_type=compute_type, inter_threads=1, intra_threads=torch.get_num_threads()
    )


def forward(generator: Any, input_ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Logits of rows that begin with their tokens: (B, T) and (B,) int64 in, (B, T, V) float32 out."""
    import ctranslate2
    import numpy as np
    import torch

    views = (ctranslate2.StorageView.from_array(part.to(torch.int32).numpy()) for part in (input_ids, lengths))
    return torch.from_numpy(np.asarray(generator.forward_batch(*views))).float()


class Ct2Model(Model):
    """Runs a generator of CTranslate2's, whose vocabulary is the ids themselves, written as text.

    It takes no padding: each row is its own tokens. Rows of unequal length run together up to the length of the
    shortest, and from there on token by token.
    """

    def __init__(
        self, variant: Variant, device: Device, generator: Any, tokenizer: Tokenizer, facts: ModelFacts
    ) -> None:
        self.variant, self.device, self.facts = variant, device, facts
        self.tokenizer = tokenizer
        self._generator = generator

    def generate(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        new_tokens: int,
        cache: CacheKind,
        on_token: Callable[[], None] | None = None,
    ) -> torch.Tensor:
        """As `Model.generate`; on_token is called from the thread that computes."""
        callback = None if on_token is None else _adding(BatchCounter(len(input_ids), on_token))
        return _continued(input_ids, self._run(input_ids, attention_mask, new_tokens, callback=callback))

    def generate_with_logits(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, new_tokens: int, cache: CacheKind
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As `ShowsLogits.generate_with_logits`.

        CTranslate2 shows logits in which the token that ends the text is masked already; that one is taken from a
        forward pass over the same text.
        """
        import numpy as np
        import torch

        results = self._run(input_ids, attention_mask, new_tokens, return_logits_vocab=True)
        output = _continued(input_ids, results)
        shown = [[np.asarray(step).reshape(-1) for step in row.logits[0][-new_tokens:]] for row in results]
        logits = torch.from_numpy(np.array(shown)).float()
        if self._ends:
            mask = torch.cat([attention_mask, attention_mask.new_ones(len(output), new_tokens)], dim=1)
            logits[..., self._ends] = self.logits(output, mask)[:, -new_tokens - 1 : -1, self._ends]
        return output, logits

    def _run(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, new_tokens: int, **more: Any) -> list[Any]:
        """CTranslate2's results: of each row exactly `new_tokens` tokens, the likeliest that don't end the text.

        Raises WorkloadUnsupported for a batch that it answers wrongly (version 4.8).
        """
        prompts = [row[mask.bool()].tolist() for row, mask in zip(input_ids, attention_mask, strict=True)]
        shortest, longest = min(map(len, prompts)), max(map(len, prompts))
        if shortest == 1 < longest:
            raise WorkloadUnsupported(
                "CTranslate2 counts prompts as answers where one of a single token is in a batch with longer ones"
            )
        results: list[Any] = self._generator.generate_batch(
            [[str(token) for token in prompt] for prompt in prompts],
            min_length=new_tokens,
            max_length=new_tokens,
            end_token=self._ends,
            include_prompt_in_result=False,
            **more,
        )
        return results

    @property
    def _ends(self) -> list[int]:
        """The ids that end a text."""
        end = self.tokenizer.eos_token_id
        return [] if end is None else [end]

    def logits(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """As `Model.logits`, in float32. What stands at padding means nothing."""
        import torch

        order = attention_mask.argsort(dim=1, descending=True, stable=True)  # tokens first, in their order
        is_ordered = bool((attention_mask.diff(dim=1) <= 0).all())
        ids = input_ids if is_ordered else input_ids.gather(1, order)
        logits = forward(self._generator, ids, attention_mask.sum(dim=1))
        if is_ordered:
            return logits
        return torch.zeros_like(logits).scatter_(1, order[..., None].expand_as(logits), logits)

    def forget_caches(self) -> None:
        """As `Model.forget_caches`: a generator keeps no text."""

    def close(self) -> None:
        self._generator = None


def _adding(counter: BatchCounter) -> Callable[[Any], bool]:
    """Takes each of CTranslate2's `GenerationStepResult`, and stops no row."""

    def take(step: Any) -> bool:
        counter.add(step.batch_id)
        return False

    return take


def _continued(input_ids: torch.Tensor, results: list[Any]) -> torch.Tensor:
    """Prompts and their new tokens: (B, T + new_tokens) int64."""
    import torch

    new = torch.tensor([result.sequences_ids[0] for result in results], dtype=torch.int64)
    return torch.cat([input_ids, new], dim=1)
