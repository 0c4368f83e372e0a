"""FLOPs of one architecture, counted without running the model.

They are those of matrix products, two a multiply-add, as the model's plain ("eager") attention computes them: masked
positions are in them. Of a mixture of experts, those that the positions use are in them. Source:
torch.utils.flop_counter.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from llm_bench_fixtures.errors import first_line
from llm_bench_fixtures.measure.fake_model import FakeModel, PassSize
from llm_bench_fixtures.models.transformers import context_of
from llm_bench_fixtures.workloads import CacheKind, Workload

if TYPE_CHECKING:
    from transformers import PretrainedConfig

MANY_ROWS = 64  # rows for which the law is tried
AHEAD = 4  # times as long a text as is asked for, for which it is tried
FAR_AHEAD = 512  # tokens of such a text at most: some models' fake passes take time for each
_SHARED: dict[str, FlopCounter] = {}  # by the whole config as JSON


@dataclass(frozen=True)
class RoundFlops:
    """FLOPs of one round of a workload."""

    prefill: int
    """FLOPs of the forward passes that give each batch's first token."""
    decode: int
    """FLOPs of all other forward passes."""


class FlopCounter:
    """FLOPs of one architecture, from its config alone, as the fake model's passes take them.

    reason: why this architecture can't be counted; empty where it can.
    """

    def __init__(self, config: PretrainedConfig, trust_remote_code: bool = False) -> None:
        self.model = FakeModel(config, trust_remote_code)
        self._counted: dict[PassSize, int] = {}
        self._lawful: list[PassSize] = []
        self.reason = ""

    def round(self, workload: Workload) -> RoundFlops | None:
        """FLOPs of one round; None where they can't be counted."""
        if self.reason:
            return None
        try:
            return self._round(workload)
        except Exception as error:  # what a model's code raises where it needs values has no narrower base
            self.reason = f"the FLOPs of {self.model.config.model_type} can't be counted: {first_line(error)}"
            return None

    def _round(self, workload: Workload) -> RoundFlops:
        sizes = zip(map(len, workload.groups), workload.widths, workload.new_tokens_by_batch, strict=True)
        largest_first = sorted(sizes, key=lambda size: (size[0], size[1] + size[2]), reverse=True)
        batches = [self._batch(rows, width, tokens - 1, workload.cache) for rows, width, tokens in largest_first]
        return RoundFlops(sum(one.prefill for one in batches), sum(one.decode for one in batches))

    def _batch(self, rows: int, width: int, steps: int, cache: CacheKind) -> RoundFlops:
        """The last new token is in no pass, so the prompt and the others make the longest sequence."""
        longest = width + steps
        self._try_law(rows, longest)
        prefill = self._forward(PassSize(rows, width, steps if cache is CacheKind.STATIC else 0))
        if cache is CacheKind.OFF:
            decode = [self._forward(PassSize(rows, new, 0)) for new in range(width + 1, longest + 1)]
        elif cache is CacheKind.STATIC:  # each pass attends to the whole buffer
            decode = [self._forward(PassSize(rows, 1, longest - 1))] * steps
        else:
            decode = [self._forward(PassSize(rows, 1, cached)) for cached in range(width, longest)]
        return RoundFlops(prefill, sum(decode))

    def _try_law(self, rows: int, longest: int) -> None:
        """Count the largest passes of a batch: if the law holds for them, it does for all others of the batch.

        Larger passes are tried first. If the law holds for those, most later workloads need no count at all.
        """
        largest = _largest(rows, longest)
        if all(map(self._is_lawful, largest)):
            return
        context = context_of(self.model.config.get_text_config())
        ahead = max(longest, min(AHEAD * longest, FAR_AHEAD, context))
        with suppress(Exception):  # nobody has asked for them
            for shape in _largest(max(rows, MANY_ROWS), ahead):
                self._forward(shape)
        for shape in largest:
            self._forward(shape)

    def _is_lawful(self, shape: PassSize) -> bool:
        return any(shape.fits(known) for known in self._lawful)

    def _forward(self, shape: PassSize) -> int:
        """Count by the architecture's formula up to the largest shape where it is known to hold; else run the fake
        model.

        An architecture with a limit (a sliding window) departs from the law where that is reached, and doesn't come
        back; so where the law holds for a shape it holds for all that are smaller.
        """
        if self._is_lawful(shape):
            return self._law(shape)
        if shape not in self._counted:
            self._counted[shape] = self._count(shape)
            if self._counted[shape] == self._law(shape):
                self._lawful.append(shape)
        return self._counted[shape]

    @cached_property
    def _law(self) -> Callable[[PassSize], int]:
        """FLOPs = rows x (a + b x new + c x new x attended): output layer, layers, and attention between two positions.

        Three small counts give a, b and c.
        """
        one, two, one_more = (self._count(PassSize(1, new, cached)) for new, cached in ((1, 0), (2, 0), (1, 1)))
        c = one_more - one
        b = two - one - 3 * c
        a = one - b - c
        return lambda shape: shape.rows * (a + b * shape.new + c * shape.new * (shape.new + shape.cached))

    def _count(self, shape: PassSize) -> int:
        from torch.utils.flop_counter import FlopCounterMode

        with self.model.faking():
            past = self._past(shape) if shape.cached else None
            with FlopCounterMode(display=False) as counter:
                self.model.run(shape, past)
        return int(counter.get_total_flops())

    def _past(self, shape: PassSize) -> object:
        """The cache that `shape` finds. Raises LookupError where the model hands on none."""
        kept = getattr(self.model.prefilled(shape.rows, shape.cached), "past_key_values", None)
        if kept is None:
            raise LookupError("outside of generate it returns no cache, so its decode steps can't be counted")
        return kept


def _largest(rows: int, longest: int) -> tuple[PassSize, PassSize]:
    """The largest passes of a text so long: all of it at once, and its last token."""
    return PassSize(rows, longest, 0), PassSize(rows, 1, longest - 1)


def flop_counter(config: PretrainedConfig, trust_remote_code: bool = False) -> FlopCounter:
    """A counter for the architecture. Sessions of one process share it where transformers' own code computes."""
    if trust_remote_code:  # remote code may have changed
        return FlopCounter(config, trust_remote_code)
    return _SHARED.setdefault(config.to_json_string(use_diff=False), FlopCounter(config))
