"""Whether what an engine makes of a model is that model: both run the same text, before any of it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import AnotherModel
from llm_bench_fixtures.models.peculiarities import shares_keys
from llm_bench_fixtures.models.transformers import context_of
from llm_bench_fixtures.models.variants import Precision

if TYPE_CHECKING:
    import torch

    from llm_bench_fixtures.models.source import ModelSource

TRIAL_VERSION = 2  # raise it where the trial finds more: what was kept before is then made and compared again
LENGTH = 320  # tokens, so that a window of up to 256 shows
BEYOND = 64  # tokens past a longer window
LONGEST = 640
SHOWN = 16  # positions, the last ones, which all that goes before has a part in
MOST_GAP = {Precision.FLOAT32: 0.002, Precision.FLOAT16: 0.04, Precision.BFLOAT16: 0.1}
"""Of the largest logit, by the type that the engine was given the weights in. In float32, 1e-4 was the most of
families that are right (llama.cpp's GPT-2, whose GELU is a table in 16 bits; else 1e-6), 0.35 the least of those that
aren't. Rounding their weights to bfloat16 moves the families' logits by 0.013 at most."""


@dataclass(frozen=True)
class Trial:
    """A text, and what transformers says after it."""

    ids: torch.Tensor
    """(1, T) int64, on a CPU."""

    expected: torch.Tensor
    """Logits of the last positions: (SHOWN or fewer, V) float32."""

    @classmethod
    def of(cls, module: Any, longest: int = LONGEST) -> Trial:
        """By a model of transformers' in float32. longest: tokens that the engine takes."""
        text = module.config.get_text_config()
        ids = tokens(text.vocab_size, min(length_for(text), longest))
        return cls(ids, _shown(logits_of(module, ids)))

    @classmethod
    def of_source(cls, source: ModelSource) -> Trial:
        """By what the source loads, for an engine that loads it by itself. Raises IncompleteWeights, UntrustedCode."""
        import torch

        return cls.of(source.load_model(dtype=torch.float32))

    def check(self, engine: str, found: torch.Tensor, given: Precision = Precision.FLOAT32) -> None:
        """Raise AnotherModel where the engine's logits, (1, T, V), differ by more than float error: what a config asks
        for and a converter passes over is no other speed of the same model.

        The median of the positions counts: a mixture of experts may choose others where two are close.
        """
        differences = (_shown(found) - self.expected).abs().amax(dim=1) / self.expected.abs().amax(dim=1)
        gap, most = float(differences.median()), MOST_GAP[given]
        if not gap <= most:
            raise AnotherModel(
                f"{engine}'s conversion computes something else than transformers: after the same "
                f"{self.ids.shape[1]} tokens, with weights in {given}, its logits differ by {gap:.1%} of the largest, "
                f"and rounding explains {most:.1%}"
            )


def length_for(text: Any) -> int:
    """Tokens of a trial for a decoder's config: past its window, where that is short enough, and within its context."""
    window = getattr(text, "sliding_window", None) or 0
    past = window + BEYOND if LENGTH < window + BEYOND <= LONGEST else LENGTH
    return min(past, context_of(text))


def uncompared(config: Any) -> tuple[str, ...]:
    """What to tell of an engine's model whose window no trial goes past, though its context does."""
    text = config.get_text_config()
    window = getattr(text, "sliding_window", None) or 0
    if not length_for(text) <= window < context_of(text):
        return ()
    return (f"its sliding window of {window:,} tokens was not compared with transformers'",)


def tokens(vocabulary: int, length: int) -> torch.Tensor:
    """(1, length) int64, spread over the vocabulary."""
    import torch

    return ((2 * torch.arange(length) + 1) * vocabulary // (2 * length))[None]


def logits_of(module: Any, ids: torch.Tensor) -> torch.Tensor:
    """(1, T, V) of a model of transformers' or Optimum's."""
    import torch

    ids = ids.to(module.device)
    with torch.inference_mode():
        found: torch.Tensor = module(
            input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=shares_keys(module.config)
        ).logits
    return found


def _shown(logits: torch.Tensor) -> torch.Tensor:
    return logits[0, -SHOWN:].float().cpu().clone()
