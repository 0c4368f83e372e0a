"""A reference model's distributions, kept in files.

They are either every probability or, where those would be too many bytes, for each position the largest ones and a
sample of the others. They are written and read a chunk of positions at a time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from llm_bench_fixtures.errors import OtherTokens, ReferenceMismatch

if TYPE_CHECKING:
    from io import BufferedRandom, BufferedReader

    import torch

    from llm_bench_fixtures.measure.quality import Chunk

BUDGET_BYTES = 128 << 20  # for a reference's files
LEAST_TOP = 16
LEAST_SAMPLES = 16
SEED = 0

LAYOUT_FILE = "layout.json"
FLOAT, ID = "float32", "int32"
BYTES = 4  # bytes of either kind
SCALARS = 3  # values per sampled position: nll, argmax and tail_mass

Arrays: TypeAlias = dict[str, tuple[str, tuple[int, ...]]]


@dataclass(frozen=True)
class ReferenceLayout:
    """Layout of what is kept, and the number of positions."""

    positions: int
    vocabulary: int

    digest: str
    """Digest of the windows that the positions are in."""

    top: int
    """How many of the largest probabilities of each position. With all of them, nothing is sampled."""

    samples: int
    """How many tokens drawn from the others."""

    @property
    def is_exact(self) -> bool:
        return self.samples == 0

    @property
    def arrays(self) -> Arrays:
        """Dtype of each file, and shape of what it has of each position."""
        common: Arrays = {"nll": (FLOAT, ()), "argmax": (ID, ())}
        if self.is_exact:
            return common | {"probabilities": (FLOAT, (self.vocabulary,)), "entropy": (FLOAT, ())}
        return common | {
            "top_ids": (ID, (self.top,)),
            "top_log_probs": (FLOAT, (self.top,)),
            "tail_ids": (ID, (self.samples,)),
            "tail_log_probs": (FLOAT, (self.samples,)),
            "tail_mass": (FLOAT, ()),
        }


def plan_layout(positions: int, vocabulary: int, digest: str, budget_bytes: int = BUDGET_BYTES) -> ReferenceLayout:
    """Everything where the probabilities fit the budget; else as much as fits it, half top and half samples.

    However small the budget, at least LEAST_TOP and LEAST_SAMPLES of each position.
    """
    if positions * vocabulary * BYTES <= budget_bytes:
        return ReferenceLayout(positions, vocabulary, digest, top=vocabulary, samples=0)
    pairs = (budget_bytes // positions - SCALARS * BYTES) // (2 * BYTES)
    top = min(max(pairs // 2, LEAST_TOP), vocabulary)
    return ReferenceLayout(positions, vocabulary, digest, top, max(pairs - top, LEAST_SAMPLES))


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
        """Rows from number `first` on, valid until the next call, which reuses their memory.

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


@contextmanager
def open_arrays(folder: Path, layout: ReferenceLayout, mode: Literal["w+b", "rb"]) -> Iterator[Mapping[str, ArrayFile]]:
    """The layout's files by name."""
    with ExitStack() as opened:
        yield {
            name: ArrayFile(cast("BufferedReader", opened.enter_context((folder / name).open(mode))), dtype, row)
            for name, (dtype, row) in layout.arrays.items()
        }


@contextmanager
def keep_reference(folder: Path, layout: ReferenceLayout) -> Iterator[ReferenceWriter]:
    """A writer into the folder, which can be compared with once the block is left without an error."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LAYOUT_FILE).unlink(missing_ok=True)
    with open_arrays(folder, layout, "w+b") as files:
        yield ReferenceWriter(layout, files)
    (folder / LAYOUT_FILE).write_text(json.dumps(asdict(layout)), encoding="utf-8")


class ReferenceWriter:
    """Keeps a model's distributions, as an observer of its scoring."""

    def __init__(self, layout: ReferenceLayout, files: Mapping[str, ArrayFile]) -> None:
        self._layout = layout
        self._files = files

    def take(self, first: int, chunk: Chunk) -> None:
        values = {"nll": chunk.nll, "argmax": _argmax(chunk.shifted)}
        if self._layout.is_exact:
            probabilities = chunk.weights.div_(chunk.norm)
            values |= {"probabilities": probabilities, "entropy": cross_entropy(probabilities, chunk)}
        else:
            values |= self._top_and_samples(first, chunk)
        for name, value in values.items():
            self._files[name].put(first, value)

    def _top_and_samples(self, first: int, chunk: Chunk) -> dict[str, torch.Tensor]:
        log_norm = chunk.norm.log()
        top = chunk.shifted.topk(self._layout.top)
        tail = chunk.weights.scatter_(-1, top.indices, 0.0)
        below = tail.cumsum(-1)
        drawn = _draw(below, self._layout.samples, first)
        return {
            "top_ids": top.indices,
            "top_log_probs": top.values - log_norm,
            "tail_ids": drawn,
            "tail_log_probs": chunk.shifted.gather(-1, drawn) - log_norm,
            "tail_mass": (below[:, -1:] / chunk.norm).squeeze(-1),
        }


def is_kept(folder: Path) -> bool:
    """Whether a reference was kept there, to its end."""
    return (folder / LAYOUT_FILE).is_file()


def read_layout(folder: Path, positions: int, digest: str, vocabulary: int | None = None) -> ReferenceLayout:
    """The layout of a kept reference. vocabulary: None where only the true tokens are compared.

    Raises OtherTokens where it was of other tokens.
    """
    layout = ReferenceLayout(**json.loads((folder / LAYOUT_FILE).read_text(encoding="utf-8")))
    if vocabulary is not None and layout.vocabulary != vocabulary:
        raise OtherTokens(
            f"the reference has a vocabulary of {layout.vocabulary}, and the model one of {vocabulary}: "
            "they can't be compared token by token"
        )
    if (layout.positions, layout.digest) != (positions, digest):
        raise OtherTokens(
            f"the reference was scored on {layout.positions} other tokens than the model's {positions}: "
            "both need the same corpus, tokenizer and windows"
        )
    return layout


def _argmax(values: torch.Tensor) -> torch.Tensor:
    """Along the last dimension; on a CPU by numpy, which takes a tenth of torch's time."""
    import torch

    return torch.from_numpy(values.numpy().argmax(-1)) if values.device.type == "cpu" else values.argmax(-1)


def cross_entropy(probabilities: torch.Tensor, chunk: Chunk) -> torch.Tensor:
    """-sum p log q in nats, q being the chunk's distributions: (n, V) -> (n,).

    The reference's own entropy is computed by the very same operations, so that equal models differ by exactly 0.
    """
    products = probabilities * chunk.shifted
    sums = products.sum(-1)
    if not sums.isfinite().all():  # a token of probability 0 whose logit is -inf adds nothing
        sums = products.masked_fill(probabilities == 0, 0.0).sum(-1)
    return chunk.norm.log().squeeze(-1) - sums


def _draw(below: torch.Tensor, samples: int, first: int) -> torch.Tensor:
    """Token ids drawn with replacement, (n, samples), by inversion of the cumulative weights (n, V).

    Equal for equal positions, however they are batched.
    """
    import numpy as np
    import torch

    uniform = np.random.default_rng((SEED, first)).random((len(below), samples), np.float32)
    wanted = torch.from_numpy(uniform).to(below.device) * below[:, -1:]
    return torch.searchsorted(below, wanted, right=True).clamp_(max=below.shape[-1] - 1)
