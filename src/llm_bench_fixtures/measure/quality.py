"""Loss and perplexity of a model over a corpus, and how its distributions differ from a reference's.

How the corpus is cut is in `windows`, what is kept of a reference and compared with it in `reference`. Scoring works on
a chunk of positions at a time, so that beyond one forward pass's logits it needs next to no memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from llm_bench_fixtures.errors import WorkloadUnsupported
from llm_bench_fixtures.measure.kept import KeptForModel
from llm_bench_fixtures.measure.reference import Compared, compare_tokens, compare_with_reference, join_compared
from llm_bench_fixtures.measure.reference_files import keep_reference, plan_layout
from llm_bench_fixtures.measure.timing import forget_caches
from llm_bench_fixtures.measure.windows import CutCorpus, Window, WindowPlan, cut_corpus
from llm_bench_fixtures.models.device import DeviceKind
from llm_bench_fixtures.models.model import Model, ScoresTokens
from llm_bench_fixtures.progress import tell_share
from llm_bench_fixtures.workloads import Corpus, Side, pad_batch

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

BATCH_TOKENS = 2048  # in one scoring forward pass, padding included
BATCH_ELEMENTS = 1 << 27  # of one pass's logits: 512 MiB in float32
CHUNK_ELEMENTS = 1 << 18  # logits worked on at once: 1 MiB in float32, which a processor's cache holds
ACCELERATOR_CHUNK_ELEMENTS = 1 << 24  # where starting an operation costs more than memory does: 64 MiB
LOSS_BLOCKS = 100
LARGEST_EXPONENT = 700.0  # the largest exponent that a float64 holds


@dataclass(frozen=True, eq=False)
class Chunk:
    """Distributions of the model at consecutive positions of one window, in float32."""

    shifted: torch.Tensor
    """(n, V) logits less the largest of their row."""

    weights: torch.Tensor
    """(n, V) exponentials of `shifted`. An observer that no longer needs them may overwrite them."""

    norm: torch.Tensor
    """(n, 1) sums of the weights."""

    nll: torch.Tensor
    """(n,) nats of each target."""


Observer: TypeAlias = Callable[[int, Chunk], None]
"""Sees every chunk as it is scored, with the number of its first position, counted over all windows in their order."""


@dataclass(frozen=True, eq=False)
class Score:
    """The losses of a model over windows of a text."""

    nll: NDArray[np.float32]
    """Negative log-likelihood of each target in nats, in the windows' order."""

    @property
    def tokens(self) -> int:
        return len(self.nll)

    @property
    def loss(self) -> float:
        """Nats per token."""
        return float(self.nll.mean(dtype="float64"))


@dataclass(frozen=True)
class CorpusScore:
    """The quality of a model over a corpus."""

    metrics: Mapping[str, float]
    """Quality metrics by name."""

    loss_blocks: tuple[float, ...]
    """Nats per token of each of up to LOSS_BLOCKS stretches, as long as each other to a token, in order. Two models'
    blocks over the same text are paired, which tells their difference far more sharply than their losses do."""

    notes: tuple[str, ...] = ()
    """Further notes for the report on the variant."""


def exp_or_inf(exponent: float) -> float:
    return math.exp(exponent) if exponent < LARGEST_EXPONENT else math.inf


@dataclass(frozen=True, eq=False)
class Part:
    """Scores of a model on a sample of a corpus, or on all of it."""

    score: Score
    places: NDArray[np.int64]
    """Position of each target, counted over the whole corpus."""
    compared: Compared | None
    """None where there was no reference to compare with."""
    cut: CutCorpus
    """The sample, without its windows and their places."""


