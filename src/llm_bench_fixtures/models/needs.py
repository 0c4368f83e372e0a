"""What memory a variant is predicted to take: by its model's shape, the way in which its engine holds weights, and the
largest workload. And what fits in a given memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.reading import Count
from llm_bench_fixtures.workloads import CacheKind, Workload

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from llm_bench_fixtures.models.architecture import Footprint
    from llm_bench_fixtures.models.backend import Storage

FLOAT32_BYTES = 4
PROCESS_BYTES = 120_000_000  # bytes of a process's own, besides the libraries that forked processes share
ACCELERATOR_PROCESS_BYTES = 600_000_000  # what a driver takes of its device for each process
LOGIT_COPIES = 3  # a step's logits, the same in float32, and what their processing makes of them
# Copies of the logits in a prefill that makes those of all positions: ONNX Runtime took 1.6 to 2.3 times their size,
# for 480 to 2,032 positions of 151,936.
PREFILL_LOGIT_COPIES = 2
SPARE = 0.02  # share of a memory that allocators and the kernel take: 1 to 2 % in the control groups of measure_fit.py
LAYER_COPIES = 4  # a layer's widest numbers: the product's two factors, their product, and what it is added to


@dataclass(frozen=True)
class ModelShape:
    """The numbers of a model that decide how much memory it takes."""

    footprint: Footprint

    vocabulary: int = 0
    """Width of the logits."""

    cached: int = 0
    """Numbers that a position has in the cache, in all layers."""

    widest: int = 0
    """Numbers that a position has at the widest place of a layer."""

    heads: int = 0
    """Attention heads in each layer."""

    @classmethod
    def of(cls, config: PretrainedConfig, footprint: Footprint) -> ModelShape:
        """Shape by the names that transformers' configs have in common; 0 where a config has others."""
        text = config.get_text_config()

        def number(*names: str) -> int:
            found = (getattr(text, name, None) for name in names)
            return next((value for value in found if isinstance(value, int)), 0)

        hidden, heads = number("hidden_size"), number("num_attention_heads")
        head = number("head_dim") or hidden // max(heads, 1)
        return cls(
            footprint,
            vocabulary=number("vocab_size"),
            cached=2 * number("num_hidden_layers") * (number("num_key_value_heads") or heads) * head,
            widest=max(number("intermediate_size", "ffn_dim", "n_inner") or 4 * hidden, hidden),
            heads=heads,
        )


@dataclass(frozen=True)
class LayerCache:
    """Bytes that some layers keep of a text from one step to the next: keys and values, or states."""

    bytes: Count
    """Bytes for each position of a row; of states, for a row however long."""

    window: Count | None = None
    """How many of the last positions are kept at most; None: all."""

    is_state: bool = False

    def of(self, positions: int, *, is_static: bool = False) -> int:
        """Bytes for a row of so many. is_static: in a cache that is as large from the start, which keeps the position
        that runs, too, where there is a window."""
        if self.is_state:
            return self.bytes
        return self.bytes * (positions if self.window is None else min(positions, self.window + is_static))


@dataclass(frozen=True)
class Taken:
    """Bytes that a pass takes beside what it keeps."""

    least: Count
    """Least bytes of a pass, however short it is: under autocast, the weights' copies."""

    base: Count
    """Constant bytes of a longer pass, to which the following are added."""

    position: Count
    """Bytes for each position that runs at once."""

    pair: Count
    """Bytes for each pair of positions of a row, where attention computes all of its scores."""

    def of(self, rows: int, positions: int) -> int:
        """Bytes that a pass over so many positions of each row takes."""
        return max(self.least, self.base + rows * positions * (self.position + positions * self.pair))


@dataclass(frozen=True)
class PassMemory:
    """Memory that passes of a model's own code were seen to keep and to take, in one dtype."""

    kept: tuple[LayerCache, ...]

    taken: Taken | None
    """None: not seen."""


def estimated_weights(config: Mapping[str, Any]) -> int:
    """Number of weights of a dense decoder with gated layers, from the names that most configs have in common: for a
    config without files."""
    names = ("hidden_size", "vocab_size", "num_hidden_layers", "intermediate_size")
    hidden, vocabulary, layers, inner = (int(config.get(name) or 0) for name in names)
    heads = config.get("num_attention_heads") or 1
    shared = (config.get("num_key_value_heads") or heads) / heads
    tables = 1 if config.get("tie_word_embeddings") else 2
    return int(tables * vocabulary * hidden + layers * hidden * (2 * hidden * (1 + shared) + 3 * inner))


