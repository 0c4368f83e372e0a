"""A reference model's distributions, kept in files, and how another model's differ from them, position by position.

The files hold either every probability or, where those would be too many bytes, for each position the largest ones and
a sample of the others. They are written and read a chunk of positions at a time.

Sources: llama-perplexity for what is compared; for the sampled tail of the Kullback-Leibler divergence, importance
sampling with a control variate (A. B. Owen, "Monte Carlo theory, methods and examples", chapters 8 and 9).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, cast

from llm_bench_fixtures.errors import OtherTokens, ReferenceMismatch

if TYPE_CHECKING:
    from io import BufferedRandom, BufferedReader

    import numpy as np
    import torch
    from numpy.typing import NDArray

    from llm_bench_fixtures.measure.quality import Chunk

BUDGET_BYTES = 128 << 20  # of a reference's files
LEAST_TOP = 16
LEAST_SAMPLES = 16
SEED = 0
NORMAL_95 = 1.959963984540054  # half-width of a 95 % interval in standard errors
PERCENTILES = {"kld_p50": 0.5, "kld_p99": 0.99, "kld_p999": 0.999}

LAYOUT_FILE = "layout.json"
FLOAT, ID = "float32", "int32"
BYTES = 4  # of either
SCALARS = 3  # of a sampled position: nll, argmax and tail_mass

Arrays: TypeAlias = dict[str, tuple[str, tuple[int, ...]]]


@dataclass(frozen=True)
class Layout:
    """What is kept of how many positions. digest: of the windows that they are in.

    top: how many of the largest probabilities of each position; with all of them, nothing is sampled.
    samples: how many tokens drawn from the others.
    """

    positions: int
    vocabulary: int
    digest: str
    top: int
    samples: int

    @property
    def is_exact(self) -> bool:
        return self.samples == 0

    @property
    def arrays(self) -> Arrays:
        """Dtype and shape of each file."""
        common: Arrays = {"nll": (FLOAT, (self.positions,)), "argmax": (ID, (self.positions,))}
        if self.is_exact:
            return common | {
                "probabilities": (FLOAT, (self.positions, self.vocabulary)),
                "entropy": (FLOAT, (self.positions,)),
            }
        return common | {
            "top_ids": (ID, (self.positions, self.top)),
            "top_log_probs": (FLOAT, (self.positions, self.top)),
            "tail_ids": (ID, (self.positions, self.samples)),
            "tail_log_probs": (FLOAT, (self.positions, self.samples)),
            "tail_mass": (FLOAT, (self.positions,)),
        }

    @property
    def file_bytes(self) -> int:
        """Of all files together."""
        return sum(BYTES * math.prod(shape) for _, shape in self.arrays.values())


def plan_layout(positions: int, vocabulary: int, digest: str, budget_bytes: int = BUDGET_BYTES) -> Layout:
    """Everything where the probabilities fit the budget; else as much as fits it, half top and half samples.

    However small the budget, at least LEAST_TOP and LEAST_SAMPLES of each position.
    """
    if positions * vocabulary * BYTES <= budget_bytes:
        return Layout(positions, vocabulary, digest, top=vocabulary, samples=0)
    pairs = (budget_bytes // positions - SCALARS * BYTES) // (2 * BYTES)
    top = min(max(pairs // 2, LEAST_TOP), vocabulary)
    return Layout(positions, vocabulary, digest, top, max(pairs - top, LEAST_SAMPLES))


class ArrayFile:
    """An array in a file of nothing else, written and read a few rows at a time, in any order.

    Not mapped: a new file's map costs a page fault every 4 KiB, and where the disk is full, the process.
    """

    def __init__(self, file: BufferedRandom | BufferedReader, dtype: str, row: tuple[int, ...]) -> None:
        """row: the shape of one."""
        import numpy as np

        self._file = file
        self._dtype = np.dtype(dtype)
        self._row = row
        self._row_bytes = self._dtype.itemsize * math.prod(row)
        self._buffer = np.empty((0, *row), self._dtype)

    def put(self, first: int, rows: torch.Tensor) -> None:
        """Write rows; the first of them is number `first`."""
        self._file.seek(first * self._row_bytes)
        self._file.write(rows.cpu().numpy().astype(self._dtype, order="C", copy=False).data)

    def get(self, first: int, count: int) -> torch.Tensor:
        """That many rows from number `first` on, of use until the next are asked for: they share their memory.

        Raises ReferenceMismatch where the file ends before.
        """
        import numpy as np
        import torch

        self._file.seek(first * self._row_bytes)
        if len(self._buffer) < count:
            self._buffer = np.empty((count, *self._row), self._dtype)
        rows = self._buffer[:count]
        if self._file.readinto(rows.data.cast("B")) != rows.nbytes:
            raise ReferenceMismatch(f"{self._file.name} was cut short: score the reference again")
        return torch.from_numpy(rows)


def open_arrays(folder: Path, layout: Layout, mode: Literal["w+b", "rb"], opened: ExitStack) -> dict[str, ArrayFile]:
    """The layout's files by name, which `opened` closes; where one can't be opened, none is left open."""
    with ExitStack() as opening:
        files = {
            name: ArrayFile(cast("BufferedReader", opening.enter_context((folder / name).open(mode))), dtype, shape[1:])
            for name, (dtype, shape) in layout.arrays.items()
        }
        opened.push(opening.pop_all())
    return files


class ReferenceWriter:
    """Keeps a model's distributions in a folder, as an observer of its scoring.

    A context manager: the folder can be compared with once it is left without an error.
    """

    def __init__(self, folder: Path, layout: Layout) -> None:
        self._folder = folder
        self._layout = layout
        self._files: dict[str, ArrayFile] = {}
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / LAYOUT_FILE).unlink(missing_ok=True)
        self._files = open_arrays(self._folder, self._layout, "w+b", self._opened)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()
        if kind is None:
            (self._folder / LAYOUT_FILE).write_text(json.dumps(asdict(self._layout)), encoding="utf-8")

    def take(self, first: int, chunk: Chunk) -> None:
        self._put(first, nll=chunk.nll, argmax=_argmax(chunk.shifted))
        if self._layout.is_exact:
            self._put_all(first, chunk)
        else:
            self._put_top_and_samples(first, chunk)

    def _put(self, first: int, **values: torch.Tensor) -> None:
        for name, value in values.items():
            self._files[name].put(first, value)

    def _put_all(self, first: int, chunk: Chunk) -> None:
        import torch

        probabilities = chunk.weights.div_(chunk.norm)
        entropy = _cross_entropy(probabilities, chunk, torch.empty_like(probabilities))
        self._put(first, probabilities=probabilities, entropy=entropy)

    def _put_top_and_samples(self, first: int, chunk: Chunk) -> None:
        log_norm = chunk.norm.log()
        top = chunk.shifted.topk(self._layout.top)
        tail = chunk.weights.scatter_(-1, top.indices, 0.0)
        below = tail.cumsum(-1)
        drawn = _draw(below, self._layout.samples, first)
        self._put(
            first,
            top_ids=top.indices,
            top_log_probs=top.values - log_norm,
            tail_ids=drawn,
            tail_log_probs=chunk.shifted.gather(-1, drawn) - log_norm,
            tail_mass=(below[:, -1:] / chunk.norm).squeeze(-1),
        )


def is_kept(folder: Path) -> bool:
    """Whether a reference was kept there, to its end."""
    return (folder / LAYOUT_FILE).is_file()


def _argmax(values: torch.Tensor) -> torch.Tensor:
    """Along the last dimension; on a CPU by numpy, which takes a tenth of torch's time."""
    import torch

    return torch.from_numpy(values.numpy().argmax(-1)) if values.device.type == "cpu" else values.argmax(-1)


