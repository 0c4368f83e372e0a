"""What a backend gives of a loaded model: `Model` runs it, `ModelFacts` says what is known of it without running it.

`EngineModel` is the base of models that run in an engine's own loop, which takes rows of token ids and no padding.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from llm_bench_fixtures.models.variants import TOLERANCES, Arithmetic, Precision, Variant
from llm_bench_fixtures.workloads import CacheKind, TokenIds, Tokenizer

if TYPE_CHECKING:
    import torch

    from llm_bench_fixtures.models.device import Device

T = TypeVar("T")
OnToken: TypeAlias = "Callable[[], None] | None"
Rows: TypeAlias = list[list[int]]


@dataclass(frozen=True)
class ModelFacts:
    """Facts of a loaded model that are known without running it: plain values, which another process can send."""

    label: str
    """Label of what actually runs, for people: fallbacks stand in it with their reason."""

    weight_bytes: int | None
    """Bytes of the parameters and buffers, or of the files; a storage that several share counts once. None: not
    known."""

    context_length: int
    """Tokens that fit, prompt and new ones together."""

    vocabulary: int
    """Width of the logits. Token ids are below it."""

    width: int = 0
    """Numbers that stand for a position between two layers: by them a workload is refused that no memory could hold.
    0: not known, and none is refused."""

    configuration: str = ""
    """Description of what runs, whatever was asked for: the same text for fp32 and for an fp16 that fell back to
    float32. Two variants of the same configuration count as identical work. Empty: the variant's id."""

    compute: Precision | None = None
    """The dtype that matrices are multiplied in. None: integers, or no matrices."""

    tolerance: float = TOLERANCES[Arithmetic.FLOAT32]
    """How much float error alone may move a logit when the same text is run in another way, in logit scales.
    `TOLERANCES` has measured ones."""

    weight_bytes_by_device: Mapping[str, int] = field(default_factory=dict)
    """Weight bytes by the place that they lie in, such as "cuda:0", "cpu" and "disk"; empty where nobody asked to
    spread them."""

    weight_bytes_read: int | None = None
    """Bytes of the weights that each forward pass reads, without tables that are only looked up. Of a mixture of
    experts those that one position uses, so that a pass over several may read more. None: not known."""

    weight_bytes_most: int | None = None
    """Bytes of the weights that a forward pass reads whose positions use all experts of a mixture between them. None:
    equal to weight_bytes_read, or not known."""

    cache_kinds: frozenset[CacheKind] = frozenset({CacheKind.DYNAMIC})
    """The caches that the model can generate with. A benchmark of another one is skipped."""

    runs_source: bool = False
    """Whether the transformers model of `--llm-model` runs, in whatever form. If so, prompts are encoded with that
    model's tokenizer and FLOPs are counted from its config. If not, prompts are encoded with `Model.tokenizer`, and
    FLOPs are not known."""

    is_remote: bool = False
    """Whether another program runs the model, a server say: then what this process takes to load, in memory and in
    energy, and the limits of this machine, say nothing of it, and none of that is reported."""

    is_beside: bool = False
    """Whether that other program runs on this machine as far as its address tells, and so may keep cores for a while
    after a round. A server is taken to be here by a loopback address alone: one that is asked by this machine's name is
    not waited for, and one at the far end of a tunnel is."""

    divergence_causes: Mapping[str, str] = field(default_factory=dict)
    """Why the answers depend on how the model is run, where that is known: by "cache", "static cache", "left padding",
    "right padding" and "batch"."""

    quantized_share: float | None = None
    """Share of all weights that are stored in fewer bits. None: not known."""

    notes: tuple[str, ...] = ()
    """Further notes for the report on the variant, a sentence each."""

    resident_before_load_bytes: int = 0
    """Resident memory of the process before the load. 0: `load_variant` measures it."""

    libraries_before_load_bytes: int | None = None
    """Pages of libraries' files among resident_before_load_bytes. None where the system doesn't report it.
    `load_variant` measures it."""

    conversion_s: float | None = None
    """Seconds that making the engine's own form of the model took (exporting, quantizing), whenever it was made. None:
    it has none, or nobody has kept them."""

    load_s: float = 0.0
    """Seconds from the call to a model that is ready, imports and the making of artifacts not counted. Measured by
    `load_variant`."""

    compile_s: float | None = None
    """Seconds that compiling it took, also where its code was kept from then. None: nothing is compiled."""