@dataclass(frozen=True)
class RoundSize:
    """The size of a workload."""

    rows: int
    """Prompts at a time."""

    prompt: int
    """Tokens of the longest of them."""

    new: int = 0
    """Tokens that are generated; 0 where every position's logits are asked for, as for a score."""

    cache: CacheKind = CacheKind.DYNAMIC

    @classmethod
    def of(cls, workload: Workload) -> RoundSize:
        """The workload's largest batch."""
        return cls(workload.batch_size, max(workload.widths), workload.new_tokens, workload.cache)


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that a variant takes."""

    held: int = 0
    """Bytes between its turns: its process, its weights, and its largest round, whose memory it keeps."""

    loading: int = 0
    """Bytes more than it holds later, for a moment, while it is loaded."""

    scoring: int = 0
    """Bytes more, for a moment, while it is scored: by one variant at a time."""

    making: int = 0
    """Bytes of the process that makes what the variant's own then loads; 0 where nothing is made."""

    mapped: int = 0
    """Bytes of the model's files, which all variants share that map them."""

    @property
    def peak(self) -> int:
        """Bytes that the variant takes at most once it is made."""
        return self.held + max(self.loading, self.scoring) + self.mapped


NOTHING = MemoryNeed()
"""Need of a variant that can't run here, or whose model a server holds."""


@dataclass(frozen=True)
class Parts:
    """Bytes that a variant takes, by what they grow with: any workload's follow from them."""

    process: Count
    """Bytes of the process itself."""

    weights: Count
    tables: Count
    """Bytes of tables made besides the weights, such as masks, or a second one of two tied matrices."""

    loading: Count
    """Bytes more than the weights, for a moment, while they are loaded."""

    is_known: bool
    """Whether what follows was seen of the model's own code, and its engine runs like that; else it is a guess by names
    that its config shares with others'."""

    kept: tuple[LayerCache, ...]

    taken: Taken
    """Bytes that a pass takes, besides what it keeps."""

    logits: Count
    """Bytes of one position's logits, in float32."""

    has_all_logits: bool = False
    """Whether a prefill makes those of every position, and not of the last one alone."""

    cache_copies: Count = 1
    """While a step makes the next."""

    context: Count = 0
    """Tokens that the model can read, prompt and new ones; 0: not known."""

    def cache(self, one: RoundSize, new: int | None = None) -> int:
        """Bytes that the workload keeps, as counted after its last pass. new: only so many of its new tokens."""
        if one.cache is CacheKind.OFF or not one.new:
            return 0
        is_static = one.cache is CacheKind.STATIC
        positions = one.prompt + (one.new if is_static or new is None else new) - 1  # the last token is in no pass
        return one.rows * sum(kept.of(positions, is_static=is_static) for kept in self.kept)

    def round(self, one: RoundSize) -> int:
        """Bytes that the workload takes besides the weights: in its prefill or at its last step, whichever is more."""
        if not one.new:
            return self.activations(one)
        prefill = self.cache(one, new=1) + self.activations(one)
        step = self.cache(one) * self.cache_copies + max(self.taken.of(one.rows, 1), self._last_logits(one))
        return max(prefill, step)

    def activations(self, one: RoundSize) -> int:
        """Bytes that the workload's largest pass takes besides weights and cache: its prefill, or without a cache its
        last one."""
        last = one.prompt + one.new - 1 if one.cache is CacheKind.OFF and one.new else one.prompt
        layer = self.taken.of(one.rows, last)
        all_logits = one.rows * one.prompt * self.logits
        if not one.new:
            return layer + all_logits + self._last_logits(one)
        return max(layer, PREFILL_LOGIT_COPIES * all_logits if self.has_all_logits else 0, self._last_logits(one))

    def _last_logits(self, one: RoundSize) -> int:
        return LOGIT_COPIES * one.rows * self.logits

    def total(self, one: RoundSize) -> int:
        """Bytes of a process that runs the workload."""
        return self.process + self.weights + max(self.tables + self.round(one), self.loading)

    def fits(self, memory_bytes: int, one: RoundSize) -> bool:
        """Whether a process that runs the workload fits in so much, with some to spare."""
        return self.total(one) <= memory_bytes * (1 - SPARE)

    def most_rows(self, memory_bytes: int, one: RoundSize) -> int:
        """The largest batch of the workload's lengths that fits; 0 where not even one prompt does."""
        return _most(lambda rows: self.fits(memory_bytes, replace(one, rows=rows)), MOST)

    def longest(self, memory_bytes: int, one: RoundSize) -> int:
        """The most tokens, new ones among them, of each of the workload's rows that fit and the model can read; 0 where
        its new ones don't."""
        limit = (self.context or MOST) - one.new
        prompt = _most(lambda tokens: self.fits(memory_bytes, replace(one, prompt=tokens)), limit)
        return prompt + one.new if prompt else 0


