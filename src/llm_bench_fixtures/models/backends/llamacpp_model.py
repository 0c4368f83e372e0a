"""A model that llama.cpp runs: its loop, in which each prompt is a sequence of its own length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from llm_bench_fixtures.errors import WorkloadUnsupported
from llm_bench_fixtures.models.backends.engine_model import EngineModel, OnToken, Shown, unpadded
from llm_bench_fixtures.models.conversion import SHOWN
from llm_bench_fixtures.workloads import Batch

if TYPE_CHECKING:
    from pathlib import Path

    import torch


MOST_SEQUENCES = 256  # in one context
FLOAT32 = 0  # ggml's number for what a cache holds; its default is float16
NO_FLASH_ATTENTION = 0  # flash attention rounds to float16 on a CPU, whatever the cache holds; the default is to use it
CELLS = 256  # a sequence's cache is a multiple of it


def open_model(path: Path, vocabulary: int) -> Any:
    """The engine over a GGUF file, whose weights it reads into memory. vocabulary: the width of its logits."""
    from cyllama.llama import llama_cpp

    class Model(llama_cpp.LlamaModel):  # type: ignore[misc]  # it has no types
        n_vocab = vocabulary  # cyllama 0.2.18 asks its models for it to give logits, and they don't have it

    parameters = llama_cpp.LlamaModelParams()
    parameters.use_mmap = False  # else the first rounds would read the file
    parameters.n_gpu_layers = 0
    return Model(str(path), parameters)


def try_running(path: Path, vocabulary: int, ids: Sequence[int] = (1, 1), *, is_float32: bool = False) -> torch.Tensor:
    """Logits of the last tokens, (1, SHOWN or fewer, V). Raises what cyllama raises where the model doesn't run.

    is_float32: compute in no other type.
    """
    import torch
    from cyllama.llama import llama_cpp

    engine = open_model(path, vocabulary)
    parameters = llama_cpp.LlamaContextParams()
    parameters.n_ctx = -(-len(ids) // CELLS) * CELLS
    if is_float32:
        use_float32(parameters)
    context = llama_cpp.LlamaContext(engine, parameters)
    batch = llama_cpp.LlamaBatch(n_tokens=len(ids), embd=0, n_seq_max=1)
    for position, token in enumerate(ids):
        batch.add(token, position, [0], True)
    context.decode(batch)
    logits = torch.tensor([[context.get_logits_ith(place) for place in range(len(ids))[-SHOWN:]]])
    context.close()
    engine.close()
    return logits


def use_float32(parameters: Any) -> None:
    """Use float32 in a context, for keys and values and what is computed of them."""
    parameters.type_k = parameters.type_v = FLOAT32
    parameters.flash_attn_type = NO_FLASH_ATTENTION


@dataclass(frozen=True)
class Room:
    """What a context has room for."""

    sequences: int
    length: int
    """Tokens of each sequence."""

    tokens: int
    """Tokens that run at once, over all sequences."""

    def holds(self, other: Room) -> bool:
        return self.sequences == other.sequences and self.length >= other.length and self.tokens >= other.tokens


@dataclass(eq=False)
class LlamaCppModel(EngineModel):
    """Runs token ids with llama.cpp. Padding is left out, as sequences of unequal lengths run together."""

    _context: Any = field(default=None, init=False)
    """The engine's cache and buffers, kept for workloads that they have room for."""

    _room: Room = field(default=Room(0, 0, 0), init=False)

    def continued(self, batch: Batch, new_tokens: int, on_token: OnToken, shown: Shown) -> list[list[int]]:
        """As `EngineModel.continued`."""
        import torch
        from cyllama.llama import llama_cpp

        rows = unpadded(batch)
        self._make_room(Room(len(rows), max(map(len, rows)) + new_tokens, sum(map(len, rows))))
        sampler = llama_cpp.LlamaSampler(llama_cpp.LlamaSamplerChainParams())
        sampler.add_greedy()
        places = self._run(rows, [0] * len(rows))
        steps: list[list[int]] = []
        for step in range(new_tokens):
            steps.append([sampler.sample(self._context, place) for place in places])
            if shown is not None:
                shown.append(torch.tensor([self._context.get_logits_ith(place) for place in places]))
            if on_token is not None:
                on_token()
            if step < new_tokens - 1:  # spelled out: with _run a step of 0.24 ms took 5 % longer
                following = llama_cpp.LlamaBatch(n_tokens=len(rows), embd=0, n_seq_max=1)
                for sequence, token in enumerate(steps[-1]):
                    following.add(token, len(rows[sequence]) + step, [sequence], True)
                self._context.decode(following)
                places = list(range(len(rows)))
        return [list(text) for text in zip(*steps, strict=True)]

    def _run(self, rows: Sequence[Sequence[int]], starts: Sequence[int], *, shows_all: bool = False) -> list[int]:
        """Run each row's tokens from its start on; where in the batch its last one is."""
        from cyllama.llama import llama_cpp

        batch = llama_cpp.LlamaBatch(n_tokens=sum(map(len, rows)), embd=0, n_seq_max=1)
        ends, place = [], -1
        for sequence, (row, start) in enumerate(zip(rows, starts, strict=True)):
            last = start + len(row) - 1
            for position, token in enumerate(row, start):
                batch.add(token, position, [sequence], shows_all or position == last)
            place += len(row)
            ends.append(place)
        self._context.decode(batch)
        return ends

    def logits(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """As `Model.logits`; zeros where there is padding."""
        import numpy as np
        import torch

        logits = torch.zeros(*input_ids.shape, self.facts.vocabulary)
        for row, ids in enumerate(unpadded(Batch(input_ids, attention_mask))):
            self._make_room(Room(1, len(ids), len(ids)))
            self._run([ids], [0], shows_all=True)
            for place in range(len(ids)):
                logits[row, place] = torch.from_numpy(np.array(self._context.get_logits_ith(place), dtype=np.float32))
        return logits

    def _make_room(self, needed: Room) -> None:
        """An empty cache with room for so much, of the same number of sequences."""
        if self._context is not None and self._room.holds(needed):
            self._context.kv_cache_clear()
            return
        self.forget_caches()
        self._context, self._room = self._open_context(needed), needed

    def _open_context(self, room: Room) -> Any:
        import torch
        from cyllama.llama import llama_cpp

        if room.sequences > MOST_SEQUENCES:
            raise WorkloadUnsupported(f"llama.cpp runs at most {MOST_SEQUENCES} prompts at a time")
        parameters = llama_cpp.LlamaContextParams()
        parameters.n_seq_max = room.sequences
        parameters.n_ctx = room.sequences * -(-room.length // CELLS) * CELLS
        parameters.n_batch = max(room.tokens, parameters.n_ubatch)
        parameters.n_threads = parameters.n_threads_batch = torch.get_num_threads()
        if self.variant.quantization is None:
            use_float32(parameters)
        return llama_cpp.LlamaContext(self.engine, parameters)

    def forget_caches(self) -> None:
        """As `Model.forget_caches`: the next workload gets a cache that fits."""
        if self._context is not None:
            self._context.close()
        self._context, self._room = None, Room(0, 0, 0)

    def close(self) -> None:
        self.forget_caches()
        self.engine.close()
        super().close()