def _cross_entropy(probabilities: torch.Tensor, chunk: Chunk, products: torch.Tensor) -> torch.Tensor:
    """-sum p log q in nats, q being the chunk's distributions: (n, V) -> (n,). products: (n, V) to work in.

    The reference's own entropy is computed by the very same operations, so that equal models differ by exactly 0.
    """
    import torch

    sums = torch.mul(probabilities, chunk.shifted, out=products).sum(-1)
    if not sums.isfinite().all():  # a token of probability 0 whose logit is -inf adds nothing
        sums = products.masked_fill(probabilities == 0, 0.0).sum(-1)
    return chunk.norm.log().squeeze(-1) - sums


def _draw(below: torch.Tensor, samples: int, first: int) -> torch.Tensor:
    """Token ids drawn with replacement, (n, samples), by inversion of the cumulative weights (n, V).

    The same for the same positions, however they are batched.
    """
    import numpy as np
    import torch

    uniform = np.random.default_rng((SEED, first)).random((len(below), samples), np.float32)
    wanted = torch.from_numpy(uniform).to(below.device) * below[:, -1:]
    return torch.searchsorted(below, wanted, right=True).clamp_(max=below.shape[-1] - 1)


class Comparison:
    """Compares a model with a kept reference, as an observer of its scoring.

    A context manager. Raises ReferenceMismatch where that was kept of other windows or over another vocabulary.
    """

    def __init__(self, folder: Path, positions: int, vocabulary: int, digest: str) -> None:
        import numpy as np

        self._folder = folder
        self._layout = _read_layout(folder)
        _check_same(self._layout, positions, vocabulary, digest)
        self._files: dict[str, ArrayFile] = {}
        self._opened = ExitStack()
        self._same_top = np.zeros(positions, np.bool_)
        self._kld = np.zeros(positions, np.float32)  # without what is known of the tail from samples only
        self._tail = np.zeros((positions, len(TailSums.__dataclass_fields__)), np.float32)

    def __enter__(self) -> Self:
        self._files = open_arrays(self._folder, self._layout, "rb", self._opened)
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def take(self, first: int, chunk: Chunk) -> None:
        here = slice(first, first + len(chunk.nll))
        compared = [name for name in self._files if name != "nll"]  # those are compared in the end, all at once
        kept = {name: self._files[name].get(first, len(chunk.nll)).to(chunk.shifted.device) for name in compared}
        at_top = chunk.shifted.gather(-1, kept["argmax"].long().unsqueeze(-1)).squeeze(-1)
        self._same_top[here] = (at_top == 0).cpu().numpy()
        if self._layout.is_exact:
            kld = _cross_entropy(kept["probabilities"], chunk, chunk.weights) - kept["entropy"]
        else:
            kld, tail = _sampled_divergence(kept, chunk)
            self._tail[here] = tail.cpu().numpy()
        self._kld[here] = kld.cpu().numpy()

    def metrics(self, nll: NDArray[np.float32]) -> Mapping[str, float]:
        """The comparison's metrics by name, once every position was taken. nll: the model's own."""
        reference = self._files["nll"].get(0, self._layout.positions).numpy()
        return {
            **ratio_metrics(nll, reference),
            **divergence_metrics(self._divergences()),
            "top1_agreement": float(self._same_top.mean()),
            **probability_metrics(nll, reference),
        }

    def _divergences(self) -> Divergences:
        import numpy as np

        if self._layout.is_exact:
            return Divergences(self._kld, np.zeros_like(self._kld))
        return TailSums(*self._tail.T.astype("float64")).added_to(self._kld, self._layout.samples)


