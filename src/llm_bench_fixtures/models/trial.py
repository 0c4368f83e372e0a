"""Compares what an engine makes of a model with the model itself: both run the same texts, before any of it is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import AnotherModel
from llm_bench_fixtures.models.peculiarities import rotary_limit, shares_keys
from llm_bench_fixtures.models.transformers import context_of
from llm_bench_fixtures.models.variants import Precision

if TYPE_CHECKING:
    import torch

    from llm_bench_fixtures.models.source import ModelSource

TRIAL_VERSION = 3  # raise it where the trial finds more: what was kept before is then made and compared again
LENGTH = 320  # tokens, so that a window of up to 256 shows
BEYOND = 64  # tokens past a longer window
LONGEST = 640
SHOWN = 16  # positions, the last ones, which all that goes before has a part in
MOST_GAP = {Precision.FLOAT32: 0.002, Precision.FLOAT16: 0.04, Precision.BFLOAT16: 0.1}
"""Of the largest logit, by the type that the engine was given the weights in. In float32, 1e-4 was the most of
families that are right (llama.cpp's GPT-2, whose GELU is a table in 16 bits; else 1e-6), 0.35 the least of those that
aren't. Rounding their weights to bfloat16 moves the families' logits by 0.013 at most, computing a decode step in it by
0.011."""


@dataclass(frozen=True)
class Trial:
    """Texts, and what transformers says after each."""

    texts: tuple[tuple[torch.Tensor, torch.Tensor], ...]
    """Tokens, (1, T) int64 on a CPU, and logits of the last positions: (SHOWN or fewer, V) float32."""

    @classmethod
    def of(cls, module: Any, longest: int = LONGEST) -> Trial:
        """By a model of transformers' in float32. longest: tokens that the engine takes."""
        text = module.config.get_text_config()
        lengths = dict.fromkeys(min(length, longest) for length in lengths_for(text))
        texts = [tokens(text.vocab_size, length) for length in lengths]
        return cls(tuple((ids, _shown(logits_of(module, ids))) for ids in texts))

    @classmethod
    def of_source(cls, source: ModelSource) -> Trial:
        """By what the source loads, for an engine that loads it by itself. Raises IncompleteWeights, UntrustedCode."""
        import torch

        return cls.of(source.load_model(dtype=torch.float32))

    def check(
        self, what: str, run: Callable[[torch.Tensor], torch.Tensor], given: Precision = Precision.FLOAT32
    ) -> None:
        """Raise AnotherModel where the engine's logits differ by more than float error: what a config asks for and a
        converter passes over is no other speed of the same model.

        what: the engine's form of the model, as the message names it.
        run: gives the logits, (1, T, V), of tokens, (1, T).
        The median of the positions counts: a mixture of experts may choose others where two are close.
        """
        for ids, expected in self.texts:
            differences = (_shown(run(ids)) - expected).abs().amax(dim=1) / expected.abs().amax(dim=1)
            gap, most = float(differences.median()), MOST_GAP[given]
            if not gap <= most:
                raise AnotherModel(
                    f"{what} computes something else than transformers: after the same "
                    f"{ids.shape[1]} tokens, with weights in {given}, its logits differ by {gap:.1%} of the largest, "
                    f"and rounding explains {most:.1%}"
                )


def lengths_for(text: Any) -> tuple[int, ...]:
    """Tokens of a trial's texts for a decoder's config.

    The first goes past its window, where that is short enough, and stays within its context. If that is too long for
    longrope's short factors, a second is as long as these allow. It comes last: transformers 4 leaves the factors of
    the last text in the module, and an export needs the short ones, as after a load.
    """
    window = getattr(text, "sliding_window", None) or 0
    past = window + BEYOND if LENGTH < window + BEYOND <= LONGEST else LENGTH
    length = min(past, context_of(text))
    limit = rotary_limit(text)
    return (length, limit) if limit and limit < length else (length,)


def uncompared(config: Any) -> tuple[str, ...]:
    """Notes on lengths that the context allows and no text of a trial reaches."""
    text = config.get_text_config()
    changes = (
        (getattr(text, "sliding_window", None) or 0, "its sliding window of {:,} tokens"),
        (rotary_limit(text) or 0, "its rotary embedding for texts of over {:,} tokens"),
    )
    reached, context = max(lengths_for(text)), context_of(text)
    return tuple(
        f"{what.format(length)} was not compared with transformers'"
        for length, what in changes
        if reached <= length < context
    )


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
