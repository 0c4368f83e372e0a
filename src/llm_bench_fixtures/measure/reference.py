"""How a model's distributions differ from those of a kept reference, position by position.

Sources: llama-perplexity for what is compared; for the sampled tail of the Kullback-Leibler divergence, importance
sampling with a control variate (A. B. Owen, "Monte Carlo theory, methods and examples", chapters 8 and 9).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.measure.reference_files import cross_entropy, open_arrays, read_layout
from llm_bench_fixtures.statistics.spread import NORMAL_95

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from llm_bench_fixtures.measure.quality import Chunk
    from llm_bench_fixtures.measure.reference_files import ArrayFile, ReferenceLayout

NEAR_NATS = 1e-3  # a divergence below it is computed token by token, in float64
NEAR_ELEMENTS = 1 << 20  # elements computed at once
TAIL_COLUMNS = 5  # estimates of each position from the sampled tokens
PERCENTILES = {"kld_p50": 0.5, "kld_p99": 0.99, "kld_p999": 0.999}


@contextmanager
def compare_with_reference(folder: Path, positions: int, vocabulary: int, digest: str) -> Iterator[ReferenceComparison]:
    """A comparison with a kept reference.

    Raises ReferenceMismatch where that was kept of other windows or over another vocabulary.
    """
    layout = read_layout(folder, positions, digest, vocabulary)
    with open_arrays(folder, layout, "rb") as files:
        yield ReferenceComparison(layout, files)


class ReferenceComparison:
    """Compares a model with a kept reference, as an observer of its scoring."""

    def __init__(self, layout: ReferenceLayout, files: Mapping[str, ArrayFile]) -> None:
        import numpy as np

        self._layout = layout
        self._files = files
        self._same_top = np.zeros(layout.positions, np.bool_)
        self._kld = np.zeros(layout.positions, np.float32)  # without what is known of the tail from samples only
        self._tail = np.zeros((layout.positions, TAIL_COLUMNS), np.float32)

    def take(self, first: int, chunk: Chunk) -> None:
        here = slice(first, first + len(chunk.nll))
        compared = [name for name in self._files if name != "nll"]  # losses are compared in the end, all at once
        kept = {name: self._files[name].get(first, len(chunk.nll)).to(chunk.shifted.device) for name in compared}
        at_top = chunk.shifted.gather(-1, kept["argmax"].long().unsqueeze(-1)).squeeze(-1)
        self._same_top[here] = (at_top == 0).cpu().numpy()
        if self._layout.is_exact:
            kld = _whole_divergence(kept["probabilities"], kept["entropy"], chunk)
        else:
            kld, tail = _sampled_divergence(kept, chunk)
            self._tail[here] = tail.cpu().numpy()
        self._kld[here] = kld.cpu().numpy()

    def compared(self) -> Compared:
        """Comparison, once every position was taken."""
        reference = self._files["nll"].get(0, self._layout.positions).numpy().copy()
        tail = None if self._layout.is_exact else self._tail
        return Compared(reference, self._kld, tail, self._same_top, self._layout.samples)


@dataclass(frozen=True, eq=False)
class Compared:
    """How a model differs from a reference at each of N positions."""

    reference: NDArray[np.float32]
    """(N,) nats of each target under the reference."""
    kld: NDArray[np.float32] | None = None
    """(N,) nats, without what is known of the tail from samples only; None of a model that only scores tokens."""
    tail: NDArray[np.float32] | None = None
    """(N, TAIL_COLUMNS), as `add_tail` takes it; None where every probability was kept."""
    same_top: NDArray[np.bool_] | None = None
    samples: int = 0

    def metrics(self, nll: NDArray[np.float32]) -> dict[str, float]:
        """The comparison's metrics by name. nll: the model's own, (N,)."""
        import numpy as np

        found = ratio_metrics(nll, self.reference)
        if self.kld is not None and self.same_top is not None:
            if self.tail is None:
                found |= divergence_metrics(self.kld, np.zeros_like(self.kld))
            else:
                found |= divergence_metrics(*add_tail(self.kld, self.tail), self.samples)
            found["top1_agreement"] = float(self.same_top.mean())
        return {**found, **probability_metrics(nll, self.reference)}


def compare_tokens(folder: Path, count: int, digest: str) -> Compared:
    """The likelihoods of the true tokens only, under a kept reference. count: of the model's own.

    Raises OtherTokens where the reference was kept of other windows.
    """
    layout = read_layout(folder, count, digest)
    with open_arrays(folder, layout, "rb") as files:
        return Compared(files["nll"].get(0, count).numpy().copy())


def join_compared(parts: Sequence[Compared], order: NDArray[np.int64]) -> Compared:
    """Join the comparisons of several samples, with their positions in the given order."""
    import numpy as np

    def joined(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        return None if any(value is None for value in values) else np.concatenate(values)[order]

    return Compared(joined("reference"), joined("kld"), joined("tail"), joined("same_top"), parts[0].samples)


def add_tail(
    kld: NDArray[np.float32], tail: NDArray[np.floating[Any]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The divergences of which `kld`, (N,), is all but the tail's part, and the standard error of each; 0 where that is
    infinite.

    tail: (N, TAIL_COLUMNS), sampled estimates of the tail's part. p and q are the two probabilities of a drawn token, P
    is the tail's mass under the reference. The columns are P x mean of log(p/q) + q/p - 1, the estimate by itself; the
    excess, P x mean of q/p, less the tail's mass under the model, which is known exactly, so that its expectation is 0;
    the variances of both; and their covariance.

    The excess is a control variate: of distributions that aren't alike, it takes away part of the noise. Its weight is
    the one that leaves the least variance over all positions together.
    """
    import numpy as np

    part, excess, part_variance, excess_variance, covariance = tail.T.astype("float64")
    finite = np.isfinite(part)
    all_excess = excess_variance[finite].sum()
    weight = -covariance[finite].sum() / all_excess if all_excess > 0 else 0.0
    variance = part_variance + 2 * weight * covariance + weight**2 * excess_variance
    noise = np.sqrt(np.maximum(np.where(finite, variance, 0.0), 0.0))
    return kld + part + weight * excess, noise


