"""What taking each token's time costs the latency: the same `generate` with and without it, alternated."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from llm_bench_fixtures.measure.timing import Clock, TokenClock, batches_of

if TYPE_CHECKING:
    from llm_bench_fixtures.models.model import Model
    from llm_bench_fixtures.workloads import Batch, Workload


def instrumentation_ratios(
    model: Model, workload: Workload, pairs: int, budget_s: float, clock: Clock = time.perf_counter
) -> tuple[float, ...]:
    """Of each pair: seconds of `generate` with its tokens' times taken / seconds without.

    The two run one after the other, either first by a seeded coin, so that a drift of the machine's speed falls on
    both. One pair before them isn't counted; after at least one that is, none begins once `budget_s` seconds are over.
    Only the workload's first batch runs.
    """
    batch = batches_of(model, workload)[0]
    coin = random.Random(0)  # noqa: S311  # an order, not a secret
    ratios: list[float] = []
    until = clock() + budget_s
    while len(ratios) <= pairs and (len(ratios) < 2 or clock() < until):
        order = coin.sample((True, False), 2)
        seconds = {timed: _generate_s(model, workload, batch, clock, timed=timed) for timed in order}
        ratios.append(seconds[True] / seconds[False])
    return tuple(ratios[1:])


def _generate_s(model: Model, workload: Workload, batch: Batch, clock: Clock, *, timed: bool) -> float:
    model.device.synchronize()
    started = clock()
    on_token = None
    if timed:
        ticks = TokenClock(model.device, clock)
        ticks.start()
        on_token = ticks.tick
    model.generate(batch.input_ids, batch.attention_mask, workload.new_tokens, workload.cache, on_token=on_token)
    model.device.synchronize()
    return clock() - started
