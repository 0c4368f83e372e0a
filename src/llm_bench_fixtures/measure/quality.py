"""Loss and perplexity of a model over a corpus.

Each text is cut into windows that start `stride` tokens apart; a token is scored once, in the first window that holds
it, given all tokens before it in that window. The first token of a text has nothing before it and is not scored.
Source: the strided recipe in Hugging Face's "Perplexity of fixed-length models".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llm_bench_fixtures.workloads import Side, pad_batch

if TYPE_CHECKING:
    import torch

    from llm_bench_fixtures.models import LoadedModel
    from llm_bench_fixtures.workloads import Corpus, TokenIds

IGNORED = -100
USUAL_WINDOW = 1024
BATCH_TOKENS = 4096  # of one scoring forward pass, padding included
BATCH_ELEMENTS = 1 << 27  # of its logits: 512 MiB in float32
CHUNK_ELEMENTS = 1 << 22  # of the logits that are float32 at once: 16 MiB


@dataclass(frozen=True)
class Window:
    """Consecutive tokens of one text; the first `unscored` of them are context only."""

    ids: TokenIds
    unscored: int

    @property
    def scored(self) -> int:
        return len(self.ids) - self.unscored


@dataclass(frozen=True)
class Score:
    """Summed negative log-likelihood in nats over `tokens` scored tokens, and the windows it was computed with."""

    nll_sum: float
    tokens: int
    window: int
    stride: int

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nll_sum / self.tokens

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss) if self.loss < 700 else math.inf


def resolve_windows(window: int, stride: int, context_length: int) -> tuple[int, int]:
    """Window and stride in tokens; 0 stands for the default: the context up to 1024, and half a window."""
    window = min(window or USUAL_WINDOW, context_length)
    return window, min(stride or max(window // 2, 1), window)


def score_corpus(model: LoadedModel, corpus: Corpus, window: int, stride: int) -> Score:
    """Score a corpus; 0 stands for the default window and stride."""
    texts = [tuple(model.tokenizer(text, verbose=False)["input_ids"]) for text in corpus.texts]
    return score_texts(model, texts, *resolve_windows(window, stride, model.context_length))


def cut_windows(ids: TokenIds, window: int, stride: int) -> list[Window]:
    """Windows that score each token but the first once; with stride == window, none of the windows' first ones."""
    windows = []
    scored_up_to = 1
    for start in range(0, len(ids), stride):
        end = min(start + window, len(ids))
        if end > scored_up_to:
            windows.append(Window(ids[start:end], unscored=max(scored_up_to - start, 1)))
            scored_up_to = end
        if end == len(ids):
            break
    return windows


def score_texts(model: LoadedModel, texts: Sequence[TokenIds], window: int, stride: int) -> Score:
    """Score every text's tokens, in padded batches. Raises ValueError where no text has two tokens."""
    windows = [piece for ids in texts for piece in cut_windows(ids, window, stride)]
    tokens = sum(piece.scored for piece in windows)
    if not tokens:
        raise ValueError("a corpus needs a text of at least two tokens")
    most_tokens = min(BATCH_TOKENS, BATCH_ELEMENTS // model.vocabulary)
    total = sum(_batch_nll(model, group) for group in group_windows(windows, most_tokens))
    return Score(total, tokens, window, stride)


def group_windows(windows: Sequence[Window], most_tokens: int) -> list[list[Window]]:
    """Windows of like lengths together, so that little is padded; at most that many tokens, or one window, a group."""
    groups: list[list[Window]] = []
    for piece in sorted(windows, key=lambda piece: len(piece.ids), reverse=True):
        if not groups or (len(groups[-1]) + 1) * len(groups[-1][0].ids) > most_tokens:
            groups.append([])
        groups[-1].append(piece)
    return groups


def _batch_nll(model: LoadedModel, windows: Sequence[Window]) -> float:
    import torch

    width = max(len(piece.ids) for piece in windows)
    pad = model.tokenizer.pad_token_id
    batch = pad_batch([piece.ids for piece in windows], width, Side.RIGHT, pad, model.device.name)
    targets = batch.input_ids.clone()
    for row, piece in enumerate(windows):
        targets[row, : piece.unscored] = IGNORED
    targets[batch.attention_mask == 0] = IGNORED
    logits = model.logits(batch.input_ids, batch.attention_mask)
    no_target = torch.full_like(targets[:, :1], IGNORED)
    return float(token_nll(logits, torch.cat([targets[:, 1:], no_target], dim=1)).sum())


def token_nll(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Negative log-likelihood of each target token, in nats; 0 where there is no target.

    logits: (B, T, V), any float dtype; targets: (B, T) int64, -100 where there is none. Returns (B, T) float64.
    Computed in float32, a slice of the positions at a time.
    """
    import torch

    flat_targets = targets.reshape(-1)
    scored = (flat_targets != IGNORED).nonzero().squeeze(-1)
    flat_logits = logits.reshape(-1, logits.shape[-1])
    nll = torch.zeros(flat_targets.shape, dtype=torch.float64, device=logits.device)
    for positions in torch.split(scored, max(CHUNK_ELEMENTS // logits.shape[-1], 1)):
        slice_logits = flat_logits[positions].float()
        chosen = slice_logits.gather(-1, flat_targets[positions].unsqueeze(-1)).squeeze(-1)
        nll[positions] = (slice_logits.logsumexp(-1) - chosen).double()
    return nll.reshape(targets.shape)