MOST = 2**40


def _most(fits: Callable[[int], bool], limit: int) -> int:
    """The largest number of at most the limit that fits, of which all smaller ones do; 0 where 1 doesn't."""
    return bisect_left(range(1, limit + 1), True, key=lambda number: not fits(number))


def parts_of(
    shape: ModelShape, storage: Storage, seen: PassMemory | None = None, *, on_cpu: bool = True, context: int = 0
) -> Parts:
    """seen: of the model's own code, in the dtype of the storage's numbers; None where it can't be."""
    stored = shape.footprint
    if storage.is_text_only and stored.of_text:
        stored = replace(stored.of_text, buffer_bytes=stored.buffer_bytes)
    others = stored.others
    others += (stored.odd_matrices if storage.packs else 0) + (0 if storage.takes_stacks else stored.experts)
    matrices = max(stored.weights - stored.tables - stored.positions - others, 0)
    copied = 0 if stored.output else stored.tables
    of_output = storage.tables if storage.output is None else storage.output
    weights = matrices * storage.matrices + others * storage.numbers
    weights += (
        (stored.tables - stored.output + stored.positions) * storage.tables
        + stored.output * of_output
        + copied * storage.output_copy
    )
    kept = seen.kept if seen else (LayerCache(shape.cached * storage.numbers),)
    if not storage.has_windows:
        kept = tuple(replace(one, window=None) for one in kept)
    taken = (seen and seen.taken) or Taken(0, 0, shape.widest * storage.numbers * LAYER_COPIES, 0)
    scores = storage.scores * shape.heads * storage.numbers
    return Parts(
        process=PROCESS_BYTES if on_cpu else ACCELERATOR_PROCESS_BYTES,
        weights=int(weights),
        tables=stored.buffer_bytes + int(copied * storage.made_output),
        loading=int(stored.weights * storage.loading),
        is_known=seen is not None and storage.is_known,
        kept=kept,
        taken=replace(taken, pair=taken.pair + scores),
        logits=shape.vocabulary * FLOAT32_BYTES,
        has_all_logits=storage.has_all_logits,
        cache_copies=storage.cache_copies,
        context=context,
    )


def predict(
    shape: ModelShape,
    storage: Storage,
    rounds: Iterable[RoundSize],
    seen: PassMemory | None = None,
    *,
    on_cpu: bool = True,
    stored: str = "",
) -> MemoryNeed:
    """Predicted need of a variant. rounds: the largest ones; those without new tokens are scores, which give back what
    they take. seen: as in `parts_of`. stored: the dtype of all tensors in the model's safetensors files; empty where
    they have several."""
    parts = parts_of(shape, storage, seen, on_cpu=on_cpu)
    taken = [(one, parts.round(one)) for one in rounds]
    kept = max((size for one, size in taken if one.new), default=0)
    scored = max((size for one, size in taken if not one.new), default=0)
    mapped = parts.weights if on_cpu and stored and storage.maps == stored else 0
    whole = shape.footprint
    made = whole.weights + (0 if whole.output else whole.tables)
    return MemoryNeed(
        held=parts.process + parts.weights - mapped + parts.tables + kept,
        loading=max(parts.loading - kept, 0),
        scoring=max(scored - kept, 0),
        making=parts.process + int(made * storage.making) + whole.buffer_bytes if storage.making else 0,
        mapped=mapped,
    )