def score_part(
    model: Model,
    corpus: Corpus,
    plan: WindowPlan,
    sample: int | None = None,
    *,
    keep: Path | None = None,
    compare_with: Path | None = None,
) -> Part:
    """Score a sample of the corpus, by its number, or all of it.

    keep: a folder to leave the model's distributions in, as the reference of others. compare_with: such a folder; adds
    the comparison. Raises CorpusTooShort, WorkloadUnsupported where an answer is longer than the model's context, and
    ReferenceMismatch where that reference was scored on other windows or over another vocabulary. A model that only
    scores tokens leaves nothing in `keep`.
    """
    import numpy as np

    context = model.facts.context_length
    cut = cut_corpus(corpus, model.tokenizer, plan.resolved(context), sample)
    longest = max(len(piece.fed) for piece in cut.windows)
    if corpus.answers and longest > context:
        raise WorkloadUnsupported(f"an answer ends after {longest} tokens, and the model's context is {context}")
    firsts = zip(cut.places, cut.windows, strict=True)
    places = np.concatenate([np.arange(first, first + piece.scored) for first, piece in firsts])
    size = replace(cut, windows=(), places=())
    if isinstance(model, ScoresTokens):
        score = score_windows(model, cut.windows)
        compared = compare_tokens(compare_with, score.tokens, cut.digest) if compare_with is not None else None
        return Part(score, places, compared, size)
    with ExitStack() as opened:
        observers: list[Observer] = []
        comparison = None
        if keep is not None:
            layout = plan_layout(cut.corpus_tokens, model.facts.vocabulary, cut.digest)
            writer = opened.enter_context(keep_reference(keep, replace(layout, positions=cut.tokens)))
            observers.append(writer.take)
        if compare_with is not None:
            comparing = compare_with_reference(compare_with, cut.tokens, model.facts.vocabulary, cut.digest)
            comparison = opened.enter_context(comparing)
            observers.append(comparison.take)
        score = score_windows(model, cut.windows, observers)
        return Part(score, places, comparison.compared() if comparison else None, size)


def join(parts: Sequence[Part]) -> Part:
    """Consecutive samples from the first on as one, in the corpus's order."""
    import numpy as np

    if len(parts) == 1:
        return parts[0]
    places = np.concatenate([part.places for part in parts])
    order = np.argsort(places)
    compared = [part.compared for part in parts if part.compared is not None]
    return replace(
        parts[-1],
        score=Score(np.concatenate([part.score.nll for part in parts])[order]),
        places=places[order],
        compared=join_compared(compared, order) if len(compared) == len(parts) else None,
        cut=replace(parts[-1].cut, share=sum(part.cut.share for part in parts)),
    )


def corpus_metrics(part: Part, reference: Part | None = None) -> dict[str, float]:
    """All metrics over the corpus.

    reference: the reference's, where it may be of more tokens than the model's own. Then the loss is the reference's
    plus the difference on the tokens that both have scored, so that the perplexities of variants are of the same text.
    """
    compared = part.compared.metrics(part.score.nll) if part.compared else {}
    if part.compared is None or reference is None or reference.score.tokens <= part.score.tokens:
        return {**text_metrics(part.score, part.cut), **compared}
    difference = part.score.loss - Score(part.compared.reference).loss
    known = text_metrics(Score(reference.score.nll + difference), reference.cut)
    return {**known, "scored_tokens": part.score.tokens, **compared}


def loss_blocks(nll: NDArray[np.float32]) -> tuple[float, ...]:
    """Mean of each of LOSS_BLOCKS stretches, or of each token where there are fewer. nll: (n,) nats."""
    import numpy as np

    blocks = np.array_split(nll, min(LOSS_BLOCKS, len(nll)))
    return tuple(float(block.mean(dtype="float64")) for block in blocks)


def text_metrics(score: Score, cut: CutCorpus) -> dict[str, float]:
    """Loss and what follows from it; values per byte and per word only if the tokenizer tells bytes and words."""
    loss = score.loss
    metrics: dict[str, float] = {"loss": loss, "perplexity": exp_or_inf(loss), "scored_tokens": score.tokens}
    nats = loss * score.tokens
    if cut.scored_bytes:
        metrics["bits_per_byte"] = nats / cut.scored_bytes / math.log(2)
        metrics["byte_perplexity"] = exp_or_inf(nats / cut.scored_bytes)
    if cut.scored_words:
        metrics["word_perplexity"] = exp_or_inf(nats / cut.scored_words)
    return metrics


_SCORED: KeptForModel[bool] = KeptForModel()


def has_scored(model: Model) -> bool:
    """Whether the model has scored anything: its libraries may hold memory that this took."""
    return bool(_SCORED.get(model))