def _read_layout(folder: Path) -> Layout:
    try:
        return Layout(**json.loads((folder / LAYOUT_FILE).read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ReferenceMismatch(f"no reference was kept in {folder}: score one with keep={folder} first") from None


def _check_same(layout: Layout, positions: int, vocabulary: int, digest: str) -> None:
    if layout.vocabulary != vocabulary:
        raise OtherTokens(
            f"the reference has a vocabulary of {layout.vocabulary}, and the model one of {vocabulary}: "
            "they can't be compared token by token"
        )
    if (layout.positions, layout.digest) != (positions, digest):
        raise OtherTokens(
            f"the reference was scored on {layout.positions} other tokens than the model's {positions}: "
            "both need the same corpus, tokenizer and windows"
        )


@dataclass(frozen=True, eq=False)
class Divergences:
    """kld: each position's, (N,) nats. noise: the standard error of each, (N,), estimated from so many samples; 0 where
    nothing was sampled, and where the divergence is infinite.
    """

    kld: NDArray[Any]
    noise: NDArray[Any]
    samples: int = 0


@dataclass(frozen=True, eq=False)
class TailSums:
    """Of each position, what its samples say of the tail's part of the divergence, float64 (N,) each.

    With p and q the two probabilities of a drawn token, P the tail's mass under the reference and m samples:
    part: P x mean of log(p/q), the estimate by itself. excess: P x mean of q/p, less the tail's mass under the model,
    which is known exactly; so its expectation is 0. The others are the variances of these two, and their covariance.
    """

    part: NDArray[np.float64]
    excess: NDArray[np.float64]
    part_variance: NDArray[np.float64]
    excess_variance: NDArray[np.float64]
    covariance: NDArray[np.float64]

    def added_to(self, kld: NDArray[np.float32], samples: int) -> Divergences:
        """The divergences of which `kld` is all but the tail's part, from so many samples each.

        `excess` is a control variate: of like distributions, where log(p/q) is about 1 - q/p, it takes away nearly all
        of the noise. Its weight is the one that leaves the least variance over all positions together.
        """
        import numpy as np

        finite = np.isfinite(self.part)
        excess = self.excess_variance[finite].sum()
        weight = -self.covariance[finite].sum() / excess if excess > 0 else 0.0
        variance = self.part_variance + 2 * weight * self.covariance + weight**2 * self.excess_variance
        noise = np.sqrt(np.maximum(np.where(finite, variance, 0.0), 0.0))
        return Divergences(kld + self.part + weight * self.excess, noise, samples)


def _sampled_divergence(kept: Mapping[str, torch.Tensor], chunk: Chunk) -> tuple[torch.Tensor, torch.Tensor]:
    """The top tokens' part of the divergence, (n,), and the columns of TailSums, (n, 5)."""
    import torch

    log_norm = chunk.norm.log()
    of_top = chunk.shifted.gather(-1, kept["top_ids"].long()) - log_norm
    top = kept["top_log_probs"].exp()
    gap = (kept["top_log_probs"] - of_top).masked_fill(top == 0, 0.0)
    of_tail = chunk.shifted.gather(-1, kept["tail_ids"].long()) - log_norm
    mass = kept["tail_mass"].unsqueeze(-1)
    parts = torch.where(mass > 0, mass * (kept["tail_log_probs"] - of_tail), 0.0)
    shares = torch.where(mass > 0, mass * (of_tail - kept["tail_log_probs"]).exp(), 0.0)
    part, share = parts.mean(-1), shares.mean(-1)
    samples = parts.shape[-1]
    parts, shares = parts - part.unsqueeze(-1), shares - share.unsqueeze(-1)
    scale = samples * (samples - 1)
    moments = [(left * right).sum(-1) / scale for left, right in ((parts, parts), (shares, shares), (parts, shares))]
    tail_mass = 1 - of_top.exp().sum(-1)
    return (top * gap).sum(-1), torch.stack([part, share - tail_mass, *moments], dim=-1)


def ratio_metrics(nll: NDArray[np.float32], reference: NDArray[np.float32]) -> dict[str, float]:
    """Ratio of the perplexities, and its standard error from the tokens' paired differences."""
    import numpy as np

    with np.errstate(over="ignore", invalid="ignore"):
        gap = nll.astype(np.float64) - reference
        ratio = float(np.exp(gap.mean()))  # NaN where a loss is
    if len(gap) < 2:
        return {"ppl_ratio": ratio}
    return {"ppl_ratio": ratio, "ppl_ratio_error": ratio * float(gap.std(ddof=1)) / math.sqrt(len(gap))}


def divergence_metrics(found: Divergences) -> dict[str, float]:
    """Mean, percentiles and largest of the divergences; a percentile that has no position beyond it is left out.

    Where they are sampled, each has the half-width of a 95 % interval beside it. For a percentile it is how far that
    moves when all positions move up, or down, by as many standard errors as are passed by none of them in about 95 %
    of cases (Bonferroni's bound, with Student's distribution because the errors are estimates themselves).
    """
    import numpy as np
    from scipy.special import stdtrit

    kld, noise = found.kld, found.noise
    mean = float(kld.mean(dtype=np.float64))  # below zero only by rounding, or by the noise of the samples
    spread = float(np.square(noise, dtype=np.float64).sum())
    metrics = {"kld_mean": max(mean, 0.0), "kld_error": NORMAL_95 * math.sqrt(spread) / len(kld)}
    shown = {name: share for name, share in PERCENTILES.items() if len(kld) * (1 - share) >= 1 - 1e-9}
    reach = stdtrit(max(found.samples - 1, 1), 1 - 0.025 / len(kld)) * noise
    for name, share in {**shown, "kld_max": 1.0}.items():
        low, middle, high = (_quantile(values, share) for values in (kld - reach, kld, kld + reach))
        metrics[name] = middle
        if noise.any():
            metrics[f"{name}_error"] = max(high - middle, middle - low)
    return metrics


def _quantile(values: NDArray[Any], share: float) -> float:
    """As numpy's, which has no answer where one of the two values that it is between is infinite."""
    import numpy as np

    index = share * (len(values) - 1)
    below, above = np.partition(values, (math.floor(index), math.ceil(index)))[[math.floor(index), math.ceil(index)]]
    return float(below if below == above or index.is_integer() else below + (above - below) * (index % 1))


def probability_metrics(nll: NDArray[np.float32], reference: NDArray[np.float32]) -> dict[str, float]:
    """Mean and root mean square of the change of the targets' probabilities."""
    import numpy as np

    change = np.exp(-nll.astype(np.float64)) - np.exp(-reference.astype(np.float64))
    return {"mean_dp": float(change.mean()), "rms_dp": float(np.sqrt(np.square(change).mean()))}
