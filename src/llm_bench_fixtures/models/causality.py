"""Whether a model only looks back: what it says of a position must not depend on the tokens after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from llm_bench_fixtures.errors import BackendUnavailable, NotCausal

if TYPE_CHECKING:
    import torch

    from llm_bench_fixtures.models.model import Model

REASON = (
    "its last token changes what it says after the first: it reads a text from both sides, as BERT does, or its code "
    "doesn't mask what comes later; measured here are causal models, which continue a text"
)
# Of the tolerance for two ways to run a text: here it is run in the same way, so that nothing but a mixture of experts,
# which groups what it multiplies by its tokens, sums in another order (1e-6 in float32, measured).
SHARE_OF_TOLERANCE = 0.1


def check_causal(model: Model) -> None:
    """Raise NotCausal for a model that looks ahead, by two forward passes over two tokens; BackendUnavailable for one
    that can't run here.

    A model that multiplies integers isn't asked, as the scales of its activations depend on all tokens.
    """
    facts = model.facts
    if facts.compute is None:
        return
    try:
        found = looks_ahead(model.logits, facts.vocabulary, model.device.name, facts.tolerance)
    except BackendUnavailable:
        raise
    except Exception:  # a model that can't be asked this is left to what measures it, which says why
        return
    if found:
        raise NotCausal(REASON)


def looks_ahead(
    logits: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], vocabulary: int, device: str, tolerance: float
) -> bool:
    """Whether the last token changes the logits of the first position beyond float error.

    logits: gives (B, T, V) for (B, T) token ids and their mask. tolerance: of the model's arithmetic, in standard
    deviations of the logits.
    """
    import torch

    def of_first(last: int) -> torch.Tensor:
        ids = torch.tensor([[vocabulary // 2, last]], device=device)
        return logits(ids, torch.ones_like(ids))[0, 0].float()

    one, other = of_first(vocabulary // 3), of_first(vocabulary // 3 + 1)
    return bool((one - other).abs().max() > SHARE_OF_TOLERANCE * tolerance * one.std())