def score_windows(model: Model, windows: Sequence[Window], observers: Sequence[Observer] = ()) -> Score:
    """Score every window's targets, in padded batches.

    observers: see nothing of a model that only scores tokens.
    """
    import numpy as np
    import torch

    *firsts, total = accumulate((piece.scored for piece in windows), initial=0)
    _SCORED.put(model, True)
    if isinstance(model, ScoresTokens):
        rows = model.token_log_likelihoods([piece.ids for piece in windows])
        scored_parts = [row[piece.unscored - 1 :] for row, piece in zip(rows, windows, strict=True)]
        return Score(-np.concatenate(scored_parts).astype(np.float32))
    nll = np.empty(total, np.float32)
    scored = 0
    most_tokens = most_tokens_of(model.facts.vocabulary)
    with torch.inference_mode():
        for group in group_windows(windows, most_tokens):
            fed = [windows[index].fed for index in group]
            batch = pad_batch(fed, max(map(len, fed)), Side.RIGHT, model.tokenizer.pad_token_id, model.device.name)
            logits = model.logits(batch.input_ids, batch.attention_mask)
            for row, index in enumerate(group):
                first = firsts[index]
                for chunk in score_chunks(logits[row], windows[index], _chunk_rows(model)):
                    nll[first : first + len(chunk.nll)] = chunk.nll.cpu().numpy()
                    for observer in observers:
                        observer(first, chunk)
                    first += len(chunk.nll)
                scored += windows[index].scored
            del logits  # before the next batch's are made
            tell_share(scored / total)
    forget_caches(model)
    model.device.release_cached_memory(oldest=False)  # other variants' processes want it
    return Score(nll)


def most_tokens_of(vocabulary: int) -> int:
    """Tokens that are fed to a model of so large a vocabulary in one pass."""
    return min(BATCH_TOKENS, BATCH_ELEMENTS // vocabulary)


def by_window(values: NDArray[Any], windows: Sequence[Window]) -> list[NDArray[Any]]:
    """Values of all targets, (n,), as those of each window."""
    import numpy as np

    return np.split(values, np.cumsum([piece.scored for piece in windows])[:-1])


def group_windows(windows: Sequence[Window], most_tokens: int) -> list[list[int]]:
    """Numbers of windows of like lengths together, so that little is padded.

    At most that many tokens are fed to the model in a group, or else it is one window.
    """
    groups: list[list[int]] = []
    for index in sorted(range(len(windows)), key=lambda index: len(windows[index].fed), reverse=True):
        if not groups or (len(groups[-1]) + 1) * len(windows[groups[-1][0]].fed) > most_tokens:
            groups.append([])
        groups[-1].append(index)
    return groups


def _chunk_rows(model: Model) -> int:
    elements = CHUNK_ELEMENTS if model.device.kind is DeviceKind.CPU else ACCELERATOR_CHUNK_ELEMENTS
    return max(elements // model.facts.vocabulary, 1)


def score_chunks(logits: torch.Tensor, piece: Window, rows: int) -> Iterator[Chunk]:
    """The window's scored positions, at most `rows` at a time. logits: (T, V) of one row of a batch, any float dtype.

    The chunks of one call share their memory: each is of use only until the next is asked for.
    """
    import torch

    scored = logits[piece.unscored - 1 : len(piece.ids) - 1]
    targets = torch.tensor(piece.targets, device=logits.device).unsqueeze(-1)  # (n, 1)
    buffers = torch.empty(2, min(rows, len(targets)), logits.shape[-1], device=logits.device)
    for start in range(0, len(targets), rows):
        part = scored[start : start + rows]
        shifted, weights = buffers[:, : len(part)]
        if part.dtype != shifted.dtype:
            part = shifted.copy_(part)
        torch.sub(part, part.amax(-1, keepdim=True), out=shifted)
        torch.exp(shifted, out=weights)
        norm = weights.sum(-1, keepdim=True)
        nll = norm.log() - shifted.gather(-1, targets[start : start + rows])
        yield Chunk(shifted, weights, norm, nll.squeeze(-1))