def _whole_divergence(probabilities: torch.Tensor, entropy: torch.Tensor, chunk: Chunk) -> torch.Tensor:
    """Divergence from every probability of the reference, (n, V), and its entropy: (n,) nats.

    For like distributions, cross entropy less entropy is nothing but the rounding of both, in steps of 1e-6 nats; there
    each token's term is computed by itself.
    """
    import torch

    found = cross_entropy(probabilities, chunk) - entropy
    near = (found < NEAR_NATS).nonzero().squeeze(-1)
    for rows in torch.split(near, max(NEAR_ELEMENTS // probabilities.shape[-1], 1)):
        found[rows] = _near_divergence(probabilities[rows], chunk, rows).to(found.dtype)
    return found


def _near_divergence(p: torch.Tensor, chunk: Chunk, rows: torch.Tensor) -> torch.Tensor:
    """Divergence of the given rows of the chunk, (n,) nats; p: (n, V). Exactly 0 where the distributions are the
    same."""
    q = (chunk.weights[rows] / chunk.norm[rows]).to(_fine(p))  # as the reference's were computed
    log_q = q.log()
    vanished = q == 0  # in float32; its logarithm is known all the same
    log_q[vanished] = (chunk.shifted[rows] - chunk.norm[rows].log()).to(q.dtype)[vanished]
    p = p.to(q.dtype)
    return (p * _excess(p.log() - log_q)).where(p > 0, q).sum(-1)


def _excess(gap: torch.Tensor) -> torch.Tensor:
    """Share that a token adds to the divergence for each unit of its probability p; gap: log p/q.

    p (log p/q) - p + q: over all tokens these add up to the divergence as p (log p/q) do, as both probabilities add up
    to 1. But each is positive, and of second order in the gap, so that a rounded probability does no harm.
    """
    return gap + (-gap).expm1()


def _fine(values: torch.Tensor) -> torch.dtype:
    """The finest dtype of the tensor's device: Apple's has no float64."""
    import torch

    return torch.float32 if values.device.type == "mps" else torch.float64


def _sampled_divergence(kept: Mapping[str, torch.Tensor], chunk: Chunk) -> tuple[torch.Tensor, torch.Tensor]:
    """The top tokens' part of the divergence, (n,), and what `add_tail` takes of the rest, (n, TAIL_COLUMNS)."""
    import torch

    fine, log_norm = _fine(chunk.shifted), chunk.norm.log()
    of_top = (chunk.shifted.gather(-1, kept["top_ids"].long()) - log_norm).to(fine)
    log_top = kept["top_log_probs"].to(fine)
    top = log_top.exp()
    gap = (log_top - of_top).masked_fill(top == 0, 0.0)
    tail_gap = kept["tail_log_probs"].to(fine) - (chunk.shifted.gather(-1, kept["tail_ids"].long()) - log_norm)
    mass = kept["tail_mass"].to(fine).unsqueeze(-1)
    has_tail = mass > 0  # else the top ones are all, and nothing was drawn
    of_one = torch.where(has_tail, _excess(gap), gap)
    parts = torch.where(has_tail, mass * _excess(tail_gap), 0.0)
    shares = torch.where(has_tail, mass * (-tail_gap).exp(), 0.0)
    part, share = parts.mean(-1), shares.mean(-1)
    samples = parts.shape[-1]
    parts, shares = parts - part.unsqueeze(-1), shares - share.unsqueeze(-1)
    scale = samples * (samples - 1)
    moments = [(left * right).sum(-1) / scale for left, right in ((parts, parts), (shares, shares), (parts, shares))]
    unexpected = torch.where(has_tail.squeeze(-1), share - (1 - of_top.exp().sum(-1)), 0.0)
    return (top * of_one).sum(-1), torch.stack([part, unexpected, *moments], dim=-1)


def ratio_metrics(nll: NDArray[np.float32], reference: NDArray[np.float32]) -> dict[str, float]:
    """Ratio of the perplexities, and its standard error from the tokens' paired differences."""
    import numpy as np

    with np.errstate(over="ignore", invalid="ignore"):
        gap = nll.astype(np.float64) - reference
        ratio = float(np.exp(gap.mean()))  # NaN where a loss is
    if len(gap) < 2:
        return {"ppl_ratio": ratio}
    return {"ppl_ratio": ratio, "ppl_ratio_error": ratio * float(gap.std(ddof=1)) / math.sqrt(len(gap))}


def divergence_metrics(kld: NDArray[Any], noise: NDArray[Any], samples: int = 0) -> dict[str, float]:
    """Mean, percentiles and largest of the divergences; a percentile that has no position beyond it is left out.

    kld: (N,) nats. noise: (N,) standard error of each, estimated from so many samples; 0 where nothing was sampled.

    Where they are sampled, each has the half-width of a 95 % interval beside it. For a percentile it is how far that
    moves when all positions move up, or down, by as many standard errors as are passed by none of them in about 95 %
    of cases (Bonferroni's bound, with Student's distribution because the errors are estimates themselves).
    """
    import numpy as np
    from scipy.special import stdtrit

    mean = float(kld.mean(dtype=np.float64))  # below zero only by rounding, or by the noise of the samples
    spread = float(np.square(noise, dtype=np.float64).sum())
    metrics = {"kld_mean": max(mean, 0.0), "kld_error": NORMAL_95 * math.sqrt(spread) / len(kld)}
    shown = {name: share for name, share in PERCENTILES.items() if len(kld) * (1 - share) >= 1 - 1e-9}
    reach = stdtrit(max(samples - 1, 1), 1 - 0.025 / len(kld)) * noise
    for name, share in {**shown, "kld_max": 1.0}.items():
        low, middle, high = (_quantile(values, share) for values in (kld - reach, kld, kld + reach))
        metrics[name] = middle
        if noise.any():
            metrics[f"{name}_error"] = max(high - middle, middle - low)
    return metrics


def _quantile(values: NDArray[Any], share: float) -> float:
    """Quantile as numpy's, which has no answer where one of the two values that it is between is infinite."""
    import numpy as np

    index = share * (len(values) - 1)
    below, above = np.partition(values, (math.floor(index), math.ceil(index)))[[math.floor(index), math.ceil(index)]]
    return float(below if below == above or index.is_integer() else below + (above - below) * (index % 1))


def probability_metrics(nll: NDArray[np.float32], reference: NDArray[np.float32]) -> dict[str, float]:
    """Mean and root mean square of the change of the targets' probabilities."""
    import numpy as np

    change = np.exp(-nll.astype(np.float64)) - np.exp(-reference.astype(np.float64))
    return {"mean_dp": float(change.mean()), "rms_dp": float(np.sqrt(np.square(change).mean()))}
