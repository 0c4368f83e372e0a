"""What memory a variant is predicted to take: by its model's shape, the way in which its engine holds weights, and the
largest workload."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PretrainedConfig

FLOAT32_BYTES = 4
PROCESS_BYTES = 120_000_000  # of its own, beside the libraries that forked processes share
ACCELERATOR_PROCESS_BYTES = 600_000_000  # what a driver takes of its device for each process
LOGIT_COPIES = 3  # a step's logits, the same in float32, and what their processing makes of them
LAYER_COPIES = 4  # of the widest numbers of a layer: the product's two factors, their product, and what it is added to


@dataclass(frozen=True)
class ModelShape:
    """The numbers of a model that decide how much memory it takes."""

    weights: int
    """How many it has; those that two layers share count once."""

    vocabulary: int = 0
    """Width of the logits."""

    tables: int = 0
    """Of the weights, those of the embedding and of an output layer of its own."""

    is_tied: bool = False
    """Whether the output layer is the embedding's matrix."""

    cached: int = 0
    """Numbers that a position has in the cache, in all layers."""

    widest: int = 0
    """Numbers that a position has at the widest place of a layer."""

    buffer_bytes: int = 0
    """Of the tables that are made beside the weights."""

    @classmethod
    def of(cls, config: PretrainedConfig, weights: int, buffer_bytes: int = 0) -> ModelShape:
        """By the names that transformers' configs have in common; 0 where a config has others."""
        text = config.get_text_config()

        def number(*names: str) -> int:
            found = (getattr(text, name, None) for name in names)
            return next((value for value in found if isinstance(value, int)), 0)

        hidden, heads = number("hidden_size"), number("num_attention_heads")
        head = number("head_dim") or hidden // max(heads, 1)
        matrix = hidden * number("vocab_size")
        is_tied = bool(getattr(text, "tie_word_embeddings", False))
        return cls(
            weights,
            vocabulary=number("vocab_size"),
            tables=min(matrix * (1 if is_tied else 2), weights),
            is_tied=is_tied,
            cached=2 * number("num_hidden_layers") * (number("num_key_value_heads") or heads) * head,
            widest=max(number("intermediate_size", "ffn_dim", "n_inner") or 4 * hidden, hidden),
            buffer_bytes=buffer_bytes,
        )


def estimated_weights(config: Mapping[str, Any]) -> int:
    """Of a dense decoder with gated layers, by the names that most configs have in common: where it has no files."""
    names = ("hidden_size", "vocab_size", "num_hidden_layers", "intermediate_size")
    hidden, vocabulary, layers, inner = (int(config.get(name) or 0) for name in names)
    heads = config.get("num_attention_heads") or 1
    shared = (config.get("num_key_value_heads") or heads) / heads
    tables = 1 if config.get("tie_word_embeddings") else 2
    return int(tables * vocabulary * hidden + layers * hidden * (2 * hidden * (1 + shared) + 3 * inner))


@dataclass(frozen=True)
class Storage:
    """How an engine stores a model, in bytes for each weight, or number."""

    matrices: float
    """Of weights between the embedding and the output layer, with their scales."""

    tables: float
    """Of the embedding's and the output layer's."""

    output_copy: float = 0.0
    """Of an output layer that is tied to the embedding, where the engine keeps it apart."""

    numbers: int = FLOAT32_BYTES
    """Of what is computed and cached."""

    maps: str = ""
    """The dtype of safetensors files that are mapped in place of copied, as `torch` names it. Empty: of none."""

    has_all_logits: bool = False
    """Whether a prefill makes the logits of every position, and not of the last one alone."""

    loading: float = 0.0
    """Of all weights, what a load takes for a moment beside what it leaves."""

    making: float = 0.0
    """Of all weights, a tied output layer counted for itself, what a process takes at most that makes what is then
    loaded, once. 0: nothing is made."""


UNKNOWN = Storage(6.0, 6.0)
"""Of an engine that says nothing: float32, with half as much again."""


@dataclass(frozen=True)
class Round:
    """The size of a workload."""

    rows: int
    """Prompts at a time."""

    prompt: int
    """Tokens of the longest of them."""

    new: int = 0
    """Tokens that are generated; 0 where every position's logits are asked for, as for a score."""


@dataclass(frozen=True)
class Need:
    """Bytes that a variant takes."""

    held: int = 0
    """Between its turns: by its process, its weights, and its largest round, whose memory it keeps."""

    loading: int = 0
    """For a moment more than it holds later, while it is loaded."""

    scoring: int = 0
    """For a moment more, while it is scored: by one variant at a time."""

    making: int = 0
    """By the process that makes what the variant's own then loads; 0 where nothing is made."""

    mapped: int = 0
    """By the model's files, which all variants share that map them."""

    @property
    def peak(self) -> int:
        """What the variant takes at most once it is made."""
        return self.held + max(self.loading, self.scoring) + self.mapped


NOTHING = Need()
"""Of a variant that can't run here, or whose model a server holds."""


def predict(
    shape: ModelShape, storage: Storage, rounds: Iterable[Round], *, on_cpu: bool = True, stored: str = ""
) -> Need:
    """What a variant takes. rounds: the largest ones; those without new tokens are scores, which give back what they
    take. stored: the dtype of all tensors in the model's safetensors files; empty where they have several."""
    process = PROCESS_BYTES if on_cpu else ACCELERATOR_PROCESS_BYTES
    matrices = shape.weights - shape.tables
    copied = shape.tables if shape.is_tied else 0
    weights = matrices * storage.matrices + shape.tables * storage.tables + copied * storage.output_copy
    taken = [(one, _round_bytes(shape, storage, one)) for one in rounds]
    kept = max((size for one, size in taken if one.new), default=0)
    scored = max((size for one, size in taken if not one.new), default=0)
    mapped = int(weights) if on_cpu and stored and storage.maps == stored else 0
    return Need(
        held=process + int(weights) - mapped + shape.buffer_bytes + kept,
        loading=max(int(shape.weights * storage.loading) - kept, 0),
        scoring=max(scored - kept, 0),
        making=process + int((shape.weights + copied) * storage.making) + shape.buffer_bytes if storage.making else 0,
        mapped=mapped,
    )


def _round_bytes(shape: ModelShape, storage: Storage, one: Round) -> int:
    """Of the cache, the logits and a layer's numbers, during the prefill or at the last step, which have it all."""
    cache = one.rows * (one.prompt + one.new) * shape.cached * storage.numbers if one.new else 0
    positions = one.rows * one.prompt
    layer = positions * shape.widest * storage.numbers * LAYER_COPIES
    is_last_alone = one.new > 0 and not storage.has_all_logits
    logits = one.rows * LOGIT_COPIES + (0 if is_last_alone else positions)
    return cache + layer + logits * shape.vocabulary * FLOAT32_BYTES