class Model(Protocol):
    """A loaded model, as a backend returns it. The code that measures calls it and never writes into it.

    A class that names this one as its base need not write `forget_caches` and `close`. One that doesn't, and has
    `__slots__`, needs "__weakref__" among them: what measuring keeps for a model goes when the model goes.
    """

    variant: Variant
    """Variant that was loaded."""

    device: Device
    """Device that it runs on. What `generate` and `logits` are given lies there."""

    facts: ModelFacts

    tokenizer: Tokenizer
    """Tokenizer whose ids `generate` and `logits` take and give. Can be pickled, unless `facts.runs_source`."""

    def generate(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        new_tokens: int,
        cache: CacheKind,
        on_token: OnToken = None,
    ) -> torch.Tensor:
        """The prompts and their greedy continuation: (B, T) int64 in, (B, T + new_tokens) int64 out.

        Each new token is the likeliest one. There are exactly `new_tokens` a row: the token that ends a text is one
        like any other. attention_mask: (B, T) int64, 0 where there is padding. cache: one of `facts.cache_kinds`.
        on_token: called once each time that all rows have a further token.
        """

    def logits(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Next-token logits at each position, without a cache: (B, T) int64 in, (B, T, V) of any float dtype out.

        Padding, where there is some, is on the right; what stands there means nothing.
        """

    def forget_caches(self) -> None:
        """Have the next `generate` run as in a process that has generated nothing yet. Default: nothing is kept."""
        return

    def close(self) -> None:
        """Release the weights. The model can't run afterwards. Default: they go with the object."""


@runtime_checkable
class ShowsLogits(Protocol):
    """A model that can also show the logits behind a continuation. Equivalence is checked for such models only."""

    def generate_with_logits(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, new_tokens: int, cache: CacheKind
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """New tokens as `Model.generate` gives them, and the logits that each was chosen by: (B, new_tokens, V)
        float32.

        It runs as `generate` does, with the same kernels and the same cache: what is compared is what is timed.
        """


@runtime_checkable
class ScoresTokens(Protocol):
    """A model that gives the likelihood of a text's tokens without the logits of the whole vocabulary, as servers do.

    Perplexity and the answers of multiple choice are computed by it; distributions can't be compared.
    """

    def token_log_likelihoods(self, rows: Sequence[TokenIds]) -> Sequence[Sequence[float]]:
        """Log likelihoods of each row's tokens after the first, in nats, each given those before it.

        Raises WorkloadUnsupported with the reason where it can't.
        """


@dataclass(frozen=True)
class Reply:
    """The outcome of one request. Times are `time.perf_counter`'s."""

    sent_s: float
    """When sending it began; connecting, too, is of its time to the first token."""

    first_token_s: float | None = None
    """When the first token was here. None: none came."""

    last_token_s: float | None = None
    tokens: int = 0
    """New ones, as the server counts them."""

    prompt_tokens: int | None = None
    """Tokens of the prompt as the server counts them. None: not reported."""

    cached_tokens: int | None = None
    """Prompt tokens that came from a cache. None: not known."""

    failure: str = ""
    """Why it failed; empty where it didn't."""

    is_clients: bool = False
    """Whether it failed for want of this machine's file descriptors or ports."""


Send: TypeAlias = "Callable[[TokenIds, int], Awaitable[Reply]]"
"""Sends a prompt and asks for so many new tokens. What fails is in the reply."""


@runtime_checkable
class TakesRequests(Protocol):
    """A model that answers several requests at a time, each for itself, as a server does."""

    def run_requests(self, work: Callable[[Send], Coroutine[Any, Any, T]]) -> T:
        """Run the coroutine that `work` makes of a way to send requests, to its end."""


Shown: TypeAlias = "list[torch.Tensor] | None"
"""Gets the logits of each step, (B, V) float32. None: nobody looks at them."""


class BatchCounter:
    """Counts the new tokens of prompts that run together, each at its own pace: calls `on_token` once for each token
    that all rows have."""

    def __init__(self, rows: int, on_token: Callable[[], None]) -> None:
        self._there = [0] * rows
        self._reported = 0
        self._on_token = on_token

    def add(self, row: int) -> None:
        """The row has one more token."""
        self.reach(row, self._there[row] + 1)

    def reach(self, row: int, tokens: int) -> None:
        """The row has so many tokens in all."""
        self._there[row] = tokens
        while self._reported < min(self._there):
            self._reported += 1
            self._on_token()


@dataclass(eq=False)
class EngineModel(Model):
    """Runs token ids in the loop of an engine."""

    variant: Variant
    device: Device
    engine: Any
    """The library's own model. None once this one is closed."""

    tokenizer: Tokenizer
    facts: ModelFacts

    @abstractmethod
    def continued(self, rows: Rows, width: int, new_tokens: int, on_token: OnToken, shown: Shown) -> Rows:
        """New tokens of each row, as `Model.generate` has them. width: of the rows with the padding that they had."""

    def generate(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        new_tokens: int,
        cache: CacheKind,
        on_token: OnToken = None,
    ) -> torch.Tensor:
        """As `Model.generate`; on_token may be called from the thread that computes."""
        rows = unpadded(input_ids, attention_mask)
        return joined(input_ids, self.continued(rows, input_ids.shape[1], new_tokens, on_token, None))

    def generate_with_logits(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, new_tokens: int, cache: CacheKind
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As `ShowsLogits.generate_with_logits`."""
        import torch

        shown: list[torch.Tensor] = []
        rows = unpadded(input_ids, attention_mask)
        output = joined(input_ids, self.continued(rows, input_ids.shape[1], new_tokens, None, shown))
        return output, torch.stack(shown, dim=1)

    def close(self) -> None:
        self.engine = None


def unpadded(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Rows:
    """The tokens of each row, padding left out."""
    return [ids[mask.bool()].tolist() for ids, mask in zip(input_ids, attention_mask, strict=True)]


def joined(input_ids: torch.Tensor, texts: Rows) -> torch.Tensor:
    """Prompts and their new tokens: (B, T + new_tokens) int64."""
    import torch

    return torch.cat([input_ids, torch.tensor(texts, dtype=torch.int64)], dim=1)
